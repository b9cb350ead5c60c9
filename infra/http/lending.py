"""Clients of the stack, each lent to one request at a time, so that its units are its own."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from queue import Empty, LifoQueue
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeAlias

from anyio import to_thread

from countledger.ledger.errors import Throttled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from countledger import CountLedger

_Waiter: TypeAlias = "tuple[asyncio.AbstractEventLoop, asyncio.Future[CountLedger]]"
CLIENTS_DEFAULT: Final = 8
# For how long a request waits for a client.
_PATIENCE_S: Final = 5.0


@dataclass(slots=True)
class Clients:
    """A few clients, opened when they are needed.

    The number of clients is the number of requests that are carried out at the same time.

    Attributes:
        make: opens a client of the stack.
        most: how many there are at most.
        patience_s: how long a request waits for one, in seconds.
    """

    make: Callable[[], CountLedger]
    most: int = CLIENTS_DEFAULT
    patience_s: float = _PATIENCE_S
    _idle: LifoQueue[CountLedger] = field(default_factory=LifoQueue, init=False)
    _waiting: deque[_Waiter] = field(default_factory=deque, init=False)
    _opened: int = field(default=0, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    @contextmanager
    def lent(self) -> Iterator[CountLedger]:
        """A client that no other request uses meanwhile.

        Raises:
            Throttled: other requests use all of them.
        """
        client = self.take()
        try:
            yield client
        finally:
            self.give_back(client)

    def give_back(self, client: CountLedger) -> None:
        """End the use of a client that `take` or `take_async` returned."""
        with self._lock:
            if not self._waiting:
                self._idle.put(client)
                return
            loop, waiter = self._waiting.popleft()
        try:
            loop.call_soon_threadsafe(self._hand, waiter, client)
        except RuntimeError:  # its loop has ended
            self.give_back(client)

    def _hand(self, waiter: asyncio.Future[CountLedger], client: CountLedger) -> None:
        if waiter.done():  # it waits no more
            self.give_back(client)
        else:
            waiter.set_result(client)

    async def take_async(self) -> CountLedger:
        """A client, to be given back; it may wait for one, in no thread.

        The requests that have a client need the threads: those that wait must not occupy them.

        Raises:
            Throttled: other requests use all of them.
        """
        loop = asyncio.get_running_loop()
        with self._lock:
            try:
                return self._idle.get_nowait()
            except Empty:
                pass
            may_open = self._opened < self.most
            self._opened += may_open
            waiter: asyncio.Future[CountLedger] = loop.create_future()
            if not may_open:
                self._waiting.append((loop, waiter))
        if may_open:
            return await to_thread.run_sync(self._open)
        try:
            async with asyncio.timeout(self.patience_s):
                return await waiter
        except BaseException as error:
            with self._lock, suppress(ValueError):
                self._waiting.remove((loop, waiter))
            if waiter.done() and not waiter.cancelled():  # handed over as the wait ended
                self.give_back(waiter.result())
            if isinstance(error, TimeoutError):
                raise self._all_are_lent() from None
            raise

    def _open(self) -> CountLedger:
        """Open a client that is counted already."""
        try:
            return self.make()
        except BaseException:
            with self._lock:
                self._opened -= 1
            raise

    def _all_are_lent(self) -> Throttled:
        return Throttled(f"{self.most} other requests are under way: try again in a moment")

    def take_idle(self) -> CountLedger | None:
        """A client, to be given back; None: one has to be opened or waited for."""
        try:
            return self._idle.get_nowait()
        except Empty:
            return None

    def take(self) -> CountLedger:
        """A client, to be given back; it may wait for one.

        Raises:
            Throttled: other requests use all of them.
        """
        if (idle := self.take_idle()) is not None:
            return idle
        with self._lock:
            may_open = self._opened < self.most
            self._opened += may_open
        if may_open:
            return self._open()
        try:
            return self._idle.get(timeout=self.patience_s)
        except Empty:
            raise self._all_are_lent() from None
