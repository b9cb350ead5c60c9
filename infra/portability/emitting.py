"""A file of events, sent a chunk of lines at a time. An emit that was stopped can continue.

    read a chunk     lines that follow each other, and the digest of all that was read so far
    save the place   the chunk's last line, the time of its entries, and the digest
    send             the id of an entry follows from the emit, its line and that time
    go on            once each of its entries was answered

So an emit that is killed at any point sends at most its last chunk again. The same lines give the
same entries: nothing counts twice, also without keys. A file that was changed up to that chunk has
another digest and is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import IO, TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

from countledger.infra.portability.place_file import EmitPlace
from countledger.ledger import amount
from countledger.ledger.entry import new_entry
from countledger.ledger.errors import (
    BadInput,
    BadSetting,
    CountledgerError,
    RequestRejected,
    ServiceFailed,
    SetupError,
)
from countledger.ledger.ids import bound_id
from countledger.producers.buffer.delivery import may_coalesce
from countledger.producers.event import Status, make_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from countledger.infra.portability.place_file import NoPlace, PlaceFile
    from countledger.ledger.amount import Amount
    from countledger.ledger.entry import Entry
    from countledger.producers.event import Event
    from countledger.producers.recorder import Recorder

CHUNK_LINES: Final = 1_000
# One entry for each counter and chunk: the larger a chunk is, the fewer write units.
COALESCED_CHUNK_LINES: Final = 10_000
# What the command line ends with, if it refused a line.
_REFUSED: Final = 1


class EventLines:
    """The lines of a stream that are not blank, and the digest of all that was read.

    Attributes:
        number: the line that was read last.
    """

    def __init__(self, stream: IO[bytes], max_bytes: int) -> None:
        self.number = 0
        self._stream = stream
        self._max_bytes = max_bytes
        self._digest = blake2b(digest_size=16)

    def __iter__(self) -> Iterator[bytes]:
        """The lines; one that is longer than `max_bytes` comes cut."""
        while line := self._read():
            self.number += 1
            rest = line
            while len(rest) > self._max_bytes and not rest.endswith(b"\n"):
                rest = self._read()
            if line.strip():
                yield line

    def _read(self) -> bytes:
        text = self._stream.readline(self._max_bytes + 1)
        self._digest.update(text)
        return text

    @property
    def digest(self) -> str:
        """Of everything up to the end of line `number`."""
        return self._digest.hexdigest()


def is_to_be_sent_again(error: CountledgerError) -> bool:
    """Whether a line failed for a reason that may pass."""
    return isinstance(error, ServiceFailed) and not isinstance(error, RequestRejected)


def exit_code_of(error: CountledgerError) -> int:
    """What a line that was not recorded comes to; AWS's failures are worse than a bad line."""
    return _REFUSED if isinstance(error, BadInput) else error.exit_code


class SentChunk(NamedTuple):
    """What became of a chunk.

    Attributes:
        place: where the emit is now.
        failures: the lines that were not recorded, by number, and why.
        stopped: whether AWS failed for one of them: the emit ends here, and can continue.
    """

    place: EmitPlace
    failures: list[tuple[int, CountledgerError]]
    stopped: bool = False


def entries_of(
    emit: str, events: Sequence[tuple[int, Event]], at_ms: int, origin: str, *, coalesce: bool
) -> list[tuple[Entry, list[int]]]:
    """The entries of a chunk, each with its lines. Pure: a chunk always gives the same ones.

    Args:
        emit: the id of the emit.
        events: by line.
        at_ms: the time of the entries.
        origin: the region of this process.
        coalesce: whether events of one counter become one entry, if nothing of theirs is lost.
    """
    made: list[tuple[Entry, list[int]]] = []
    sums: dict[str, tuple[list[int], list[Amount]]] = {}
    for number, event in events:
        if coalesce and may_coalesce(event):
            numbers, deltas = sums.setdefault(event.counter, ([], []))
            numbers.append(number)
            deltas.append(event.delta)
            continue
        new_id = partial(_id_of, f"{emit}#{number}#{amount.to_text(event.delta)}")
        made.append((make_entry(event, now_ms=at_ms, origin=origin, new_id=new_id), [number]))
    for counter, (numbers, deltas) in sums.items():
        total = amount.total_of(deltas)
        entry_id = _id_of(f"{emit}#{numbers[0]}-{numbers[-1]}#{amount.to_text(total)}", at_ms)
        made.append((new_entry(counter, entry_id, total, at_ms, origin, len(numbers)), numbers))
    return made


def _id_of(what: str, at_ms: int) -> str:
    return bound_id(what.encode(), at_ms)


