"""The file of an export: complete or not there, and continued after an interruption.

FILE.part     the lines so far; one process locks it, and it gets the name FILE when it is complete
FILE.place    how far the walk over the counters has come
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from countledger.infra.portability.lines import NamespaceLine, UnreadLine, encode_line, parse_line
from countledger.ledger.errors import BadPayload, BadSetting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import IO

    from countledger.infra.portability.lines import ExportLine


def place_beside(path: Path) -> Path:
    """The file that keeps how far the export into a file has come."""
    return path.with_name(f"{path.name}.place")


def part_beside(path: Path) -> Path:
    """The file that an export is written to until it is complete."""
    return path.with_name(f"{path.name}.part")


class ExportFile:
    """An export on the disk: beside its file, until it is complete.

    Attributes:
        unread: its lines of what could not be read, those of before an interruption as well.
    """

    def __init__(self, path: Path, stream: IO[bytes], unread: Iterable[UnreadLine] = ()) -> None:
        self._path = path
        self._stream = stream
        self.unread = list(unread)

    def add(self, lines: Iterable[ExportLine]) -> None:
        """Write lines; they outlive a crash from here on."""
        for line in lines:
            self._stream.write(f"{encode_line(line)}\n".encode())
            if isinstance(line, UnreadLine):
                self.unread.append(line)
        self._stream.flush()
        os.fsync(self._stream.fileno())

    def complete(self) -> None:
        """Give the file its name: nobody sees a part of an export under it.

        Raises:
            BadSetting: meanwhile a file of that name was created.
        """
        _check_free(self._path)
        part_beside(self._path).replace(self._path)


@contextmanager
def new_file(path: Path) -> Iterator[ExportFile]:
    """A file that must not exist yet.

    Raises:
        BadSetting: it does, or cannot be written.
    """
    _check_free(path)
    try:
        stream = part_beside(path).open("ab")
    except OSError as error:
        raise BadSetting(f"{path} cannot be written: {error.strerror}") from error
    with stream:
        _lock(stream, path)
        stream.truncate()
        yield ExportFile(path, stream)


@contextmanager
def continued_file(path: Path, counters: int) -> Iterator[ExportFile]:
    """The file of an interrupted export, cut after the counters that its place has recorded.

    Args:
        path: the file, when it is complete.
        counters: how many lines of counters are there.

    Raises:
        BadSetting: its part is gone, or has fewer lines; or the file exists.
    """
    _check_free(path)
    part = part_beside(path)
    try:
        stream = part.open("r+b")
    except OSError as error:
        raise BadSetting(
            f"{part} cannot be gone on with: {error.strerror}; remove {place_beside(path)} to "
            "start again"
        ) from error
    with stream:
        _lock(stream, path)
        left, unread = counters, []
        while left or _is_namespace(stream):
            text = stream.readline()
            if not text.endswith(b"\n"):
                raise BadSetting(f"{part} has fewer lines than {place_beside(path)} knows of")
            line = parse_line(text)
            left -= not _is_of_a_namespace(line)
            if isinstance(line, UnreadLine):
                unread.append(line)
        stream.truncate()
        yield ExportFile(path, stream, unread)


def _lock(stream: IO[bytes], path: Path) -> None:
    """Let one process write the part, until it closes the file or dies.

    A process that was suspended would write into the file of the one that went on in its place.

    Raises:
        BadSetting: another process writes it, or has completed it just now.
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


def _is_namespace(stream: IO[bytes]) -> bool:
    """Whether the next line is whole, and one of a namespace; the place does not move."""
    place = stream.tell()
    line = stream.readline()
    stream.seek(place)
    if not line.endswith(b"\n"):
        return False
    try:
        return _is_of_a_namespace(parse_line(line))
    except BadPayload:
        return False


def _is_of_a_namespace(line: ExportLine) -> bool:
    return isinstance(line, NamespaceLine) or (
        isinstance(line, UnreadLine) and line.is_of_a_namespace
    )
