"""Reads and writes as values: what a plan consists of and the client carries out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Protocol, TypeAlias

from countledger.ledger.attributes import Item, Key, encode, encode_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger.ledger.entry import PutBatch


# Conditions and updates as values: composed, printed and tested without a service.
#
# Each value knows only how to encode itself; a `Placeholders` collects the names and values of one
# request. No other module writes the text of an expression.


@dataclass(slots=True)
class Placeholders:
    """The names and values of one request, each once."""

    _names: dict[str, str] = field(default_factory=dict)
    _values: list[object] = field(default_factory=list)

    def name(self, attribute: str) -> str:
        return self._names.setdefault(attribute, f"#{len(self._names)}")

    def value(self, value: object) -> str:
        self._values.append(value)
        return f":{len(self._values) - 1}"

    def noted(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """The names by their placeholders, and the placeholders of the values."""
        values = tuple(f":{number}" for number in range(len(self._values)))
        return {p: n for n, p in self._names.items()}, values

    def arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        if self._names:
            arguments["ExpressionAttributeNames"] = {p: n for n, p in self._names.items()}
        if self._values:
            arguments["ExpressionAttributeValues"] = {
                f":{n}": encode_value(value) for n, value in enumerate(self._values)
            }
        return arguments


class Condition(Protocol):
    """What must hold of an item."""

    def encode(self, to: Placeholders) -> str:
        """Its text, with its names and values noted."""

    def outline(self, shape: list[object], values: list[object]) -> None:
        """Append its shape, on which its text depends, and its values in the text's order."""


@dataclass(frozen=True, slots=True)
class Absent:
    """The attribute does not exist (for a key attribute: the item does not)."""

    name: str

    def encode(self, to: Placeholders) -> str:
        return f"attribute_not_exists({to.name(self.name)})"

    def outline(self, shape: list[object], values: list[object]) -> None:  # noqa: ARG002 - has none
        shape += (Absent, self.name)


@dataclass(frozen=True, slots=True)
class Compare:
    """The attribute exists and has this relation to the value."""

    name: str
    operator: Literal["=", "<>", "<", "<=", ">", ">="]
    value: object

    def encode(self, to: Placeholders) -> str:
        return f"{to.name(self.name)} {self.operator} {to.value(self.value)}"

    def outline(self, shape: list[object], values: list[object]) -> None:
        shape += (Compare, self.name, self.operator)
        values.append(self.value)


def unchanged(name: str, value: object | None) -> Absent | Compare:
    """The attribute is what it was when its item was read; None: there was none."""
    return Absent(name) if value is None else Compare(name, "=", value)


@dataclass(frozen=True, slots=True)
class Lacks:
    """The set does not contain the value, or does not exist."""

    name: str
    value: object

    def encode(self, to: Placeholders) -> str:
        return f"NOT contains({to.name(self.name)}, {to.value(self.value)})"

    def outline(self, shape: list[object], values: list[object]) -> None:
        shape += (Lacks, self.name)
        values.append(self.value)


@dataclass(frozen=True, slots=True)
class SizeAtMost:
    """The set exists and has at most this many members."""

    name: str
    size: int

    def encode(self, to: Placeholders) -> str:
        return f"size({to.name(self.name)}) <= {to.value(self.size)}"

    def outline(self, shape: list[object], values: list[object]) -> None:
        shape += (SizeAtMost, self.name)
        values.append(self.size)


@dataclass(frozen=True, slots=True)
class BeginsWith:
    """The attribute begins with the text."""

    name: str
    prefix: str

    def encode(self, to: Placeholders) -> str:
        return f"begins_with({to.name(self.name)}, {to.value(self.prefix)})"

    def outline(self, shape: list[object], values: list[object]) -> None:
        shape += (BeginsWith, self.name)
        values.append(self.prefix)


@dataclass(frozen=True, slots=True)
class Between:
    """The attribute is between the two values, both included."""

    name: str
    low: object
    high: object

    def encode(self, to: Placeholders) -> str:
        return f"{to.name(self.name)} BETWEEN {to.value(self.low)} AND {to.value(self.high)}"

    def outline(self, shape: list[object], values: list[object]) -> None:
        shape += (Between, self.name)
        values += (self.low, self.high)


@dataclass(frozen=True, slots=True, init=False)
class _Several:
    """Conditions, joined by a word."""

    word: ClassVar[str]
    conditions: tuple[Condition, ...]

    def __init__(self, *conditions: Condition) -> None:
        object.__setattr__(self, "conditions", conditions)

    def encode(self, to: Placeholders) -> str:
        return self.word.join(_grouped(condition, to) for condition in self.conditions)

    def outline(self, shape: list[object], values: list[object]) -> None:
        shape += (self.word, len(self.conditions))
        for condition in self.conditions:
            condition.outline(shape, values)


class AllOf(_Several):
    __slots__ = ()
    word = " AND "


class AnyOf(_Several):
    __slots__ = ()
    word = " OR "


def all_unchanged(seen: Mapping[str, object], *names: str) -> AllOf:
    """Each of these attributes is what it was when the item was read, or absent as it was."""
    return AllOf(*(unchanged(name, seen.get(name)) for name in names))


@dataclass(frozen=True, slots=True)
class Add:
    """Add to a number; an absent one counts as zero."""

    name: str
    value: object


