"""What a process reads once and keeps: definitions of strict counters, table by table.

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

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final, NoReturn

from countledger.ledger import keys
from countledger.ledger.attributes import optional
from countledger.ledger.clock import show_duration
from countledger.ledger.errors import BadSetting, NoSuchCounter, Refused, WrongRegion
from countledger.ledger.limits import MINUTE_MS
from countledger.ledger.namespace import Kind, Namespace, Namespaces
from countledger.producers.strict.definition import Definition, Method, decode_definition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from countledger.ledger.attributes import Item
    from countledger.producers.strict.change import MethodContext

# Over regions, for how long a creation is sent again.
CREATION_SENT_MS: Final = MINUTE_MS
_WHY_NOT: Final = {
    Method.REQUEST_TOKEN: "method request_token is a transaction, which it does not support",
    Method.MARKER: (
        "method marker is a transaction with a marker that expires, and it supports neither "
        "transactions nor time to live"
    ),
}
# About two megabytes; the least recently used definitions beyond are read again.
_KEPT: Final = 10_000


def no_table() -> NoReturn:
    """Stands for the table `strict` of a stack that has none.

    Raises:
        BadSetting: always.
    """
    raise BadSetting(
        "this stack has no table for strict counters over regions: deploy it with StrictRegions"
    )


def check_over_regions(definition: Definition) -> None:
    """Check that a counter can work over regions.

    Raises:
        BadSetting: it needs what the table `strict` does not support.
    """
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
    """Refuse counters over regions where a transaction is needed.

    Raises:
        BadSetting: the counters of the namespace are over regions.
    """
    if namespace.kind is Kind.STRICT_REGIONS:
        raise BadSetting(
            f"counters of namespace {namespace.name!r} are over regions, in a table that takes no "
            "transactions: change each alone (`change`), and set a value by a change of the "
            "difference; or take a namespace of kind strict"
        )


def check_age(context: MethodContext, definition: Definition, item: Item) -> None:
    """Check that no request of a counter's creation can be applied any more.

    Raises:
        Refused: the counter is too young to be deleted.
    """
    created_ms = optional(item, "created_at", int)
    if created_ms is None:
        return
    life_ms = CREATION_SENT_MS + context.request_life_ms + context.clock_skew_ms
    left_ms = created_ms + life_ms - context.clock.now_ms()
    if left_ms >= 0:
        raise Refused(
            f"strict counter {definition.counter!r} was created less than {show_duration(life_ms)} "
            "ago: a request of its creation might still arrive, and create it again. Delete it in "
            f"{show_duration(left_ms // 1_000 * 1_000 + 1_000)}"
        )


@dataclass(frozen=True, slots=True)
class Definitions:
    """The definitions of the strict counters of one table.

    Attributes:
        context: what the counters of the table are changed with.
    """

    context: MethodContext
    _known: OrderedDict[str, Definition] = field(default_factory=OrderedDict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def get(self, counter: str) -> tuple[Definition, Item | None]:
        """A counter's definition, and its main item if it had to be read: one read unit then.

        Raises:
            NoSuchCounter: no counter has that name.
            CorruptItem: it cannot be read.
        """
        with self._lock:
            known = self._known.get(counter)
            if known is not None:
                self._known.move_to_end(counter)
                return known, None
        return self.read(counter)

    def read(self, counter: str) -> tuple[Definition, Item]:
        """The same, always with a read: one read unit.

        Raises:
            NoSuchCounter: no counter has that name.
            CorruptItem: it cannot be read.
        """
        context = self.context
        item = context.reads.get(context.table, keys.total_key(counter), consistent=True)
        if item is None:
            self.forget(counter)
            raise NoSuchCounter(
                f"strict counter {counter!r} does not exist: `countledger strict create` creates it"
            )
        definition = decode_definition(item)
        context.fences.learn(definition.main, definition.incarnation, item)
        self.keep(definition)
        return definition, item

    def keep(self, definition: Definition) -> None:
        """Know it without a read."""
        with self._lock:
            self._known[definition.counter] = definition
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)

    def forget(self, counter: str) -> None:
        """Read it again the next time."""
        with self._lock:
            self._known.pop(counter, None)


@dataclass(slots=True)
class StrictTables:
    """Both tables of strict counters; that over regions is looked up at its first use.

    Attributes:
        home: the definitions in the home region.
        open_regions: what counters over regions are changed with; raises where the stack has no
            such table.
        namespaces: the kind of each namespace.
        region: where this process works.
        home_region: where strict counters work that are not over regions.
    """

    home: Definitions
    open_regions: Callable[[], MethodContext]
    namespaces: Namespaces
    region: str
    home_region: str
    _over_regions: Definitions | None = field(default=None, repr=False)

    @property
    def over_regions(self) -> Definitions:
        """The definitions of the counters over regions.

        Raises:
            BadSetting, StackNotFound: the stack has no such table here.
        """
        if self._over_regions is None:
            self._over_regions = Definitions(self.open_regions())
        return self._over_regions

    def of(self, counter: str) -> Definitions:
        """The definitions of the table that a counter is in.

        Raises:
            NamespaceUnknown: its namespace cannot be seen from here.
            WrongKind: its namespace is of another kind.
            WrongRegion: it is in the home region, and this is another one.
            BadSetting, StackNotFound: it is over regions, and the stack has no such table here.
        """
        counter = keys.check_counter(counter)
        name = keys.namespace_of(counter)
        if self.namespaces.get(name, Kind.STRICT).kind is Kind.STRICT_REGIONS:
            return self.over_regions
        self.namespaces.expect(counter, Kind.STRICT)
        return self.at_home(counter)

    def for_new(self, definition: Definition, *, regions: bool) -> Definitions:
        """The same for a new counter, whose namespace is created if it is new.

        Raises:
            As `of`, and BadSetting: the counter cannot work over regions.
        """
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
        """The definitions for a transaction of several counters.

        Raises:
            As `of`, and BadSetting: one of them is over regions.
        """
        for counter in counters:
            refuse_together(self.namespaces.get(keys.namespace_of(counter), Kind.STRICT))
            self.namespaces.expect(counter, Kind.STRICT)
        return self.at_home(", ".join(counters))

    def at_home(self, what: str) -> Definitions:
        """The definitions in the home region.

        Raises:
            WrongRegion: this is another region; a bound could not be kept from there.
        """
        if self.region != self.home_region:
            raise WrongRegion(
                f"{what!r}: strict counters work only in the home region {self.home_region}, where "
                f"one copy decides; this is {self.region}: call there, or take a namespace of kind "
                "strict-regions, whose counters work in several regions"
            )
        return self.home
