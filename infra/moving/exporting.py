"""Every balance as a line: each consistent in itself, the whole no snapshot of one instant.

namespaces   first, as they were made
counters     as a walk over both tables finds them; of a ledger the exact sum, which is that
             of every entry visible when its read began; of a strict counter its value as of
             one moment, bins included
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from countledger.consumers.audit import Audit
from countledger.consumers.bookmarks import FileBookmarks, NoBookmarks
from countledger.consumers.walk import SEGMENTS_DEFAULT, Walker
from countledger.infra.moving.lines import CounterLine, NamespaceLine
from countledger.ledger import keys
from countledger.ledger.namespace import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from countledger import CountLedger

_READERS: Final = 8


@dataclass(frozen=True, slots=True)
class Exporter:
    """Reads balances through a client.

    Attributes:
        client: of the stack.
        namespace: whose counters; None: all.
    """

    client: CountLedger
    namespace: str | None = None

    def namespaces(self) -> Iterator[NamespaceLine]:
        """The namespaces as they were made: half a read unit for each 4 KB of them."""
        for one in self.client.namespaces.list():
            if self.namespace in (None, one.name):
                yield NamespaceLine(
                    namespace=one.name,
                    kind=one.kind,
                    spread=one.spread,
                    horizon_ms=one.horizon_ms,
                    description=one.description,
                )

    def line(self, counter: str) -> CounterLine:
        """A counter's line: what its exact sum costs, or two read units for each bin.

        Raises:
            BadCounterName: the name breaks the grammar.
            NamespaceUnknown: nothing was ever recorded in its namespace.
        """
        namespace = self.client.namespaces.get(keys.namespace_of(keys.check_counter(counter)))
        match namespace.kind:
            case Kind.LEDGER:
                exact = self.client.exact(counter)
                return CounterLine(counter=counter, value=exact.sum, events=exact.events)
            case Kind.STRICT:
                return self._strict(counter)
            case Kind.SEQUENCE:
                total = self.client.total(counter).total
                return CounterLine(counter=counter, kind=Kind.SEQUENCE, value=total)

    def lines(self, counters: Iterable[str]) -> Iterator[CounterLine]:
        """The lines of many counters, some read at a time, in their order."""
        with ThreadPoolExecutor(_READERS, "countledger-export") as pool:
            yield from pool.map(self.line, counters)

    def walk(
        self, *, segments: int = SEGMENTS_DEFAULT, resume: Path | None = None
    ) -> Audit[CounterLine]:
        """The lines of all counters, found by reading the keys of both tables whole.

        A ledger without any entry, merged or not, has none: it was removed, or never recorded.

        Args:
            segments: into how many parts each table is cut, to be read side by side: 1 to 64.
            resume: a file that keeps how far it came; the walk goes on behind it.
        """
        connection = self.client.connection
        ledger, totals = connection.setting("ledger_table"), connection.setting("counters_table")
        purpose = f"export of {self.namespace or 'all'} in {ledger} in {connection.region}"
        return Audit(
            Walker(connection.door("standard"), ledger, totals),
            self._lines_of_use,
            lambda line: str(line.kind),
            self._is_wanted,
            segments,
            NoBookmarks() if resume is None else FileBookmarks(resume, purpose),
        )

    def _lines_of_use(self, counters: Iterable[str]) -> Iterator[CounterLine]:
        return (one for one in self.lines(counters) if one.kind is not Kind.LEDGER or one.events)

    def _strict(self, counter: str) -> CounterLine:
        found = self.client.strict.show(counter)
        return CounterLine(
            counter=counter,
            kind=Kind.STRICT,
            value=found.value,
            method=str(found.method),
            lower=found.lower,
            upper=found.upper,
            bins=found.bins,
            history=found.history,
            max_tokens=found.max_tokens,
            window_ms=found.window_ms,
        )

    def _is_wanted(self, counter: str) -> bool:
        return self.namespace in (None, keys.namespace_of(counter))
