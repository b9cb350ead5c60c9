"""The change of a total in a stream record of `counters`, and the thresholds that it crosses.

MODIFY of a total                from its old value to its new one; and what is held of it
INSERT of a ledger's total,      from zero
  or of a sequence by a draw
INSERT of a strict counter,      no change: it is created with its opening value
  or of a sequence made first
REMOVE, any other item           no change
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from countledger.consumers.alerts.message import checked_incarnation
from countledger.consumers.alerts.rule import Crossing, Direction, Watch
from countledger.consumers.record import MalformedRecord, created_at_ms, integer_in, subject_of
from countledger.ledger import amount, keys
from countledger.ledger.amount import EXACT
from countledger.ledger.errors import shown
from countledger.ledger.limits import CROSSINGS_MAX, FORMAT, STREAM_RECORD_MAX_AGE_MS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from countledger.consumers.alerts.message import AlertWindow
    from countledger.consumers.alerts.rule import Rule
    from countledger.ledger.amount import Amount

# An attribute of every ledger total, and of no other kind of counter.
_OF_A_LEDGER: Final = "entries"


# The method of a sequence; one that was created before its first draw has `first`.
_SEQUENCE: Final = {"S": "sequence"}


# The limits of a message of an alert: versions that are exact in JSON, and numbers as long as a
# sum of entries, to their last decimal place.
_VERSION_MAX: Final = 2**53
HIGHEST: Final = 10**77
_LOWEST: Final = -HIGHEST
_LAST_PLACE: Final = -38
_NOTHING_HELD: Final = (0, 0)


class TotalChange(NamedTuple):
    """One update that changed a total; each update of a counter has a higher version.

    `at_ms` is when the stream made the record, in whole seconds. `held` is what open holds reserved
    before and after the update. Of a sum of a window, `window` says of which. `incarnation` says
    which total of that name it is, if the item names one.
    """

    sequence: int
    counter: str
    old: Amount
    new: Amount
    version: int
    at_ms: int
    held: tuple[Amount, Amount] = (0, 0)
    window: AlertWindow | None = None
    incarnation: str | None = None

    def seen_by(self, rule: Rule) -> TotalChange:
        """The change of what a rule watches; of what is available, without what is held."""
        if rule.of is Watch.VALUE or not any(self.held):
            return self
        old, new = (
            amount.add(total, amount.negated(held))
            for total, held in zip((self.old, self.new), self.held, strict=True)
        )
        return self._replace(old=old, new=new, held=(0, 0))

    @property
    def is_first(self) -> bool:
        """Whether it is the first of its total: versions of ledgers and sequences begin with 1."""
        return self.version == 1


def total_change_of(record: Mapping[str, Any], sequence: int, now_ms: int) -> TotalChange | None:
    """The change in a record, or None if neither a total nor what is held of it changed.

    A record that is older than the stream keeps records is malformed: the revisions of rules that
    evaluated it may be gone.
    """
    counter, part, name = subject_of(record, "part")
    # A strict counter may be called `total`; its place in the directory has a `#` before it.
    if part != keys.TOTAL or "#" in counter or name == "REMOVE":
        return None
    if name not in ("INSERT", "MODIFY"):
        raise MalformedRecord(f"the event name {name!r} is unknown")
    stream = record["dynamodb"]
    new = image_in(stream, "NewImage")
    if "bins" in new or (name == "INSERT" and _is_being_made(new)):
        return None
    old: Mapping[str, Any] = {} if name == "INSERT" else image_in(stream, "OldImage")
    before = total_in(old) if old else 0
    after = total_in(new)
    held = (_held(old), _held(new)) if "held" in old or "held" in new else _NOTHING_HELD
    if before == after and held[0] == held[1]:
        return None
    at_ms = created_at_ms(record)
    if is_too_old(at_ms, now_ms):
        raise MalformedRecord("the record is older than a stream keeps records")
    version, incarnation = version_in(new), _incarnation_in(new)
    return TotalChange(
        sequence, counter, before, after, version, at_ms, held, incarnation=incarnation
    )


def _is_being_made(new: Mapping[str, Any]) -> bool:
    """Whether an item that was not there before opens with its value, rather than changes to it."""
    if _OF_A_LEDGER in new:
        return False
    return new.get("method") != _SEQUENCE or "first" in new


def image_in(stream: Mapping[str, Any], which: str) -> Mapping[str, Any]:
    """The item before or after the update, as the stream writes it."""
    image = stream.get(which)
    if not isinstance(image, dict):
        raise MalformedRecord(f"the record has no {which}")
    if "v" in image and image["v"] != {"N": str(FORMAT)}:
        raise MalformedRecord(f"the {which} has format {image['v']}; this release reads {FORMAT}")
    return image


def is_publishable(total: Amount, version: int = 0) -> bool:
    """Whether a message can contain a total and its version; not if they were set by hand."""
    if not 0 <= version < _VERSION_MAX or not _LOWEST < total < HIGHEST:
        return False
    return isinstance(total, int) or int(total.as_tuple().exponent) >= _LAST_PLACE


def is_too_old(at_ms: int, now_ms: int) -> bool:
    """Whether the rules of a record's time may be gone."""
    return now_ms - at_ms > STREAM_RECORD_MAX_AGE_MS


