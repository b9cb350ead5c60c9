"""Method `marker`: the change and a marker of it in one transaction. Four write units.

The marker lies where the key alone says, whichever bin the change goes to; it is put only where
there is none of this incarnation of the counter. It carries the delta, the time, the note, and
which call made it, and expires after the counter's window (time to live; a marker that is still
there counts). A cancelled transaction is read by its reasons, the marker's first: the change itself
may be what used up the headroom:

    marker there, same call           applied, by a request of this call that got no answer
    marker there, same delta          duplicate
    marker there, other delta         the key was used for another change
    marker there, void                given up
    no marker, condition failed       no room, as of now; the marker is looked for once more
    conflict, throttle                not applied: sent again
    no answer                         sent again: the marker will tell

What it cannot know: a key that comes again after its window. A key with a time is refused then; a
bare one counts again.

That a cancelled transaction names every condition that failed, and not the first one alone, is
nowhere promised. So "no room" is not said before the marker was looked for by itself, with a
consistent read: one read unit, on refusals alone.

"No room" is not final while a request of this call got no answer: it may still land, and find room.
Then a void marker is put in its way. If that finds the marker, the request has landed meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.errors import CountledgerError, TransactionCancelled
from countledger.ledger.expressions import Absent, AnyOf, Compare
from countledger.ledger.limits import MARKER_WINDOW_DEFAULT_MS, SECOND_MS
from countledger.ledger.operations import Check, Put
from countledger.producers.strict.context import (
    PASSING,
    POLICY,
    Attempts,
    MethodContext,
    RetryPeriodOver,
    StaleDefinition,
)
from countledger.producers.strict.outcome import Applied, BoundReached, Duplicate, Withdrawn
from countledger.producers.strict.sending import refused_among, update_of
from countledger.producers.strict.state import of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item
    from countledger.ledger.errors import Reason
    from countledger.producers.strict.change import StrictChange
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.outcome import Refusal, StrictOutcome
    from countledger.producers.strict.sending import Part

_ADVICE: Final = (
    "no attempt got a clear answer: repeat the change with the same key within the counter's "
    "window, it cannot count twice; or give the key up, which tells whether it counted"
)


def window_ms(definition: Definition) -> int:
    """For how long a key is remembered."""
    return definition.window_ms or MARKER_WINDOW_DEFAULT_MS


def put_marker(context: MethodContext, definition: Definition, change_id: str, facts: Item) -> Put:
    """The write of a marker, where there is none of this incarnation of the counter."""
    now_ms = context.clock.now_ms()
    life_ms = window_ms(definition) + context.clock_skew_ms
    item = {
        **keys.marker_key(definition.counter, definition.bins, change_id),
        "incarnation": definition.incarnation,
        **facts,
        "at": now_ms,
        "expires_at": -(-(now_ms + life_ms) // SECOND_MS),
    }
    return Put(
        context.table,
        item,
        AnyOf(Absent("part"), Compare("incarnation", "<>", definition.incarnation)),
    )


@dataclass(slots=True)
class MarkerChange:
    """A change on its way by method marker."""

    context: MethodContext
    definition: Definition
    change: StrictChange
    attempts: Attempts
    marker: Put
    call: str

    @classmethod
    def begin(
        cls, context: MethodContext, definition: Definition, change: StrictChange
    ) -> MarkerChange:
        """Nothing sent yet.

        Raises:
            KeyExpired, ClockSkew: its key was made too long ago, or lies ahead.
        """
        change.check_age(context.clock.now_ms(), window_ms(definition), context.clock_skew_ms)
        until_ms = change.remembered_until(window_ms(definition))
        attempts = Attempts(context, POLICY, _ADVICE, until_ms=until_ms)
        call = context.new_id(change.at_ms)
        facts = {"delta": change.delta, "call": call, "key": change.key, "note": change.note}
        marker = put_marker(context, definition, change.id, facts)
        return cls(context, definition, change, attempts, marker, call)

    def at(self, parts: Sequence[Part]) -> StrictOutcome:
        """Bring it in at these items: two write units each and two for the marker; one read unit.

        Raises:
            IdempotencyKeyReused: the key was used with another delta.
            StaleDefinition: the counter is not the one that was read.
        """
        updates = [
            update_of(self.context.table, self.definition, part, self.change.at_ms)
            for part in parts
        ]
        token = self.context.new_id(self.change.at_ms)
        while True:
            failure: CountledgerError
            try:
                with self.attempts.sending():
                    self.context.dynamo.transact([self.marker, *updates], token)
            except RetryPeriodOver as late:
                return self.attempts.end(self.change.counter, late)
            except TransactionCancelled as cancelled:
                outcome = self._cancelled(parts, cancelled.reasons)
                if outcome is not None:
                    return outcome
                failure = cancelled
            except PASSING as error:
                failure = error
            else:
                return Applied(self.change.counter, self._value())
            if not self.attempts.again(failure):
                return self.attempts.end(self.change.counter, failure)

    def confirm_refusal(self, refused: Refusal) -> StrictOutcome:
        """Look for the marker, which the reasons may have kept to themselves: one read unit.

        Where a request may still land, put a void marker in its way instead: four write units.
        """
        if not self.attempts.maybe_applied:
            return self._refused(refused)
        until_ms = self.attempts.until_ms
        fence = partial(withdraw, self.context, self.definition, self.change.id, until_ms)
        ended = self.attempts.fenced(self.change.counter, fence)
        if isinstance(ended, Withdrawn):
            return refused
        if isinstance(ended, Duplicate):
            return Applied(self.change.counter, self._value())
        # The way could not be closed: the old request may still land.
        return self.attempts.unknown(self.change.counter)

    def _cancelled(self, parts: Sequence[Part], reasons: Sequence[Reason]) -> StrictOutcome | None:
        """What a cancelled transaction says; None: nothing yet, try again."""
        marker, *others = reasons
        if marker.condition_failed and marker.item is not None:
            return self._marked(marker.item)
        if marker.passing:
            return None
        try:
            return refused_among(self.definition, parts, others)
        except StaleDefinition:
            if not self.attempts.maybe_applied:
                raise
            return self.attempts.unknown(self.change.counter)

    def _refused(self, refused: Refusal) -> StrictOutcome:
        if not isinstance(refused, BoundReached):
            return refused
        key = {name: self.marker.item[name] for name in ("counter", "part")}
        try:
            marker = self.context.reads.get(self.context.table, key, consistent=True)
        except PASSING:
            return self.attempts.unknown(self.change.counter)
        if marker is None or marker.get("incarnation") != self.definition.incarnation:
            return refused
        return self._marked(marker)

    def _marked(self, marker: Item) -> StrictOutcome:
        """What a marker that is there says of this change."""
        if marker.get("call") == self.call:
            return Applied(self.change.counter, self._value())
        # Of this incarnation as this process knows it; the counter may have been made again since.
        try:
            main = self.context.read_incarnation(self.definition.main, self.definition.incarnation)
        except PASSING:
            return self.attempts.unknown(self.change.counter)
        if "void" in marker:
            return Withdrawn(self.change.counter, self.change.id)
        if marker.get("delta") != self.change.delta:
            raise self.change.reused(marker.get("delta"))
        value = None if self.definition.bins > 1 else main.get("total")
        return Duplicate(self.change.counter, value)

    def _value(self) -> Amount | None:
        if self.definition.bins > 1:
            return None
        return self.context.value_after(self.definition.main)


def withdraw(
    context: MethodContext, definition: Definition, change_id: str, until_ms: int | None = None
) -> StrictOutcome:
    """Put a void marker where a change would put its own: four write units.

    In a transaction that also checks the incarnation: a process whose definition is stale would
    otherwise overwrite a marker of the next incarnation.

    Args:
        context: what to work with.
        definition: of the counter.
        change_id: what the key of the change stands for.
        until_ms: when the change's own marker may have expired; None: nobody can tell.

    Returns:
        `Withdrawn`: the change is not in and never will be. `Duplicate`: it is in. `Unknown`: no
        clear answer.

    Raises:
        StaleDefinition: the counter is not the one that was read.
    """
    counter = definition.counter
    attempts = Attempts(context, POLICY, _ADVICE, until_ms=until_ms)
    void = put_marker(context, definition, change_id, {"void": 1})
    same = Check(context.table, definition.main, of(definition.incarnation))
    token = context.new_id(context.clock.now_ms())
    while True:
        failure: CountledgerError
        try:
            with attempts.sending():
                context.dynamo.transact([void, same], token)
        except RetryPeriodOver:
            return attempts.unknown(counter)
        except TransactionCancelled as cancelled:
            there, same_counter = cancelled.reasons
            if same_counter.condition_failed:
                raise StaleDefinition("the counter was deleted or recreated") from cancelled
            if there.condition_failed:
                return _given(context, definition, change_id, there.item or {}, attempts)
            failure = cancelled
        except PASSING as error:
            failure = error
        else:
            return Withdrawn(counter, change_id)
        if not attempts.again(failure):
            return attempts.end(counter, failure)


def _given(
    context: MethodContext, definition: Definition, change_id: str, marker: Item, attempts: Attempts
) -> StrictOutcome:
    """What a marker that is in the way says, if the counter is still that one."""
    try:
        # Nothing promises that a cancelled transaction names all that failed.
        context.read_incarnation(definition.main, definition.incarnation)
    except PASSING:
        return attempts.unknown(definition.counter)
    if "void" in marker:
        return Withdrawn(definition.counter, change_id)
    return Duplicate(definition.counter, None)
