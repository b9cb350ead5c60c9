"""Reading strict counters: one as of one moment, or all of a namespace.

What a process reads once and keeps: definitions of strict counters, table by table.

The kind of its namespace, which is fixed, says which table a counter is in:

    strict            `counters` of the home region, which can be used there only
    strict-regions    `strict`, over regions, which can be used in each of its regions

The table `strict` has multi-region strong consistency: conditions and strongly consistent reads see
the latest version in every region. The table takes neither transactions nor a time to live, so a
counter is one item, and each request changes that item alone. A write that meets a write of the
same item in another region is refused (`ReplicatedWriteConflictException`), and was not applied:
the attempt driver tries it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from countledger.ledger import amount, keys
from countledger.ledger.attempts import Done, Reply, Send, attempt, otherwise
from countledger.ledger.attributes import decoded, optional, optional_time
from countledger.ledger.clock import Backoff, show_duration, to_datetime
from countledger.ledger.errors import (
    BadSetting,
    CorruptItem,
    CountledgerError,
    NoSuchCounter,
    Refused,
    Throttled,
)
from countledger.ledger.limits import MINUTE_MS
from countledger.ledger.namespace import Kind, Namespace, Namespaces
from countledger.ledger.operations import Compare, Get, Query, TransactGet
from countledger.ledger.recent import Recent
from countledger.ledger.tombstones import removed_id
from countledger.producers.strict.change import KnownFences, refusal
from countledger.producers.strict.definition import (
    Definition,
    Method,
    StrictState,
    decode_definition,
    decode_state,
    split,
    whole_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Exhausted, Steps, Verdict
    from countledger.ledger.attributes import Item, OnCorrupt
    from countledger.ledger.connection import Connection
    from countledger.producers.strict.definition import Part
    from countledger.producers.strict.outcome import BoundReached


# Over regions, for how long a creation is sent again.
CREATION_SENT_MS: Final = MINUTE_MS
_WHY_NOT: Final = {
    Method.REQUEST_TOKEN: "method request_token is a transaction, which it does not support",
    Method.MARKER: (
        "method marker is a transaction with a marker that expires, and it supports neither "
        "transactions nor time to live"
    ),
}
_OR_OVER_REGIONS: Final = (
    ", or take a namespace of kind strict-regions, whose counters work in several regions"
)
# About two megabytes; the least recently used definitions beyond are read again.


def check_over_regions(definition: Definition) -> None:
    """Check that a counter needs nothing that the table `strict` does not support."""
    why = _WHY_NOT.get(definition.method)
    if definition.bins > 1:
        why = "bins are created, read and dealt by transactions, which it does not support"
    if why is not None:
        raise BadSetting(
            f"counter {definition.counter!r} is over regions, in a table with multi-region strong "
            f"consistency; {why}: take atomic, occ, history or set, without bins, or a namespace "
            "of kind strict"
        )


def refuse_together(namespace: Namespace) -> None:
    """Refuse counters over regions where a transaction is needed."""
    if namespace.kind is Kind.STRICT_REGIONS:
        raise BadSetting(
            f"counters of namespace {namespace.name!r} are over regions, in a table that takes no "
            "transactions: change each alone (`change`), and set a value by a change of the "
            "difference; or take a namespace of kind strict"
        )


def check_age(connection: Connection, definition: Definition, item: Item) -> None:
    """Check that no request of a counter's creation can be applied any more."""
    created_ms = optional(item, "created_at", int)
    if created_ms is None:
        return
    life_ms = CREATION_SENT_MS + connection.request_life_ms + connection.clock_skew_ms
    left_ms = created_ms + life_ms - connection.clock.now_ms()
    if left_ms >= 0:
        raise Refused(
            f"strict counter {definition.counter!r} was created less than {show_duration(life_ms)} "
            "ago: a request of its creation might still arrive, and create it again. Delete it in "
            f"{show_duration(left_ms // 1_000 * 1_000 + 1_000)}"
        )


@dataclass(frozen=True, slots=True)
class Definitions:
    """The definitions of the strict counters of the one table that its connection names."""

    connection: Connection
    _known: Recent[str, Definition] = field(default_factory=Recent, repr=False)

    def get(self, counter: str) -> tuple[Definition, Item | None]:
        """A counter's definition, and its main item if it had to be read: one read unit then."""
        known = self._known.get(counter)
        return self.read(counter) if known is None else (known.value, None)

    def read(self, counter: str) -> tuple[Definition, Item]:
        """The same, always with a read: one read unit."""
        connection = self.connection
        item = connection.retrying.get(
            connection.counters, keys.total_key(counter), consistent=True
        )
        if item is None:
            self.forget(counter)
            raise NoSuchCounter(
                f"strict counter {counter!r} does not exist: `countledger strict create` creates it"
            )
        definition = decode_definition(item)
        connection.shared(KnownFences).learn(definition.main, definition.incarnation, item)
        self.keep(definition)
        return definition, item

    def keep(self, definition: Definition) -> None:
        self._known.keep(definition.counter, definition)

    def forget(self, counter: str) -> None:
        self._known.forget(counter)


