"""Every balance as a line. Each line is consistent; all lines are no snapshot of one instant.

namespaces   first, with their settings
counters     in the order in which a walk over both tables finds them. The value of a ledger is the
             exact sum of every entry that was visible when its read began; that of a strict counter
             is its value at one moment, bins included

A counter or namespace that cannot be read has a line with the reason; the others are exported.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from countledger.consumers.audit import (
    ENTRIES_PER_PAGE,
    SEGMENTS_DEFAULT,
    TOTALS_PER_PAGE,
    Audit,
    NoBookmarks,
    Walker,
)
from countledger.infra.portability.lines import (
    CounterLine,
    NamespaceLine,
    UnreadLine,
    WindowsOfLine,
)
from countledger.ledger import amount, keys
from countledger.ledger.assembly import strict_table_of
from countledger.ledger.errors import BadInput, CorruptItem, NoSuchCounter
from countledger.ledger.namespace import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from countledger import CountLedger
    from countledger.consumers.audit import Bookmarks
    from countledger.infra.portability.export import ExportFile
    from countledger.ledger.namespace import Namespace


_READERS: Final = 8
_NAMES_AT_ONCE: Final = 1_000
# The kind under which a walk counts a counter that cannot be read.
UNREADABLE: Final = "unreadable"


@dataclass(frozen=True, slots=True)
class Exporter:
    """Reads balances through a client.

    Attributes:
        client: of the stack.
        namespace: whose counters; None: all.
    """

    client: CountLedger
    namespace: str | None = None

    def namespaces(self) -> Iterator[NamespaceLine | UnreadLine]:
        """The namespaces with their settings, and those of their windows.

        Half a read unit for each 4 KB of them, and a read unit for the windows of each. The sums of
        windows are not exported.
        """
        corrupt: list[CorruptItem] = []
        for one in self.client.namespaces.list(on_corrupt=corrupt.append):
            if self.namespace in (None, one.name):
                yield NamespaceLine.of(one, self._windows(one, corrupt))
        for error in corrupt:
            place = keys.NAMESPACE_PREFIX if error.key is None else error.key[0]
            if self.namespace in (None, place.removeprefix(keys.NAMESPACE_PREFIX)):
                yield UnreadLine.of(place, error)

    def _windows(self, namespace: Namespace, corrupt: list[CorruptItem]) -> WindowsOfLine | None:
        """The windows of a namespace; None: they are off, or cannot be read, which is noted."""
        if namespace.kind is not Kind.LEDGER:
            return None
        try:
            return WindowsOfLine.of(self.client.window_settings.of(namespace.name))
        except CorruptItem as error:
            corrupt.append(error)
            return None

    def line(self, counter: str) -> CounterLine:
        """A counter's line: what its exact sum costs, or two read units for each bin.

        Raises:
            BadCounterName: the name breaks the grammar.
            NamespaceUnknown: nothing was ever recorded in its namespace.
            NoSuchCounter: its namespace is strict or of sequences, and it does not exist.
            CorruptItem: an item of it, or of its namespace, cannot be read; or its sum has more
                digits than a line holds.
        """
        counter = keys.check_counter(counter)
        namespace = self.client.namespaces.get(keys.namespace_of(counter))
        match namespace.kind:
            case Kind.LEDGER:
                exact = self.client.exact(counter)
                if not amount.fits(exact.value):
                    raise CorruptItem(f"the exact sum of {counter!r} has more than 38 digits")
                return CounterLine(counter=counter, value=exact.value, events=exact.events)
            case Kind.STRICT | Kind.STRICT_REGIONS:
                return self._strict(counter, namespace.kind)
            case Kind.SEQUENCE:
                found = self.client.sequences.show(counter)
                if not found.version:
                    raise NoSuchCounter(f"sequence {counter!r} does not exist")
                return CounterLine(counter=counter, kind=Kind.SEQUENCE, value=found.last)

    def lines(self, counters: Iterable[str]) -> Iterator[CounterLine | UnreadLine]:
        """The lines of many counters, some read at a time, in their order.

        Raises:
            BadInput: as `line`. What cannot be read is a line.
        """
        feed = iter(counters)
        with ThreadPoolExecutor(_READERS, "countledger-export") as pool:
            # A pool reads all names that it is given before it answers.
            while some := list(islice(feed, _NAMES_AT_ONCE)):
                yield from pool.map(self._line, some)

    def _line(self, counter: str) -> CounterLine | UnreadLine:
        try:
            return self.line(counter)
        except CorruptItem as error:
            return UnreadLine.of(counter, error)

    def _line_of_a_walk(self, counter: str) -> CounterLine | UnreadLine | None:
        """The line of a counter that a walk has found; None: it was deleted since."""
        try:
            return self._line(counter)
        except NoSuchCounter:
            return None
        except BadInput as error:
            return UnreadLine.of(counter, error)  # such as: its namespace has no settings

    def over_regions(self) -> Iterator[CounterLine | UnreadLine]:
        """The lines of the strict counters over regions, which the walk does not find.

        One and a half read units for each, and half a read unit for each 4 KB of their directory.
        """
        if strict_table_of(self.client.connection) is None:
            return
        for namespace in self.client.namespaces.list(on_corrupt=lambda _error: None):
            if namespace.kind is Kind.STRICT_REGIONS and self.namespace in (None, namespace.name):
                names = (one.counter for one in self.client.counters(namespace.name))
                yield from self._lines_of_use(names)

    @property
    def purpose(self) -> str:
        """What is exported, for people and for the file."""
        connection = self.client.connection
        return (
            f"{self.namespace or 'all'} in {connection.setting('ledger_table')} "
            f"in {connection.region}"
        )

    def write_all(
        self,
        file: ExportFile,
        *,
        entries_per_page: int = ENTRIES_PER_PAGE,
        totals_per_page: int = TOTALS_PER_PAGE,
    ) -> Iterator[int]:
        """Write everything that a file lacks, and complete it.

        Args:
            file: a new file, or that of an interrupted export.
            entries_per_page: how many entries of each segment are read at a time.
            totals_per_page: how many totals.

        Yields:
            How many counters are in the file, after each round of the walk.
        """
        if not file.continues:
            file.add(self.namespaces())
        walk = self.walk(file)
        walk.walker = replace(
            walk.walker, page_size=totals_per_page, entries_per_page=entries_per_page
        )
        for lines in walk.rounds():
            file.add(lines)
            yield file.counters
        file.add(self.over_regions())
        file.complete()

    def walk(
        self, bookmarks: Bookmarks | None = None, *, segments: int = SEGMENTS_DEFAULT
    ) -> Audit[CounterLine | UnreadLine]:
        """The lines of all counters, found by reading all keys of both tables.

        A ledger without entries, merged ones included, has no line: it was deleted, or never
        recorded.

        Args:
            bookmarks: store the position; the walk continues after it. None: it is not stored.
            segments: how many parts of each table are read at the same time: 1 to 64.
        """
        connection = self.client.connection
        ledger, totals = connection.setting("ledger_table"), connection.setting("counters_table")
        return Audit(
            Walker(connection.dynamo("standard"), ledger, totals),
            self._lines_of_use,
            _kind_of,
            self._is_wanted,
            segments,
            bookmarks or NoBookmarks(),
        )

    def _lines_of_use(self, counters: Iterable[str]) -> Iterator[CounterLine | UnreadLine]:
        with ThreadPoolExecutor(_READERS, "countledger-export") as pool:
            for line in pool.map(self._line_of_a_walk, counters):
                if line is not None and not _is_empty(line):
                    yield line

    def _strict(self, counter: str, kind: Kind) -> CounterLine:
        found = self.client.strict.show(counter)
        return CounterLine(
            counter=counter,
            kind=kind,
            value=found.value,
            method=str(found.method),
            lower=found.lower,
            upper=found.upper,
            bins=found.bins,
            history=found.history,
            max_tokens=found.max_tokens,
            window_ms=found.window_ms,
            held=found.held or None,
        )

    def _is_wanted(self, counter: str) -> bool:
        return self.namespace in (None, keys.namespace_of(counter))


def _kind_of(line: CounterLine | UnreadLine) -> str:
    """What a line is counted as."""
    return UNREADABLE if isinstance(line, UnreadLine) else str(line.kind)


def _is_empty(line: CounterLine | UnreadLine) -> bool:
    """Whether it is a ledger without any entry."""
    if not isinstance(line, CounterLine) or line.kind is not Kind.LEDGER:
        return False
    return not line.events and not line.value
