"""A buffered producer of an event loop, in a child that goes on with the loop of its parent."""

from __future__ import annotations

from tests.unit.ledger.processes import FORKS, printed

FORKING = """
import asyncio, ctypes, os, signal, sys
from countledger.producers.buffer.settings import Buffering
from countledger.producers.buffer.settings import ProducerClosed
from tests.unit.producers.buffers import GatedClient, loop_producer_on

parent, dynamo = os.getpid(), GatedClient()

def note(kind, items, request):
    os.write(1, f"{os.getpid() == parent}:{len(items)} ".encode())
    return request()

dynamo.plans.append(note)

async def main():
    dynamo.gate.clear()
    fork = os.fork if sys.argv[1] == "os" else ctypes.PyDLL(None).fork
    async with loop_producer_on(dynamo, Buffering(linger_ms=200)) as producer:
        begun = [await producer.add("a:begun", 1) for _ in range(25)]
        waits = await producer.add("a:waits", 1)
        child = fork()
        if child == 0:
            signal.alarm(20)
            dynamo.gate.set()
            asyncio._set_running_loop(asyncio.get_event_loop_policy().get_event_loop())
            refused = 0
            for pending in (waits, begun[0]):
                try:
                    await pending.result()
                except ProducerClosed:
                    refused += 1
            await asyncio.sleep(0.6)
            os.write(1, f"refused:{refused} ".encode())
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.write(1, f"{code} ".encode())
        dynamo.gate.set()

asyncio.run(main())
"""


@FORKS
def test_a_child_that_goes_on_with_its_parents_loop_sends_nothing(fork: str) -> None:
    words = printed(FORKING, fork)

    assert words[:2] == ["refused:2", "0"]
    assert sorted(words[2:]) == ["True:1", "True:25"]
