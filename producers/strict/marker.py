"""Method `marker`: the change and a marker of it in one transaction. Four write units.

The key alone determines where the marker is stored, whichever bin the change goes to. The marker
carries the delta, the time, the note and the id of the call that wrote it, and expires after the
counter's window (time to live; an expired marker that still exists counts). The transaction is
conditional on there being no marker of this incarnation of the counter. `MarkerChange.at` and
`withdraw` hold the answer tables. Three rules are the reason for them:

- A cancelled transaction is read by its reasons, the marker's first: the change itself may have
  taken the last headroom.
- Nothing promises that a cancelled transaction names every condition that failed. So "bound
  reached" is said only after a consistent read of the marker (one read unit, on refusals only).
- "Bound reached" is not final while a request of this call got no answer: it may still be applied,
  and find headroom. Then a void marker is written first. If that finds the marker, the change was
  applied meanwhile.
- A marker of an earlier call under a bare key may expire before a late request of this call is
  too old. So after a request without an answer it decides nothing unless it is stored for longer
  (`decides`), and an earlier void marker withdraws nothing.

A key that is used again after its window is refused if it has a time; a bare one counts again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.attempts import (
    PASSING,
    Done,
    Recheck,
    Reply,
    Send,
    attempt,
    otherwise,
)
from countledger.ledger.errors import CountledgerError, TransactionCancelled, Unreachable
from countledger.ledger.limits import SECOND_MS
from countledger.ledger.operations import Absent, AnyOf, Check, Compare, Get, Put, Transact
from countledger.producers.strict.change import (
    end,
    read_incarnation,
    refused_among,
    update_of,
    value_of,
    withdrawal,
)
from countledger.producers.strict.definition import StaleDefinition, of
from countledger.producers.strict.outcome import (
    Applied,
    BoundReached,
    Duplicate,
    Unknown,
    Withdrawn,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Answer, Attempts, Steps, Verdict
    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection
    from countledger.ledger.errors import Reason
    from countledger.ledger.operations import Write
    from countledger.producers.strict.change import StrictChange
    from countledger.producers.strict.definition import Definition, Part
    from countledger.producers.strict.outcome import Refusal, StrictOutcome

_ADVICE: Final = (
    "no attempt got a clear answer: repeat the change with the same key within the counter's "
    "window, then it cannot count twice; or withdraw the key, which returns whether it counted"
)


def outlives_requests(connection: Connection, marker: Item) -> bool:
    """Whether a marker is stored until no request that was sent so far can arrive.

    Once it is deleted, a late request that it would have refused is applied.
    """
    expires_at = marker.get("expires_at")
    life_ms = connection.request_life_ms + connection.clock_skew_ms
    return expires_at is None or expires_at * SECOND_MS > connection.clock.now_ms() + life_ms


def decides(connection: Connection, marker: Item, call: str, attempts: Attempts) -> bool:
    """Whether a marker that exists decides what became of a call.

    While a request of the call may be late, a marker of another call decides only if it outlives
    that request.
    """
    mine = marker.get("call") == call
    return mine or not attempts.maybe_applied or outlives_requests(connection, marker)


def met_by_withdrawal(
    connection: Connection, marker: Item, what: str, change_id: str, advice: str
) -> Withdrawn | Duplicate | Unknown:
    """What the marker that a withdrawal found under its key says of the change."""
    if "void" not in marker:
        return Duplicate(what, None)
    # Any request of the change may be late, whichever call withdrew it.
    lasting = outlives_requests(connection, marker)
    return Withdrawn(what, change_id) if lasting else Unknown(what, advice)


def put_marker(connection: Connection, definition: Definition, change_id: str, facts: Item) -> Put:
    """The write of a marker, on condition that this incarnation of the counter has none."""
    now_ms = connection.clock.now_ms()
    # A request of the call may arrive so much later than the window is over.
    life_ms = definition.marker_window_ms + connection.clock_skew_ms + connection.request_life_ms
    item = {
        **keys.marker_key(definition.counter, definition.bins, change_id),
        "incarnation": definition.incarnation,
        **facts,
        "at": now_ms,
        "expires_at": -(-(now_ms + life_ms) // SECOND_MS),
    }
    return Put(
        connection.counters,
        item,
        AnyOf(Absent("part"), Compare("incarnation", "<>", definition.incarnation)),
    )


def stored_marker(
    connection: Connection, definition: Definition, change_id: str
) -> Steps[Item | None]:
    """The marker, the void one or the hold under a key; None: there is none. One read unit."""
    key = keys.marker_key(definition.counter, definition.bins, change_id)
    found = yield Send(Get(connection.counters, key))
    return found if definition.is_of(found) else None


@dataclass(slots=True)
class MarkerChange:
    """One change by method marker."""

    connection: Connection
    definition: Definition
    change: StrictChange
    attempts: Attempts
    marker: Put
    call: str

    @classmethod
    def begin(
        cls, connection: Connection, definition: Definition, change: StrictChange
    ) -> MarkerChange:
        """Nothing sent yet; the age of the key is checked."""
        change.check_age(
            connection.clock.now_ms(), definition.marker_window_ms, connection.clock_skew_ms
        )
        return cls.of_any_age(connection, definition, change)

    @classmethod
    def of_any_age(
        cls, connection: Connection, definition: Definition, change: StrictChange
    ) -> MarkerChange:
        """`begin`, where the caller checks the key's age before anything is sent."""
        until_ms = change.remembered_until(definition.marker_window_ms)
        attempts = connection.attempts(until_ms)
        call = connection.ids.new_id(change.at_ms)
        facts = {"delta": change.delta, "call": call, "key": change.key, "note": change.note}
        marker = put_marker(connection, definition, change.id, facts)
        return cls(connection, definition, change, attempts, marker, call)

    def at(self, parts: Sequence[Part]) -> Steps[StrictOutcome]:
        """Apply it to these items: two write units each and two for the marker; one read unit."""
        at_ms = self.change.at_ms
        transaction = Transact(self.writes(parts), self.connection.ids.new_id(at_ms))

        def interpret(reply: Reply[None]) -> Verdict[None, StrictOutcome | Item]:
            match reply.answer:
                case TransactionCancelled(reasons=(marker, *_)) if marker.item is not None:
                    return Done(marker.item)
                case TransactionCancelled(reasons=(marker, *others)) if not marker.passing:
                    refused = self._refused_among(parts, others, reply)
                    return otherwise(reply) if refused is None else Done(refused)
                case CountledgerError():
                    return otherwise(reply)
            return Done(Applied(self.change.counter, None))

        ended = yield from attempt(
            None,
            lambda _: Send(transaction),
            interpret,
            lambda exhausted: end(exhausted, self.change.counter, _ADVICE),
            self.attempts,
        )
        if isinstance(ended, dict):
            return (yield from self._meaning_of(ended))
        return (yield from self.applied(ended))

    def writes(self, parts: Sequence[Part]) -> list[Write]:
        table, at_ms = self.connection.counters, self.change.at_ms
        return [self.marker, *(update_of(table, self.definition, part, at_ms) for part in parts)]

    def _refused_among(
        self, parts: Sequence[Part], reasons: Sequence[Reason], reply: Reply[None]
    ) -> StrictOutcome | None:
        try:
            return refused_among(self.definition, parts, reasons)
        except StaleDefinition:
            if not reply.maybe_applied:
                raise
            return self._unknown

    def confirm_refusal(self, refused: Refusal) -> Steps[StrictOutcome]:
        """Make a refusal final: one read unit for the marker.

        While a request may still be applied, write a void marker first: four write units.
        """
        if not self.attempts.maybe_applied:
            return (yield from self._confirm_by_marker(refused))
        until_ms = self.attempts.until_ms
        try:
            ended = yield from withdraw(self.connection, self.definition, self.change.id, until_ms)
        except Unreachable:
            return self._unknown
        if isinstance(ended, Withdrawn):
            return refused
        if not isinstance(ended, Duplicate):
            # No void marker could be written: the old request may still be applied.
            return self._unknown
        # The marker may be of this call or of another one under the same key.
        try:
            marker = yield from stored_marker(self.connection, self.definition, self.change.id)
        except PASSING:
            return self._unknown
        return self._unknown if marker is None else (yield from self._meaning_of(marker))

    def _confirm_by_marker(self, refused: Refusal) -> Steps[StrictOutcome]:
        if not isinstance(refused, BoundReached):
            return refused
        try:
            marker = yield from stored_marker(self.connection, self.definition, self.change.id)
        except PASSING:
            return self._unknown
        return refused if marker is None else (yield from self._meaning_of(marker))

    def _meaning_of(self, marker: Item) -> Steps[StrictOutcome]:
        """What a marker that exists says of this change: one read unit."""
        if marker.get("call") == self.call:
            return (yield from self.applied(Applied(self.change.counter, None)))
        if not decides(self.connection, marker, self.call, self.attempts):
            return self._unknown
        # It is of the incarnation that this process knows; the counter may have been recreated.
        try:
            main = yield from read_incarnation(self.connection, self.definition)
        except PASSING:
            return self._unknown
        if "void" in marker:
            return Withdrawn(self.change.counter, self.change.id)
        value = None if self.definition.bins > 1 else main.get("total")
        return self.duplicate_of(marker, value)

    def duplicate_of(self, marker: Item, value: Amount | None) -> Duplicate:
        """The outcome if the key was used by another call, which must have meant the same."""
        if marker.get("delta") != self.change.delta:
            raise self.change.reused(marker.get("delta"))
        return Duplicate(self.change.counter, value)

    def applied(self, outcome: StrictOutcome) -> Steps[StrictOutcome]:
        """An applied change with the counter's value, if that can be read: one read unit."""
        if not isinstance(outcome, Applied):
            return outcome
        return replace(outcome, value=(yield from value_of(self.connection, self.definition)))

    @property
    def _unknown(self) -> Unknown:
        return Unknown(self.change.counter, _ADVICE)


