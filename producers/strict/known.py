"""What a process reads once and keeps: definitions of strict counters, table by table.

The kind of its namespace, which is fixed, says which table a counter is in:

    strict            `counters` of the home region, which can be used there only
    strict-regions    `strict`, over regions, which can be used in each of its regions
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.errors import NoSuchCounter, WrongRegion
from countledger.ledger.namespace import Kind, Namespaces
from countledger.producers.strict.definition import Definition, decode_definition
from countledger.producers.strict.without_transactions import check_over_regions, refuse_together

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from countledger.ledger.attributes import Item
    from countledger.producers.strict.context import MethodContext

# About two megabytes; the least recently used definitions beyond are read again.
_KEPT: Final = 10_000


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
        with self._lock:
            self._known[counter] = definition
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return definition, item

    def forget(self, counter: str) -> None:
        """Read it again the next time."""
        with self._lock:
            self._known.pop(counter, None)


@dataclass(slots=True)
class KnownOverRegions:
    """The definitions of the counters over regions; their table is looked up at the first use.

    Attributes:
        open: what the counters are changed with; raises where the stack has no such table.
    """

    open: Callable[[], MethodContext]
    _known: Definitions | None = None

    def get(self) -> Definitions:
        """The definitions.

        Raises:
            BadSetting, StackNotFound: the stack has no such table here.
        """
        if self._known is None:
            self._known = Definitions(self.open())
        return self._known


@dataclass(frozen=True, slots=True)
class StrictTables:
    """Both tables of strict counters.

    Attributes:
        home: the definitions in the home region.
        over_regions: those over regions.
        namespaces: the kind of each namespace.
        region: where this process works.
        home_region: where strict counters work that are not over regions.
    """

    home: Definitions
    over_regions: KnownOverRegions
    namespaces: Namespaces
    region: str
    home_region: str

    def of(self, counter: str) -> Definitions:
        """The definitions of the table that a counter is in.

        Raises:
            NamespaceUnknown: its namespace cannot be seen from here.
            WrongKind: its namespace is of another kind.
            WrongRegion: it is in the home region, and this is another one.
            BadSetting, StackNotFound: it is over regions, and the stack has no such table here.
        """
        name = keys.namespace_of(keys.check_counter(counter))
        if self.namespaces.get(name, Kind.STRICT).kind is Kind.STRICT_REGIONS:
            return self.over_regions.get()
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
        known = self.over_regions.get()
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