@dataclass(slots=True)
class StrictTables:
    """Both tables of strict counters; that over regions is looked up at its first use."""

    connection: Connection
    namespaces: Namespaces = field(init=False)
    home: Definitions = field(init=False)
    _over_regions: Definitions | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.namespaces, self.home = Namespaces(self.connection), Definitions(self.connection)

    @property
    def over_regions(self) -> Definitions:
        """The definitions of the counters over regions, if the stack has their table here."""
        if self._over_regions is None:
            there = self.connection
            named = replace(there.settings, strict_table=there.setting("strict_table"))
            self._over_regions = Definitions(replace(there, settings=named, over_regions=True))
        return self._over_regions

    def of(self, counter: str) -> Definitions:
        """The definitions of the table that a counter is in, if it can be used from here."""
        counter = keys.check_counter(counter)
        name = keys.namespace_of(counter)
        if self.namespaces.get(name, Kind.STRICT).kind is Kind.STRICT_REGIONS:
            return self.over_regions
        self.namespaces.expect(counter, Kind.STRICT)
        return self.at_home(counter)

    def for_new(self, definition: Definition, *, regions: bool) -> Definitions:
        """The same for a new counter, whose namespace is created if it is new."""
        counter, kind = definition.counter, Kind.STRICT_REGIONS
        if not regions:
            namespace = self.namespaces.find(keys.namespace_of(counter))
            kind = Kind.STRICT if namespace is None else namespace.kind
        if kind is not Kind.STRICT_REGIONS:
            known = self.at_home(counter)
            self.namespaces.for_use(counter, Kind.STRICT)
            return known
        check_over_regions(definition)
        # A stack without the table must not get such a namespace.
        known = self.over_regions
        self.namespaces.for_use(counter, kind)
        return known

    def together(self, counters: Sequence[str]) -> Definitions:
        """The definitions for a transaction of several counters, none of them over regions."""
        for counter in counters:
            refuse_together(self.namespaces.get(keys.namespace_of(counter), Kind.STRICT))
            self.namespaces.expect(counter, Kind.STRICT)
        return self.at_home(", ".join(counters))

    def at_home(self, what: str) -> Definitions:
        """The definitions in the home region: a bound could not be kept from another one."""
        self.connection.refuse_elsewhere(f"{what!r}: strict counters work", _OR_OVER_REGIONS)
        return self.home


_READS: Final = Backoff(attempts=10, base_ms=10, cap_ms=500)
_KB: Final = 1_024
_UNITS_EACH_KB: Final = {Method.REQUEST_TOKEN: 2, Method.MARKER: 2}
_UNITS_OF_A_MARKER: Final = 2


@dataclass(frozen=True, slots=True)
class StrictCounter:
    """A strict counter as it was created and as it is.

    Attributes:
        counter: its name.
        method: how changes are written.
        value: its current value.
        lower: the least that the value may be, or None.
        upper: the most that the value may be, or None.
        version: grows with every write.
        bins: over how many items it is spread; 1 = only its own.
        history: how many changes it remembers (`history`), or None.
        max_tokens: how many changes it takes in its life (`set`), or None.
        remembered: how many changes its item holds (`occ`, `history`, `set`).
        window_ms: for how long a key is remembered (`marker`), or None.
        updated_at: when it was last changed; method `request_token` cannot store that.
        held: what open holds reserve of the value, also those that are over but not released yet.
        write_units: what one change costs now. A marker with a long key or a note costs more, and a
            split over bins two units more for each further one.
    """

    counter: str
    method: Method
    value: Amount
    lower: Amount | None
    upper: Amount | None
    version: int
    bins: int
    history: int | None
    max_tokens: int | None
    remembered: int
    window_ms: int | None
    updated_at: datetime | None
    write_units: int
    held: Amount = 0

    @property
    def available(self) -> Amount:
        """The value without what is held."""
        return amount.add(self.value, amount.negated(self.held))


def read_of(connection: Connection, definition: Definition) -> Get | TransactGet:
    """The read of the items that hold the value, as of one moment.

    One read unit for each 4 KB of the one item; with bins two read units each.
    """
    if definition.bins == 1:
        return Get(connection.counters, definition.main)
    return TransactGet(connection.counters, definition.places)


def states_of(
    definition: Definition, answer: Item | Sequence[Item | None] | None
) -> list[StrictState]:
    """The states in the answer to `read_of`."""
    items = [answer] if answer is None or isinstance(answer, dict) else answer
    return [decode_state(definition.expect(item)) for item in items]


