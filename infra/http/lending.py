"""Clients of the stack, each lent to one request at a time, so that its units are its own."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Empty, LifoQueue
from threading import Lock
from typing import TYPE_CHECKING, Final

from countledger.ledger.errors import Throttled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from countledger import CountLedger

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
        """End the use of a client that `take` returned."""
        self._idle.put(client)

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
            try:
                return self.make()
            except BaseException:
                with self._lock:
                    self._opened -= 1
                raise
        try:
            return self._idle.get(timeout=self.patience_s)
        except Empty:
            raise Throttled(
                f"{self.most} other requests are under way: try again in a moment"
            ) from None
