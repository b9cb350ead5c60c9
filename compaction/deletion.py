"""The deletion of a ledger counter: its stages, its mark, and the transaction that does it.

The mark is an item of `counters` with these attributes:

id           of this deletion alone; every later write of it is conditional on it
at           when the deletion was requested: everything made by then is deleted
deleted_at   when head and total were emptied; written in the same transaction
generation   of the empty head
emptied      the incarnation of the head that the empty one replaced
tidied       alert states, alert log and memberships are deleted
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from countledger.compaction import plan
from countledger.ledger import keys
from countledger.ledger.attributes import check_format, optional, require
from countledger.ledger.errors import BadSetting
from countledger.ledger.expressions import Absent, AllOf, Assign, Compare
from countledger.ledger.head import Head, encode_head
from countledger.ledger.operations import Check, Delete, Put, Update

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.compaction.regions import Survey
    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Write

# How many of the things that stay a report names.
_NAMED: Final = 5


class DeletionStage(StrEnum):
    """How far a deletion has come."""

    MARKED = "marked"
    WAITING = "waiting"
    IN_USE = "in use"
    SKIPPED = "skipped"
    DELETED = "deleted"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True)
class Deletion:
    """How far the deletion of a counter has come.

    Attributes:
        counter: its name.
        stage: `marked` just now; `waiting` until it is safe; `in use`: an entry is newer than the
            mark, so the wait begins again; `skipped` this time, for the reason in `detail`;
            `deleted`: its numbers are gone; `forgotten`: its name as well.
        next_at_ms: when the next call can continue; None: at any time, or nothing is left to do.
        detail: one line for people.
    """

    counter: str
    stage: DeletionStage
    next_at_ms: int | None
    detail: str


def skipped(counter: str, detail: str) -> Deletion:
    """A deletion that did nothing this time, for this reason."""
    return Deletion(counter, DeletionStage.SKIPPED, None, detail)


def what_is_left(stays: Sequence[str]) -> str:
    """What a report says of a deleted counter, given what is kept under its name."""
    if not stays:
        return "nothing is left of it"
    more = f" and {len(stays) - _NAMED} more" if len(stays) > _NAMED else ""
    return f"the name is in use again; kept: {', '.join(stays[:_NAMED])}{more}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionMark:
    """A counter that is being deleted.

    Attributes:
        counter: its name.
        id: of this deletion; never used again.
        at_ms: when the deletion was requested.
        deleted_at_ms: when its head and total were emptied; None: not yet.
        generation: of the empty head that was left in their place.
        emptied: the incarnation of the head that the empty one replaced; empty: there was no head.
        tidied: whether alert states, alert log and memberships are deleted.
    """

    counter: str
    id: str
    at_ms: int
    deleted_at_ms: int | None = None
    generation: int | None = None
    emptied: str = ""
    tidied: bool = False


def decode_mark(item: Item) -> DeletionMark:
    """The mark in an item of `counters`.

    Raises:
        CorruptItem: an attribute is absent or of another type.
        NewerFormat: a later release wrote it.
    """
    check_format(item)
    return DeletionMark(
        counter=require(item, "part", str),
        id=require(item, "id", str),
        at_ms=require(item, "at", int),
        deleted_at_ms=optional(item, "deleted_at", int),
        generation=optional(item, "generation", int),
        emptied=optional(item, "emptied", str) or "",
        tidied=item.get("tidied") is True,
    )


def deleted(mark: DeletionMark, head: Head, now_ms: int) -> DeletionMark:
    """The mark once this head was emptied."""
    return replace(
        mark, deleted_at_ms=now_ms, generation=head.generation + 1, emptied=head.incarnation
    )


def mark_of(table: str, counter: str, mark_id: str, at_ms: int) -> Put:
    """Mark a counter that is not marked: one write unit."""
    item = {**keys.deletion_key(counter), "id": mark_id, "at": at_ms}
    return Put(table, item, Absent("part"))


def mark_again(table: str, mark: DeletionMark, at_ms: int) -> Update:
    """Begin the wait again for a counter that is still in use: one write unit."""
    key, clauses = keys.deletion_key(mark.counter), (Assign("at", at_ms),)
    return Update(table, key, clauses, _pending(mark))


def tidied_of(table: str, mark: DeletionMark) -> Update:
    """Note that alert states, alert log and memberships are deleted: one write unit."""
    clauses = (Assign("tidied", value=True),)
    return Update(table, keys.deletion_key(mark.counter), clauses, _is(mark))


def unmark_of(table: str, mark: DeletionMark) -> Delete:
    """Delete the mark of a deletion that has ended: one write unit."""
    return Delete(table, keys.deletion_key(mark.counter), _is(mark))


def cancel_of(table: str, mark: DeletionMark) -> Delete:
    """Delete a mark as long as nothing was deleted: one write unit."""
    return Delete(table, keys.deletion_key(mark.counter), _pending(mark))


def _is(mark: DeletionMark) -> Compare:
    return Compare("id", "=", mark.id)


def _pending(mark: DeletionMark) -> AllOf:
    return AllOf(_is(mark), Compare("at", "=", mark.at_ms), Absent("deleted_at"))


def empty_head(mark: DeletionMark, generation: int) -> Head:
    """The empty head that a deletion leaves: the first of a new incarnation.

    Its `run` names the deletion, so no other head is mistaken for it. Everything recorded up to
    `to_at` was deleted; what is dated later was not.
    """
    return Head(generation=generation, run=mark.id, incarnation=mark.id, to_at_ms=mark.at_ms)


def plan_deletion(
    tables: tuple[str, str], mark: DeletionMark, head: Head, total: Item | None, now_ms: int
) -> tuple[Write, ...]:
    """The transaction that empties a counter, if everything is still as it was read.

    Args:
        tables: `ledger` and `counters`.
        mark: of the counter, not deleted yet.
        head: as it was read; it covers nothing.
        total: its total as it was read, or None.
        now_ms: the time.
    """
    ledger, counters = tables
    total_key = keys.total_key(mark.counter)
    empty, after = empty_head(mark, head.generation + 1), deleted(mark, head, now_ms)
    clauses = (
        Assign("deleted_at", after.deleted_at_ms),
        Assign("generation", after.generation),
        Assign("emptied", after.emptied),
    )
    return (
        Put(ledger, encode_head(mark.counter, empty), plan.is_still(head)),
        Check(counters, total_key, Absent("part"))
        if total is None
        else Delete(counters, total_key, Compare("version", "=", total.get("version"))),
        Update(counters, keys.deletion_key(mark.counter), clauses, _pending(mark)),
    )


def refuse_replicas(survey: Survey, counter: str) -> None:
    """Refuse a counter that one transaction cannot delete.

    Raises:
        BadSetting: the ledger has replicas, or allows no transactions.
    """
    if survey.strong:
        raise BadSetting(
            f"counter {counter!r} cannot be deleted: its ledger has multi-region strong "
            "consistency, which allows no transactions, and its numbers must go in one"
        )
    if survey.others:
        raise BadSetting(
            f"counter {counter!r} cannot be deleted: its ledger has replicas in "
            f"{', '.join(survey.others)}, and its totals there would stay"
        )
