"""The client for event loops, over a stack in memory."""

import asyncio

import pytest

import countledger
from countledger import Admitted, AsyncCountLedger, Status
from countledger.ledger.errors import QuotaDenied
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


def test_a_buffered_producer_of_an_event_loop_leads_to_the_stack() -> None:
    stack = MemoryStack()

    async def count() -> Status:
        async with stack.async_ledger as ledger, await ledger.buffered() as producer:
            await producer.add_many([countledger.Event(_COUNTER, 1)] * 60)
            pending = await producer.add(_COUNTER, 1, key="k")
            return (await pending.result(timeout_s=20)).status

    assert asyncio.run(count()) is Status.RECORDED
    assert stack.ledger.total(_COUNTER).value == 61


def test_quotas_and_their_guard_are_awaited() -> None:
    stack = MemoryStack()
    stack.ledger.quotas.create("llm:", limit=10, per="day")

    async def use(ledger: AsyncCountLedger) -> None:
        @ledger.quotas.guard("llm:team", 4, actual=abs)
        async def ask(cost: int) -> int:
            if cost > 4:
                raise ZeroDivisionError
            return cost

        async with ledger:
            held = await ledger.quotas.reserve("llm:team", 5)
            assert isinstance(held, Admitted)
            assert (await ledger.quotas.commit(held, 1)).actual == 1
            assert await ask(2) == 2
            with pytest.raises(ZeroDivisionError):
                await ask(5)
            held = await ledger.quotas.reserve("llm:team", 7)
            assert isinstance(held, Admitted)
            with pytest.raises(QuotaDenied):
                await ask(1)
            assert await ledger.quotas.release(held)

    asyncio.run(use(stack.async_ledger))
    assert stack.ledger.quotas.show("llm:team")[0].used == 3
