"""The file of lines of an emit or an import: its lines, its place, and what is shown."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import UnsupportedOperation
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from countledger.infra.cli.app import BadUsage
from countledger.infra.cli.output import notice, open_progress
from countledger.infra.portability.file_lines import FileLines, StreamedLines
from countledger.infra.portability.place_file import NoPlace, open_place
from countledger.infra.portability.sending import SentChunk, exit_code_of
from countledger.ledger.errors import SetupError
from countledger.producers.payload import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.infra.portability.file_lines import LineStream
    from countledger.infra.portability.place_file import FilePlace, PlaceFile
    from countledger.infra.portability.sending import FileSender

# Of a longer line no more is read into memory; it is refused for its length.
LINE_MAX_BYTES: Final = MAX_BYTES + 1
_STANDARD_INPUT: Final = "-"


class FileUnreadable(SetupError):
    """A file of lines cannot be opened."""


@dataclass(frozen=True, slots=True)
class LineFile:
    """A file of lines, as a command names it.

    Attributes:
        name: its path; - is standard input.
        place: where it is kept how far the command has come; None: nowhere.
        resume: whether to continue after the lines that were sent earlier.
    """

    name: str
    place: Path | None
    resume: bool

    @classmethod
    def named(cls, name: str, place: Path | None, *, resume: bool) -> LineFile:
        """A file; its place is beside it by default.

        Raises:
            BadUsage: standard input is to be continued, and has no place.
        """
        if place is None and name != _STANDARD_INPUT:
            place = Path(f"{name}.place")
        if resume and place is None:
            raise BadUsage(
                "--resume needs to know where standard input has stopped: give --place FILE"
            )
        return cls(name, place, resume)

    @contextmanager
    def lines(self) -> Iterator[FileLines]:
        """Its lines, from the first.

        Raises:
            FileUnreadable: there is no such file.
        """
        with _opened(self.name) as stream:
            yield FileLines(
                _streamed(stream) if self._is_standard_input else stream, LINE_MAX_BYTES
            )

    @contextmanager
    def kept_place(self) -> Iterator[PlaceFile | NoPlace]:
        """Its place, locked.

        Raises:
            BadSetting: another process uses it, or it cannot be written.
        """
        if self.place is None:
            yield NoPlace()
            return
        with open_place(self.place) as store:
            yield store

    def send(self, sender: FileSender, lines: FileLines, begun: FilePlace, label: str) -> SentChunk:
        """Send its lines, and show how far that comes and what was wrong with which line.

        Args:
            sender: sends them.
            lines: from the first.
            begun: the place to continue from.
            label: of the progress.

        Returns:
            The last chunk. If all was sent, the place is removed, unless `resume` keeps it.
        """
        ended = SentChunk(begun, [])
        if begun.last:
            notice(f"continuing after line {begun.through}")
        typed = self._is_standard_input and sys.stdin.isatty()
        with open_progress(hidden=typed) as progress:
            bar = progress.add(label, progress.shown and self._length())
            try:
                for ended in sender.chunks(lines, begun):
                    for number, error in ended.failures:
                        notice(f"line {number}: {error}")
                    bar.set(ended.place.through)
                    if typed and not ended.stopped:
                        notice(_so_far(ended.place))
            except (KeyboardInterrupt, SetupError):
                self._say_where(ended.place)
                raise
        if ended.stopped:
            self._say_where(ended.place)
        elif not self.resume:
            sender.store.remove()
        return ended

    @property
    def is_file(self) -> bool:
        """Whether it can be read more than once."""
        return not self._is_standard_input and Path(self.name).is_file()

    @property
    def _is_standard_input(self) -> bool:
        return self.name == _STANDARD_INPUT

    def _say_where(self, reached: FilePlace) -> None:
        advice = "--resume continues, and counts nothing twice"
        if self.place is None:
            advice = "with --place FILE, standard input can be continued"
        notice(
            f"sent through line {reached.through}; of the lines after it some may have been sent: "
            f"{advice}"
        )

    def _length(self) -> int | None:
        """How many lines it has; None: nobody knows."""
        if self._is_standard_input:
            return None
        with _opened(self.name) as stream:
            return sum(part.count(b"\n") for part in iter(partial(stream.read, 2**20), b""))


def exit_code(ended: SentChunk) -> int:
    """What the lines of a file come to: 1 when one was bad, 3 when AWS failed on one."""
    return max([ended.place.worst, *(exit_code_of(error) for _, error in ended.failures)])


def _so_far(place: FilePlace) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in place.counts.items() if count)
    return f"through line {place.through}: {counts}"


@contextmanager
def _opened(name: str) -> Iterator[IO[bytes]]:
    if name == _STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    try:
        stream = Path(name).open("rb")  # noqa: SIM115 - closed below; only the opening is guarded
    except OSError as error:
        raise FileUnreadable(f"file {name!r} cannot be read: {error.strerror}") from error
    with stream:
        yield stream


def _streamed(stream: IO[bytes]) -> LineStream:
    """Standard input by its descriptor; as it is, where it has none."""
    try:
        return StreamedLines(stream.fileno())
    except UnsupportedOperation:
        return stream
