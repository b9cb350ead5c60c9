"""A sequence as it is stored, and the writes that draw from it: pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.attributes import check_format, optional_time, require
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import BadSequence, SequenceExhausted, shown
from countledger.ledger.limits import BLOCK_MAX, SEQUENCE_LAST
from countledger.ledger.operations import (
    Absent,
    Add,
    AllOf,
    AnyOf,
    Assign,
    AssignOnce,
    Compare,
    Put,
    Update,
)

if TYPE_CHECKING:
    from datetime import datetime

    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Condition

# Distinguishes the item of a sequence from that of a strict counter, for every reader.
METHOD: Final = "sequence"


@dataclass(frozen=True, slots=True)
class Sequence:
    """The current state of a sequence.

    Attributes:
        sequence: its name.
        last: the last number that was given out; one less than the first if none was.
        version: how often it was drawn from or made; 0 = never.
        updated_at: when that was, or None.
    """

    sequence: str
    last: int = 0
    version: int = 0
    updated_at: datetime | None = None


def decode_sequence(item: Item) -> Sequence:
    """The sequence in an item of `counters`.

    Raises:
        CorruptItem: an attribute is absent or of another type.
        NewerFormat: a later release wrote it.
    """
    check_format(item)
    updated_at_ms = optional_time(item, "updated_at")
    return Sequence(
        sequence=require(item, "counter", str),
        last=require(item, "total", int),
        version=require(item, "version", int),
        updated_at=None if updated_at_ms is None else to_datetime(updated_at_ms),
    )


def check_number(what: str, number: object, least: int, most: int) -> int:
    """A whole number within bounds.

    Raises:
        BadSequence: naming the value and the bounds.
    """
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise BadSequence(
            f"{what} {shown(number)} is not a whole number from {least:,} to {most:,}"
        )
    return number


def check_size(size: object) -> int:
    """The size of a block.

    Raises:
        BadSequence: it is no whole number from 1 to a million.
    """
    return check_number("a block of", size, 1, BLOCK_MAX)


def plan_making(table: str, sequence: str, first: int, tag: str, now_ms: int) -> Put:
    """The write that creates a sequence: one write unit."""
    item = {
        **keys.total_key(sequence),
        "method": METHOD,
        "total": first - 1,
        "first": first,  # shows a reader of the stream that nothing was drawn yet
        "version": 1,
        "incarnation": tag,
        "tag": tag,
        "updated_at": now_ms,
    }
    return Put(table, item, Absent("part"))


def plan_draw(table: str, sequence: str, size: int, new_id: str, now_ms: int) -> Update:
    """The write that draws numbers, if the sequence has this many left: one write unit.

    It creates the sequence if none exists, as the incarnation of that id; then the first number is
    1. It is not conditional on an incarnation: no other draw gets the same numbers of any of them.
    """
    has_numbers = Compare("total", "<=", SEQUENCE_LAST - size)
    return Update(
        table,
        keys.total_key(sequence),
        (
            Add("total", size),
            Add("version", 1),
            Assign("method", METHOD),
            AssignOnce("incarnation", new_id),
            Assign("updated_at", now_ms),
        ),
        AnyOf(Absent("total"), has_numbers),
        returning="ALL_NEW",
    )


def plan_expected(
    table: str,
    sequence: str,
    last: int,
    *,
    incarnation: str | None,
    tag: str,
    new_id: str,
    now_ms: int,
) -> Update:
    """The write that draws the number after `last`, if that is still the last: one write unit.

    The tag stays with the sequence until the next draw of this kind. Each number gets a new tag,
    so a call that finds its own tag knows that exactly this number is its own.

    Args:
        table: the table `counters`.
        sequence: its name.
        last: the number that must be the last.
        incarnation: the id of the sequence that was seen; None: none was read.
        tag: of this number.
        new_id: the incarnation of the sequence if this write makes it.
        now_ms: when.
    """
    still: Condition = Compare("total", "=", last)
    if incarnation is not None:
        still = AllOf(still, Compare("incarnation", "=", incarnation))
    return Update(
        table,
        keys.total_key(sequence),
        (
            Assign("total", last + 1),
            Add("version", 1),
            Assign("method", METHOD),
            Assign("tag", tag),
            AssignOnce("incarnation", new_id),
            Assign("updated_at", now_ms),
        ),
        AnyOf(Absent("total"), still) if last == 0 and incarnation is None else still,
    )


def exhausted(sequence: str) -> SequenceExhausted:
    """The error of a sequence that has too few numbers left."""
    return SequenceExhausted(
        f"sequence {sequence!r} has too few numbers left: its last number is {SEQUENCE_LAST}"
    )
