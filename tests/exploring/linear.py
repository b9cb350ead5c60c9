"""Whether answers are those of one order of the calls (Wing and Gong's search).

Each call must seem to happen at one moment between its begin and its answer. A call without a clear
answer may have happened at any later moment within its bound, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from countledger.ledger.errors import ServiceFailed, Throttled, Unclear

if TYPE_CHECKING:
    from tests.exploring.search import Situation, Start


class Died:
    """The answer of a call whose process died."""

    def __repr__(self) -> str:
        """As it is shown."""
        return "died"


DIED: Final = Died()


class Certainty(StrEnum):
    """What an answer says about whether the call had its effect."""

    SURE = "sure"
    MAYBE = "maybe"
    NONE = "none"


def certainty_of(answer: object) -> Certainty:
    """What most answers say."""
    if isinstance(answer, Died | Unclear):
        return Certainty.MAYBE
    return Certainty.NONE if isinstance(answer, Throttled) else Certainty.SURE


def never(_answer: object) -> bool:
    """No answer says so: the call ended without one."""
    return False


def is_number(answer: object) -> bool:
    """How many of one item the call has met, or written: another call may have been faster."""
    return answer in (0, 1)


def certainty_of_several(answer: object) -> Certainty:
    """What answers of calls say that write several items: an error may meet the second one."""
    return Certainty.MAYBE if isinstance(answer, ServiceFailed) else certainty_of(answer)


class Masked(NamedTuple):
    """Behaviour that a search must not report, because the guide documents it.

    Attributes:
        name: for tables.
        document: the file in docs/ that documents it.
        sentence: what it says, with single spaces.
    """

    name: str
    document: str
    sentence: str


class Effect(NamedTuple):
    """What a call may do to the state of a model.

    Attributes:
        answer: an equal answer, the type of an error, or a function that accepts the answer.
        after: the state of the model.
        masked: allowed only because of this; None: it is what the call is for.
    """

    answer: object
    after: Any
    masked: Masked | None = None


# The effects that a call may have in a state of the model; which actor calls is the last argument.
Model: TypeAlias = Callable[[Any, str], Iterable[Effect]]


@dataclass(frozen=True, slots=True)
class Called:
    """A call of a schedule.

    Attributes:
        actor: whose.
        place: among the calls of the actor.
        call: its name.
        answer: or `DIED`.
        certainty: what the answer says.
        start: when it began.
        until_ms: when it had ended; without a clear answer, the last moment of its effect.
        masked: documents that it may happen at all; None: the caller has made it.
    """

    actor: int
    place: int
    call: str
    answer: object
    certainty: Certainty
    start: Start
    until_ms: int
    masked: Masked | None = None

    def is_before(self, other: Called) -> bool:
        """Whether it had ended when the other one began."""
        if self.actor == other.actor and self.answer is not DIED:
            ended = self.place < other.place
        else:
            ended = self.answer is not DIED and other.start.told[self.actor] > self.place
        if self.certainty is Certainty.SURE:
            return ended
        return self.until_ms < other.start.at_ms


def calls_of(
    state: Situation, certainty: Callable[[object], Certainty], life_ms: int
) -> Iterator[Called]:
    """The calls that actors have begun."""
    for actor, (place, starts) in enumerate(zip(state.places, state.starts, strict=True)):
        for number, start in enumerate(starts):
            if number < len(place.told):
                call, answer, at_ms = place.told[number]
            else:
                call, answer, at_ms = place.call, DIED, place.at_ms
            sure = certainty(answer)
            bound_ms = 0 if sure is Certainty.SURE else life_ms
            yield Called(actor, number, call, answer, sure, start, at_ms + bound_ms)


def order_of(
    calls: Sequence[Called],
    model: Model,
    begin: object,
    agrees: Callable[[Any], bool],
    *,
    masks: bool = True,
) -> frozenset[Masked] | None:
    """Find an order of the calls that gives their answers, and ends in what the tables show.

    Args:
        calls: of one schedule.
        model: says what a call does.
        begin: the first state of the model.
        agrees: whether a state of the model is what the tables show at the end.
        masks: whether documented exceptions are allowed.

    Returns:
        The exceptions that it needs; None: there is no such order.
    """
    todo = [one for one in calls if one.certainty is not Certainty.NONE]
    sure = sum(1 << n for n, one in enumerate(todo) if one.certainty is Certainty.SURE)
    earlier = [_those([one.is_before(it) for one in todo]) & sure for it in todo]
    later = [_those([it.is_before(one) for one in todo]) for it in todo]
    seen: set[tuple[int, object]] = set()
    left: list[tuple[int, Any, frozenset[Masked]]] = [(0, begin, frozenset())]
    while left:
        done, state, used = left.pop()
        if (done, state) in seen:
            continue
        seen.add((done, state))
        if done & sure == sure and agrees(state):
            return used
        for number, one in enumerate(todo):
            # All that had ended before must be done; what began after its last moment must not.
            if done >> number & 1 or earlier[number] & ~done or later[number] & done:
                continue
            for effect in model(state, one.call):
                needed = used | {masked for masked in (effect.masked, one.masked) if masked}
                if needed and not masks:
                    continue
                if one.certainty is Certainty.MAYBE or _fits(effect.answer, one.answer):
                    left.append((done | 1 << number, effect.after, needed))
    return None


def _those(chosen: Iterable[bool]) -> int:
    """The numbers of those that are chosen, as bits."""
    return sum(1 << number for number, one in enumerate(chosen) if one)


def _fits(expected: object, answer: object) -> bool:
    if isinstance(expected, type):
        return isinstance(answer, expected)
    if callable(expected):
        return bool(expected(answer))
    return type(expected) is type(answer) and expected == answer
