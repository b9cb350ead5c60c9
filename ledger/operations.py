"""Reads and writes as values: what a plan consists of and the client carries out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from countledger.ledger.attributes import Item, Key, encode
from countledger.ledger.entry import encode_entry
from countledger.ledger.expressions import (
    Clause,
    Condition,
    Placeholders,
    expression_arguments,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger.ledger.entry import Entry


@dataclass(frozen=True, slots=True)
class Put:
    """Write a whole item, if the condition holds for the existing one."""

    table: str
    item: Item
    condition: Condition | None = None

    def arguments(self) -> dict[str, Any]:
        """The request."""
        return {"TableName": self.table, "Item": encode(self.item), **_conditional(self.condition)}


@dataclass(frozen=True, slots=True)
class Update:
    """Change attributes of an item, if the condition holds of it.

    Attributes:
        returning: what the answer carries: nothing, or the item as it is afterwards.
    """

    table: str
    key: Key
    clauses: tuple[Clause, ...]
    condition: Condition | None = None
    returning: Literal["NONE", "ALL_NEW"] = "NONE"

    def arguments(self) -> dict[str, Any]:
        """The request."""
        return {
            "TableName": self.table,
            "Key": encode(self.key),
            "ReturnValues": self.returning,
            **_conditional(self.condition, self.clauses),
        }


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove an item, if the condition holds of it."""

    table: str
    key: Key
    condition: Condition | None = None

    def arguments(self) -> dict[str, Any]:
        """The request."""
        return {"TableName": self.table, "Key": encode(self.key), **_conditional(self.condition)}


@dataclass(frozen=True, slots=True)
class Check:
    """Write nothing, but let the transaction fail unless the condition holds of the item."""

    table: str
    key: Key
    condition: Condition

    def arguments(self) -> dict[str, Any]:
        """The request."""
        return {"TableName": self.table, "Key": encode(self.key), **_conditional(self.condition)}


Write: TypeAlias = Put | Update | Delete | Check

_ACTIONS: Final[dict[type, str]] = {
    Put: "Put",
    Update: "Update",
    Delete: "Delete",
    Check: "ConditionCheck",
}


def action(write: Write) -> dict[str, Any]:
    """The write as one action of a transaction, which answers with no item."""
    arguments = write.arguments()
    arguments.pop("ReturnValues", None)
    return {_ACTIONS[type(write)]: arguments}


@dataclass(frozen=True, slots=True)
class Transact:
    """Write all of these or none, under a client request token."""

    writes: Sequence[Write]
    token: str


@dataclass(frozen=True, slots=True)
class PutBatch:
    """Write up to 25 entries without condition; the answer is those that the service did not take.

    Attributes:
        entries: of any counters.
        spreads: of the namespace of each.
    """

    table: str
    entries: Sequence[Entry]
    spreads: Sequence[int]

    @property
    def items(self) -> list[Item]:
        """The items to be written."""
        pairs = zip(self.entries, self.spreads, strict=True)
        return [encode_entry(entry, spread) for entry, spread in pairs]


@dataclass(frozen=True, slots=True)
class Get:
    """Read one item, consistently unless said otherwise."""

    table: str
    key: Key
    consistent: bool = True


@dataclass(frozen=True, slots=True)
class GetMany:
    """Read many items, consistently unless said otherwise; those that do not exist are left out."""

    table: str
    keys: Sequence[Key]
    consistent: bool = True


@dataclass(frozen=True, slots=True)
class TransactGet:
    """Read up to 100 items as of one moment."""

    table: str
    keys: Sequence[Key]


@dataclass(frozen=True, slots=True)
class Query:
    """Read the items of one partition in key order.

    Attributes:
        condition: on the key.
        index: the index to read, or None for the table.
        consistent: whether every write acknowledged before is seen (twice the read units).
        forward: ascending or descending.
        page_size: the most items of one page, or None for as many as fit.
        after: the key after which to begin, from the page before.
    """

    table: str
    condition: Condition
    index: str | None = None
    consistent: bool = False
    forward: bool = True
    page_size: int | None = None
    after: Key | None = None

    def arguments(self) -> dict[str, Any]:
        """The request for one page."""
        placeholders = Placeholders()
        arguments: dict[str, Any] = {
            "TableName": self.table,
            "KeyConditionExpression": self.condition.encode(placeholders),
            "ConsistentRead": self.consistent,
            "ScanIndexForward": self.forward,
            **placeholders.arguments(),
        }
        return arguments | _present(
            IndexName=self.index,
            Limit=self.page_size,
            ExclusiveStartKey=encode(self.after) if self.after else None,
        )


class Page(NamedTuple):
    """What one request of a query or scan answered with.

    Attributes:
        items: those that match; a page may be empty although more pages follow.
        after: the key after which the next page begins, or None after the last page.
        items_read: how many items were read, before the filter of a scan.
    """

    items: list[Item]
    after: Key | None
    items_read: int


@dataclass(frozen=True, slots=True)
class Scan:
    """Read a whole table, or one segment of it.

    Attributes:
        where: which items to answer with; the units are paid for all that are read.
        only: the attributes to answer with; all where empty.
        after: the key after which to begin; None begins at the start.
        page_size: the most items to read for one page, or None for as many as fit.
    """

    table: str
    where: Condition | None = None
    only: tuple[str, ...] = ()
    segment: int = 0
    segments: int = 1
    after: Key | None = None
    page_size: int | None = None

    def arguments(self) -> dict[str, Any]:
        """The request for one page."""
        placeholders = Placeholders()
        where = self.where.encode(placeholders) if self.where else None
        only = ", ".join(placeholders.name(name) for name in self.only) or None
        return {
            "TableName": self.table,
            "Segment": self.segment,
            "TotalSegments": self.segments,
            **_present(FilterExpression=where, ProjectionExpression=only, Limit=self.page_size),
            **({"ExclusiveStartKey": encode(self.after)} if self.after else {}),
            **placeholders.arguments(),
        }


# Every kind of request to DynamoDB.
Operation: TypeAlias = (
    Put | Update | Delete | Transact | PutBatch | Get | GetMany | TransactGet | Query | Scan
)


def _conditional(
    condition: Condition | None, clauses: Sequence[Clause] | None = None
) -> Mapping[str, Any]:
    """A refused condition returns the item that it met: no second read is needed."""
    if condition is None and clauses is None:
        return {}
    arguments = expression_arguments(clauses, condition)
    if condition is not None:
        arguments["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    return arguments


def _present(**arguments: object) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}
