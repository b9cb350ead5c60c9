"""Buffered producers over tables in memory, with threads or on an event loop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import wraps
from threading import Event
from typing import TYPE_CHECKING, Any, Self

from countledger.producers.buffer.asynchronous import AsyncBufferedProducer, AsyncOutcomes
from countledger.producers.buffer.producer import BufferedProducer
from countledger.producers.buffer.settings import Buffering
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import MemoryClient, waits_for
from tests.unit.producers.senders import REGION, TABLE, process_on

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from countledger.producers.buffer.settings import Failure

# Longer than any test: what is sent is sent for another reason than its age.
PATIENT_MS = 30_000
LEDGER = f"table {TABLE} in {REGION}"


def _open() -> Event:
    event = Event()
    event.set()
    return event


@dataclass(frozen=True, slots=True)
class GatedClient(MemoryClient):
    """Tables in memory whose writes wait at a gate.

    Attributes:
        gate: open unless a test clears it.
    """

    gate: Event = field(default_factory=_open)

    def __post_init__(self) -> None:
        self.plans.append(waits_for(self.gate))


def producer_on(
    dynamo: MemoryClient,
    buffering: Buffering | None = None,
    *,
    clock: ManualClock | None = None,
    on_failure: Callable[[Failure], object] | None = None,
    **settings: Any,  # noqa: ANN401 - as of `connection_on`
) -> BufferedProducer:
    """A producer at the home region; its waits between attempts are none."""
    buffering = buffering or Buffering(linger_ms=PATIENT_MS)
    return BufferedProducer(process_on(dynamo, clock, **settings), buffering, on_failure)


def loop_producer_on(
    dynamo: MemoryClient,
    buffering: Buffering | None = None,
    *,
    clock: ManualClock | None = None,
    on_failure: Callable[[Failure], object] | None = None,
) -> AsyncBufferedProducer:
    """The same on an event loop."""
    buffering = buffering or Buffering(linger_ms=PATIENT_MS)
    process = process_on(dynamo, clock)
    return AsyncBufferedProducer(BufferedProducer(process, buffering, on_failure, AsyncOutcomes))


@dataclass(slots=True)
class Awaited:
    """A buffered producer of either form, each method of which is awaited."""

    producer: BufferedProducer | AsyncBufferedProducer

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of the producer
        found = getattr(self.producer, name)
        if not callable(found):
            return found

        async def call(*given: object, **named: object) -> Any:  # noqa: ANN401
            if isinstance(self.producer, AsyncBufferedProducer):
                return await found(*given, **named)
            return await asyncio.to_thread(found, *given, **named)

        return call

    async def result(self, pending: Any, timeout_s: float = 20) -> Any:  # noqa: ANN401 - of either form
        """The receipt, or the error raised."""
        if isinstance(self.producer, AsyncBufferedProducer):
            return await pending.result(timeout_s=timeout_s)
        return await asyncio.to_thread(pending.result, timeout_s=timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.close()


FORMS: dict[str, Callable[..., Any]] = {"threads": producer_on, "loop": loop_producer_on}


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own, for at most half a minute."""

    @wraps(test)
    def run(*given: object, **named: object) -> None:
        asyncio.run(asyncio.wait_for(test(*given, **named), 30))

    return run
