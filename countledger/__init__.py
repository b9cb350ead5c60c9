"""Ledger-based counters on DynamoDB: a retry never counts twice.

    import countledger

    receipt = countledger.record("likes:post-1", +1)
    countledger.total("likes:post-1", after=receipt).value

An app emits changes; each becomes an idempotent entry in the counter's ledger. A stream consumer
keeps the totals. `record` and `total` use the stack that the environment names (AWS_*,
COUNTLEDGER_*); `CountLedger` does the same for a stack that you choose.

Importing the package loads nothing else: each name is loaded at its first use (PEP 562).
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from countledger.aio import AsyncCountLedger
    from countledger.client import CountLedger
    from countledger.compaction.report import Retire
    from countledger.compaction.schedule import Schedule
    from countledger.consumers.alerts.rule import Direction, Rule
    from countledger.consumers.audit import Audit
    from countledger.consumers.groups import Group
    from countledger.consumers.over_regions import RegionAnswer, TotalOverRegions
    from countledger.consumers.progress import ShardProgress
    from countledger.consumers.rankings import Ranked
    from countledger.consumers.totals import Freshness, Snapshot
    from countledger.consumers.verify import Judgement, Remedy, Repair, Verdict
    from countledger.consumers.windows import WindowSum
    from countledger.counting import counted
    from countledger.ledger import errors
    from countledger.ledger.amount import Amount
    from countledger.ledger.entry import Entry
    from countledger.ledger.errors import CountledgerError
    from countledger.ledger.exact import ExactSum, Head
    from countledger.ledger.ids import IdempotencyKey, RangeKey, counter_name
    from countledger.ledger.namespace import Kind, Namespace
    from countledger.ledger.settings import Settings
    from countledger.ledger.total import Total
    from countledger.producers.buffer.producer import BufferedProducer
    from countledger.producers.buffer.settings import (
        Buffering,
        BufferStatistics,
        Failure,
        PendingEntry,
    )
    from countledger.producers.claims.claim import Claim
    from countledger.producers.event import Event, Receipt, Status
    from countledger.producers.own_items import ItemChange, ItemDeletion, NewItem
    from countledger.producers.quotas.quota import Admitted, Committed, Denied
    from countledger.producers.recorder import Correction
    from countledger.producers.sequences.sequence import Collection
    from countledger.producers.strict import outcome as outcomes

__all__ = [
    "Admitted",
    "Amount",
    "AsyncCountLedger",
    "Audit",
    "BufferStatistics",
    "BufferedProducer",
    "Buffering",
    "Claim",
    "Collection",
    "Committed",
    "Correction",
    "CountLedger",
    "CountledgerError",
    "Denied",
    "Direction",
    "Entry",
    "Event",
    "ExactSum",
    "Failure",
    "Freshness",
    "Group",
    "Head",
    "IdempotencyKey",
    "ItemChange",
    "ItemDeletion",
    "Judgement",
    "Kind",
    "Namespace",
    "NewItem",
    "PendingEntry",
    "RangeKey",
    "Ranked",
    "Receipt",
    "RegionAnswer",
    "Remedy",
    "Repair",
    "Retire",
    "Rule",
    "Schedule",
    "Settings",
    "ShardProgress",
    "Snapshot",
    "Status",
    "Total",
    "TotalOverRegions",
    "Verdict",
    "WindowSum",
    "counted",
    "counter_name",
    "errors",
    "outcomes",
    "record",
    "total",
]

# The module of each public name.
_MODULES: Final = {
    "AsyncCountLedger": "countledger.aio",
    "CountLedger": "countledger.client",
    "Retire": "countledger.compaction.report",
    "Schedule": "countledger.compaction.schedule",
    "Direction": "countledger.consumers.alerts.rule",
    "Rule": "countledger.consumers.alerts.rule",
    "Audit": "countledger.consumers.audit",
    "Group": "countledger.consumers.groups",
    "Ranked": "countledger.consumers.rankings",
    "ShardProgress": "countledger.consumers.progress",
    "Remedy": "countledger.consumers.verify",
    "Repair": "countledger.consumers.verify",
    "Snapshot": "countledger.consumers.totals",
    "RegionAnswer": "countledger.consumers.over_regions",
    "TotalOverRegions": "countledger.consumers.over_regions",
    "Freshness": "countledger.consumers.totals",
    "Judgement": "countledger.consumers.verify",
    "Verdict": "countledger.consumers.verify",
    "WindowSum": "countledger.consumers.windows",
    "Amount": "countledger.ledger.amount",
    "Entry": "countledger.ledger.entry",
    "CountledgerError": "countledger.ledger.errors",
    "ExactSum": "countledger.ledger.exact",
    "Head": "countledger.ledger.exact",
    "IdempotencyKey": "countledger.ledger.ids",
    "RangeKey": "countledger.ledger.ids",
    "Kind": "countledger.ledger.namespace",
    "counter_name": "countledger.ledger.ids",
    "Namespace": "countledger.ledger.namespace",
    "Settings": "countledger.ledger.settings",
    "Total": "countledger.ledger.total",
    "Buffering": "countledger.producers.buffer.settings",
    "Failure": "countledger.producers.buffer.settings",
    "PendingEntry": "countledger.producers.buffer.settings",
    "BufferedProducer": "countledger.producers.buffer.producer",
    "BufferStatistics": "countledger.producers.buffer.settings",
    "Claim": "countledger.producers.claims.claim",
    "Correction": "countledger.producers.recorder",
    "counted": "countledger.counting",
    "Event": "countledger.producers.event",
    "ItemChange": "countledger.producers.own_items",
    "ItemDeletion": "countledger.producers.own_items",
    "NewItem": "countledger.producers.own_items",
    "Receipt": "countledger.producers.event",
    "Status": "countledger.producers.event",
    "Admitted": "countledger.producers.quotas.quota",
    "Committed": "countledger.producers.quotas.quota",
    "Denied": "countledger.producers.quotas.quota",
    "Collection": "countledger.producers.sequences.sequence",
}
_SUBMODULES: Final = {
    "errors": "countledger.ledger.errors",
    "outcomes": "countledger.producers.strict.outcome",
}


if not TYPE_CHECKING:  # a type checker must still refuse unknown names

    def __getattr__(name: str) -> object:
        """Load a public name at its first use."""
        if name in _SUBMODULES:
            value: object = import_module(_SUBMODULES[name])
        elif name in _MODULES:
            value = getattr(import_module(_MODULES[name]), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*globals(), *__all__})


@cache
def _default() -> CountLedger:
    from countledger.client import CountLedger

    return CountLedger()


def record(
    counter: str,
    delta: Amount,
    *,
    key: str | IdempotencyKey | RangeKey | None = None,
    occurred_at: datetime | None = None,
    note: Mapping[str, str] | None = None,
) -> Receipt:
    """Add to a counter, exactly once, in the stack that the environment names.

    See `CountLedger.record`.
    """
    return _default().record(counter, delta, key=key, occurred_at=occurred_at, note=note)


def total(counter: str, *, after: Receipt | None = None, timeout_s: float = 10) -> Total:
    """A counter's materialized total, in the stack that the environment names.

    See `CountLedger.total`.
    """
    return _default().total(counter, after=after, timeout_s=timeout_s)
