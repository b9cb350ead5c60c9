"""The one write by which a ledger counter's numbers go, and where it cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countledger.compaction import deletion_mark, plan
from countledger.ledger import keys
from countledger.ledger.errors import BadSetting
from countledger.ledger.expressions import Absent, Compare
from countledger.ledger.head import Head, encode_head
from countledger.ledger.operations import Check, Delete, Put

if TYPE_CHECKING:
    from countledger.compaction.deletion_mark import DeletionMark
    from countledger.compaction.regions import Survey
    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Write


def empty_head(mark: DeletionMark, generation: int) -> Head:
    """The empty head that a deletion leaves: the first of a new incarnation.

    Its `run` names the deletion, so no other head is mistaken for it. Everything that was recorded
    up to `to_at` was deleted; what is dated later was not.
    """
    return Head(generation=generation, run=mark.id, incarnation=mark.id, to_at_ms=mark.at_ms)


def plan_deletion(
    tables: tuple[str, str], mark: DeletionMark, head: Head, total: Item | None, now_ms: int
) -> tuple[Write, ...]:
    """The transaction that empties a counter, if all is as it was read. Pure.

    Args:
        tables: `ledger` and `counters`.
        mark: of the counter, not deleted yet.
        head: as it was read; it covers nothing.
        total: its total as it was read, or None.
        now_ms: the time.
    """
    ledger, counters = tables
    total_key = keys.total_key(mark.counter)
    empty = empty_head(mark, head.generation + 1)
    return (
        Put(ledger, encode_head(mark.counter, empty), plan.is_still(head)),
        Check(counters, total_key, Absent("part"))
        if total is None
        else Delete(counters, total_key, Compare("version", "=", total.get("version"))),
        deletion_mark.deleted_of(counters, mark, deletion_mark.deleted(mark, head, now_ms)),
    )


def refuse_replicas(survey: Survey, counter: str) -> None:
    """Refuse what no transaction can delete at once.

    Raises:
        BadSetting: the ledger has replicas, or takes no transactions.
    """
    if survey.strong:
        raise BadSetting(
            f"counter {counter!r} cannot be deleted: its ledger has multi-region strong "
            "consistency and takes no transactions, so its numbers cannot go at once"
        )
    if survey.others:
        raise BadSetting(
            f"counter {counter!r} cannot be deleted: its ledger is in other regions as well: "
            f"{', '.join(survey.others)}. Its totals there would stay"
        )
