"""The tables of an explored world: values that share what is equal, so a state costs little.

A table is a mapping that nobody changes: a write makes another one. Requests work on `World`, which
shows the tables of whichever state is looked at. EventBridge Scheduler is a table as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from botocore.exceptions import BotoCoreError, ClientError

from countledger.infra.memory.tables import COUNTERS, LEDGER, REGION, Change, Table, Transactions
from countledger.ledger.errors import (
    ConditionFailed,
    CountledgerError,
    Reason,
    TransactionCancelled,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from countledger.infra.memory.tables import Key
    from countledger.ledger.attributes import Item

# The items of a table, by key. Never changed in place.
Items: TypeAlias = Mapping[tuple[Any, Any], Mapping[str, Any]]
# EventBridge Scheduler: its schedules by name, with the request that stored each.
SCHEDULER: Final = "scheduler"
# Another region than that of the stack, in worlds that have one.
FAR: Final = "eu-west-1"
# Where every world begins.
BEGIN_MS: Final = 1_900_000_000_000

FAILURES: Final = (CountledgerError, ClientError, BotoCoreError)


class Contents(NamedTuple):
    """All that requests may change.

    Attributes:
        tables: the items of each table, by its name.
        tokens: the request tokens that are remembered, as of `Transactions.known`.
    """

    tables: Mapping[str, Items]
    tokens: Mapping[str, tuple[str, float]]


class Answer(NamedTuple):
    """What a request or a pause ends with.

    Attributes:
        value: what it returns.
        error: what it raises instead.
    """

    value: Any = None
    error: Exception | None = None


@dataclass(eq=False)
class ValueTable(Table):
    """A table whose items are another mapping after each write."""

    def store(self, key: Key, after: Item | None, *, local: bool = True) -> bool:
        """Store an item, or remove it; whether that changed anything."""
        before = self.items.get(key)
        if before == after:
            return False
        items = dict(self.items)
        if after is None:
            del items[key]
        else:
            items[key] = after
        self.items = items
        self._changed(Change(self, key, before, after, local))
        return True

    def keys_after(self, after: Key | None) -> Iterator[Key]:
        """The keys of the items that follow another key (None: of all), in order."""
        return (key for key in sorted(self.items) if after is None or key > after)

    def next_sort_key(self, partition: object, after: object, *, forward: bool) -> Any:  # noqa: ANN401 - of any key
        """The sort key that follows another one in a partition (None: the first); None: no more."""
        order: list[Any] = sorted(
            (k[1] for k in self.items if k[0] == partition), reverse=not forward
        )
        for key in order:
            if after is None or (key > after if forward else key < after):
                return key
        return None


@dataclass(eq=False)
class World:
    """The tables that requests work on: those of one state at a time.

    Attributes:
        now_ms: the time of that state.
        tables: by name.
        transactions: over all of them, in the region of the stack.
        elsewhere: those of other regions.
        steps: what may happen by itself: each yields what it is, and what does it.
    """

    now_ms: int = BEGIN_MS
    tables: dict[str, ValueTable] = field(default_factory=dict)
    transactions: Transactions = field(init=False)
    elsewhere: dict[str, Transactions] = field(default_factory=dict)
    steps: list[Callable[[], Iterable[tuple[str, Callable[[], object]]]]] = field(
        default_factory=list
    )

    def __post_init__(self) -> None:
        """The tables of a stack, all empty."""
        self.add(LEDGER, "counter", "entry")
        self.add(COUNTERS, "counter", "part")
        self.add(SCHEDULER, "name", "")
        self.transactions = Transactions(self.tables, lambda: self.now_ms)

    def add(self, name: str, partition: str, sort: str) -> ValueTable:
        """One more table."""
        self.tables[name] = ValueTable(name, sort, partition)
        return self.tables[name]

    def add_region(self, region: str) -> None:
        """Copies of both tables, empty."""
        copies = {name: self.tables[name] for name in (LEDGER, COUNTERS)}
        for name, one in copies.items():
            copies[name] = self.add(in_region(name, region), one.partition, one.sort)
        self.elsewhere[region] = Transactions(copies, lambda: self.now_ms)

    def transactions_in(self, region: str) -> Transactions:
        """Those of a region."""
        return self.transactions if region == REGION else self.elsewhere[region]

    def show(self, contents: Contents, now_ms: int) -> None:
        """Let requests work on these contents, at a time."""
        for name, table in self.tables.items():
            table.items = dict_of(contents.tables.get(name, {}))
        self.transactions.known = dict(contents.tokens)
        for one in self.elsewhere.values():
            one.known = self.transactions.known
        self.now_ms = now_ms

    @property
    def contents(self) -> Contents:
        """What the last requests have made of the contents."""
        tables = {name: table.items for name, table in self.tables.items()}
        return Contents(tables, self.transactions.known)

    def carry_out(
        self, contents: Contents, now_ms: int, request: Callable[[], object]
    ) -> tuple[Contents, Answer]:
        """What a request makes of contents, and its answer."""
        self.show(contents, now_ms)
        try:
            answer = Answer(request())
        except FAILURES as error:
            answer = Answer(error=error.with_traceback(None))
        return (contents if self._shows(contents) else self.contents), answer

    def _shows(self, contents: Contents) -> bool:
        """Whether these contents are still what requests work on: then nothing was written."""
        before = contents.tables
        written = any(table.items is not before[name] for name, table in self.tables.items())
        return not written and self.transactions.known == contents.tokens


def in_region(name: str, region: str) -> str:
    """The name of a region's copy of a table."""
    return name if region == REGION else f"{name} in {region}"