@dataclass(frozen=True)
class FileEmitter:
    """Sends the lines of a file.

    Attributes:
        recorder: of the stack; its clock gives the time of entries.
        store: keeps the place.
        parse: a line as an event; raises `BadInput`.
        coalesce: whether lines of one counter become one entry.
        purpose: the ledger, and how lines are read.
        chunk_lines: how many lines are sent between two places.
        new_emit: makes the id of an emit.
    """

    recorder: Recorder
    store: PlaceFile | NoPlace
    parse: Callable[[bytes], Event]
    coalesce: bool
    purpose: str
    chunk_lines: int = CHUNK_LINES
    new_emit: Callable[[], str] = lambda: uuid4().hex

    def begin(self) -> EmitPlace:
        """The place to continue from, or a new one.

        Raises:
            BadSetting: the place is one of another emit.
        """
        place = self.store.load() or EmitPlace(emit=self.new_emit(), purpose=self.purpose)
        if place.purpose != self.purpose:
            raise BadSetting(
                f"the place of this file is of an emit to {place.purpose}, and this one is to "
                f"{self.purpose}: give the same options, or another --place"
            )
        return place

    def chunks(self, lines: EventLines, place: EmitPlace) -> Iterator[SentChunk]:
        """Send the lines after a place: as many write units as the recorder's for each entry.

        Args:
            lines: of the file, from its beginning.
            place: as `begin` gave it.

        Raises:
            BadSetting: the file was changed up to the place, or the place cannot be kept.
            SetupError: no table, no permission, nothing reachable; what was answered is counted
                with the next try.
        """
        feed = iter(lines)
        pending = self._sent_before(lines, feed, place)
        while pending or (pending := self._next_chunk(lines, feed)):
            if lines.number > place.last:
                place = place.model_copy(
                    update={
                        "last": lines.number,
                        "at_ms": self.recorder.clock.now_ms(),
                        "digest": lines.digest,
                    }
                )
                self.store.save(place)
            sent = self._send(pending, place)
            yield sent
            if sent.stopped:
                return
            place, pending = sent.place, []
        self.store.save(place)

    def _sent_before(
        self, lines: EventLines, feed: Iterator[bytes], place: EmitPlace
    ) -> list[tuple[int, bytes]]:
        """The lines that may have been sent and were not all answered."""
        pending: list[tuple[int, bytes]] = []
        while lines.number < place.last and (line := next(feed, b"")):
            if lines.number > place.through:
                pending.append((lines.number, line))
        if place.last and (lines.number, lines.digest) != (place.last, place.digest):
            raise BadSetting(
                f"the file was changed up to line {place.last}, which an earlier emit has sent: "
                "give the same file, or remove its place to send every line again"
            )
        return pending

    def _next_chunk(self, lines: EventLines, feed: Iterator[bytes]) -> list[tuple[int, bytes]]:
        chunk: list[tuple[int, bytes]] = []
        while len(chunk) < self.chunk_lines and (line := next(feed, b"")):
            chunk.append((lines.number, line))
        return chunk

    def _send(self, chunk: list[tuple[int, bytes]], place: EmitPlace) -> SentChunk:
        events: list[tuple[int, Event]] = []
        failures: list[tuple[int, CountledgerError]] = []
        for number, line in chunk:
            try:
                events.append((number, self.parse(line)))
            except BadInput as error:
                failures.append((number, error))
        origin = self.recorder.region
        made = entries_of(place.emit, events, place.at_ms, origin, coalesce=self.coalesce)
        outcomes = self.recorder.resend_many([entry for entry, _ in made])
        recorded = duplicates = 0
        entries: set[tuple[str, str]] = set()
        for (_, numbers), outcome in zip(made, outcomes, strict=True):
            if isinstance(outcome, SetupError):
                raise outcome
            if isinstance(outcome, CountledgerError):
                failures += [(number, outcome) for number in numbers]
                continue
            entries.add((outcome.counter, outcome.id))
            recorded += len(numbers) * (outcome.status is Status.RECORDED)
            duplicates += len(numbers) * (outcome.status is Status.DUPLICATE)
        failures.sort(key=lambda failure: failure[0])
        if any(is_to_be_sent_again(error) for _, error in failures):
            return SentChunk(place, failures, stopped=True)
        after = {
            "through": place.last,
            "recorded": place.recorded + recorded,
            "duplicates": place.duplicates + duplicates,
            "bad": place.bad + len(failures),
            "entries": place.entries + len(entries),
            "worst": max([place.worst, *(exit_code_of(error) for _, error in failures)]),
        }
        return SentChunk(place.model_copy(update=after), failures)
