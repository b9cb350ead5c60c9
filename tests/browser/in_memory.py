"""The dashboard of a stack in memory: served by this process, with as many counters as wanted."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Event as Flag
from threading import Thread
from typing import Final

from countledger import CountLedger, Event
from countledger.infra.calls.access import READ_EVERYTHING
from countledger.infra.http.api import http_app
from countledger.infra.http.server import AccessRules, Gate, listen, page_files, serve
from countledger.infra.local.front import new_token
from countledger.infra.memory.stack import MemoryConnection
from countledger.infra.memory.tables import COUNTERS
from countledger.ledger.dynamo import Meter
from countledger.testing import MemoryStack

NAMESPACES: Final = ("likes", "stock", "views", "votes")
_BATCH: Final = 50


@dataclass
class Served:
    """A stack in memory, and its dashboard.

    Attributes:
        stack: the stack.
        url: of its dashboard, with a token.
    """

    stack: MemoryStack
    url: str

    def client(self) -> CountLedger:
        """A client with a meter of its own, as each request has one."""
        to = self.stack.ledger.connection
        made = CountLedger(to.settings, session=to.session)
        made.connection = replace(to, meter=Meter())
        return made

    def fill(self, count: int) -> None:
        """Add totals, as if each had one event; their stream records are left out."""
        to = self.stack.ledger.connection
        assert isinstance(to, MemoryConnection)
        self.stack.ledger.record("likes:first", 1)
        table = to.memory.table(COUNTERS)
        total = table.items["likes:first", "total"]
        watchers, table.watchers = table.watchers, []
        for number in range(count):
            name = f"{NAMESPACES[number % len(NAMESPACES)]}:item-{number:06}"
            table.store((name, "total"), {**total, "counter": name, "total": number + 1})
        table.watchers = watchers

    @contextmanager
    def updates(self, per_second: int, counters: int) -> Iterator[None]:
        """Record events of the first counters all the while, in steps of 50."""
        stop = Flag()

        def update() -> None:
            chosen = random.Random(1)  # noqa: S311 - a sample
            while not stop.wait(_BATCH / per_second):
                for number in chosen.choices(range(counters), k=_BATCH):
                    name = f"{NAMESPACES[number % len(NAMESPACES)]}:item-{number:06}"
                    events.append(Event(name, 1))
                self.stack.hold_stream()
                self.stack.ledger.record_many(events)
                self.stack.deliver()
                events.clear()

        events: list[Event] = []
        thread = Thread(target=update, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


@contextmanager
def served() -> Iterator[Served]:
    """Serve a new stack; only reads."""
    stack = MemoryStack()
    with listen() as listener:
        rules = AccessRules(listener.port, new_token())
        found = Served(stack, rules.url)
        api = http_app(found.client, authorize=lambda _request: READ_EVERYTHING)
        loop, stop = asyncio.new_event_loop(), asyncio.Event()

        def run() -> None:
            loop.run_until_complete(serve(Gate(rules, page_files(), api), listener, stop.wait))

        thread = Thread(target=run, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()
            loop.close()