def total_in(image: Mapping[str, Any], name: str = "total") -> Amount:
    """A total (or the sum of a window, by its attribute) that a message can contain."""
    try:
        total = amount.from_number(image[name]["N"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise MalformedRecord(f"an image has no well-formed {name}") from None
    # Nearly all are integers, and every record has two.
    if not ((type(total) is int and _LOWEST < total < HIGHEST) or is_publishable(total)):
        raise MalformedRecord(f"no message of an alert holds a total of {shown(image[name]['N'])}")
    return total


def _held(image: Mapping[str, Any]) -> Amount:
    if "held" not in image:
        return 0
    try:
        return amount.from_number(image["held"]["N"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise MalformedRecord("an image has no well-formed held amount") from None


def _incarnation_in(image: Mapping[str, Any]) -> str | None:
    try:
        return checked_incarnation(image["incarnation"]["S"]) if "incarnation" in image else None
    except (KeyError, TypeError, ValueError):
        raise MalformedRecord("the image has no well-formed incarnation") from None


def version_in(image: Mapping[str, Any]) -> int:
    try:
        version = integer_in(image["version"])
    except (KeyError, TypeError, ValueError):
        raise MalformedRecord("the image has no well-formed version") from None
    if not 0 < version < _VERSION_MAX:
        raise MalformedRecord(f"the version {version} is out of range")
    return version


def direction_of(old: Amount, new: Amount) -> Direction:
    return Direction.RISING if new > old else Direction.FALLING


def crossings(old: Amount, new: Amount, rule: Rule) -> tuple[Crossing, ...]:
    """The crossings of an update of a total from `old` to `new`, in order.

    It does not look whether the rule is armed.

        rising     old < threshold <= new
        falling    old > threshold >= new
        step       thresholds are threshold, threshold + step, threshold + 2 steps, ...; a falling
                   rule counts its steps downwards

    More than `CROSSINGS_MAX` crossings in one update become one, with the whole range.
    """
    way = direction_of(old, new)
    if old == new or rule.direction not in (way, Direction.BOTH):
        return ()
    if rule.step is None:
        return (Crossing(rule.threshold),) if _passes(old, new, rule.threshold) else ()
    first, last = _steps(old, new, rule, rule.step)
    count = last - first + 1
    if count < 1:
        return ()
    if way is Direction.FALLING and rule.direction is Direction.BOTH:
        first, last = last, first
    if count > CROSSINGS_MAX:
        return (Crossing(_level(rule, first), _level(rule, last), count),)
    one = 1 if last >= first else -1
    return tuple(Crossing(_level(rule, n)) for n in range(first, last + one, one))


def is_beyond(total: Amount, rule: Rule) -> bool:
    """Whether a total is at or beyond the threshold of a rule."""
    if rule.direction is Direction.FALLING:
        return total <= rule.threshold
    return total >= rule.threshold


def is_back(total: Amount, rule: Rule) -> bool:
    """Whether a total is at or beyond the re-arm level; without one, always."""
    if rule.rearm is None:
        return True
    if rule.direction is Direction.FALLING:
        return total >= rule.rearm
    return total <= rule.rearm


def last_passed(total: Amount, rule: Rule) -> Crossing | None:
    """The last threshold that a total is at or beyond, if any; with a step the last one passed."""
    if not is_beyond(total, rule):
        return None
    if rule.step is None:
        return Crossing(rule.threshold)
    far = Fraction(total) - Fraction(rule.threshold)
    return Crossing(_level(rule, int(abs(far) // Fraction(rule.step))))


def _passes(old: Amount, new: Amount, threshold: Amount) -> bool:
    return old < threshold <= new or old > threshold >= new


def _steps(old: Amount, new: Amount, rule: Rule, step: Amount) -> tuple[int, int]:
    """The numbers of the first and last step in the update, the lower one first; 0 or more each.

    Of a falling rule they count downwards, so its world is looked at upside down.
    """
    sign = -1 if rule.direction is Direction.FALLING else 1
    start = Fraction(old) - Fraction(rule.threshold)
    end = Fraction(new) - Fraction(rule.threshold)
    start, end = sign * start / Fraction(step), sign * end / Fraction(step)
    if end > start:  # start < n <= end
        return max(0, start.__floor__() + 1), end.__floor__()
    return max(0, end.__ceil__()), start.__ceil__() - 1  # start > n >= end


def _level(rule: Rule, number: int) -> Amount:
    step = rule.step or 0
    if rule.direction is Direction.FALLING:
        step = amount.negated(step)
    if isinstance(step, int):
        return amount.add(rule.threshold, number * step)
    return amount.add(rule.threshold, amount.canonical(EXACT.multiply(step, number)))
