"""The file of an export that can be interrupted: its lines are safe before its place moves on."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from countledger.infra.moving.lines import NamespaceLine, encode_line, parse_line
from countledger.ledger.errors import BadPayload, BadSetting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import IO

    from countledger.infra.moving.lines import Line


def place_beside(path: Path) -> Path:
    """The file that keeps how far the export into a file has come."""
    return path.with_name(f"{path.name}.place")


class ExportFile:
    """An export on the disk."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def add(self, lines: Iterable[Line]) -> None:
        """Write lines; they outlive a crash from here on."""
        for line in lines:
            self._stream.write(f"{encode_line(line)}\n".encode())
        self._stream.flush()
        os.fsync(self._stream.fileno())


@contextmanager
def new_file(path: Path) -> Iterator[ExportFile]:
    """A file that must not exist yet.

    Raises:
        BadSetting: it does, or cannot be written.
    """
    try:
        stream = path.open("xb")
    except FileExistsError:
        raise BadSetting(f"{path} exists: name another file, or remove it") from None
    except OSError as error:
        raise BadSetting(f"{path} cannot be written: {error.strerror}") from error
    with stream:
        yield ExportFile(stream)


@contextmanager
def continued_file(path: Path, counters: int) -> Iterator[ExportFile]:
    """A file of an interrupted export, cut behind the counters that its place knows of.

    Args:
        path: the file.
        counters: how many lines of counters are complete.

    Raises:
        BadSetting: it is gone, or has fewer lines.
    """
    try:
        stream = path.open("r+b")
    except OSError as error:
        raise BadSetting(
            f"{path} cannot be gone on with: {error.strerror}; remove {place_beside(path)} to "
            "begin anew"
        ) from error
    with stream:
        left = counters
        while left or _is_namespace(stream):
            line = stream.readline()
            if not line.endswith(b"\n"):
                raise BadSetting(f"{path} has fewer lines than {place_beside(path)} knows of")
            left -= not isinstance(parse_line(line), NamespaceLine)
        stream.truncate()
        yield ExportFile(stream)


def _is_namespace(stream: IO[bytes]) -> bool:
    """Whether the next line is whole, and one of a namespace; the place does not move."""
    place = stream.tell()
    line = stream.readline()
    stream.seek(place)
    if not line.endswith(b"\n"):
        return False
    try:
        return isinstance(parse_line(line), NamespaceLine)
    except BadPayload:
        return False
