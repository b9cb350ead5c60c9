"""Events that are not a function's own: of a console test, an EventBridge pipe, another service.

no records    the event contains no data to lose: the invocation fails, and its error says what is
              expected
records       somebody may have meant them to be counted: they are kept in quarantine as they came,
              a queue gets a message, and the invocation succeeds. If it failed, Lambda would
              deliver them again for a day or longer, and then drop them
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from countledger.ledger.errors import BadPayload, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aws_lambda_powertools import Logger, Metrics

_FIELDS: Final = 5


def described(event: object) -> str:
    if isinstance(event, list):
        return f"a list of {len(event)} items, as an EventBridge pipe sends it"
    if not isinstance(event, dict):
        return f"not an object ({shown(event)})"
    records = event.get("Records")
    if isinstance(records, list) and records:
        return f"{len(records)} records of {source_name(records[0])}"
    fields = ", ".join(sorted(str(name)[:40] for name in event)[:_FIELDS])
    return f"an object with the fields {fields}" if fields else "an empty object"


def object_in(event: object, expected: str) -> dict[str, Any]:
    """The event, if it is an object; else BadPayload with what was expected."""
    if isinstance(event, dict):
        return event
    raise BadPayload(f"the event is {described(event)}; expected is {expected}")


def records_in(event: object, expected: str) -> list[Any]:
    """The records of an event, also of a list of them; empty only for an empty batch.

    BadPayload if the event has no records.
    """
    records = event.get("Records") if isinstance(event, dict) else event
    if isinstance(event, dict) and not records and _may_be_empty(event):
        return []
    if isinstance(records, list) and records:
        return records
    raise BadPayload(f"the event is {described(event)}; expected is {expected}")


def _may_be_empty(event: Mapping[str, Any]) -> bool:
    """Whether it is a batch, also the one with which Lambda closes a tumbling window."""
    return "Records" in event or event.get("isFinalInvokeForWindow") is True


def source_name(record: object) -> str:
    fields = record if isinstance(record, dict) else {}
    name = fields.get("eventSource", fields.get("EventSource"))
    return name if isinstance(name, str) else "an unknown source"


def answer_to_foreign(logger: Logger, metrics: Metrics, reason: str) -> dict[str, Any]:
    """Log that records of something else are in quarantine; the answer accepts all of them."""
    logger.error("an event of something else is kept in quarantine", reason=reason)
    metrics.add_metric("ForeignEvents", "Count", 1)
    metrics.flush_metrics()
    return {"batchItemFailures": []}
