"""The marks of counters that are being deleted, in the table `ledger`: so every region shows them.

A mark has these attributes:

id           of this deletion alone; every later write of it is conditional on it
at           when the deletion was requested: everything made by then is deleted
deleted_at   when head and total were emptied; written in the same transaction
generation   of the empty head
emptied      the incarnation of the head that the empty one replaced
region       whose total was deleted in that transaction
tidied       alert states, alert log and memberships are deleted

A cancelled deletion leaves a tombstone in its place, so that a late request of the call that marked
the counter does not mark it again. The ledger has no time to live: the tombstone stays until the
counter is marked again, which names the tombstone. The mark of a deletion that has ended leaves
none: it is a day and more older than the life of a request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.attributes import check_format, optional, require
from countledger.ledger.operations import (
    Absent,
    AllOf,
    Assign,
    Compare,
    Delete,
    Drop,
    Put,
    Query,
    Update,
)
from countledger.ledger.tombstones import present, tombstone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.ledger.attributes import Item
    from countledger.ledger.dynamo import DynamoClient


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
        region: whose total went with the head; empty: nobody knows any more; None: nothing was
            deleted yet.
        tidied: whether alert states, alert log and memberships are deleted.
    """

    counter: str
    id: str
    at_ms: int
    deleted_at_ms: int | None = None
    generation: int | None = None
    emptied: str = ""
    region: str | None = None
    tidied: bool = False


def decode_mark(item: Item) -> DeletionMark:
    """The mark in an item of the ledger.

    Raises:
        CorruptItem: an attribute is absent or of another type.
        NewerFormat: a later release wrote it.
    """
    check_format(item)
    return DeletionMark(
        counter=require(item, "entry", str),
        id=require(item, "id", str),
        at_ms=require(item, "at", int),
        deleted_at_ms=optional(item, "deleted_at", int),
        generation=optional(item, "generation", int),
        emptied=optional(item, "emptied", str) or "",
        region=optional(item, "region", str),
        tidied=item.get("tidied") is True,
    )


@dataclass(frozen=True, slots=True)
class DeletionMarks:
    """Reads the marks.

    Attributes:
        dynamo: its SDK may retry.
        ledger: the table `ledger`.
    """

    dynamo: DynamoClient
    ledger: str

    def find(self, counter: str) -> DeletionMark | None:
        """The mark of a counter, or None: one read unit."""
        found = self.dynamo.get(self.ledger, keys.deletion_key(counter), consistent=True)
        item = present(found)
        return None if item is None else decode_mark(item)

    def pending(self, namespace: str) -> Iterator[str]:
        """The marked counters of a namespace: half a read unit for each 4 KB."""
        marks = Compare("counter", "=", keys.DELETION_PREFIX + keys.check_namespace(namespace))
        for page in self.dynamo.pages(Query(self.ledger, marks)):
            yield from (item["entry"] for item in page if present(item))


def mark_of(table: str, mark: DeletionMark) -> Put:
    """Mark a counter, by `put_if_vacant`: one write unit."""
    return Put(table, {**keys.deletion_key(mark.counter), "id": mark.id, "at": mark.at_ms})


def mark_again(table: str, mark: DeletionMark, at_ms: int) -> Update:
    """Begin the wait again for a counter that is still in use: one write unit."""
    key, clauses = keys.deletion_key(mark.counter), (Assign("at", at_ms),)
    return Update(table, key, clauses, _pending(mark))


def emptied_of(table: str, mark: DeletionMark, after: DeletionMark) -> Update:
    """Note that head and total were emptied, in the transaction that does it."""
    clauses = (
        Assign("deleted_at", after.deleted_at_ms),
        Assign("generation", after.generation),
        Assign("emptied", after.emptied),
        Assign("region", after.region),
    )
    return Update(table, keys.deletion_key(mark.counter), clauses, _pending(mark))


def reopened_of(table: str, mark: DeletionMark) -> Update:
    """Note that nothing was deleted after all, unless it was since: one write unit."""
    noted = ("deleted_at", "generation", "emptied", "region")
    same = AllOf(_is(mark), Compare("deleted_at", "=", mark.deleted_at_ms), Absent("tidied"))
    return Update(table, keys.deletion_key(mark.counter), tuple(map(Drop, noted)), same)


def tidied_of(table: str, mark: DeletionMark) -> Update:
    """Note that alert states, alert log and memberships are deleted: one write unit."""
    clauses = (Assign("tidied", value=True),)
    return Update(table, keys.deletion_key(mark.counter), clauses, _is(mark))


def unmark_of(table: str, mark: DeletionMark) -> Delete:
    """Delete the mark of a deletion that has ended: one write unit."""
    return Delete(table, keys.deletion_key(mark.counter), _is(mark))


def cancel_of(table: str, mark: DeletionMark, now_ms: int, clock_skew_ms: int) -> Put:
    """Put a tombstone in place of a mark as long as nothing was deleted: one write unit."""
    gone = tombstone(keys.deletion_key(mark.counter), mark.id, now_ms, clock_skew_ms)
    return Put(table, gone, _pending(mark))


def _is(mark: DeletionMark) -> Compare:
    return Compare("id", "=", mark.id)


def _pending(mark: DeletionMark) -> AllOf:
    return AllOf(_is(mark), Compare("at", "=", mark.at_ms), Absent("deleted_at"))
