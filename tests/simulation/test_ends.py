"""The end of a buffered producer against a service that is slow, in virtual time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from countledger.ledger.clock import Backoff
from countledger.producers.buffer.sending import BatchDelivery
from countledger.producers.buffer.settings import Buffering, NotRecorded, StillBuffered
from countledger.producers.event import Event
from countledger.producers.sender import Sender
from tests.simulation import threads
from tests.simulation.buffer_operations import open_awaited, open_producer
from tests.simulation.calm import calm_world
from tests.simulation.loop import SimulatedLoop
from tests.simulation.product import Product
from tests.simulation.spool import SimulatedSpool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from countledger.ledger.attempts import Steps
    from countledger.ledger.entry import Entry
    from countledger.ledger.namespace import Namespace
    from countledger.producers.buffer.producer import BufferedProducer
    from countledger.producers.buffer.settings import Failure
    from countledger.producers.sender import Outcome
    from tests.simulation.process import Process
    from tests.simulation.world import World

COUNTER = "n:clicks"
PATIENT = Buffering(senders=1, linger_ms=30_000)


@dataclass(frozen=True, slots=True)
class SlowSender(Sender):
    """Each batch takes its time.

    Attributes:
        takes_ms: how long.
    """

    takes_ms: int = 0

    def sending_batch(
        self, entries: Sequence[Entry], namespaces: Mapping[str, Namespace]
    ) -> Steps[dict[int, Outcome]]:
        """As the product's, later."""
        self.connection.clock.sleep_ms(self.takes_ms)
        return (yield from Sender.sending_batch(self, entries, namespaces))


def _open(
    process: Process,
    takes_ms: int,
    buffering: Buffering = PATIENT,
    hear: Callable[[Failure], object] | None = None,
) -> BufferedProducer:
    """A producer whose batches take so long."""
    threads.belongs(process)
    producer = open_producer(process, buffering, hear)
    _slow_down(producer, takes_ms)
    return producer


def _slow_down(producer: BufferedProducer, takes_ms: int) -> None:
    make = producer._here()._make_delivery

    def slowed() -> BatchDelivery:
        made = make()
        slow = SlowSender(made.connection, Backoff(made.attempts), limited=False, takes_ms=takes_ms)
        object.__setattr__(made, "sender", slow)
        return made

    producer._here()._make_delivery = slowed


def _run(work: Callable[[World], None]) -> None:
    world = calm_world()

    def live() -> None:
        work(world)
        world.schedule.stop()

    world.schedule.spawn("app", live)
    with threads.under(world, SimulatedSpool):
        world.schedule.run()


def _sum(world: World) -> object:
    return Product(world.process("home", "reader")).exact.read(COUNTER).value


@pytest.mark.parametrize("end", ["block", "close", "flush"])
def test_an_end_waits_as_long_as_there_is_progress(end: str) -> None:
    """Forty batches of five seconds each: three minutes, in which something is always done."""

    def work(world: World) -> None:
        began_ms = world.schedule.now_ms
        producer = _open(world.process("home", "app"), 5_000)
        producer.add_many([Event(COUNTER, 1)] * 1_000)
        if end == "block":
            with producer:
                pass
        elif end == "close":
            producer.close()
        else:
            producer.flush()
        assert world.schedule.now_ms - began_ms > 190_000
        assert _sum(world) == 1_000

    _run(work)


@pytest.mark.parametrize("end", ["close", "flush"])
def test_an_end_that_is_awaited_waits_as_long_and_gives_up(end: str) -> None:
    """The last batch takes longer than the producer is patient."""

    def work(world: World) -> None:
        process = world.process("home", "app")
        threads.belongs(process)
        loop = SimulatedLoop(process)
        producer = loop.call(open_awaited(process, PATIENT, None))
        _slow_down(producer._producer, 5_000)
        loop.call(producer.add_many([Event(COUNTER, 1)] * 1_000))
        began_ms = world.schedule.now_ms
        loop.call(producer.close() if end == "close" else producer.flush())
        assert world.schedule.now_ms - began_ms > 190_000
        assert _sum(world) == 1_000
        if end == "flush":
            producer._producer._here()._delivery = None
            _slow_down(producer._producer, 60_000)
            loop.call(producer.add_many([Event(COUNTER, 1)]))
            with pytest.raises(StillBuffered, match="no entry was acknowledged or refused for 30"):
                loop.call(producer.flush())

    _run(work)


def test_an_end_gives_up_where_nothing_is_done_for_as_long_as_it_is_patient() -> None:
    """Thirty seconds behind the last acknowledgement, and not before."""

    def work(world: World) -> None:
        producer = _open(world.process("home", "app"), 45_000)
        producer.add_many([Event(COUNTER, 1)] * 30)
        began_ms = world.schedule.now_ms
        with pytest.raises(
            StillBuffered, match="no entry was acknowledged or refused for 30 s; 30"
        ):
            producer.flush()
        assert 30_000 <= world.schedule.now_ms - began_ms < 31_000
        with pytest.raises(NotRecorded) as raised:
            # Fifteen seconds on, the first batch is acknowledged; the rest has nothing from then.
            producer.close()
        assert 75_000 <= world.schedule.now_ms - began_ms < 77_000
        assert len(raised.value.failures) == 5

    _run(work)


def test_a_time_out_is_kept_whatever_is_done() -> None:
    """Two batches are in by then; what is left comes back, and may be sent again."""

    def work(world: World) -> None:
        producer = _open(world.process("home", "app"), 1_000)
        producer.add_many([Event(COUNTER, 1)] * 100)
        began_ms = world.schedule.now_ms
        with pytest.raises(NotRecorded) as raised:
            producer.close(2.5)
        assert 2_500 <= world.schedule.now_ms - began_ms < 3_000
        assert len(raised.value.failures) == 50

    _run(work)


@pytest.mark.parametrize("spooled", [False, True])
def test_whoever_hears_of_failures_hears_of_what_an_end_leaves_and_once(
    tmp_path: Path, *, spooled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """`close` raises nothing then; a sender that outlives it, and its spool, says nothing more."""
    told: list[Failure] = []
    buffering = Buffering(
        senders=1, linger_ms=30_000, attempts=1, spool=tmp_path / "spool" if spooled else None
    )

    def work(world: World) -> None:
        process = world.process("home", "app")
        producer = _open(process, 5_000, buffering, told.append)
        pendings = producer.add_many([Event(COUNTER, 1)] * 30)
        producer.close(1.0)
        assert {one.entry.id for one in told if one.entry} == {
            one.entry.id for one in pendings if one.entry
        }
        process.sleep_ms(60_000)
        assert pendings[0].result().status == "recorded"
        assert len(told) == 30
        if spooled:
            # What the sender wrote behind the end is in the spool still: it counts once.
            producer = _open(process, 1, buffering, told.append)
            producer.close()
            assert _sum(world) == 30

    _run(work)
    assert caplog.records == []
