"""Holds of strict counters: how one is placed, and confirmed after its time. Method `marker` alone.

Placing a hold is a change by method `marker` that moves `held` and not the total: the same bins,
the same finality, and the hold is stored in the place of the marker. So a retry under its key finds
it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from countledger.ledger import amount
from countledger.ledger import amount as amounts
from countledger.ledger.attempts import PASSING, Done, Reply, Send, attempt, otherwise
from countledger.ledger.errors import (
    CountledgerError,
    Throttled,
    TransactionCancelled,
)
from countledger.producers.strict.change import refused_among, update_of
from countledger.producers.strict.definition import Part, StaleDefinition
from countledger.producers.strict.hold import (
    End,
    Resolution,
    decode_hold,
    encode_open,
    encode_parts,
    is_hold,
    plan_part,
)
from countledger.producers.strict.marker import MarkerChange, stored_marker
from countledger.producers.strict.outcome import (
    BoundReached,
    Contended,
    Duplicate,
    HoldExpired,
)
from countledger.producers.strict.release import Releases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Steps, Verdict
    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection
    from countledger.ledger.errors import Reason
    from countledger.ledger.operations import Put, Write
    from countledger.producers.strict.change import StrictChange
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.outcome import EndOutcome, StrictOutcome


# Takes the headroom of an expired hold again, and confirms it: as a change.


_SPLITS: Final = 5
_NO_HEADROOM: Final = BoundReached, Contended


@dataclass(frozen=True, slots=True)
class Readmission:
    """Confirms an expired hold if there is headroom: as a change, split over bins if needed."""

    resolution: Resolution
    planned: End

    def apply(self) -> Steps[EndOutcome]:
        """Take the headroom: four write units; with bins two read units for each.

        A refusal costs one read unit more. `Duplicate`, `HoldConfirmed`: another call was faster.
        """
        resolution = self.resolution
        releases = Releases(resolution.connection)
        refused: EndOutcome | None
        try:
            refused = yield from self._with_headroom(releases)
        except Throttled as error:
            refused = Contended(resolution.definition.counter, releases.waits, str(error))
        if isinstance(refused, BoundReached):
            refused = yield from self.confirm_refusal(refused)
        elif refused is None:
            refused = yield from self._found()
        doubtful = resolution.attempts.maybe_applied
        return resolution.unknown if doubtful and isinstance(refused, _NO_HEADROOM) else refused

    def confirm_refusal(self, refused: BoundReached) -> Steps[EndOutcome]:
        """Make a refusal final: one read unit.

        Another call may have confirmed the hold since it was read, with the headroom that is short.
        """
        found = yield from self._found()
        return refused if isinstance(found, HoldExpired) else found

    def _found(self) -> Steps[EndOutcome]:
        """What has become of the hold: one read unit."""
        found = yield from replace(self.resolution, readmit=False).apply()
        return self.resolution.unknown if isinstance(found, End) else found

    def _with_headroom(self, releases: Releases) -> Steps[EndOutcome | None]:
        """As `_at`, once there is headroom or no expired hold is left."""
        definition = self.resolution.definition
        delta = amount.negated(self.planned.taken)
        parts: list[Part] | BoundReached = [Part(definition.main, delta)]
        for _ in range(_SPLITS):
            if definition.bins > 1:
                parts = yield from releases.split(definition, delta)
            if isinstance(parts, BoundReached):
                return parts
            refused = yield from self._at(parts)
            if definition.bins == 1 and isinstance(refused, BoundReached):
                if not (yield from releases.for_refused(definition, refused)):
                    return refused
            elif not isinstance(refused, BoundReached):
                return refused
        busy = "other changes took the headroom each time before this one could"
        return Contended(definition.counter, _SPLITS, busy)

    def _at(self, parts: Sequence[Part]) -> Steps[EndOutcome | None]:
        """One transaction; None: the hold is not expired any more."""
        connection, definition = self.resolution.connection, self.resolution.definition

        def request(_: None) -> Send:
            now_ms = connection.clock.now_ms()
            updates = [update_of(connection.counters, definition, part, now_ms) for part in parts]
            return self.resolution.send(self.planned, updates, now_ms)

        def interpret(reply: Reply[None]) -> Verdict[None, EndOutcome | None]:
            match reply.answer:
                case TransactionCancelled(reasons=(own, *_)) if own.condition_failed:
                    return Done(None)
                case TransactionCancelled(reasons=(_, *others)):
                    return self._refused(parts, others, reply)
                case CountledgerError():
                    return otherwise(reply)
            return Done(self.resolution.done(self.planned))

        return attempt(None, request, interpret, self.resolution.give_up, self.resolution.attempts)

    def _refused(
        self, parts: Sequence[Part], reasons: Sequence[Reason], reply: Reply[None]
    ) -> Verdict[None, EndOutcome | None]:
        try:
            refused = refused_among(self.resolution.definition, parts, reasons)
        except StaleDefinition:
            if not reply.maybe_applied:
                raise
            return Done(self.resolution.unknown)
        return otherwise(reply) if refused is None else Done(refused)


class HoldChange(MarkerChange):
    """One hold that is placed."""

    __slots__ = ()

    @classmethod
    def placed(
        cls, connection: Connection, definition: Definition, change: StrictChange, lapses_at_ms: int
    ) -> HoldChange:
        """Nothing sent yet; the change has the amount as a negative delta.

        The caller checks the age of its key.
        """
        begun = MarkerChange.of_any_age(connection, definition, change)
        item = encode_open(begun.marker.item, amounts.negated(change.delta), lapses_at_ms)
        marker = replace(begun.marker, item=item)
        return cls(connection, definition, change, begun.attempts, marker, begun.call)

    def found(self) -> Steps[StrictOutcome | None]:
        """The outcome if a hold exists under the key; else None. Two read units at the most."""
        try:
            stored = yield from stored_marker(self.connection, self.definition, self.change.id)
        except PASSING:
            return self._unknown
        if stored is None or not is_hold(stored):
            return None
        return (yield from self._meaning_of(stored))

    def writes(self, parts: Sequence[Part]) -> list[Write]:
        """The hold, and what each item reserves."""
        table, at_ms = self.connection.counters, self.change.at_ms
        own: Put = replace(self.marker, item=self.marker.item | encode_parts(parts))
        return [own, *(plan_part(table, self.definition, part, at_ms) for part in parts)]

    def duplicate_of(self, marker: Item, value: Amount | None) -> Duplicate:
        """As of a change; under the key of a change, or of another amount, it raises."""
        if not is_hold(marker) or marker["hold"] != amounts.negated(self.change.delta):
            raise self.change.reused(marker.get("delta"))
        return Duplicate(self.change.counter, value, decode_hold(self.change.counter, marker))

    def applied(self, outcome: StrictOutcome) -> Steps[StrictOutcome]:
        """As it is: the value did not change, so none is read."""
        yield from ()
        return outcome
