"""The Lambda function that releases expired holds, each minute: wiring only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from countledger.ledger.clock import SystemClock
from countledger.ledger.connection import Connection
from countledger.ledger.limits import SECOND_MS
from countledger.producers.strict.release import OverdueHolds

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

# For the requests under way at the end, and the answer.
_MARGIN_MS: Final = 20 * SECOND_MS


@dataclass(frozen=True, slots=True)
class _ReleaserParts:
    holds: OverdueHolds
    logger: Logger
    metrics: Metrics


@cache
def _parts() -> _ReleaserParts:
    """Built at the first invocation, from the function's environment."""
    logger = Logger()

    def log(key: Any, error: Exception) -> None:  # noqa: ANN401 - of an item
        logger.error("a hold cannot be released", key=key, reason=str(error))

    return _ReleaserParts(OverdueHolds(Connection.open(), log), logger, Metrics())


def release(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001 - Lambda's
    """Release the holds whose time is over; the answer is what was released, and what is left.

    After an error no metric is sent, and the alarm takes its absence for a breach.
    """
    parts = _parts()
    deadline_ms = SystemClock().now_ms() + context.get_remaining_time_in_millis() - _MARGIN_MS
    report = parts.holds.release(deadline_ms)
    answer: dict[str, Any] = {
        "released": report.released,
        "overdue": report.overdue,
        "oldest_ms": report.oldest_ms,
    }
    parts.logger.info("released", **answer)
    oldest_s = report.oldest_ms / SECOND_MS
    parts.metrics.add_metric("ReleasedHolds", MetricUnit.Count, report.released)
    parts.metrics.add_metric("OverdueHolds", MetricUnit.Count, report.overdue)
    parts.metrics.add_metric("OverdueHoldSeconds", MetricUnit.Seconds, oldest_s)
    parts.metrics.flush_metrics()
    return answer