def read_bins(connection: Connection, definition: Definition) -> Steps[list[Item]]:
    """The bins as of one moment, as they are stored: two read units each."""

    def interpret(reply: Reply[None]) -> Verdict[None, list[Item]]:
        if isinstance(reply.answer, CountledgerError):
            return otherwise(reply)
        return Done([definition.expect(item) for item in reply.answer])

    def give_up(exhausted: Exhausted[None]) -> list[Item]:
        raise Throttled(
            f"bins of {definition.counter!r} not read: {exhausted.error}"
        ) from exhausted.error

    request = Send(TransactGet(connection.counters, definition.places))
    return attempt(None, lambda _: request, interpret, give_up, connection.attempts(policy=_READS))


def split_over_bins(
    connection: Connection, definition: Definition, delta: Amount
) -> Steps[list[Part] | BoundReached]:
    """A change over as few bins as have the headroom, or why all have not: two read units each."""
    states = states_of(definition, (yield from read_bins(connection, definition)))
    parts = split(list(zip(definition.places, states, strict=True)), delta)
    if parts is not None:
        return parts
    refused = refusal(definition.counter, whole_of(states), delta)
    if refused is None:
        raise CorruptItem(
            f"strict counter {definition.counter!r}: the headrooms of its bins contradict their "
            "sums; an item was changed by hand"
        )
    return refused


def read_counter(
    connection: Connection, definition: Definition, main: Item | None
) -> Steps[StrictCounter]:
    """A counter as of one moment, or as its given main item shows it.

    One read unit, unless that item is given; two for each bin.
    """
    if main is None:
        main = yield Send(Get(connection.counters, definition.main))
    if main is None:
        raise definition.stale()
    if definition.bins == 1:
        return _shown(definition, decode_state(main), main)
    bins = yield from read_bins(connection, definition)
    return _shown(definition, whole_of([decode_state(item) for item in bins]), main, bins)


def created(definition: Definition, items: Sequence[Item]) -> StrictCounter:
    """A counter as it was created, by its main item and its bins."""
    main, *bins = ({name: one for name, one in item.items() if one is not None} for item in items)
    states = [decode_state(item) for item in bins or [main]]
    return _shown(definition, whole_of(states) if bins else states[0], main, bins)


def list_counters(
    connection: Connection, namespace: str, on_corrupt: OnCorrupt | None = None
) -> Iterator[StrictCounter]:
    """The counters of a namespace by name; half a read unit for each and for each bin."""
    condition = Compare("counter", "=", keys.STRICT_PREFIX + namespace)
    for page in connection.retrying.pages(Query(connection.counters, condition)):
        names = [item["part"] for item in page if removed_id(item) is None]
        wanted = [keys.total_key(name) for name in names]
        found = {
            item["counter"]: item
            for item in connection.retrying.get_many(connection.counters, wanted)
        }
        # A counter that was deleted since the page was read is missing.
        items = [found[name] for name in names if name in found]
        for shown in decoded(items, partial(_listed, connection), on_corrupt):
            if shown is not None:
                yield shown


def _listed(connection: Connection, main: Item) -> StrictCounter | None:
    definition = decode_definition(main)
    if definition.bins == 1:
        return _shown(definition, decode_state(main), main)
    bins = connection.retrying.get_many(connection.counters, definition.places)
    if not bins:
        return None
    return _shown(definition, whole_of([decode_state(item) for item in bins]), main, bins)


def _shown(
    definition: Definition, state: StrictState, main: Item, bins: Sequence[Item] = ()
) -> StrictCounter:
    stamps = [optional_time(item, "updated_at") for item in (main, *bins)]
    known = [stamp for stamp in stamps if stamp is not None]
    return StrictCounter(
        counter=definition.counter,
        method=definition.method,
        value=state.total,
        lower=state.lower,
        upper=state.upper,
        version=state.version,
        bins=definition.bins,
        history=definition.history,
        max_tokens=definition.max_tokens,
        remembered=len(state.tags) or max(len(state.tokens) - 1, 0),  # the seed is one of them
        window_ms=definition.window_ms,
        updated_at=to_datetime(max(known)) if known else None,
        write_units=_write_units(definition.method, bins[0] if bins else main),
        held=state.held,
    )


def _write_units(method: Method, item: Item) -> int:
    kilobytes = -(-sum(len(name) + _size(value) for name, value in item.items()) // _KB)
    units: int = kilobytes * _UNITS_EACH_KB.get(method, 1)
    return units + (_UNITS_OF_A_MARKER if method is Method.MARKER else 0)


def _size(value: object) -> int:
    """What a value takes in an item, in bytes, as the service counts."""
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, set | list):
        # A list has a few bytes of its own, and one for each of its values.
        own = 3 + len(value) if isinstance(value, list) else 0
        return own + sum(_size(one) for one in value)
    return len(str(value)) // 2 + 2
