"""A block of numbers held by one process: one write for many draws."""

from __future__ import annotations

import os
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Lease:
    """Draws numbers out of a block, and takes another block when it is empty.

    Safe to share between threads, which get growing numbers in the order in which they are given.
    A child that was forked off takes a block of its own. What is left when the process ends is
    never given out.
    """

    def __init__(self, take: Callable[[], range]) -> None:
        """Nothing taken yet.

        Args:
            take: draws a block.
        """
        self._take = take
        self._left: Iterator[int] = iter(())
        self._lock = Lock()
        self._process = os.getpid()

    def draw(self) -> int:
        """The next number: one write unit for each block.

        Raises:
            ServiceFailed, SetupError, SequenceExhausted: no block could be drawn.
        """
        if self._process != os.getpid():
            # Its parent draws from the same block, and may have held the lock as it forked.
            self._left, self._lock, self._process = iter(()), Lock(), os.getpid()
        with self._lock:
            number = next(self._left, None)
            if number is None:
                self._left = iter(self._take())
                number = next(self._left)
            return number
