"""A sequence as it is stored, and the writes that draw from it: pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.attributes import check_format, require, require_time
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import BadItem, BadSequence, SequenceExhausted, shown
from countledger.ledger.limits import (
    BLOCK_MAX,
    PARTITION_KEY_MAX_BYTES,
    SEQUENCE_LAST,
    SORT_KEY_MAX_BYTES,
)
from countledger.ledger.operations import (
    Absent,
    Add,
    AllOf,
    AnyOf,
    Assign,
    AssignOnce,
    Between,
    Compare,
    Put,
    Query,
    Update,
)
from countledger.producers.own_items import check_names

if TYPE_CHECKING:
    from collections.abc import Mapping
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
    check_format(item)
    return Sequence(
        sequence=require(item, "counter", str),
        last=require(item, "total", int),
        version=require(item, "version", int),
        updated_at=to_datetime(require_time(item, "updated_at")),
    )


def check_number(what: str, number: object, least: int, most: int) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise BadSequence(
            f"{what} {shown(number)} is not a whole number from {least:,} to {most:,}"
        )
    return number


def check_size(size: object) -> int:
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

    The tag stays with the sequence until the next draw of this kind. Each number gets a new tag, so
    a call that finds its own tag knows that exactly this number is its own. `incarnation`: that of
    the sequence that was seen; None: none was read. `new_id`: the incarnation if this write makes
    it.
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
    return SequenceExhausted(
        f"sequence {sequence!r} has too few numbers left: its last number is {SEQUENCE_LAST}"
    )


# Items that are numbered within their collection: their keys, and how a number is written.


TAG_NAME: Final = "countledger_tag"
DIGITS_MAX: Final = 18


@dataclass(frozen=True, slots=True)
class Collection:
    """The items of one partition of an app's own table, numbered from 1 by their sort key.

    With a prefix the sort key is text, the number after it padded with zeros: `comment#000042`.
    Without one it is a number.

    Attributes:
        table: the table's name.
        partition: name and value of the partition key.
        sort: the name of the sort key.
        prefix: the text before the number; None: the sort key is a number.
        digits: how many digits a number has after the prefix.
        tag: the attribute by which a call recognizes its own item after a lost answer (36 bytes).

    Raises:
        BadSequence, BadItem: naming the value and the rule that it breaks.
    """

    table: str
    partition: tuple[str, str | int | bytes]
    sort: str
    prefix: str | None = None
    digits: int = 10
    tag: str = TAG_NAME

    def __post_init__(self) -> None:
        check_names("table", [self.table])
        _check_partition(self.partition)
        check_names("attribute", self.own_names)
        if len(set(self.own_names)) < len(self.own_names):
            raise BadItem(f"partition key, sort key and tag share a name: {self.own_names!r}")
        check_number("digits of", self.digits, 1, DIGITS_MAX)
        if self.prefix is not None:
            _check_text("prefix", self.prefix, SORT_KEY_MAX_BYTES - self.digits)

    @property
    def own_names(self) -> tuple[str, str, str]:
        """The attributes that are set by the call: partition key, sort key, tag."""
        return self.partition[0], self.sort, self.tag

    @property
    def last(self) -> int:
        """The last number that its keys can hold."""
        return SEQUENCE_LAST if self.prefix is None else 10**self.digits - 1

    def key(self, number: int) -> dict[str, str | int | bytes]:
        """The key of the item of that number."""
        return {self.partition[0]: self.partition[1], self.sort: self._written(number)}

    def highest(self) -> Query:
        """The read of the item with the highest number; it sees every acknowledged write."""
        return Query(self.table, self._from(0), consistent=True, forward=False, page_size=1)

    def since(self, number: int) -> Query:
        """The read of the items from a number on."""
        return Query(self.table, self._from(number), consistent=True)

    def number_of(self, item: Item) -> int:
        """The number of an item.

        Raises:
            BadSequence: its sort key is not a number of this collection.
        """
        written = item.get(self.sort)
        if self.prefix is None and isinstance(written, int):
            return written
        if self.prefix is not None and isinstance(written, str):
            digits = written.removeprefix(self.prefix)
            if re.fullmatch(rf"[0-9]{{{self.digits}}}", digits):
                return int(digits)
        raise BadSequence(
            f"{self.sort} = {shown(written)} in table {self.table!r} is among the numbers of a "
            "collection but is none: keep other items under another prefix or partition key"
        )

    def put(self, number: int, item: Mapping[str, object], tag: str) -> Put:
        """The write of an item under its number, if that is free.

        Raises:
            SequenceExhausted: the number is above the last one.
        """
        if number > self.last:
            raise SequenceExhausted(
                f"the collection {shown(self.partition[1])} of table {self.table!r} is full: its "
                f"last number is {self.last}"
            )
        whole = {**item, **self.key(number), self.tag: tag}
        return Put(self.table, whole, Absent(self.partition[0]))

    def _from(self, number: int) -> Condition:
        name, value = self.partition
        numbers = Between(self.sort, self._written(number), self._written(self.last))
        return AllOf(Compare(name, "=", value), numbers)

    def _written(self, number: int) -> str | int:
        return number if self.prefix is None else f"{self.prefix}{number:0{self.digits}d}"


def _check_partition(partition: object) -> None:
    if not isinstance(partition, tuple) or len(partition) != len(("name", "value")):
        raise BadSequence(f"partition {shown(partition)} is no pair of name and value of the key")
    value = partition[1]
    if isinstance(value, bool) or value in ("", b""):
        raise BadSequence(f"partition key {shown(value)} is empty, or no text, integer or binary")
    if not isinstance(value, int):
        _check_text("partition key", value, PARTITION_KEY_MAX_BYTES)


def _check_text(what: str, text: object, most: int) -> None:
    """Text, or for a key binary, of at most so many bytes."""
    if not isinstance(text, str | bytes):
        raise BadSequence(f"{what} {shown(text)} is a {type(text).__name__}, not a str")
    try:
        size = len(text.encode() if isinstance(text, str) else text)
    except UnicodeEncodeError:
        raise BadSequence(f"{what} {shown(text)} is no valid Unicode text") from None
    if size > most:
        raise BadSequence(f"{what} {shown(text)} is {size} bytes long; at most {most} fit")
