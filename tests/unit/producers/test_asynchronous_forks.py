"""A buffered producer of an event loop, in a child that goes on with the loop of its parent."""

from __future__ import annotations

import subprocess
import sys

import pytest

FORKING = """
import asyncio, ctypes, os, signal, sys
from countledger.producers.buffer.buffering import Buffering
from countledger.producers.buffer.errors import ProducerClosed
from tests.unit.producers.test_asynchronous import LoopClient, producer_on

class Loud(LoopClient):
    async def put_batch_async(self, table, items):
        os.write(1, f"{os.getpid() == parent}:{len(items)} ".encode())
        return await super().put_batch_async(table, items)

parent = os.getpid()

async def main():
    fork = os.fork if sys.argv[1] == "os" else ctypes.PyDLL(None).fork
    async with producer_on(Loud(), Buffering(linger_ms=200)) as producer:
        waits = await producer.add("a:waits", 1)
        begun = [await producer.add("a:begun", 1) for _ in range(25)]
        child = fork()
        if child == 0:
            signal.alarm(20)
            asyncio._set_running_loop(asyncio.get_event_loop_policy().get_event_loop())
            refused = 0
            for pending in (waits, begun[0]):
                try:
                    await pending
                except ProducerClosed:
                    refused += 1
            await asyncio.sleep(0.6)
            os.write(1, f"refused:{refused} ".encode())
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.write(1, f"{code} ".encode())

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.parametrize("fork", ["os", "libc"])
def test_a_child_that_goes_on_with_its_parents_loop_sends_nothing(fork: str) -> None:
    """Neither what is on its way nor what waits, and nobody there waits for it."""
    done = subprocess.run(
        [sys.executable, "-c", FORKING, fork],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.stdout.split() == ["refused:2", "0", "True:25", "True:1"], done.stderr
