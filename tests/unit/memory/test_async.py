"""The client for event loops, over a stack in memory."""

import asyncio
import threading

import countledger
from countledger import AsyncCountLedger
from countledger.testing import MemoryStack

_COUNTER = "likes:post-1"


async def _count(ledger: AsyncCountLedger) -> object:
    async with ledger:
        await asyncio.gather(*(ledger.record(_COUNTER, 1) for _ in range(50)))
        await ledger.record_many([countledger.Event(_COUNTER, 1)] * 50)
        return (await ledger.total(_COUNTER)).value


def test_a_client_of_an_event_loop_leads_to_the_installed_stack() -> None:
    stack = MemoryStack()

    with stack.installed():
        assert asyncio.run(_count(AsyncCountLedger())) == 100

    assert stack.ledger.total(_COUNTER).value == 100


def test_an_event_loop_meets_the_faults_of_the_stack() -> None:
    """A lost answer is resolved by another attempt, whose wait passes in the stack's time."""
    stack = MemoryStack()
    stack.ledger.record(_COUNTER, 1)
    stack.lose_next_answer()

    assert asyncio.run(_count(stack.async_ledger)) == 101
    assert stack.ledger.total(_COUNTER).value == 101
    assert (stack.planned_faults, stack.failures) == (0, [])


def test_an_asynchronous_producer_leads_to_the_stack_without_threads() -> None:
    """Of the client for threads, and of that for event loops."""
    stack = MemoryStack()

    async def count() -> list[str]:
        async with stack.ledger.buffered_async() as producer:
            await producer.add_many([countledger.Event(_COUNTER, 1)] * 60)
        async with stack.async_ledger as ledger, await ledger.buffered() as producer:
            await (await producer.add(_COUNTER, 1, key="k"))
            return [one.name for one in threading.enumerate()]

    before = [one.name for one in threading.enumerate()]
    assert asyncio.run(count()) == before
    assert stack.ledger.total(_COUNTER).value == 61
