"""Opening balances: each line once under the name of its import, however often it is tried.

namespace            made, or there already with the same settings; windows are switched on if it
                     never had any, so opening balances are in no window
counter of a ledger  one entry of the whole value and its number of events, under a key of the
                     import's name; its time is the import's first, so a retry beyond the horizon
                     is refused
strict counter       made with the value as its opening, or there already as the line says
sequence             created to continue after the value, or exists and is that far; never moved
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from countledger import Event, IdempotencyKey, Receipt
from countledger.infra.portability.lines import (
    CounterLine,
    ExportLine,
    NamespaceLine,
    UnreadLine,
    parse_line,
)
from countledger.infra.portability.sending import SentChunk, answered
from countledger.ledger import amount, keys
from countledger.ledger.attributes import require
from countledger.ledger.clock import Clock, SystemClock, to_datetime
from countledger.ledger.errors import (
    BadInput,
    BadPayload,
    BadSetting,
    ConditionFailed,
    CounterExists,
    CountledgerError,
    NamespaceUnknown,
    SequenceExists,
    SetupError,
)
from countledger.ledger.expressions import Absent
from countledger.ledger.limits import IMPORT_NAME_MAX_BYTES, SEQUENCE_LAST
from countledger.ledger.namespace import Kind
from countledger.ledger.operations import Put
from countledger.producers.sequences.sequence import check_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from countledger import CountLedger
    from countledger.infra.portability.lines import Line
    from countledger.infra.portability.place_file import FilePlace
    from countledger.infra.portability.sending import NumberedLine


_CHUNK: Final = 200


class ImportResult(StrEnum):
    """What became of a line."""

    RECORDED = "recorded"
    DUPLICATE = "duplicate"
    MADE = "made"
    EXISTS = "exists"
    NOTHING = "nothing"


Outcome: TypeAlias = ImportResult | CountledgerError


@dataclass(frozen=True, slots=True)
class Importer:
    """Writes opening balances through a client.

    Attributes:
        client: of the stack.
        name: of the import.
        at: when the import of that name was begun first.
    """

    client: CountLedger
    name: str
    at: datetime

    @classmethod
    def begin(cls, client: CountLedger, name: str, clock: Clock | None = None) -> Importer:
        """Begin an import, or go on with the one of that name: one write unit.

        Raises:
            BadSetting: the name is not valid.
        """
        if not name or len(name.encode()) > IMPORT_NAME_MAX_BYTES or "#" in name:
            raise BadSetting(
                f"import name {name[:80]!r}: give 1 to {IMPORT_NAME_MAX_BYTES} bytes without '#'"
            )
        if keys.has_control_characters(name):
            raise BadSetting(f"the import's name {name[:80]!r} holds control characters")
        at_ms = (clock or SystemClock()).now_ms()
        table = client.connection.setting("counters_table")
        item = {**keys.import_key(name), "at": at_ms}
        try:
            client.connection.dynamo("standard").put(Put(table, item, Absent("part")))
        except ConditionFailed as there:
            at_ms = require(there.item or {}, "at", int)
        return cls(client, name, to_datetime(at_ms))

    def outcomes(self, lines: Iterable[ExportLine]) -> Iterator[Outcome]:
        """Write the lines in their order, those of ledgers many at a time; one outcome for each.

        One write unit for each counter of a ledger; creating a strict one costs as by hand. A line
        for a counter that the export could not read results in an error.
        """
        waiting: list[CounterLine] = []
        for line in lines:
            if isinstance(line, CounterLine) and line.kind is Kind.LEDGER and line.value:
                waiting.append(line)
                if len(waiting) < _CHUNK:
                    continue
                yield from self._record(waiting)
                waiting = []
                continue
            yield from self._record(waiting)
            waiting = []
            yield self._make(line)
        yield from self._record(waiting)

    def _record(self, lines: list[CounterLine]) -> Iterator[Outcome]:
        key = IdempotencyKey(f"import:{self.name}", self.at)
        made = [_event_of(line, key, self.name) for line in lines]
        sent = self.client.record_stream(one for one in made if isinstance(one, Event))
        for one in made:
            outcome = next(sent) if isinstance(one, Event) else one
            yield ImportResult(str(outcome.status)) if isinstance(outcome, Receipt) else outcome

    def _make(self, line: ExportLine) -> Outcome:
        if isinstance(line, UnreadLine):
            return missing(line)
        try:
            if isinstance(line, NamespaceLine):
                return self._make_namespace(line)
            if line.kind in {Kind.STRICT, Kind.STRICT_REGIONS}:
                return self._make_strict(line)
            if line.kind is Kind.SEQUENCE:
                return self._make_sequence(line)
        except CountledgerError as error:
            return error
        return ImportResult.NOTHING  # of a ledger, and 0: it is what it would be

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
        wanted = (line.method, line.lower, line.upper, line.bins)
        try:
            self.client.strict.create(
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
        except CounterExists:
            there = self.client.strict.show(line.counter)
            if (str(there.method), there.lower, there.upper, there.bins) != wanted:
                raise
            return ImportResult.EXISTS
        return ImportResult.MADE

    def _make_sequence(self, line: CounterLine) -> ImportResult:
        """An existing sequence stays as it is, or is refused if it is before the line's number."""
        last = check_number("last number", line.value, 0, SEQUENCE_LAST - 1)
        try:
            self.client.sequences.create(line.counter, first=last + 1)
        except SequenceExists:
            there = self.client.sequences.show(line.counter).last
            if there < last:
                raise SequenceExists(
                    f"sequence {line.counter!r} is at {there} here, and at {last} in the file: "
                    f"the numbers {there + 1} to {last} would be given out twice; "
                    "import it under another name, or draw them here first"
                ) from None
            return ImportResult.EXISTS
        return ImportResult.MADE


