"""Which levels a total passes that goes from one value to another: told by a walk."""

from typing import Final, NamedTuple

_BY_FOOT: Final = 1_000
_ONE_BY_ONE: Final = 100


class Levels(NamedTuple):
    """What a rule looks at."""

    threshold: int
    direction: str
    step: int | None
    rearm: int | None


class Passed(NamedTuple):
    """A level, or the first and last of so many that they are told as one."""

    threshold: int
    through: int | None
    many: int


def crossed(old: int, new: int, levels: Levels) -> list[Passed]:
    """The levels in the order in which the total passes them."""
    up = new > old
    if old == new or levels.direction == ("falling" if up else "rising"):
        return []
    if levels.step is not None and abs(new - old) > _BY_FOOT:
        return _by_leaps(old, new, levels, levels.step)
    found = _by_foot(old, new, levels)
    if len(found) > _ONE_BY_ONE:
        return [Passed(found[0], found[-1], len(found))]
    return [Passed(one, None, 1) for one in found]


def _by_foot(old: int, new: int, levels: Levels) -> list[int]:
    """One number after the other: rising it reaches each; falling it leaves a level behind it."""
    pace = 1 if new > old else -1
    if levels.step is None:
        return [levels.threshold] if levels.threshold in range(old + pace, new + pace, pace) else []
    return [at for at in range(old + pace, new + pace, pace) if _is_level(at, levels.step, levels)]


def _is_level(at: int, step: int, levels: Levels) -> bool:
    far = at - levels.threshold
    if levels.direction == "falling":
        far = -far
    return far >= 0 and far % step == 0


def _by_leaps(old: int, new: int, levels: Levels, step: int) -> list[Passed]:
    """The same of numbers too far apart to walk: the nearest level ahead, the last one, and all."""
    up = new > old
    pace = step if up else -step
    first = levels.threshold + (old - levels.threshold) // step * step
    last = levels.threshold + (new - levels.threshold) // step * step
    if up:
        first += step
    else:
        first -= step if first == old else 0
        last += step if last != new else 0
    if levels.direction == "falling":
        first = min(first, levels.threshold)
    elif up:
        first = max(first, levels.threshold)
    else:
        last = max(last, levels.threshold)
    count = (last - first) // pace + 1
    if count < 1:
        return []
    if count > _ONE_BY_ONE:
        return [Passed(first, last, count)]
    return [Passed(first + number * pace, None, 1) for number in range(count)]


def is_back(total: int, levels: Levels) -> bool:
    """Whether a total arms a rule again."""
    if levels.rearm is None:
        return True
    return total >= levels.rearm if levels.direction == "falling" else total <= levels.rearm


def last_passed(total: int, levels: Levels) -> int | None:
    """The level that a total has reached, coming from far off; None: none."""
    far = levels.threshold - total if levels.direction == "falling" else total - levels.threshold
    if far < 0:
        return None
    back = far % levels.step if levels.step is not None else far
    return total + back if levels.direction == "falling" else total - back
