"""Method `marker`: the change and a marker of it in one transaction. Four write units.

The marker lies where the key alone says, whichever bin the change goes to; it is put only where
there is none of this making of the counter. It carries the delta, the time, the note, and which
call made it, and expires after the counter's window (time to live; a marker that is still there
counts). A cancelled transaction is read by its reasons, the marker's first, for a change that is in
may well be what took the last room:

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
from countledger.producers.strict.means import (
    PASSING,
    POLICY,
    Attempts,
    Forgotten,
    Means,
    Redefined,
)
from countledger.producers.strict.outcome import Applied, BoundReached, Duplicate, GivenUp
from countledger.producers.strict.sending import refused_among, update_of
from countledger.producers.strict.state import of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item
    from countledger.ledger.errors import Reason
    from countledger.producers.strict.change import Change
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.outcome import Outcome, Refusal
    from countledger.producers.strict.sending import Part

_ADVICE: Final = (
    "no attempt got a clear answer: repeat the change with the same key within the counter's "
    "window, it cannot count twice; or give the key up, which tells whether it counted"
)


def window_ms(definition: Definition) -> int:
    """For how long a key is remembered."""
    return definition.window_ms or MARKER_WINDOW_DEFAULT_MS


def put_marker(means: Means, definition: Definition, change_id: str, facts: Item) -> Put:
    """The write of a marker, where there is none of this making of the counter."""
    now_ms = means.clock.now_ms()
    life_ms = window_ms(definition) + means.clock_skew_ms
    item = {
        **keys.marker_key(definition.counter, definition.bins, change_id),
        "made": definition.made,
        **facts,
        "at": now_ms,
        "expires_at": -(-(now_ms + life_ms) // SECOND_MS),
    }
    return Put(means.table, item, AnyOf(Absent("part"), Compare("made", "<>", definition.made)))


@dataclass(slots=True)
class MarkerSending:
    """A change on its way by method marker."""

    means: Means
    definition: Definition
    change: Change
    attempts: Attempts
    marker: Put
    call: str

    @classmethod
    def begin(cls, means: Means, definition: Definition, change: Change) -> MarkerSending:
        """Nothing sent yet.

        Raises:
            KeyExpired, ClockSkew: its key was made too long ago, or lies ahead.
        """
        change.check_age(means.clock.now_ms(), window_ms(definition), means.clock_skew_ms)
        until_ms = change.remembered_until(window_ms(definition))
        attempts = Attempts(means, POLICY, _ADVICE, until_ms=until_ms)
        call = means.new_id(change.at_ms)
        facts = {"delta": change.delta, "call": call, "key": change.key, "note": change.note}
        marker = put_marker(means, definition, change.id, facts)
        return cls(means, definition, change, attempts, marker, call)

    def at(self, parts: Sequence[Part]) -> Outcome:
        """Bring it in at these items: two write units each and two for the marker; one read unit.

        Raises:
            IdempotencyKeyReused: the key was used with another delta.
            Redefined: the counter is not the one that was read.
        """
        updates = [
            update_of(self.means.table, self.definition, part, self.change.at_ms) for part in parts
        ]
        token = self.means.new_id(self.change.at_ms)
        while True:
            failure: CountledgerError
            try:
                with self.attempts.sending():
                    self.means.door.transact([self.marker, *updates], token)
            except Forgotten as late:
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

    def settle(self, refused: Refusal) -> Outcome:
        """Look for the marker, which the reasons may have kept to themselves: one read unit.

        Where a request may still land, put a void marker in its way instead: four write units.
        """
        if not self.attempts.doubtful:
            return self._refused(refused)
        until_ms = self.attempts.until_ms
        fence = partial(give_up, self.means, self.definition, self.change.id, until_ms)
        ended = self.attempts.fenced(self.change.counter, fence)
        if isinstance(ended, GivenUp):
            return refused
        if isinstance(ended, Duplicate):
            return Applied(self.change.counter, self._value())
        # The way could not be closed: the old request may still land.
        return self.attempts.unknown(self.change.counter)

    def _cancelled(self, parts: Sequence[Part], reasons: Sequence[Reason]) -> Outcome | None:
        """What a cancelled transaction says; None: nothing yet, try again."""
        marker, *others = reasons
        if marker.condition_failed and marker.item is not None:
            return self._marked(marker.item)
        if marker.passing:
            return None
        try:
            return refused_among(self.definition, parts, others)
        except Redefined:
            if not self.attempts.doubtful:
                raise
            return self.attempts.unknown(self.change.counter)

    def _refused(self, refused: Refusal) -> Outcome:
        if not isinstance(refused, BoundReached):
            return refused
        key = {name: self.marker.item[name] for name in ("counter", "part")}
        try:
            marker = self.means.reads.get(self.means.table, key, consistent=True)
        except PASSING:
            return self.attempts.unknown(self.change.counter)
        if marker is None or marker.get("made") != self.definition.made:
            return refused
        return self._marked(marker)

    def _marked(self, marker: Item) -> Outcome:
        """What a marker that is there says of this change."""
        if marker.get("call") == self.call:
            return Applied(self.change.counter, self._value())
        # Of this making as this process knows it; the counter may have been made again since.
        try:
            main = self.means.read_as_made(self.definition.main, self.definition.made)
        except PASSING:
            return self.attempts.unknown(self.change.counter)
        if "void" in marker:
            return GivenUp(self.change.counter, self.change.id)
        if marker.get("delta") != self.change.delta:
            raise self.change.reused(marker.get("delta"))
        value = None if self.definition.bins > 1 else main.get("total")
        return Duplicate(self.change.counter, value)

    def _value(self) -> Amount | None:
        if self.definition.bins > 1:
            return None
        return self.means.value_after(self.definition.main)


def give_up(
    means: Means, definition: Definition, change_id: str, until_ms: int | None = None
) -> Outcome:
    """Put a void marker where a change would put its own: four write units.

    In a transaction, for it must be this making's: one that this process knows no more would write
    over a marker of the next.

    Args:
        means: what to work with.
        definition: of the counter.
        change_id: what the key of the change stands for.
        until_ms: when the change's own marker may have expired; None: nobody can tell.

    Returns:
        `GivenUp`: the change is not in and never will be. `Duplicate`: it is in. `Unknown`: no
        clear answer.

    Raises:
        Redefined: the counter is not the one that was read.
    """
    counter = definition.counter
    attempts = Attempts(means, POLICY, _ADVICE, until_ms=until_ms)
    void = put_marker(means, definition, change_id, {"void": 1})
    same = Check(means.table, definition.main, of(definition.made))
    token = means.new_id(means.clock.now_ms())
    while True:
        failure: CountledgerError
        try:
            with attempts.sending():
                means.door.transact([void, same], token)
        except Forgotten:
            return attempts.unknown(counter)
        except TransactionCancelled as cancelled:
            there, making = cancelled.reasons
            if making.condition_failed:
                raise Redefined("the counter was deleted or made again") from cancelled
            if there.condition_failed:
                return _given(means, definition, change_id, there.item or {}, attempts)
            failure = cancelled
        except PASSING as error:
            failure = error
        else:
            return GivenUp(counter, change_id)
        if not attempts.again(failure):
            return attempts.end(counter, failure)


def _given(
    means: Means, definition: Definition, change_id: str, marker: Item, attempts: Attempts
) -> Outcome:
    """What a marker that is in the way says, if the counter is still that one."""
    try:
        # Nothing promises that a cancelled transaction names all that failed.
        means.read_as_made(definition.main, definition.made)
    except PASSING:
        return attempts.unknown(definition.counter)
    if "void" in marker:
        return GivenUp(definition.counter, change_id)
    return Duplicate(definition.counter, None)
