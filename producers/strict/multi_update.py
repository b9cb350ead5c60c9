"""Changes of several counters in one transaction, and a counter set to a value.

Each counter of a change has a leg: what it takes, and at which items. A counter with bins tries one
of them first; if that refuses, all its bins are read as of one moment and its leg is split over as
few as have the headroom, again while others are faster. If a counter has not enough headroom in
all its bins together, it refuses the whole change.

Every method but `set` may take part: a change of several counters leaves what the methods remember
as it is. For `occ` and `history` it is a version in between, which refuses a request that was based
on the one before; `atomic`, `request_token` and `marker` need only the headroom. A `set`
promises to know its keys for ever.

A counter is set to a value by writing it on condition that no change came in since it was read; if
one did, it is read again. So the counter was at that value at that moment, no unread change was
overwritten, and later changes count from there. With bins, value and headroom are dealt again over
all of them in the same transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from countledger.ledger import amount
from countledger.ledger.attempts import Again, Done, Recheck, Reply, Send, attempt, otherwise
from countledger.ledger.errors import (
    BadBounds,
    BadSetting,
    CountledgerError,
    Throttled,
    TooManyCounters,
)
from countledger.ledger.limits import TRANSACTION_ACTIONS
from countledger.ledger.operations import Add, Assign, Compare, Update
from countledger.producers.strict.change import refusal, refused_by, update_of
from countledger.producers.strict.definition import (
    Bounds,
    Method,
    Part,
    StaleDefinition,
    deal_state,
    encode_state,
    of,
    whole_of,
)
from countledger.producers.strict.outcome import BoundReached, Contended
from countledger.producers.strict.reader import read_of, split_over_bins, states_of
from countledger.producers.strict.release import Releases

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from random import Random

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Exhausted, Steps, Verdict
    from countledger.ledger.attributes import Item
    from countledger.producers.strict.change import MethodContext
    from countledger.producers.strict.definition import Definition, StrictState
    from countledger.producers.strict.keyed_write import KeyedWrite, Reasons
    from countledger.producers.strict.outcome import StrictOutcome

# One action of the transaction is the marker.
COUNTERS_MAX: Final = TRANSACTION_ACTIONS - 1
_SPLITS: Final = 10
_MOVED: Final = ("total", "headroom_up", "headroom_down")
_DEALT: Final = ("lower", "upper")


@dataclass(frozen=True, slots=True)
class Leg:
    """What one counter takes, and where.

    Attributes:
        definition: of the counter.
        delta: what it takes in total.
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
                f"counter {definition.counter!r} is of method set, which knows its keys for ever; "
                "a key of several changes is remembered for a day: change it alone"
            )
    return [
        Leg(one, delta, (Part(random.choice(one.places), delta),))
        for one in definitions
        for delta in (changes[one.counter],)
    ]


def check_number(changes: Mapping[str, Amount]) -> None:
    """Check that one transaction can change so many counters.

    Raises:
        TooManyCounters: it cannot.
    """
    if not 1 <= len(changes) <= COUNTERS_MAX:
        raise TooManyCounters(
            f"{len(changes)} counters to change: one transaction takes 1 to {COUNTERS_MAX}"
        )


def transfer_of(source: str, target: str, moved: Amount) -> dict[str, Amount]:
    """A transfer as changes.

    Raises:
        BadSetting: from a counter to itself.
    """
    if source == target:
        raise BadSetting(f"a transfer from {source!r} to itself changes nothing")
    return {source: amount.negated(moved), target: moved}


def apply_legs(
    context: MethodContext, legs: Sequence[Leg], write: KeyedWrite
) -> Steps[StrictOutcome]:
    """Apply all legs, or none: two write units each, and for the marker for each KB.

    Each round is another plan from another reading, with the attempts of the same call. Expired
    holds of a counter that refuses are released first.

    Raises:
        StaleDefinition: a counter was deleted or recreated, and no request may be applied.
    """
    what, releases, splits = write.request.what, Releases(context), 0
    while splits < _SPLITS:
        if sum(len(leg.parts) for leg in legs) > COUNTERS_MAX:
            reason = "the split over its bins needs more items than a transaction takes"
            return (yield from write.confirm_refusal(Contended(what, _SPLITS, reason)))
        answer = yield from write.at([one for leg in legs for one in _writes(context, leg, write)])
        if not isinstance(answer, tuple):
            return answer
        try:
            following = yield from _split_again(context, legs, answer)
            if isinstance(following, BoundReached):
                refused = following.counter
                refusing = next(leg for leg in legs if leg.definition.counter == refused)
                if (yield from releases.for_refused(refusing.definition, following)):
                    continue
                return (yield from write.confirm_refusal(following))
        except StaleDefinition:
            return write.stale()
        except Throttled as error:
            return (
                yield from write.confirm_refusal(
                    Contended(what, max(releases.waits, 1), str(error))
                )
            )
        splits += 1
        legs = following
    busy = "other changes took the headroom each time before this one could"
    return (yield from write.confirm_refusal(Contended(what, _SPLITS, busy)))


def _writes(context: MethodContext, leg: Leg, write: KeyedWrite) -> Iterator[Update]:
    # A counter of method request_token has no time, because its own changes cannot store one.
    now_ms = None if leg.definition.method is Method.REQUEST_TOKEN else write.request.at_ms
    for part in leg.parts:
        yield update_of(context.table, leg.definition, part, now_ms)