def dict_of(items: Items) -> dict[Any, Any]:
    """The same mapping, as the type that a table has."""
    if not isinstance(items, dict):
        raise TypeError(f"items of a table are a {type(items).__name__}")
    return items


# Of which each value is as it is.
_PLAIN: Final = frozenset({str, int, bool, bytes, type(None)})


def plain(value: object) -> Any:  # noqa: ANN401, PLR0911 - hashable; one for each kind
    """A value that is equal for equal answers and items, and can be hashed."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, dict):
        return tuple([(key, plain(value[key])) for key in sorted(value)])
    if isinstance(value, Answer):
        return plain(value.value), plain(value.error)
    if isinstance(value, Reason):
        return value.code, plain(value.item)
    if isinstance(value, list | tuple):
        return tuple([plain(one) for one in value])
    if isinstance(value, set | frozenset):
        return ("set", *sorted(map(repr, value)))
    if isinstance(value, ConditionFailed):
        return "ConditionFailed", plain(value.item)
    if isinstance(value, TransactionCancelled):
        return "TransactionCancelled", plain(value.reasons)
    return repr(value)


@dataclass(slots=True)
class Hashes:
    """The hash of each mapping that was seen, by its identity: most states share most of them.

    A mapping that was seen is kept, so that no other one gets its identity. Two states are the same
    if the hashes of 64 bits are: in a search of a million states one pair in 30 million differs.
    """

    _known: dict[int, tuple[int, object]] = field(default_factory=dict)

    def item(self, item: object) -> int:
        """The hash of an item."""
        known = self._known.get(id(item))
        if known is None:
            known = self._known[id(item)] = hash(plain(item)), item
        return known[0]

    def items(self, items: Items) -> int:
        """The hash of the items of a table."""
        known = self._known.get(id(items))
        if known is None:
            value = hash(frozenset([(key, self.item(item)) for key, item in items.items()]))
            known = self._known[id(items)] = value, items
        return known[0]

    def contents(self, contents: Contents) -> int:
        """The hash of all that requests may change."""
        known = self._known.get(id(contents))
        if known is None:
            tables = tuple(self.items(contents.tables[name]) for name in sorted(contents.tables))
            value = hash((tables, frozenset(contents.tokens.items())))
            known = self._known[id(contents)] = value, contents
        return known[0]
