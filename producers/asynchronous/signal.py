"""Waiting on an event loop until something has changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class ChangeSignal:
    """Wakes everybody who waits, so that each looks again. One event loop uses it."""

    def __init__(self) -> None:
        """Nothing has changed yet."""
        self._next = asyncio.Event()

    def signal(self) -> None:
        """Something has changed."""
        changed, self._next = self._next, asyncio.Event()
        changed.set()

    async def wait(self) -> None:
        """Wait for the next change."""
        await self._next.wait()

    async def until(self, holds: Callable[[], bool], left_s: Callable[[], float]) -> bool:
        """Wait until something holds; whether it does in time.

        Args:
            holds: whether it holds now.
            left_s: how long it may still take, asked again after each time-out: it may grow.
        """
        while not holds():
            try:
                await asyncio.wait_for(self._next.wait(), max(left_s(), 0))
            except TimeoutError:
                if left_s() <= 0:
                    return holds()
        return True
