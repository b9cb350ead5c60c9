"""A block of numbers held by one process: one write for many draws."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

from countledger.ledger.forks import this_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(slots=True)
class _Block:
    """The rest of a process's block, and the lock under which its threads draw from it."""

    left: Iterator[int] = field(default_factory=lambda: iter(()))
    lock: Lock = field(default_factory=Lock)


class Lease:
    """Draws numbers out of a block, and takes another block when it is empty.

    Safe to share between threads, which get growing numbers in the order in which they are given.
    A block belongs to one process: a child that was forked off takes a block of its own. What is
    left when the process ends is never given out.
    """

    def __init__(self, take: Callable[[], range]) -> None:
        """Nothing taken yet.

        Args:
            take: draws a block.
        """
        self._take = take
        self._blocks: dict[object, _Block] = {this_process(): _Block()}

    def draw(self) -> int:
        """The next number: one write unit for each block.

        Raises:
            ServiceFailed, SetupError, SequenceExhausted: no block could be drawn.
        """
        process = this_process()
        block = self._blocks.get(process) or self._in_a_child(process)
        with block.lock:
            number = next(block.left, None)
            if number is None:
                block.left = iter(self._take())
                number = next(block.left)
            return number

    def _in_a_child(self, process: object) -> _Block:
        """The child's own block: its parent draws from the other one, and may hold its lock.

        Of several threads the first one decides (`setdefault` is one step), so none of them throws
        away what another one has taken.
        """
        block = self._blocks.setdefault(process, _Block())
        for other in set(self._blocks) - {process}:
            self._blocks.pop(other, None)
        return block
