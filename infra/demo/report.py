"""What a run of the demo found, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from countledger.infra.demo.long_files import AlertCheck
    from countledger.ledger.amount import Amount


class Wrong(NamedTuple):
    """A total that is not what git says."""

    counter: str
    total: Amount
    emitted: int
    """What the events of this run add up to."""
    truth: int


@dataclass(frozen=True, kw_only=True)
class Report:
    """One run of the demo.

    Attributes:
        repo: the repository, as a path.
        head: the commit that it was counted at.
        shallow: whether its history begins at a shallow boundary.
        commits: along the first parent.
        events: emitted, each counted once however often it was sent.
        resent: how many of them were sent a second time.
        duplicates: sendings that the ledger knew already; None where the way in does not tell.
        counters: how many were checked against git.
        wrong: totals that are not what git says.
        missing: events that had not reached their totals when nothing moved any more.
        emit_s: how long emitting took.
        end_to_end_s: from the first event emitted to the last one in its total.
        seconds: all in.
        lag_p50_s: median lag of the totals.
        lag_max_s: largest lag of the totals.
        producer_write_units: consumed by emitting.
        materializer_write_units: consumed by keeping totals.
        largest: the biggest totals, by counter.
        alerts: of files that passed 1,000 lines, checked against what their totals did.
        via: what the events went through.
        entries: how many the events were coalesced into; None where each has its own.
    """

    repo: str
    head: str
    shallow: bool
    commits: int
    events: int
    resent: int
    duplicates: int | None
    counters: int
    wrong: tuple[Wrong, ...]
    missing: int
    emit_s: float
    end_to_end_s: float
    seconds: float
    lag_p50_s: float
    lag_max_s: float
    producer_write_units: float
    materializer_write_units: float
    largest: Mapping[str, Amount]
    alerts: AlertCheck
    via: str = "dynamodb"
    entries: int | None = None

    @property
    def good(self) -> bool:
        """Whether every total is right, every second sending recognised, every alert due."""
        right = not (self.wrong or self.missing or self.unrecognised)
        return right and self.alerts.good

    @property
    def unrecognised(self) -> int:
        """How many second sendings the ledger did not say to know; 0 where nobody tells."""
        return 0 if self.duplicates is None else max(self.resent - self.duplicates, 0)

    @property
    def emit_events_per_second(self) -> float:
        """How fast events were acknowledged."""
        return self.events / self.emit_s if self.emit_s else 0.0

    @property
    def end_to_end_events_per_second(self) -> float:
        """How fast events were acknowledged and brought into their totals."""
        return self.events / self.end_to_end_s if self.end_to_end_s else 0.0

    @property
    def write_units_per_event(self) -> float:
        """What an event costs: emitted (some twice) and brought into its total."""
        return (self.producer_write_units + self.materializer_write_units) / self.events

    def document(self) -> dict[str, object]:
        """The report for programs: one flat object."""
        return {
            "repo": self.repo,
            "via": self.via,
            "head": self.head,
            "shallow": self.shallow,
            "commits": self.commits,
            "events": self.events,
            "entries": self.entries,
            "resent": self.resent,
            "duplicates": self.duplicates,
            "counters": self.counters,
            "wrong": len(self.wrong),
            "wrong_totals": [wrong._asdict() for wrong in self.wrong],
            "missing": self.missing,
            "good": self.good,
            "emit_events_per_second": round(self.emit_events_per_second, 1),
            "end_to_end_events_per_second": round(self.end_to_end_events_per_second, 1),
            "seconds": round(self.seconds, 3),
            "lag_p50_seconds": round(self.lag_p50_s, 3),
            "lag_max_seconds": round(self.lag_max_s, 3),
            "write_units_per_event": round(self.write_units_per_event, 3),
            "producer_write_units_per_event": round(self.producer_write_units / self.events, 3),
            "materializer_write_units_per_event": round(
                self.materializer_write_units / self.events, 3
            ),
            "largest": dict(self.largest),
            **self._alerts_document(),
        }

    def _alerts_document(self) -> dict[str, object]:
        found = self.alerts
        return {
            "alerts": len(found.alerts),
            "alert_ids": [alert.id for alert in found.alerts],
            "alerts_missing": len(found.missing),
            "alerts_unexpected": len(found.unexpected),
            "alerts_silent": list(found.silent),
            "alert_p50_seconds": _rounded(found.latency_p50_s),
            "alert_max_seconds": _rounded(found.latency_max_s),
        }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