@dataclass(frozen=True, slots=True)
class Assign:
    """Set an attribute."""

    name: str
    value: object


@dataclass(frozen=True, slots=True)
class AssignOnce:
    """Set an attribute, unless the item has it already."""

    name: str
    value: object


@dataclass(frozen=True, slots=True)
class Drop:
    """Remove an attribute."""

    name: str


Clause = Add | Assign | AssignOnce | Drop


def _grouped(condition: Condition, to: Placeholders) -> str:
    text = condition.encode(to)
    return f"({text})" if isinstance(condition, AllOf | AnyOf) else text


def encode_update(clauses: Sequence[Clause], to: Placeholders) -> str:
    assigned = [
        f"{to.name(c.name)} = {to.value(c.value)}" for c in clauses if isinstance(c, Assign)
    ]
    assigned += [
        f"{to.name(c.name)} = if_not_exists({to.name(c.name)}, {to.value(c.value)})"
        for c in clauses
        if isinstance(c, AssignOnce)
    ]
    added = [f"{to.name(c.name)} {to.value(c.value)}" for c in clauses if isinstance(c, Add)]
    dropped = [to.name(c.name) for c in clauses if isinstance(c, Drop)]
    parts = (("SET", assigned), ("ADD", added), ("REMOVE", dropped))
    return " ".join(f"{verb} {', '.join(texts)}" for verb, texts in parts if texts)


# ---- texts, each composed once for all requests of one shape ----


class ExpressionTexts(NamedTuple):
    """The texts of all requests of one shape; `values`: placeholders in an outline's order."""

    texts: dict[str, str]
    names: dict[str, str]
    values: tuple[str, ...]


_TEXTS: Final[dict[tuple[object, ...], ExpressionTexts]] = {}
_TEXTS_MAX: Final = 1_000
# Longer ones, such as the removal of a hundred watermarks, name what no other request names.
_SHAPE_MAX: Final = 100


def expression_arguments(
    clauses: Sequence[Clause] | None, condition: Condition | None
) -> dict[str, Any]:
    shape: list[object] = [clauses is None, condition is None]
    values: list[object] = []
    if clauses is not None:
        _outline_update(clauses, shape, values)
    if condition is not None:
        condition.outline(shape, values)
    key = tuple(shape)
    found = _TEXTS.get(key)
    if found is None:
        found = _texts_of(clauses, condition)
        if len(shape) <= _SHAPE_MAX:
            if len(_TEXTS) >= _TEXTS_MAX:
                _TEXTS.clear()
            _TEXTS[key] = found
    arguments: dict[str, Any] = found.texts.copy()
    if found.names:
        arguments["ExpressionAttributeNames"] = found.names.copy()
    if values:
        encoded = map(encode_value, values)
        arguments["ExpressionAttributeValues"] = dict(zip(found.values, encoded, strict=True))
    return arguments


def _outline_update(clauses: Sequence[Clause], shape: list[object], values: list[object]) -> None:
    """As `encode_update` writes them: all that are assigned first."""
    once: list[object] = []
    added: list[object] = []
    shape.append(len(clauses))
    for clause in clauses:
        kind = type(clause)
        shape += (kind, clause.name)
        if kind is Assign:
            values.append(clause.value)  # type: ignore[union-attr]  # only `Drop` has none
        elif kind is AssignOnce:
            once.append(clause.value)  # type: ignore[union-attr]
        elif kind is Add:
            added.append(clause.value)  # type: ignore[union-attr]
    values += once
    values += added


def _texts_of(clauses: Sequence[Clause] | None, condition: Condition | None) -> ExpressionTexts:
    placeholders = Placeholders()
    texts: dict[str, str] = {}
    if clauses is not None:
        texts["UpdateExpression"] = encode_update(clauses, placeholders)
    if condition is not None:
        texts["ConditionExpression"] = condition.encode(placeholders)
    return ExpressionTexts(texts, *placeholders.noted())


@dataclass(frozen=True, slots=True)
class Put:
    """Write a whole item, if the condition holds for the existing one."""

    table: str
    item: Item
    condition: Condition | None = None

    def arguments(self) -> dict[str, Any]:
        return {"TableName": self.table, "Item": encode(self.item), **_conditional(self.condition)}


@dataclass(frozen=True, slots=True)
class Update:
    """Change attributes of an item; the answer carries nothing, or the item as it is then."""

    table: str
    key: Key
    clauses: tuple[Clause, ...]
    condition: Condition | None = None
    returning: Literal["NONE", "ALL_NEW"] = "NONE"

    def arguments(self) -> dict[str, Any]:
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
        return {"TableName": self.table, "Key": encode(self.key), **_conditional(self.condition)}


@dataclass(frozen=True, slots=True)
class Check:
    """Write nothing, but let the transaction fail unless the condition holds of the item."""

    table: str
    key: Key
    condition: Condition

    def arguments(self) -> dict[str, Any]:
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
class Get:
    """Read one item, consistently unless said otherwise."""

    table: str
    key: Key
    consistent: bool = True


@dataclass(frozen=True, slots=True)
class GetMany:
    """Read many items; those that do not exist are left out."""

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
    """What one request of a query or scan answered with; a page may be empty although more follow.

    `after` is None after the last one. `items_read` counts the items before the filter of a scan.
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
    "Put | Update | Delete | Transact | PutBatch | Get | GetMany | TransactGet | Query | Scan"
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
