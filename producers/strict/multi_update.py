"""Changes of several counters in one transaction: all of them or none.

Each counter gives a leg: what it is to take, and at which items. A counter with bins is asked at
one of them first; if that has no room, all its bins are read as of one moment and its leg is split
over as few as can take it, again while others are faster. The first counter that has no room,
everywhere, refuses the whole.

Any method but `set` may take part, for a joint change leaves what the methods remember as it is:
to `occ` and `history` it is a version in between, which refuses a request that was based on the one
before; `atomic`, `crt` and `marker` ask for room alone. A `set` promises to know its keys for good.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from countledger.ledger import amount
from countledger.ledger.errors import BadSetting, CorruptItem, TooManyCounters
from countledger.ledger.limits import TRANSACTION_ACTIONS
from countledger.producers.strict import bins
from countledger.producers.strict.context import PASSING, StaleDefinition
from countledger.producers.strict.definition import Method
from countledger.producers.strict.outcome import BoundReached, Contended
from countledger.producers.strict.sending import Part, refused_by, update_of
from countledger.producers.strict.spread import read_bins
from countledger.producers.strict.state import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from random import Random

    from countledger.ledger.amount import Amount
    from countledger.ledger.operations import Update
    from countledger.producers.strict.context import MethodContext
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.keyed_write import KeyedWrite, Reasons
    from countledger.producers.strict.outcome import StrictOutcome

# One action of the transaction is the marker.
COUNTERS_MAX: Final = TRANSACTION_ACTIONS - 1
_SPLITS: Final = 10


@dataclass(frozen=True, slots=True)
class Leg:
    """What one counter is to take, and where.

    Attributes:
        definition: of the counter.
        delta: what it takes in all.
        parts: which of its items take how much.
    """

    definition: Definition
    delta: Amount
    parts: tuple[Part, ...]


def legs_of(
    definitions: Sequence[Definition], changes: Mapping[str, Amount], random: Random
) -> list[Leg]:
    """The legs of a change as they are tried first.

    Raises:
        BadSetting: a counter's method takes no part in this.
    """
    for definition in definitions:
        if definition.method is Method.SET:
            raise BadSetting(
                f"counter {definition.counter!r} is of method set, which knows its keys for good; "
                "a key of several changes is remembered for a day: change it alone"
            )
    return [
        Leg(one, delta, (Part(random.choice(one.places), delta),))
        for one in definitions
        for delta in (changes[one.counter],)
    ]


def check_number(changes: Mapping[str, Amount]) -> None:
    """Whether so many counters can be changed at once.

    Raises:
        TooManyCounters: they cannot.
    """
    if not 1 <= len(changes) <= COUNTERS_MAX:
        raise TooManyCounters(
            f"{len(changes)} counters to change at once: one transaction takes 1 to {COUNTERS_MAX}"
        )


def carry_out(context: MethodContext, legs: Sequence[Leg], sending: KeyedWrite) -> StrictOutcome:
    """Bring all legs in, or none: two write units each, and for the marker for each KB.

    Raises:
        StaleDefinition: a counter is not the one that was read, and nothing is in doubt.
    """
    for _ in range(_SPLITS):
        if sum(len(leg.parts) for leg in legs) > COUNTERS_MAX:
            reason = "to be split over bins it needs more items than a transaction takes"
            return sending.confirm_refusal(Contended(sending.request.what, _SPLITS, reason))
        answer = sending.at([write for leg in legs for write in _writes(context, leg, sending)])
        if not isinstance(answer, tuple):
            return answer
        try:
            next_ = _anew(context, legs, answer)
        except StaleDefinition:
            if not sending.attempts.maybe_applied:
                raise
            return sending.unknown()
        except PASSING as error:
            return sending.confirm_refusal(Contended(sending.request.what, 1, str(error)))
        if isinstance(next_, BoundReached):
            return sending.confirm_refusal(next_)
        legs = next_
    busy = "other changes took the room each time before this one could"
    return sending.confirm_refusal(Contended(sending.request.what, _SPLITS, busy))


def _writes(context: MethodContext, leg: Leg, sending: KeyedWrite) -> Iterator[Update]:
    # A counter of method crt shows no time, for its own changes cannot note one.
    now_ms = None if leg.definition.method is Method.CRT else sending.request.at_ms
    for part in leg.parts:
        yield update_of(context.table, leg.definition, part, now_ms)


def _anew(
    context: MethodContext, legs: Sequence[Leg], reasons: Reasons
) -> list[Leg] | BoundReached:
    """The legs split anew where a bin refused; or the refusal of the first counter without room."""
    left = iter(reasons)
    anew: list[Leg] = []
    for leg in legs:
        own = [(part, next(left)) for part in leg.parts]
        refused = next(((part, why.item) for part, why in own if why.condition_failed), None)
        if refused is None:
            anew.append(leg)
            continue
        bound = refused_by(leg.definition, *refused)
        if leg.definition.bins == 1:
            return bound
        parts = _split(context, leg)
        if isinstance(parts, BoundReached):
            return parts
        anew.append(replace(leg, parts=tuple(parts)))
    return anew


def _split(context: MethodContext, leg: Leg) -> list[Part] | BoundReached:
    """A leg over as few bins as can take it, as of one moment: two read units for each bin."""
    states = read_bins(context, leg.definition)
    parts = bins.split(list(zip(leg.definition.places, states, strict=True)), leg.delta)
    if parts is not None:
        return parts
    refused = refusal(leg.definition.counter, bins.whole_of(states), leg.delta)
    if refused is None:
        raise CorruptItem(
            f"strict counter {leg.definition.counter!r}: its bins' rooms contradict their sums"
        )
    return refused


def transfer_of(source: str, target: str, moved: Amount) -> dict[str, Amount]:
    """A transfer as changes.

    Raises:
        BadSetting: from a counter to itself.
    """
    if source == target:
        raise BadSetting(f"a transfer from {source!r} to itself changes nothing")
    return {source: amount.negated(moved), target: moved}