@dataclass(frozen=True, slots=True)
class ChunkImporter:
    """Imports a chunk of the lines of a file.

    Attributes:
        importer: of the import; each line counts once under its name, so a chunk can be repeated.
        drop_holds: whether what was held becomes available.
    """

    importer: Importer
    drop_holds: bool = False

    def __call__(self, chunk: Sequence[NumberedLine], place: FilePlace) -> SentChunk:
        """Import the lines: as `Importer.outcomes`.

        Raises:
            SetupError: what concerns every line.
        """
        lines: list[tuple[int, Line]] = []
        failures: list[tuple[int, CountledgerError]] = []
        for number, text in chunk:
            try:
                lines.append((number, importable(text, drop_holds=self.drop_holds)))
            except BadInput as error:
                failures.append((number, error))
        counts: Counter[str] = Counter({str(done): 0 for done in ImportResult})
        outcomes = self.importer.outcomes(line for _, line in lines)
        for (number, _), outcome in zip(lines, outcomes, strict=True):
            if isinstance(outcome, SetupError):
                raise outcome
            if isinstance(outcome, CountledgerError):
                failures.append((number, outcome))
            else:
                counts[str(outcome)] += 1
        return answered(place, failures, counts)


def importable(text: bytes, *, drop_holds: bool) -> Line:
    """A line that can be imported.

    Raises:
        BadInput: it is malformed, the export could not read the item, or some of it was held.
    """
    line = parse_line(text)
    if isinstance(line, UnreadLine):
        raise missing(line)
    if isinstance(line, CounterLine) and line.held and not drop_holds:
        raise held_in(line)
    return line


def missing(line: UnreadLine) -> BadPayload:
    """Why nothing is imported for a line of what an export could not read."""
    return BadPayload(f"the export could not read {line.unreadable!r}: {line.reason}")


def held_in(line: CounterLine) -> BadPayload:
    """Why a strict counter is not imported of which some was held."""
    held = amount.to_text(line.held or 0)
    return BadPayload(
        f"{line.counter!r} had open holds of {held} when it was exported, and an import creates no "
        "holds: end them and export it again, or give --drop-holds, which makes that available"
    )


def _event_of(line: CounterLine, key: IdempotencyKey, name: str) -> Event | CountledgerError:
    """The one entry of a line, or what is wrong with its counter."""
    try:
        # A line written by hand has no number of events: its value counts as one.
        return Event(line.counter, line.value, key, note={"import": name}, events=line.events or 1)
    except BadInput as error:
        return error