def _split_again(
    context: MethodContext, legs: Sequence[Leg], reasons: Reasons
) -> Steps[list[Leg] | BoundReached]:
    """The legs, split again where a bin refused; or the first refusal of a whole counter."""
    left = iter(reasons)
    following: list[Leg] = []
    for leg in legs:
        own = [(part, next(left)) for part in leg.parts]
        refused = next(((part, why.item) for part, why in own if why.condition_failed), None)
        if refused is None:
            following.append(leg)
            continue
        bound = refused_by(leg.definition, *refused)
        if leg.definition.bins == 1:
            return bound
        parts = yield from split_over_bins(context, leg.definition, leg.delta)
        if isinstance(parts, BoundReached):
            return parts
        following.append(replace(leg, parts=tuple(parts)))
    return following


def plan_value(
    table: str,
    definition: Definition,
    states: Sequence[StrictState],
    value: Amount,
    now_ms: int | None,
) -> list[Update]:
    """The writes that set a counter to a value, if it is still as it was read."""
    wanted = replace(whole_of(states), total=value)
    held = [state.held for state in states]
    shares = [wanted] if definition.bins == 1 else deal_state(wanted, definition.bins, held)
    names = _MOVED if definition.bins == 1 else _MOVED + _DEALT
    stamp = () if now_ms is None else (Assign("updated_at", now_ms),)
    writes = []
    for place, read, share in zip(definition.places, states, shares, strict=True):
        item = encode_state(share)
        moved = (Assign(name, item[name]) for name in names if item[name] is not None)
        unmoved = of(read.incarnation, Compare("version", "=", read.version))
        writes.append(Update(table, place, (*moved, *stamp, Add("version", 1)), unmoved))
    return writes


_BUSY: Final = Throttled("others changed the counter each time before it could be set")


@dataclass(frozen=True, slots=True)
class ExactWrite:
    """Sets a counter to a value.

    Two write units for each KB of each item, two for the marker; and the reading. The state of an
    attempt is the planned request, or None to read the counter.
    """

    definition: Definition
    value: Amount
    write: KeyedWrite

    def apply(self) -> Steps[StrictOutcome]:
        """Set it.

        Raises:
            BadBounds: value and bounds are further apart than a number can hold.
            StaleDefinition: the counter was deleted or recreated, and no request may be applied.
        """
        releases = Releases(self.write.context)
        try:
            ended = yield from self._attempt()
            ended = yield from releases.again(self.definition, ended, self._attempt)
        except BadBounds as error:
            return (yield from self._unless_set(error))
        if isinstance(ended, dict):
            return (yield from self.write.meaning_of(ended))
        if isinstance(ended, BoundReached | Contended):
            return (yield from self.write.confirm_refusal(ended))
        return ended

    def _unless_set(self, error: BadBounds) -> Steps[StrictOutcome]:
        """The outcome of a request that got no answer; the error if none can be applied any more.

        Raises:
            BadBounds: the counter was not set.
        """
        if not self.write.attempts.maybe_applied:
            raise error
        refused = Contended(self.definition.counter, self.write.attempts.made, str(error))
        ended = yield from self.write.confirm_refusal(refused)
        if ended is refused:
            raise error
        return ended

    def _attempt(self) -> Steps[StrictOutcome | Item]:
        return attempt(None, self._request, self._interpret, self._give_up, self.write.attempts)

    def _request(self, planned: Send | None) -> Send:
        return planned or Send(read_of(self.write.context, self.definition))

    def _interpret(self, reply: Reply[Send | None]) -> Verdict[Send | None, StrictOutcome | Item]:
        if reply.state is None:
            if isinstance(reply.answer, CountledgerError):
                return otherwise(reply)
            return self._from_reading(reply.answer)
        verdict = self.write.interpret(reply)
        if not isinstance(verdict, Done):
            return verdict
        if not isinstance(verdict.value, tuple):
            return Done(verdict.value)
        failed = [reason.item for reason in verdict.value if reason.condition_failed]
        if not all(self.definition.is_of(item) for item in failed):
            return Done(self.write.stale())
        return Again(None, _BUSY)

    def _from_reading(
        self, answer: Item | Sequence[Item | None] | None
    ) -> Verdict[Send | None, StrictOutcome | Item]:
        try:
            states = states_of(self.definition, answer)
        except StaleDefinition:
            return Done(self.write.stale())
        whole = whole_of(states)
        delta = amount.add(self.value, amount.negated(whole.total))
        refused = refusal(self.definition.counter, whole, delta)
        if refused is not None:
            return Done(refused)
        Bounds(whole.lower, whole.upper).check_inside(self.value, held=whole.held)
        now_ms = (
            None if self.definition.method is Method.REQUEST_TOKEN else self.write.request.at_ms
        )
        table = self.write.context.table
        writes = plan_value(table, self.definition, states, self.value, now_ms)
        return Recheck(self.write.send(writes))

    def _give_up(self, exhausted: Exhausted[Send | None]) -> StrictOutcome:
        if exhausted.state is None or exhausted.error is _BUSY:
            return Contended(self.definition.counter, exhausted.attempts, str(exhausted.error))
        return self.write.give_up(exhausted)
