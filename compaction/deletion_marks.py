"""The marks of counters that are being deleted, in the table `ledger`: so every region shows them.

A mark has these attributes:

id           of this deletion alone; every later write of it is conditional on it
at           when the deletion was requested: everything made by then is deleted
deleted_at   when head and total were emptied; written in the same transaction
generation   of the empty head
emptied      the incarnation of the head that the empty one replaced
region       whose total was deleted in that transaction
tidied       alert states, alert log and memberships are deleted

Releases up to 0.1.0 kept it in `counters`, with the same attributes. Such a mark moves when it is
read first, in one transaction: of the two copies another process would continue the second one,
after the first had ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.attributes import check_format, optional, require
from countledger.ledger.errors import TransactionCancelled
from countledger.ledger.expressions import Absent, AllOf, Assign, Compare, Drop
from countledger.ledger.operations import Delete, Put, Query, Update

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
        region: whose total went with the head; empty: nobody knows any more; None: releases up to
            0.1.0 did not say, and there was only one.
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
    """The mark in an item of `ledger`, or of `counters` from a release up to 0.1.0.

    Raises:
        CorruptItem: an attribute is absent or of another type.
        NewerFormat: a later release wrote it.
    """
    check_format(item)
    return DeletionMark(
        counter=require(item, "entry" if "entry" in item else "part", str),
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
        counters: the table `counters`, for marks of releases up to 0.1.0.
        new_id: makes the tokens of transactions.
    """

    dynamo: DynamoClient
    ledger: str
    counters: str
    new_id: Callable[[], str]

    def find(self, counter: str) -> DeletionMark | None:
        """The mark of a counter, or None: one read unit, two if it has none.

        A mark that an earlier release wrote moves to the ledger: four write units, once.
        """
        key = keys.deletion_key(counter)
        item = self.dynamo.get(self.ledger, key, consistent=True)
        if item is not None:
            return decode_mark(item)
        earlier_key = keys.deletion_key(counter, "part")
        earlier = self.dynamo.get(self.counters, earlier_key, consistent=True)
        if earlier is None:
            return None
        mark = decode_mark(earlier)
        moved = {name: value for name, value in earlier.items() if name not in earlier_key}
        writes = (
            Put(self.ledger, {**key, **moved}, Absent("entry")),
            Delete(self.counters, earlier_key, _is(mark)),
        )
        try:
            self.dynamo.transact(writes, self.new_id())
        except TransactionCancelled:
            # Another process moved it, and may have continued.
            item = self.dynamo.get(self.ledger, key, consistent=True)
            return None if item is None else decode_mark(item)
        return mark

    def pending(self, namespace: str) -> Iterator[str]:
        """The marked counters of a namespace: half a read unit for each 4 KB of either table's."""
        marks = Compare("counter", "=", keys.DELETION_PREFIX + keys.check_namespace(namespace))
        for table, name in ((self.ledger, "entry"), (self.counters, "part")):
            for page in self.dynamo.pages(Query(table, marks)):
                yield from (item[name] for item in page)


def mark_of(table: str, counter: str, mark_id: str, at_ms: int) -> Put:
    """Mark a counter that is not marked: one write unit."""
    item = {**keys.deletion_key(counter), "id": mark_id, "at": at_ms}
    return Put(table, item, Absent("entry"))


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
    """Note that nothing was deleted after all: one write unit."""
    noted = ("deleted_at", "generation", "emptied", "region")
    untidied = AllOf(_is(mark), Absent("tidied"))
    return Update(table, keys.deletion_key(mark.counter), tuple(map(Drop, noted)), untidied)


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
