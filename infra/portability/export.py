"""The file of an export: complete or not there, and continued after an interruption.

FILE.part     the lines so far. Its first line has the id of its export; one process locks it, and
              it gets the name FILE when it is complete
FILE.place    the id of the export, how many bytes of the part are done, and how far the walk over
              the counters has come, as of one moment

The lines of a round are written first, then the place: what is in the part after the bytes of its
place is cut off, and written by the next round. A part goes on only with the place of its own
export and for the same purpose; without that place a new file replaces it. A part for another
purpose, and a file that is no part of an export, are refused: somebody may need them.

Every balance as a line. Each line is consistent; all lines are no snapshot of one instant.

namespaces   first, with their settings
counters     in the order in which a walk over both tables finds them. The value of a ledger is the
             exact sum of every entry that was visible when its read began; that of a strict counter
             is its value at one moment, bins included

A counter or namespace that cannot be read has a line with the reason; the others are exported.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from countledger.consumers.audit import (
    ENTRIES_PER_PAGE,
    SEGMENTS_DEFAULT,
    TOTALS_PER_PAGE,
    Audit,
    NoBookmarks,
    WalkedTable,
    Walker,
    decode_position,
    encode_position,
)
from countledger.infra.portability.lines import (
    CounterLine,
    HeaderLine,
    NamespaceLine,
    UnreadLine,
    WindowsOfLine,
    encode_line,
    parse_line,
)
from countledger.ledger import amount, keys
from countledger.ledger.errors import BadInput, BadPayload, BadSetting, CorruptItem, NoSuchCounter
from countledger.ledger.namespace import Kind
from countledger.ledger.private_files import open_private, replace_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from countledger import CountLedger
    from countledger.consumers.audit import Bookmarks, ForeignItems, WalkPosition
    from countledger.infra.portability.lines import ExportLine
    from countledger.ledger.namespace import Namespace


# The first line of a file that is no part of an export may be as long as the file.
_HEADER_MAX_BYTES: Final = 4096


def place_beside(path: Path) -> Path:
    """The file that keeps how far the export into a file has come."""
    return path.with_name(f"{path.name}.place")


def part_beside(path: Path) -> Path:
    """The file that an export is written to until it is complete."""
    return path.with_name(f"{path.name}.part")


class _ExportPlace(BaseModel):
    """How far an export has come.

    Attributes:
        early_length: how long the part was when the walk had read all entries. The counters of
            these bytes may come again: the walk over the totals skips them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    export: str
    length: int = Field(ge=0)
    early_length: int = Field(ge=0)
    walk: str


class _Kept(NamedTuple):
    """The lines of an interrupted export that are done; `early`: counters found by entries."""

    place: _ExportPlace
    counters: int
    unread: list[UnreadLine]
    early: set[str]


class ExportFile:
    """An export on the disk, and the bookmarks of its walk.

    Attributes:
        replaced: whether a part was there that is not of this export.
        unread: its lines of what could not be read, those of before an interruption as well.
    """

    def __init__(self, path: Path, stream: IO[bytes], header: HeaderLine) -> None:
        self.continues = self.replaced = False
        self.counters = 0
        self.unread: list[UnreadLine] = []
        self._path = path
        self._stream = stream
        self._header = header
        self._position: WalkPosition | None = None
        self._early: set[str] = set()
        self._early_length = 0

    def begin(self) -> None:
        self._write([self._header])

    def go_on_after(self, kept: _Kept) -> None:
        """Cut off what is after the kept lines, and write after them."""
        what = f"place {place_beside(self._path)}"
        self._position = decode_position(kept.place.walk, self._header.of, what)
        self._stream.seek(kept.place.length)
        self._stream.truncate()
        self.continues = True
        self.counters, self.unread = kept.counters, kept.unread
        self._early, self._early_length = kept.early, kept.place.early_length

    def add(self, lines: Iterable[ExportLine]) -> None:
        """Write lines; they outlive a crash from here on.

        A counter that had no total when its entries were found may have one since: the walk names
        it again after an interruption, and its first line stays.
        """
        self._write(line for line in lines if _counter_of(line) not in self._early)

    def load(self) -> WalkPosition | None:
        """The position of the walk; None: the export is new."""
        return self._position

    def save(self, place: WalkPosition) -> None:
        """Store the position of the walk: all lines so far are done."""
        length = self._stream.tell()
        lanes = place.bookmark.lanes
        if any(lane.source is WalkedTable.LEDGER and not lane.done for lane in lanes):
            self._early_length = length
        stored = _ExportPlace(
            export=self._header.export,
            length=length,
            early_length=self._early_length,
            walk=encode_position(place, self._header.of),
        )
        try:
            replace_private(place_beside(self._path), stored.model_dump_json(), locked=True)
        except OSError as error:
            raise BadSetting(f"{place_beside(self._path)} cannot be written: {error}") from error

    def clear(self, foreign: ForeignItems) -> None:
        """Do nothing: the place is needed until the file is complete."""

    def complete(self) -> None:
        """Give the file its name: nobody sees a part of an export under it."""
        _check_free(self._path)
        part_beside(self._path).replace(self._path)
        place_beside(self._path).unlink(missing_ok=True)

    def _write(self, lines: Iterable[ExportLine | HeaderLine]) -> None:
        for line in lines:
            self._stream.write(f"{encode_line(line)}\n".encode())
            self.counters += _counter_of(line) is not None
            if isinstance(line, UnreadLine):
                self.unread.append(line)
        self._stream.flush()
        os.fsync(self._stream.fileno())


