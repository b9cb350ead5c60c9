"""The probe: one entry a minute, and the time until the total of its counter includes it.

The counter is in a namespace of its own. Its only writer is the probe, so the total includes every
entry once it counts as many entries as the exact read does that follows the put. This holds after
missed runs, repeated runs and compaction, and needs no clock but this one.

The entry's key is the scheduled minute: a run that is repeated writes a duplicate, and measures
nothing unless entries are missing. While entries are missing from the total, a run reports the age
of the oldest of them: the age grows from run to run, and no run waits for more than its time.

The namespace has a horizon of an hour, and the probe compacts its counter itself. So no more than
some 160 entries exist at a time, whatever schedules the stack has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from countledger.compaction.compactor import Compactor
from countledger.compaction.report import Retire, RunOutcome
from countledger.consumers.totals import TotalsReader
from countledger.ledger.clock import Clock, SystemClock, to_datetime, to_ms
from countledger.ledger.connection import Connection
from countledger.ledger.errors import BadPayload, shown
from countledger.ledger.exact import ExactReader, newest_first
from countledger.ledger.foreign_events import described, object_in
from countledger.ledger.ids import IdempotencyKey
from countledger.ledger.limits import HOUR_MS, MINUTE_MS, SECOND_MS
from countledger.ledger.namespace import Namespaces
from countledger.producers.event import Event, Status
from countledger.producers.recorder import Recorder

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from countledger.compaction.report import CompactionReport

NAMESPACE: Final = "countledger-probe"
COUNTER: Final = f"{NAMESPACE}:minutes"
HORIZON_MS: Final = HOUR_MS
# By then about an hour of entries is older than horizon, replication bound and clock skew.
COMPACT_FROM_ENTRIES: Final = 160
# A run that comes later than this measures nothing: its minute is reported by the runs in between.
LATE_MS: Final = 5 * MINUTE_MS
_POLL_MS: Final = 250
# For the answer, and a compaction.
_MARGIN_MS: Final = 15 * SECOND_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOutcome:
    """What one run found.

    Attributes:
        minute: the scheduled minute, in UTC.
        recorded: whether this run recorded its entry; False: a run before it did, or it came late.
        missing: how many entries the total lacked at the end.
        lag_ms: from the put to the total, or the age of the oldest missing entry; None: this run
            measured nothing.
        crowded: whether enough entries exist to compact them.
    """

    minute: datetime
    recorded: bool = False
    missing: int = 0
    lag_ms: int | None = None
    crowded: bool = False


@dataclass(frozen=True, slots=True)
class Probe:
    """Records an entry a minute and measures when its total includes it."""

    namespaces: Namespaces
    recorder: Recorder
    exact: ExactReader
    totals: TotalsReader
    compactor: Compactor
    clock: Clock = field(default_factory=SystemClock)

    def prepare(self) -> None:
        """Create the namespace, unless it exists: at most two write units, once per process."""
        text = "entries of the probe, one a minute"
        self.namespaces.create(NAMESPACE, horizon_ms=HORIZON_MS, description=text)

    def run(self, scheduled_ms: int, deadline_ms: int) -> ProbeOutcome:
        """Record the entry of a minute, and measure until the deadline.

        One write unit; two read units, one for each 4 KB of the probe's entries (at most 7), and
        one for each quarter of a second until the total includes the entry.
        """
        minute_ms = scheduled_ms - scheduled_ms % MINUTE_MS
        minute = to_datetime(minute_ms)
        began_ms = self.clock.now_ms()
        if began_ms - minute_ms >= LATE_MS:
            return ProbeOutcome(minute=minute)
        key = IdempotencyKey(f"minute {minute:%Y-%m-%dT%H:%MZ}", minute)
        recorded = self.recorder.record(Event(COUNTER, 1, key=key)).status == Status.RECORDED
        exact = self.exact.read(COUNTER)
        missing = self._wait(exact.entries, deadline_ms)
        crowded = exact.entries_read >= COMPACT_FROM_ENTRIES
        lag_ms = self.clock.now_ms() - began_ms if recorded else None
        if missing:
            lag_ms = self.clock.now_ms() - self._oldest_of(missing)
        return ProbeOutcome(
            minute=minute, recorded=recorded, missing=missing, lag_ms=lag_ms, crowded=crowded
        )

    def _wait(self, entries: int, deadline_ms: int) -> int:
        """Wait until the total has so many entries, or time is over; how many it lacks then."""
        while True:
            missing = max(0, entries - self.totals.read(COUNTER, consistent=True).entries)
            if not missing or self.clock.now_ms() + _POLL_MS > deadline_ms:
                return missing
            self.clock.sleep_ms(_POLL_MS)

    def _oldest_of(self, missing: int) -> int:
        """The time of the oldest of the newest entries, ms since the epoch.

        Records of one shard are applied in order, so the newest entries are those that are missing.
        If some of them are merged already, it is the time of the oldest that is not.
        """
        to = self.exact.connection
        newest = newest_first(to.retrying, to.ledger, COUNTER, 1, missing)
        return min((entry.at_ms for entry in newest), default=self.clock.now_ms())

    def compact(self) -> CompactionReport:
        """Merge the probe's old entries: 1.06 write units each."""
        return self.compactor.compact(COUNTER)


@dataclass(frozen=True, slots=True)
class _ProbeParts:
    probe: Probe
    logger: Logger
    metrics: Metrics


@cache
def _parts() -> _ProbeParts:
    """Built at the first invocation, from the function's environment."""
    connection = Connection.open()
    namespaces = Namespaces(connection)
    made = Probe(
        namespaces,
        Recorder(connection),
        ExactReader(connection),
        TotalsReader(connection),
        Compactor(connection, Retire.DELETE),
    )
    made.prepare()
    return _ProbeParts(made, Logger(), Metrics())


def probe(event: object, context: LambdaContext) -> dict[str, Any]:
    """The Lambda function of the probe: one run; what was measured.

    The event is `{"time": "2026-11-22T14:05:00Z"}`: the scheduled time of this run. After an error
    no metric is sent, and the alarm takes its absence for a breach.
    """
    scheduled_ms = _scheduled_ms(event)
    parts = _parts()
    deadline_ms = SystemClock().now_ms() + context.get_remaining_time_in_millis() - _MARGIN_MS
    outcome = parts.probe.run(scheduled_ms, deadline_ms)
    answer: dict[str, Any] = {
        "minute": outcome.minute.isoformat(),
        "recorded": outcome.recorded,
        "missing": outcome.missing,
        "lag_ms": outcome.lag_ms,
    }
    parts.logger.info("probe", **answer)
    if outcome.lag_ms is not None:
        seconds = outcome.lag_ms / SECOND_MS
        parts.metrics.add_metric("EmitToTotalSeconds", MetricUnit.Seconds, seconds)
        parts.metrics.flush_metrics()
    if outcome.crowded:
        report = parts.probe.compact()
        if report.outcome in {RunOutcome.FAILED, RunOutcome.TAMPERED}:
            parts.logger.error("the entries of the probe are not compacted", reason=report.detail)
    return answer


def _scheduled_ms(event: object) -> int:
    expected = '{"time": "2026-11-22T14:05:00Z"}, the scheduled time'
    time = object_in(event, expected).get("time")
    try:
        return to_ms(datetime.fromisoformat(str(time)))
    except ValueError as error:
        raise BadPayload(
            f"the event is {described(event)}, with the time {shown(time)}; expected is {expected}"
        ) from error
