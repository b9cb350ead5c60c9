"""How many lines a stored file has, asked of git by the object's name."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from countledger.infra.demo.errors import GitFailed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

    from countledger.infra.demo.git import View

# Git calls a file binary that has a NUL in its first 8,000 bytes.
_SNIFFED_BYTES: Final = 8_000
_CHUNK_BYTES: Final = 1 << 20


class Blobs:
    """Line counts of objects, through one `git cat-file --batch`."""

    def __init__(self, asked: IO[bytes], answered: IO[bytes]) -> None:
        self._asked = asked
        self._answered = answered

    def lines(self, oid: str) -> int:
        """The lines of a blob as git counts them; 0 for a binary one.

        A last line without a newline is a line. A blob of any size takes one chunk of memory.

        Raises:
            GitFailed: the object is not here.
        """
        self._asked.write(f"{oid}\n".encode())
        self._asked.flush()
        header = self._answered.readline().split()
        if len(header) != 3:  # noqa: PLR2004 - "<oid> <type> <size>"; else "<oid> missing"
            raise GitFailed(
                f"object {oid} is missing: in a partial clone, "
                "`git fetch --refetch --no-filter` brings what is not here"
            )
        lines = self._count(int(header[2]))
        self._answered.read(1)
        return lines

    def _count(self, size: int) -> int:
        """Read one object's body whole and count."""
        binary, lines, last = False, 0, b"\n"
        left = size
        while left:
            chunk = self._answered.read(min(left, max(_CHUNK_BYTES, _SNIFFED_BYTES)))
            if not chunk:
                raise GitFailed("git cat-file ended in the middle of an object")
            if left == size:
                binary = b"\0" in chunk[:_SNIFFED_BYTES]
            lines += chunk.count(b"\n")
            last = chunk[-1:]
            left -= len(chunk)
        return 0 if binary else lines + (last != b"\n")


@contextmanager
def open_blobs(view: View) -> Iterator[Blobs]:
    """Ask for the lines of this repository's objects while the block lasts."""
    with view.process("cat-file", "--batch") as running:
        if running.stdin is None or running.stdout is None:
            raise AssertionError("the process was made with pipes")
        yield Blobs(running.stdin, running.stdout)
