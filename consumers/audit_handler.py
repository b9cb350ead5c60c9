"""The Lambda function of the scheduled audit: a part of the walk over all counters in each run.

It starts a round only if the time suffices to end it. The next run continues from the position that
is stored in `counters`; after the last counter the walk starts again at the first.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from countledger.consumers.audit import AUDIT_MODES, CHUNK, Audit, ItemBookmarks, Walker
from countledger.consumers.verify import Judgement, Remedy, Repair, Repairer, Verifier, unrepaired
from countledger.ledger.amount import to_text
from countledger.ledger.connection import Connection
from countledger.ledger.errors import BadPayload
from countledger.ledger.foreign_events import described, object_in
from countledger.ledger.limits import MINUTE_MS
from countledger.ledger.namespace import Namespaces

if TYPE_CHECKING:
    from collections.abc import Callable

    from aws_lambda_powertools.utilities.typing import LambdaContext

# Three attempts with a proof each, on a stream that never pauses and clocks a minute apart.
_ROUND_MS: Final = 6 * MINUTE_MS
_LOGGED: Final = 100


@dataclass(frozen=True, slots=True)
class _AuditParts:
    verifier: Verifier
    namespaces: Namespaces
    logger: Logger
    metrics: Metrics


@cache
def _parts() -> _AuditParts:
    connection = Connection.open()
    verifier = Verifier(connection, chunk=CHUNK)
    return _AuditParts(verifier, Namespaces(connection), Logger(), Metrics())


def audit(event: object, context: LambdaContext) -> dict[str, Any]:
    """Verify, or repair, as many counters as the time allows; how often each outcome was found."""
    expected = '{"mode": "verify"} or {"mode": "repair"}'
    mode = object_in(event, expected).get("mode")
    if mode not in AUDIT_MODES:
        raise BadPayload(f"the event is {described(event)}; expected is {expected}")
    parts = _parts()
    walk = _walk(parts, mode, lambda: context.get_remaining_time_in_millis() >= _ROUND_MS)
    compared: Counter[str] = Counter()
    remedied: Counter[str] = Counter()
    for outcome in walk:
        compared[outcome.verdict.verdict] += 1
        remedied[outcome.remedy] += 1
        if outcome.remedy is not Remedy.NONE and compared.total() - compared["exact"] <= _LOGGED:
            _log(parts.logger, outcome)
    _measure(parts.metrics, compared, remedied, done=walk.done)
    answer = {
        "mode": mode,
        "compared": dict(compared),
        "foreign_items": walk.foreign.count,
        "done": walk.done,
    }
    parts.logger.info("audit", **answer)
    return answer


def _walk(parts: _AuditParts, mode: str, has_time: Callable[[], bool]) -> Audit[Repair]:
    connection = parts.verifier.connection
    return Audit(
        Walker(connection),
        # A verification is a repair that only says what it would do.
        Repairer(parts.verifier, dry_run=mode == "verify").repair,
        lambda one: str(one.remedy),
        parts.namespaces.is_of_a_ledger,
        bookmarks=ItemBookmarks(connection, mode),
        has_time=has_time,
        unread=partial(unrepaired, parts.verifier),
    )


def _log(logger: Logger, outcome: Repair) -> None:
    verdict = outcome.verdict
    logger.warning(
        "a total is not exact",
        counter=outcome.counter,
        verdict=str(verdict.verdict),
        remedy=str(outcome.remedy),
        drift=None if verdict.drift is None else to_text(verdict.drift),
        events_drift=verdict.events_drift,
        reason=outcome.reason,
    )


def _measure(
    metrics: Metrics, compared: Counter[str], remedied: Counter[str], *, done: bool
) -> None:
    """The drift metric also counts repaired totals: the cause of a drift must be found."""
    metrics.add_metric("ComparedCounters", MetricUnit.Count, compared.total())
    metrics.add_metric("DriftedCounters", MetricUnit.Count, compared[Judgement.DRIFT])
    metrics.add_metric("UnreadableCounters", MetricUnit.Count, compared[Judgement.UNREADABLE])
    metrics.add_metric("BusyCounters", MetricUnit.Count, compared[Judgement.BUSY])
    healed = remedied[Remedy.REPAIRED] + remedied[Remedy.MADE]
    metrics.add_metric("RepairedCounters", MetricUnit.Count, healed)
    metrics.add_metric("AuditsCompleted", MetricUnit.Count, int(done))
    metrics.flush_metrics()
