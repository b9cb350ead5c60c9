"""The contract suite in an event loop: each test is one call, and its requests suspend it.

The loop's clients make the requests of the test itself; its threads, if any, have boto3's.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Final

import uvloop

from countledger.ledger.asynchronous.calls import OpenClients, loop_connection
from countledger.ledger.suspension import CallNotes
from tests.engines.store import Store

NAME: Final = "event loop"
# Tests of what an asynchronous client does in threads: they run in one as well.
IN_THREADS: Final = ("test_archive.py", "test_deletion.py")
# The same; and they take minutes.
LEFT_OUT: Final = ("test_compaction_costs.py",)


@dataclass(frozen=True, kw_only=True)
class LoopingStore(Store):
    """Both tables, reached from an event loop.

    Attributes:
        runner: of the loop.
        opened: its clients.
    """

    runner: asyncio.Runner
    opened: OpenClients

    def client(self) -> Any:  # noqa: ANN401 - as of every store
        """A plain client of boto3."""
        return self.engine.session.client("dynamodb", endpoint_url=self.engine.endpoint_url)

    def run(self, test: Callable[[], object], *, in_thread: bool) -> None:
        """Run a test as one call of the loop, or of a thread of its executor."""

        async def call() -> None:
            if in_thread:
                await asyncio.to_thread(test)
            else:
                await self.opened.get().run(test, CallNotes())

        self.runner.run(call())


@contextmanager
def looping_store(plain: Store) -> Iterator[LoopingStore]:
    """The same tables, reached from a loop of uvloop (the tests of transports use asyncio's)."""
    opened, known = OpenClients(), {one.name: getattr(plain, one.name) for one in fields(plain)}
    known["connection"] = loop_connection(plain.connection, opened)

    async def begin() -> None:
        opened.open()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(begin())
        yield LoopingStore(**known, runner=runner, opened=opened)
        runner.run(opened.aclose())
