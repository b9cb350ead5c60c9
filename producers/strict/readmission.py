"""Takes the headroom of an expired hold again, and confirms it: as a change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from countledger.ledger import amount
from countledger.ledger.attempts import Done, Reply, Send, attempt, otherwise
from countledger.ledger.errors import (
    CountledgerError,
    Throttled,
    TransactionCancelled,
)
from countledger.producers.strict.change import refused_among, update_of
from countledger.producers.strict.definition import Part, StaleDefinition
from countledger.producers.strict.hold import End
from countledger.producers.strict.outcome import BoundReached, Contended
from countledger.producers.strict.release import Releases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.attempts import Steps, Verdict
    from countledger.ledger.errors import Reason
    from countledger.producers.strict.hold import Resolution
    from countledger.producers.strict.outcome import EndOutcome

_SPLITS: Final = 5
_NO_HEADROOM: Final = BoundReached, Contended


@dataclass(frozen=True, slots=True)
class Readmission:
    """Confirms an expired hold if there is headroom: as a change, split over bins if needed."""

    resolution: Resolution
    planned: End

    def apply(self) -> Steps[EndOutcome]:
        """Take the headroom: four write units; with bins two read units for each.

        Returns:
            `Confirmed`; `BoundReached`: there is not enough headroom. `Duplicate`, `HoldConfirmed`:
            another call was faster. `Contended`, `Unknown`.

        Raises:
            StaleDefinition: the counter was deleted or recreated.
        """
        resolution = self.resolution
        releases = Releases(resolution.context)
        refused: EndOutcome | None
        try:
            refused = yield from self._with_headroom(releases)
        except Throttled as error:
            refused = Contended(resolution.definition.counter, releases.waits, str(error))
        if refused is None:
            found = yield from replace(resolution, readmit=False).apply()
            return resolution.unknown if isinstance(found, End) else found
        doubtful = resolution.attempts.maybe_applied
        return resolution.unknown if doubtful and isinstance(refused, _NO_HEADROOM) else refused

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
        context, definition = self.resolution.context, self.resolution.definition

        def request(_: None) -> Send:
            now_ms = context.clock.now_ms()
            updates = [update_of(context.table, definition, part, now_ms) for part in parts]
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
