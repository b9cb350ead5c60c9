"""The mark of a counter that is being deleted: when that was asked for, and how far it has come.

id           of this deletion alone; every later write of it asks for it
at           asked for: what was made by then goes
deleted_at   head and total were emptied, in the same transaction as this was written
generation   of the empty head
emptied      the incarnation of the head that the empty one replaced
tidied       what else was kept of the counter is gone
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.attributes import check_format, optional, require
from countledger.ledger.expressions import Absent, AllOf, Assign, Compare
from countledger.ledger.operations import Delete, Put, Update

if TYPE_CHECKING:
    from countledger.ledger.attributes import Item
    from countledger.ledger.head import Head


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionMark:
    """A counter that is being deleted.

    Attributes:
        counter: its name.
        id: of this deletion; never used again.
        at_ms: when that was asked for.
        deleted_at_ms: when its head and total were emptied; None: they were not yet.
        generation: of the empty head that was left in their place.
        emptied: the incarnation of the head that the empty one replaced; empty: there was no head.
        tidied: whether alert states, alert log and memberships are gone.
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
    """Ask anew for what is in use still, from now on: one write unit."""
    key, clauses = keys.deletion_key(mark.counter), (Assign("at", at_ms),)
    return Update(table, key, clauses, _pending(mark))


def deleted_of(table: str, mark: DeletionMark, deleted: DeletionMark) -> Update:
    """Note that head and total were emptied; part of the transaction that does it."""
    clauses = (
        Assign("deleted_at", deleted.deleted_at_ms),
        Assign("generation", deleted.generation),
        Assign("emptied", deleted.emptied),
    )
    return Update(table, keys.deletion_key(mark.counter), clauses, _pending(mark))


def tidied_of(table: str, mark: DeletionMark) -> Update:
    """Note that all else is gone: one write unit."""
    clauses = (Assign("tidied", value=True),)
    return Update(table, keys.deletion_key(mark.counter), clauses, _is(mark))


def unmark_of(table: str, mark: DeletionMark) -> Delete:
    """Forget the mark of a deletion that has ended: one write unit."""
    return Delete(table, keys.deletion_key(mark.counter), _is(mark))


def cancel_of(table: str, mark: DeletionMark) -> Delete:
    """Take a mark away while nothing was deleted: one write unit."""
    return Delete(table, keys.deletion_key(mark.counter), _pending(mark))


def _is(mark: DeletionMark) -> Compare:
    return Compare("id", "=", mark.id)


def _pending(mark: DeletionMark) -> AllOf:
    return AllOf(_is(mark), Compare("at", "=", mark.at_ms), Absent("deleted_at"))