def withdraw(
    connection: Connection, definition: Definition, change_id: str, until_ms: int | None = None
) -> Steps[StrictOutcome]:
    """Write a void marker where a change would write its own: four write units.

    In a transaction that checks the counter's incarnation: a void marker of an earlier incarnation
    would replace a marker of the current one. `until_ms`: when the change's own marker may have
    expired; None: unknown.

    `Withdrawn`: the change is not applied and never will be. `Duplicate`: it is applied. `Unknown`:
    no clear answer, or an earlier void marker that is about to expire.
    """
    counter = definition.counter
    void = put_marker(connection, definition, change_id, {"void": 1})
    unchanged = Check(connection.counters, definition.main, of(definition.incarnation))
    transaction = Transact([void, unchanged], connection.ids.new_id(connection.clock.now_ms()))

    def meaning(answer: Answer) -> StrictOutcome | Recheck[StrictOutcome | None] | None:
        match answer:
            case TransactionCancelled(reasons=(marker, _)) if marker.condition_failed:
                found = marker.item or {}
                return Recheck(met_by_withdrawal(connection, found, counter, change_id, _ADVICE))
            case CountledgerError():
                return None
        return Withdrawn(counter, change_id)

    # After `until_ms` the change's own marker may have expired.
    return withdrawal(
        connection, definition, transaction, meaning, until_ms=until_ms, advice=_ADVICE
    )