@contextmanager
def open_export(
    path: Path, purpose: str, new_id: Callable[[], str], *, continues: bool = True
) -> Iterator[ExportFile]:
    """The file of an interrupted export of the same purpose (if it may go on), or a new one.

    `BadSetting`: the file exists, cannot be written, or another process writes it; its part or its
    place is the file of something else, or of an export for another purpose.
    """
    _check_free(path)
    _place_of(path)  # refused before a part is created beside it
    stream, there = _locked_part(path)
    try:
        kept = _kept_of(path, stream, purpose) if there else None
        if kept is not None and continues:
            file = ExportFile(path, stream, HeaderLine(export=kept.place.export, of=purpose))
            file.go_on_after(kept)
        else:
            if there:
                part_beside(path).unlink(missing_ok=True)
                old, (stream, _) = stream, _locked_part(path)
                old.close()
            place_beside(path).unlink(missing_ok=True)
            file = ExportFile(path, stream, HeaderLine(export=new_id(), of=purpose))
            file.replaced = there
            file.begin()
        yield file
    finally:
        stream.close()


def _kept_of(path: Path, stream: IO[bytes], purpose: str) -> _Kept | None:
    """The done lines of a part; None: it is empty, or does not belong to its place."""
    place = _place_of(path)
    header = _header_of(part_beside(path), stream, purpose)
    if place is None or header is None or header.export != place.export:
        return None
    counters, unread, early = 0, [], set[str]()
    try:
        while (at := stream.tell()) < place.length:
            line = parse_line(stream.readline())
            counter = _counter_of(line)
            counters += counter is not None
            if counter is not None and at < place.early_length:
                early.add(counter)
            if isinstance(line, UnreadLine):
                unread.append(line)
    except BadPayload:
        return None
    return _Kept(place, counters, unread, early) if stream.tell() == place.length else None


def _header_of(part: Path, stream: IO[bytes], purpose: str) -> HeaderLine | None:
    """The first line of a part; None: the part is empty."""
    first = stream.readline(_HEADER_MAX_BYTES)
    if not first:
        return None
    try:
        header = parse_line(first)
    except BadPayload:
        header = None
    if not isinstance(header, HeaderLine):
        raise BadSetting(f"{part} is not part of an export: name another file, or remove it")
    if header.of != purpose:
        raise BadSetting(
            f"{part} belongs to an interrupted export of {header.of}, and this is an export of "
            f"{purpose}: name another file, or remove {part}"
        )
    return header


def _place_of(path: Path) -> _ExportPlace | None:
    place = place_beside(path)
    try:
        return _ExportPlace.model_validate_json(place.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise BadSetting(
            f"{place} is not the place of an export: name another file, or remove it ({error})"
        ) from error


def _counter_of(line: ExportLine | HeaderLine) -> str | None:
    """The counter that a line is of, also of one that could not be read; None: it is of none."""
    if isinstance(line, CounterLine):
        return line.counter
    if isinstance(line, UnreadLine) and not line.is_of_a_namespace:
        return line.unreadable
    return None


def _locked_part(path: Path) -> tuple[IO[bytes], bool]:
    """The part, which only this process writes until it closes it; and whether it was there."""
    part = part_beside(path)
    try:
        descriptor, there = open_private(part)
    except OSError as error:
        raise BadSetting(f"{part} cannot be written: {error.strerror}") from error
    stream = os.fdopen(descriptor, "r+b")
    try:
        _lock(stream, path)
    except BadSetting:
        stream.close()
        raise
    return stream, there


def _lock(stream: IO[bytes], path: Path) -> None:
    """Let one process write the part, until it closes the file or dies.

    A process that was suspended would write into the file of the one that went on in its place.
    """
    try:
        import fcntl  # noqa: PLC0415 - Windows has none, and renames no file that is open
    except ImportError:
        return
    part = part_beside(path)
    with suppress(OSError):
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(stream.fileno()), part.stat()):
            return
    raise BadSetting(f"{part} is in use: another export into {path} is running")


def _check_free(path: Path) -> None:
    if path.exists():
        raise BadSetting(f"{path} exists: name another file, or remove it")


_READERS: Final = 8
_NAMES_AT_ONCE: Final = 1_000
# The kind under which a walk counts a counter that cannot be read.
UNREADABLE: Final = "unreadable"


@dataclass(frozen=True, slots=True)
class Exporter:
    """Reads balances through a client; without a namespace, all."""

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
        """The lines of many counters, read some at a time; what cannot be read is a line."""
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
        if self.client.connection.strict is None:
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

        Yields how many counters are in the file, after each round of the walk.
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
        recorded. Without bookmarks no position is stored. Of each table 1 to 64 segments are read
        at the same time.
        """
        return Audit(
            Walker(self.client.connection),
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
    return UNREADABLE if isinstance(line, UnreadLine) else str(line.kind)


def _is_empty(line: CounterLine | UnreadLine) -> bool:
    """Whether it is a ledger without any entry."""
    if not isinstance(line, CounterLine) or line.kind is not Kind.LEDGER:
        return False
    return not line.events and not line.value
