"""Copies of a memory that Lambda SnapStart makes: what is ready before, and what ends after."""

import pytest

from tests.unit.ledger.processes import printed

pytest.importorskip("snapshot_restore_py", reason="the library of the runtime is not installed")

# What the runtime does; `hooks` is the library that it is given.
_RUNTIME = """
import os, sys
os.environ["AWS_LAMBDA_INITIALIZATION_TYPE"] = "{kind}"
import snapshot_restore_py as hooks

def snapshot():
    waiting = hooks.get_before_snapshot()
    while waiting:
        call, given, named = waiting.pop()
        call(*given, **named)

def restore():
    for call, given, named in hooks.get_after_restore():
        call(*given, **named)
"""
_LEASE = """
from countledger.producers.sequences.sequences import Lease
blocks = iter([range(1, 100), range(101, 200)])
lease = Lease(lambda: next(blocks))
print(lease.draw(), lease.draw())
snapshot()
restore()
print(lease.draw(), lease.draw())
"""
_BUFFER = """
from countledger.producers.buffer.settings import Buffering
from tests.unit.ledger.memory import MemoryClient
from tests.unit.producers.buffers import producer_on
from tests.unit.producers.senders import TABLE, entries_in
dynamo = MemoryClient()
producer = producer_on(dynamo, Buffering(coalesce=True, linger_ms=30_000))
hooks.register_before_snapshot(lambda: producer.add("a:app", 1))
producer.add("a:init", 1)
snapshot()
sent = [one["counter"] for one in dynamo.items(TABLE) if one["entry"].startswith("e#")]
print(*sorted(sent), producer.statistics.waiting)
restore()
producer.add("a:copy", 1)
producer.flush(20)
print(len(entries_in(dynamo)))
"""
_REFUSED = """
from countledger.producers.buffer.settings import Buffering, NotRecorded
from tests.unit.ledger.memory import LOST, Fault, MemoryClient, at
from tests.unit.producers.buffers import producer_on
def refuse(kind, given, carry_out):
    raise LOST
producer = producer_on(MemoryClient(plans=[at(refuse)]), Buffering(attempts=1))
producer.add("a:init", 1)
try:
    snapshot()
except NotRecorded as error:
    print(len(error.failures))
"""
_LOOP = """
import asyncio, threading
from countledger.producers.buffer.settings import Buffering
from tests.unit.ledger.memory import MemoryClient
from tests.unit.producers.buffers import loop_producer_on
from tests.unit.producers.senders import entries_in
dynamo = MemoryClient()
loop = asyncio.new_event_loop()
runs = {runs}
if runs:
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

def call(work):
    if runs:
        return asyncio.run_coroutine_threadsafe(work, loop).result(20)
    return loop.run_until_complete(work)

producer = loop_producer_on(dynamo, Buffering(coalesce=True, linger_ms=30_000))
call(producer.__aenter__())
call(producer.add("a:init", 1))
snapshot()
print(len(entries_in(dynamo)), producer.statistics.waiting)
call(producer.close())
if runs:
    loop.call_soon_threadsafe(loop.stop)
    thread.join(20)
loop.close()
"""


def test_a_lease_ends_at_a_restore() -> None:
    assert printed(_RUNTIME.format(kind="snap-start") + _LEASE) == ["1", "2", "101", "102"]


def test_nothing_listens_in_a_function_that_is_not_copied() -> None:
    assert printed(_RUNTIME.format(kind="on-demand") + _LEASE) == ["1", "2", "3", "4"]


def test_a_buffer_is_empty_in_a_snapshot() -> None:
    """Also of what the app's own hook adds, which runs before."""
    told = printed(_RUNTIME.format(kind="snap-start") + _BUFFER)

    assert told == ["a:app", "a:init", "0", "3"]


def test_no_snapshot_is_taken_of_events_that_were_not_sent() -> None:
    """The error of the hook ends the start of the function."""
    assert printed(_RUNTIME.format(kind="snap-start") + _REFUSED) == ["1"]


@pytest.mark.parametrize("runs", [True, False], ids=["in a thread", "between its calls"])
def test_a_buffer_of_an_event_loop_is_empty_in_a_snapshot(*, runs: bool) -> None:
    code = _RUNTIME.format(kind="snap-start") + _LOOP.format(runs=runs)

    assert printed(code) == ["1", "0"]
