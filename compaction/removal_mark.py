"""The mark of a counter that is being removed: when that was asked for, and how far it has come.

at           asked for: what was made by then goes
removed_at   head and total were emptied, in the same transaction as this was written
tidied       what else was kept of the counter is gone
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.attributes import check_format, optional, require
from countledger.ledger.expressions import Absent, AllOf, Assign, Compare
from countledger.ledger.operations import Delete, Put, Update

if TYPE_CHECKING:
    from countledger.ledger.attributes import Item


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A counter that is being removed.

    Attributes:
        counter: its name.
        at_ms: when that was asked for.
        removed_at_ms: when its head and total were emptied; None: they were not yet.
        generation: of the empty head that was left in their place.
        tidied: whether alert states, alert log and memberships are gone.
    """

    counter: str
    at_ms: int
    removed_at_ms: int | None = None
    generation: int | None = None
    tidied: bool = False


def decode_mark(item: Item) -> Mark:
    """The mark in an item of `counters`.

    Raises:
        CorruptItem: an attribute is absent or of another type.
        NewerFormat: a later release wrote it.
    """
    check_format(item)
    return Mark(
        counter=require(item, "part", str),
        at_ms=require(item, "at", int),
        removed_at_ms=optional(item, "removed_at", int),
        generation=optional(item, "generation", int),
        tidied=item.get("tidied") is True,
    )


def mark_of(table: str, counter: str, at_ms: int) -> Put:
    """Mark a counter that is not marked: one write unit."""
    return Put(table, {**keys.removal_key(counter), "at": at_ms}, Absent("part"))


def mark_again(table: str, mark: Mark, at_ms: int) -> Update:
    """Ask anew for what is in use still, from now on: one write unit."""
    key, clauses = keys.removal_key(mark.counter), (Assign("at", at_ms),)
    return Update(table, key, clauses, _pending(mark))


def removed_of(table: str, mark: Mark, generation: int, at_ms: int) -> Update:
    """Note that head and total were emptied; part of the transaction that does it."""
    clauses = (Assign("removed_at", at_ms), Assign("generation", generation))
    return Update(table, keys.removal_key(mark.counter), clauses, _pending(mark))


def tidied_of(table: str, mark: Mark) -> Update:
    """Note that all else is gone: one write unit."""
    same = Compare("at", "=", mark.at_ms)
    return Update(
        table, keys.removal_key(mark.counter), (Assign("tidied", value=True),), AllOf(same)
    )


def unmark_of(table: str, mark: Mark) -> Delete:
    """Forget a mark as it was read: one write unit."""
    as_read = Compare("at", "=", mark.at_ms)
    return Delete(table, keys.removal_key(mark.counter), as_read)


def cancel_of(table: str, mark: Mark) -> Delete:
    """Take a mark away while nothing was removed: one write unit."""
    return Delete(table, keys.removal_key(mark.counter), _pending(mark))


def _pending(mark: Mark) -> AllOf:
    return AllOf(Compare("at", "=", mark.at_ms), Absent("removed_at"))
