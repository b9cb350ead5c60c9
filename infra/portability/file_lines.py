"""The lines of a file or of a stream: bounded in size, with the digest of all that was read."""

from __future__ import annotations

import os
import select
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

# How long the next line may take to be sent together with those before it: longer than a pipe
# needs, shorter than a person notices.
PAUSE_S: Final = 0.05
_PART_BYTES: Final = 2**16


class LineStream(Protocol):
    """What lines are read from."""

    def readline(self, size: int, /) -> bytes:
        """The next line, at most so many bytes of it; empty at the end."""


class StreamedLines:
    """Lines of a pipe or a terminal: it knows whether the next one has arrived.

    Args:
        descriptor: of the open stream; nothing else may read from it.
        pause_s: how long `has_next` waits.
    """

    def __init__(self, descriptor: int, pause_s: float = PAUSE_S) -> None:
        self._descriptor = descriptor
        self._pause_s = pause_s
        self._buffer = b""
        self._begin = 0
        self._ended = False

    def readline(self, size: int, /) -> bytes:
        """The next line, once it has arrived; at most so many bytes of it."""
        while (end := self._end_within(size)) is None:
            self._fetch()
        line, self._begin = self._buffer[self._begin : end], end
        return line

    def has_next(self, size: int) -> bool:
        """Whether a line, so much of it, or the end of the stream arrives without a pause."""
        while self._end_within(size) is None:
            if not select.select([self._descriptor], [], [], self._pause_s)[0]:
                return False
            self._fetch()
        return True

    def _end_within(self, size: int) -> int | None:
        """Where the next line ends in the buffer; None: more must be read."""
        most = self._begin + size
        found = self._buffer.find(b"\n", self._begin, most)
        if found >= 0:
            return found + 1
        there = len(self._buffer)
        return min(most, there) if self._ended or there >= most else None

    def _fetch(self) -> None:
        part = os.read(self._descriptor, _PART_BYTES)
        self._ended = not part
        self._buffer, self._begin = self._buffer[self._begin :] + part, 0


class FileLines:
    """The lines of a stream, blank ones as well, and the digest of all that was read.

    Attributes:
        number: the line that was read last.
    """

    def __init__(self, stream: LineStream, max_bytes: int) -> None:
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
            yield line

    def has_next(self) -> bool:
        """Whether the next line can be read without a pause: always, except from a pipe."""
        if not isinstance(self._stream, StreamedLines):
            return True
        return self._stream.has_next(self._max_bytes + 1)

    def _read(self) -> bytes:
        text = self._stream.readline(self._max_bytes + 1)
        self._digest.update(text)
        return text

    @property
    def digest(self) -> str:
        """Of everything up to the end of line `number`."""
        return self._digest.hexdigest()
