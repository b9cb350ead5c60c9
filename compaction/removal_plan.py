"""The one write by which a ledger counter's numbers go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from countledger.compaction import removal_mark
from countledger.ledger import keys
from countledger.ledger.expressions import Absent, AllOf, Compare
from countledger.ledger.head import Head, encode_head
from countledger.ledger.operations import Check, Delete, Put

if TYPE_CHECKING:
    from countledger.compaction.removal_mark import Mark
    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Write

# The run that an empty head names: none of the compactor's.
RUN: Final = "removed"


def plan_removal(
    tables: tuple[str, str], mark: Mark, head: Head, total: Item | None, now_ms: int
) -> tuple[Write, ...]:
    """The transaction that empties a counter, if all is as it was read. Pure.

    Args:
        tables: `ledger` and `counters`.
        mark: of the counter, not removed yet.
        head: as it was read; it covers nothing.
        total: its total as it was read, or None.
        now_ms: the time.
    """
    ledger, counters = tables
    head_key, total_key = keys.head_key(mark.counter), keys.total_key(mark.counter)
    as_read = (
        AllOf(Compare("generation", "=", head.generation), Compare("run", "=", head.run))
        if head.generation
        else Absent("entry")
    )
    empty = Head(generation=head.generation + 1, run=RUN)
    item = encode_head(mark.counter, empty)
    return (
        Put(ledger, {**item, **head_key}, as_read),
        Check(counters, total_key, Absent("part"))
        if total is None
        else Delete(counters, total_key, Compare("version", "=", total.get("version"))),
        removal_mark.removed_of(counters, mark, empty.generation, now_ms),
    )
