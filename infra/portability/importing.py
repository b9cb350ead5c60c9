"""Opening balances: each line counts once under the name of its import, however often it is tried.

namespace            created, unless it exists with the same settings. Windows are switched on if it
                     never had any, so opening balances are in no window. If its line fails, its
                     counters are not tried: they would create it with the default settings
counter of a ledger  one entry with the whole value and its number of events, under a key of the
                     import's name. Its time is that of the first try of the import, so a retry
                     beyond the horizon is refused. It may be larger than a change of an app
strict counter       created with the value as its opening value. One that exists, and was not
                     created by this import, is refused: the value might pass its bounds
sequence             created to continue after the value. One that exists is never moved, and is
                     refused if its last number is smaller

A strict counter or a sequence that this import created, and that was deleted since, is not created
again.

A counter that an import creates, once under the name of the import.

An opening balance of a ledger is an entry under a key, so it counts once. A strict counter or a
sequence has no such key. Its absence proves nothing, because this import may have created it, and
it may have been used, emptied and deleted since. So the import stores a note of each:

    (`import#<name>`, `made#<counter>`)    a record; `made_at` once the counter was created

    note       if there is none
    create     the counter
    complete   `made_at`, if it is still that note; after a clear refusal it is removed

Its tombstone refuses a late request of the note, which would say that the counter may have been
created.

A note without `made_at` is that of an attempt that was killed, is under way, or got no answer. If
its counter is absent, it is unknown whether it was created: its line is refused.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from countledger import IdempotencyKey, Receipt
from countledger.infra.portability.lines import (
    CounterLine,
    CounterLines,
    ExportLine,
    NamespaceLine,
    UnreadLine,
    importable,
    may_be_of_a_namespace,
    missing,
)
from countledger.infra.portability.sending import SentChunk, answered
from countledger.ledger import amount, keys
from countledger.ledger.attributes import require
from countledger.ledger.clock import Clock, SystemClock, to_datetime
from countledger.ledger.entry import Entry, Note
from countledger.ledger.errors import (
    BadInput,
    BadPayload,
    BadSetting,
    ConditionFailed,
    CounterExists,
    CountledgerError,
    NamespaceUnknown,
    NoSuchCounter,
    SequenceExists,
    SetupError,
    Unclear,
)
from countledger.ledger.ids import id_of_key
from countledger.ledger.limits import IMPORT_NAME_MAX_BYTES, SEQUENCE_LAST
from countledger.ledger.namespace import Kind
from countledger.ledger.operations import Absent, Put
from countledger.ledger.records import NotRead, Records, Replacement, write_of
from countledger.ledger.texts import check_text
from countledger.producers.recorder import Recorder
from countledger.producers.sequences.sequence import check_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from countledger import CountLedger
    from countledger.infra.portability.lines import Line
    from countledger.infra.portability.sending import Failure, FilePlace, NumberedLine
    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection
    from countledger.ledger.records import Decide, RecordWritten, Seen


@dataclass(frozen=True, slots=True)
class MadeOnce:
    """What an import has created."""

    connection: Connection
    name: str

    def make(
        self, counter: str, create: Callable[[], object], exists: Callable[[], bool]
    ) -> bool | None:
        """Create a counter, unless this import has created it: two write units more.

        None: this import created it, and it was deleted since. `exists` is also true of one that
        this import did not create. `BadPayload`: it is unknown whether an earlier attempt created
        it.
        """
        key = {**keys.import_key(self.name), "part": keys.MADE_PREFIX + counter}
        made = Replacement(key)
        noted = self._write(key, lambda there: None if there else made, NotRead.EXPECT_NOTHING)
        note = noted.item or {}
        if not noted.changed:
            if exists():
                return False
            if "made_at" in note:
                return None
            raise _unknown(self.name, counter)
        try:
            create()
        except Unclear:
            raise
        except CountledgerError:
            self._replace(note, None)
            raise
        self._replace(note, {**key, "made_at": self.connection.clock.now_ms()})
        return True

    def _replace(self, note: Item, item: Item | None) -> None:
        """Complete or remove the note of this call, unless it is gone."""
        last = write_of(note)

        def decide(there: Item | None) -> Replacement | None:
            return Replacement(item) if there and write_of(there) == last else None

        self._write(note, decide, note)

    def _write(self, note: Item, decide: Decide, seen: Seen) -> RecordWritten:
        to, key = self.connection, {name: note[name] for name in ("counter", "part")}
        records = Records(to, to.counters, f"the note of import {self.name!r} for counter")
        counter = str(key["part"]).removeprefix(keys.MADE_PREFIX)
        # A note of this call is removed by this call alone.
        return to.run(records.write(counter, key, decide, seen=seen, repeatable=True))


def _unknown(name: str, counter: str) -> BadPayload:
    return BadPayload(
        f"an earlier try of import {name!r} was stopped while it created {counter!r}, which does "
        "not exist now: it may have been created and deleted since. If it was not, import its line "
        "under another name (or wait, if that try is still running)"
    )


_CHUNK: Final = 200


class ImportResult(StrEnum):
    RECORDED = "recorded"
    DUPLICATE = "duplicate"
    MADE = "made"
    EXISTS = "exists"
    NOTHING = "nothing"


Outcome: TypeAlias = ImportResult | CountledgerError


def check_import_name(name: str) -> str:
    name = check_text("import name", name, IMPORT_NAME_MAX_BYTES, BadSetting)
    if "#" in name:
        raise BadSetting(f"import name {name[:80]!r} holds a '#', which is reserved")
    return name


@dataclass(frozen=True, slots=True)
class Importer:
    """Writes opening balances through a client; `at`: when the import of that name began."""

    client: CountLedger
    name: str
    at: datetime
    recorder: Recorder
    failed: set[str] = field(default_factory=set)

    @classmethod
    def begin(
        cls,
        client: CountLedger,
        name: str,
        clock: Clock | None = None,
        *,
        digest: str | None = None,
    ) -> Importer:
        """Begin an import, or go on with the one of that name: one write unit.

        `digest` is that of a file whose name is that of the import; None: a person gave the name.
        `BadSetting`: a file of that name was imported with other content, or under a given name, so
        that its content is unknown.
        """
        name = check_import_name(name)
        at_ms = (clock or SystemClock()).now_ms()
        table = client.connection.setting("counters_table")
        item = {**keys.import_key(name), "at": at_ms}
        if digest is not None:
            item["digest"] = digest
        try:
            client.connection.dynamo("standard").put(Put(table, item, Absent("part")))
        except ConditionFailed as there:
            found = there.item or {}
            at_ms = require(found, "at", int)
            if digest is not None and found.get("digest") != digest:
                refusal = _other_file if "digest" in found else _of_a_given_name
                raise refusal(name, to_datetime(at_ms)) from None
        recorder = Recorder(client.connection)
        return cls(client, name, to_datetime(at_ms), recorder)

    def outcomes(self, lines: Iterable[ExportLine]) -> Iterator[Outcome]:
        """Write the lines in their order, those of ledgers many at a time; one outcome for each.

        One write unit for each counter of a ledger; creating another one costs as by hand, and two
        write units. A line for a counter that the export could not read results in an error.
        """
        waiting: list[CounterLine] = []
        for line in lines:
            refusal = self._untried(line)
            if refusal is None and isinstance(line, CounterLine) and _is_entry(line):
                waiting.append(line)
                if len(waiting) < _CHUNK:
                    continue
                yield from self._record(waiting)
                waiting = []
            else:
                yield from self._record(waiting)
                waiting = []
                yield self._make(line) if refusal is None else refusal
        yield from self._record(waiting)

    def _untried(self, line: ExportLine) -> BadPayload | None:
        """Why a line is not tried: that of its namespace failed. None: it is tried."""
        if not isinstance(line, CounterLine):
            return None
        namespace = keys.namespace_of(line.counter)
        if namespace not in self.failed:
            return None
        return BadPayload(
            f"{line.counter!r} was not tried, because the line of its namespace {namespace!r} was "
            "not imported: correct that, then import the file again"
        )

    def _record(self, lines: list[CounterLine]) -> Iterator[Outcome]:
        if not lines:
            return
        made = [self._entry_of(line) for line in lines]
        entries = [one for one in made if isinstance(one, Entry)]
        sent = iter(self.recorder.resend_many(entries))
        for one in made:
            outcome = next(sent) if isinstance(one, Entry) else one
            yield ImportResult(str(outcome.status)) if isinstance(outcome, Receipt) else outcome

    def _entry_of(self, line: CounterLine) -> Entry | BadInput:
        """The entry of a line, or the error of its counter name."""
        key = IdempotencyKey(f"import:{self.name}", self.at)
        try:
            counter = keys.check_counter(line.counter)
        except BadInput as error:
            return error
        return Entry(
            counter=counter,
            id=id_of_key(key),
            delta=line.value,
            at_ms=key.at_ms,
            origin=self.client.connection.region,
            # A line that a person wrote has no number of events: its value is one event.
            events=1 if line.events is None else line.events,
            key=key.key,
            note=Note({"import": self.name}),
        )

    def _make(self, line: ExportLine) -> Outcome:
        if isinstance(line, UnreadLine):
            return missing(line)
        try:
            if isinstance(line, NamespaceLine):
                self.failed.add(line.namespace)
                done = self._make_namespace(line)
                self.failed.discard(line.namespace)
                return done
            if line.kind in {Kind.STRICT, Kind.STRICT_REGIONS}:
                return self._make_strict(line)
            if line.kind is Kind.SEQUENCE:
                return self._make_sequence(line)
        except CountledgerError as error:
            return error
        return ImportResult.NOTHING  # a ledger without entries needs none

    def _make_namespace(self, line: NamespaceLine) -> ImportResult:
        exists = self._is_there(line.namespace)
        self.client.namespaces.create(
            line.namespace,
            kind=line.kind,
            spread=line.spread,
            horizon_ms=line.horizon_ms,
            description=line.description,
        )
        if line.windows is not None:
            line.windows.switch_on(self.client.window_settings, line.namespace)
        return ImportResult.EXISTS if exists else ImportResult.MADE

    def _is_there(self, namespace: str) -> bool:
        try:
            self.client.namespaces.get(namespace)
        except NamespaceUnknown:
            return False
        return True

    def _make_strict(self, line: CounterLine) -> ImportResult:
        create = partial(
            self.client.strict.create,
            line.counter,
            method=line.method or "",
            lower=line.lower,
            upper=line.upper,
            opening=line.value,
            bins=line.bins,
            history=line.history,
            max_tokens=line.max_tokens,
            window_ms=line.window_ms,
            regions=line.kind is Kind.STRICT_REGIONS,
        )
        wanted = (line.method, line.lower, line.upper, line.bins)

        def exists() -> bool:
            try:
                there = self.client.strict.show(line.counter)
            except (NoSuchCounter, NamespaceUnknown):
                return False
            if (str(there.method), there.lower, there.upper, there.bins) != wanted:
                raise CounterExists(
                    f"strict counter {line.counter!r} exists, of method {there.method}, and "
                    "differs from the line: delete it first, or give the line another name"
                )
            return True

        try:
            return self._make_once(line.counter, create, exists, CounterExists)
        except CounterExists as error:
            exists()
            raise CounterExists(
                f"strict counter {line.counter!r} exists here, with the value "
                f"{amount.to_text(self.client.strict.show(line.counter).value)}: an import adds "
                "nothing to it; change it by hand, delete it first, or leave the line out"
            ) from error

    def _make_sequence(self, line: CounterLine) -> ImportResult:
        """Create a sequence; one that exists is refused if its last number is smaller."""
        last = check_number("last number", line.value, -1, SEQUENCE_LAST)
        create = partial(self.client.sequences.create, line.counter, first=last + 1)

        def exists() -> bool:
            there = self.client.sequences.show(line.counter)
            if there.version and there.last < last:
                raise SequenceExists(
                    f"sequence {line.counter!r} is at {there.last} here, and at {last} in the "
                    f"file: the numbers {there.last + 1} to {last} would be given out twice; "
                    "import it under another name, or draw them here first"
                )
            return bool(there.version)

        return self._make_once(line.counter, create, exists, SequenceExists)

    def _make_once(
        self,
        counter: str,
        create: Callable[[], object],
        exists: Callable[[], bool],
        existing: type[CountledgerError],
    ) -> ImportResult:
        try:
            made = MadeOnce(self.client.connection, self.name).make(counter, create, exists)
        except existing:
            if existing is CounterExists or not exists():
                raise  # nothing is added to a strict counter; a sequence was deleted just now
            return ImportResult.EXISTS
        if made is None:
            return ImportResult.DUPLICATE
        return ImportResult.MADE if made else ImportResult.EXISTS


@dataclass(frozen=True, slots=True)
class ChunkImporter:
    """Imports a chunk of the lines of a file.

    Attributes:
        lines: of each counter: all lines of a file, or those that were read from a stream.
    """

    importer: Importer
    drop_holds: bool = False
    lines: CounterLines = field(default_factory=CounterLines)

    def __call__(self, chunk: Sequence[NumberedLine], place: FilePlace) -> SentChunk:
        """Import the lines, as `Importer.outcomes`. A namespace that fails stops the import."""
        lines, failures, stopped = self._read(chunk)
        counts: Counter[str] = Counter({str(done): 0 for done in ImportResult})
        outcomes = self.importer.outcomes(line for _, line in lines)
        for (number, line), outcome in zip(lines, outcomes, strict=True):
            if isinstance(outcome, SetupError):
                raise outcome
            if isinstance(outcome, CountledgerError):
                failures.append((number, outcome))
                stopped = stopped or isinstance(line, NamespaceLine)
            else:
                counts[str(outcome)] += 1
        if stopped:  # the next try begins with the line of the namespace
            return SentChunk(place, sorted(failures, key=lambda one: one[0]), stopped=True)
        return answered(place, failures, counts)

    def _read(
        self, chunk: Sequence[NumberedLine]
    ) -> tuple[list[tuple[int, Line]], list[Failure], bool]:
        """The lines to import, the errors of the others, and whether a namespace could not be read.

        No line after that of such a namespace is read.
        """
        lines: list[tuple[int, Line]] = []
        failures: list[Failure] = []
        stopped = False
        for number, text in chunk:
            try:
                line = importable(text, drop_holds=self.drop_holds)
            except BadInput as error:
                failures.append((number, error))
                if may_be_of_a_namespace(text):
                    stopped = True
                    break
                continue
            if line is None:
                continue
            lines.append((number, line))
            if isinstance(line, CounterLine):
                self.lines.note(line.counter, number)
        refused: dict[int, CountledgerError] = {}
        for number, line in lines:
            if isinstance(line, CounterLine) and (why := self.lines.refused(line.counter)):
                refused[number] = why
        failures += refused.items()
        return [one for one in lines if one[0] not in refused], failures, stopped


def _is_entry(line: CounterLine) -> bool:
    """Whether a counter gets an entry. Entries with a sum of 0 are still events."""
    return line.kind is Kind.LEDGER and bool(line.value or line.events)


def _of_a_given_name(name: str, at: datetime) -> BadSetting:
    return BadSetting(
        f"an import with --name {name} began at {at:%Y-%m-%d %H:%M:%S} UTC, and the digest of its "
        f"file is not stored: to continue that import, give --name {name}, and each line counts "
        "once; for another import, give another --name"
    )


def _other_file(name: str, at: datetime) -> BadSetting:
    return BadSetting(
        f"an import of {name!r} began at {at:%Y-%m-%d %H:%M:%S} UTC with other content: if this is "
        f"the same file with corrections, give --name {name}, and each line counts once; if it is "
        "another file, give another --name"
    )
