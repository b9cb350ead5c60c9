"""A file of lines, sent a chunk at a time. An emit or an import that was stopped can continue.

    read a chunk     lines that follow each other, and the digest of all that was read so far
    save the place   the chunk's last line, the time of its entries, and the digest
    send             the same chunk with the same place has the same effect, however often
    go on            once everything in it was answered

So a process that is killed at any point sends at most its last chunk again. A file that was changed
up to that chunk has another digest and is refused.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from countledger.infra.portability.place_file import FilePlace
from countledger.ledger.errors import (
    BadInput,
    BadSetting,
    CountledgerError,
    RequestRejected,
    ServiceFailed,
)
from countledger.ledger.ids import unique_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from countledger.infra.portability.file_lines import FileLines
    from countledger.infra.portability.place_file import NoPlace, PlaceFile
    from countledger.ledger.clock import Clock

NumberedLine: TypeAlias = tuple[int, bytes]
Failure: TypeAlias = tuple[int, CountledgerError]

CHUNK_LINES: Final = 1_000
# The count of the lines that were not recorded.
BAD: Final = "bad"
# What the command line ends with, if it refused a line.
_REFUSED: Final = 1


def is_to_be_sent_again(error: CountledgerError) -> bool:
    """Whether a line failed for a reason that may pass."""
    return isinstance(error, ServiceFailed) and not isinstance(error, RequestRejected)


def exit_code_of(error: CountledgerError) -> int:
    """What a line that was not recorded comes to; AWS's failures are worse than a bad line."""
    return _REFUSED if isinstance(error, BadInput) else error.exit_code


class SentChunk(NamedTuple):
    """What became of a chunk.

    Attributes:
        place: where the task is now.
        failures: the lines that were not recorded, by number, and why.
        stopped: whether the task ends here, as when AWS failed for a line; it can continue.
    """

    place: FilePlace
    failures: list[Failure]
    stopped: bool = False


def answered(place: FilePlace, failures: Sequence[Failure], counts: Mapping[str, int]) -> SentChunk:
    """The chunk after which a place is, once everything in it was answered.

    Args:
        place: before the chunk; its `last` line is the chunk's.
        failures: the lines that were not recorded.
        counts: what became of the others.
    """
    failures = sorted(failures, key=lambda failure: failure[0])
    if any(is_to_be_sent_again(error) for _, error in failures):
        return SentChunk(place, failures, stopped=True)
    sums = Counter(place.counts)
    sums.update({**counts, BAD: len(failures)})
    worst = max([place.worst, *(exit_code_of(error) for _, error in failures)])
    after = {"through": place.last, "counts": dict(sums), "worst": worst}
    return SentChunk(place.model_copy(update=after), failures)


def place_for(store: PlaceFile | NoPlace, purpose: str) -> FilePlace | None:
    """The place that a task can continue from; None: nothing was saved yet.

    Raises:
        BadSetting: the place is one of another task.
    """
    place = store.load()
    if place is not None and place.purpose != purpose:
        raise BadSetting(
            f"the place of this file is of {place.purpose}, and this is {purpose}: "
            "give the same options, or another --place"
        )
    return place


@dataclass(frozen=True)
class FileSender:
    """Sends the lines of a file.

    Attributes:
        store: keeps the place.
        purpose: the ledger, and how lines are read.
        send: sends a chunk, from the place before it; the same one again has no further effect.
        clock: gives the time of entries.
        chunk_lines: the most lines that are sent between two places.
        new_id: makes the id of a place.
    """

    store: PlaceFile | NoPlace
    purpose: str
    send: Callable[[Sequence[NumberedLine], FilePlace], SentChunk]
    clock: Clock
    chunk_lines: int = CHUNK_LINES
    new_id: Callable[[], str] = unique_id

    def begin(self) -> FilePlace:
        """The place to continue from, or a new one.

        Raises:
            BadSetting: the place is one of another task.
        """
        return place_for(self.store, self.purpose) or self.restart()

    def restart(self) -> FilePlace:
        """A new place, before the first line."""
        return FilePlace(id=self.new_id(), purpose=self.purpose)

    def chunks(self, lines: FileLines, place: FilePlace) -> Iterator[SentChunk]:
        """Send the lines after a place.

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
                        "at_ms": self.clock.now_ms(),
                        "digest": lines.digest,
                    }
                )
                self.store.save(place)
            sent = self.send(pending, place)
            yield sent
            if sent.stopped:
                return
            place, pending = sent.place, []
        self.store.save(place)

    def _sent_before(
        self, lines: FileLines, feed: Iterator[bytes], place: FilePlace
    ) -> list[NumberedLine]:
        """The lines that may have been sent and were not all answered."""
        pending: list[NumberedLine] = []
        while lines.number < place.last and (line := next(feed, b"")):
            if lines.number > place.through and line.strip():
                pending.append((lines.number, line))
        if place.last and (lines.number, lines.digest) != (place.last, place.digest):
            raise BadSetting(
                f"the file was changed up to line {place.last}, which was sent earlier: "
                "give the same file, or remove its place to send every line again"
            )
        return pending

    def _next_chunk(self, lines: FileLines, feed: Iterator[bytes]) -> list[NumberedLine]:
        """The next lines that are not blank: those that arrive without a pause."""
        chunk: list[NumberedLine] = []
        while len(chunk) < self.chunk_lines and (not chunk or lines.has_next()):
            line = next(feed, b"")
            if not line:
                break
            if line.strip():
                chunk.append((lines.number, line))
        return chunk
