"""What the simulation has found, each as the shortest course of events that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from countledger.ledger.clock import to_datetime
from countledger.ledger.entry import Entry
from countledger.ledger.errors import KeyExpired, Unacknowledged
from countledger.ledger.ids import IdempotencyKey
from countledger.ledger.limits import HOUR_MS, MINUTE_MS, SECOND_MS
from countledger.ledger.namespace import Kind
from countledger.producers.buffer.buffering import Buffering
from countledger.producers.buffer.errors import SpoolRefused
from countledger.producers.event import Event
from countledger.producers.ingest.late import LateResender, LateStatus
from countledger.producers.strict.outcome import Applied, Duplicate, Unknown, Withdrawn
from tests.simulation import threads
from tests.simulation.buffer_operations import open_producer
from tests.simulation.calm import calm_world, script
from tests.simulation.faults import Fault
from tests.simulation.ingest import IngestWay, late_ms_of
from tests.simulation.product import Product
from tests.simulation.shape import COUNTERS
from tests.simulation.spool import SimulatedSpool

if TYPE_CHECKING:
    from pathlib import Path

    from countledger.producers.buffer.producer import BufferedProducer
    from tests.simulation.world import World

COUNTER = "s:hall"


def _world() -> World:
    """With a namespace of strict counters."""
    world = calm_world()
    Product(world.process("home", "set-up")).namespaces.create("s", kind=Kind.STRICT)
    return world


def _seller(world: World, method: str, opening: int = 0) -> Product:
    window = {"window_ms": 5 * MINUTE_MS} if method == "marker" else {}
    seller = Product(world.process("home", "seller"))
    seller.strict.create(COUNTER, method=method, lower=0, upper=100, opening=opening, **window)
    return seller


def _forget_markers(world: World) -> None:
    """As time to live does."""
    table = world.copies["home"][COUNTERS]
    for key in [key for key in table.items if key[1].startswith("m#")]:
        table.store(key, None)


@pytest.mark.parametrize("method", ["crt", "marker"])
def test_a_change_that_is_in_cannot_be_given_up_once_it_may_be_forgotten(method: str) -> None:
    """Its token or marker is gone: nothing may be said to be out for good that is in."""
    world = _world()
    seller = _seller(world, method)
    order = IdempotencyKey("order-1", to_datetime(seller.process.now_ms()))
    assert isinstance(seller.strict.change(COUNTER, 5, key=order), Applied)
    world.schedule.now_ms += HOUR_MS
    _forget_markers(world)

    with pytest.raises(KeyExpired):
        seller.strict.withdraw(COUNTER, order)

    assert seller.strict.show(COUNTER).value == 5


@pytest.mark.parametrize("method", ["crt", "marker"])
def test_a_process_that_stood_still_for_longer_than_its_key_is_remembered_sends_nothing(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt without an answer is in; the next one would count again, and does not leave."""
    world = _world()
    seller = _seller(world, method)
    script(world, Fault.AFTER, Fault.FROZEN)
    frozen: list[float] = []

    def freeze_ms(_operation: str) -> float:
        frozen.append(world.schedule.now_ms)
        world.schedule.now_ms += HOUR_MS
        _forget_markers(world)
        return 0

    monkeypatch.setattr(world, "freeze_ms", freeze_ms)

    outcome = seller.strict.change(COUNTER, 5)

    assert len(frozen) == 1
    assert isinstance(outcome, Unknown)
    assert seller.strict.show(COUNTER).value == 5


def test_a_key_is_not_said_to_be_reused_because_nobody_could_tell() -> None:
    """Its token is taken, and what for cannot be asked: unknown, not another amount."""
    world = _world()
    seller = _seller(world, "crt")
    order = IdempotencyKey("order-1", to_datetime(seller.process.now_ms()))
    assert isinstance(seller.strict.withdraw(COUNTER, order), Withdrawn)
    script(world, None, *[Fault.THROTTLE] * 8)

    outcome = seller.strict.change(COUNTER, 5, key=order)

    assert isinstance(outcome, Unknown)


@pytest.mark.parametrize("method", ["crt", "marker", "set"])
def test_a_refusal_is_not_final_while_its_doubtful_request_could_not_be_kept_out(
    method: str,
) -> None:
    """An attempt got no answer, the next one found no room, and every fence was throttled."""
    world = _world()
    seller = _seller(world, method, opening=100)
    script(world, Fault.BEFORE, None, *[Fault.THROTTLE] * 8)

    outcome = seller.strict.change(COUNTER, 1)

    assert isinstance(outcome, Unknown)


def _made_again(world: World, method: str) -> Product:
    """By another process, under the hands of the first."""
    window = {"window_ms": 5 * MINUTE_MS} if method == "marker" else {}
    other = Product(world.process("home", "other"))
    with world.auditor.strict.deletes_one(COUNTER):
        other.strict.delete(COUNTER)
    other.strict.create(COUNTER, method=method, lower=0, upper=100, **window)
    return other


@pytest.mark.parametrize("method", ["crt", "marker"])
@pytest.mark.parametrize("delta", [5, 7])
def test_a_key_of_an_old_making_says_nothing_of_the_new_one(method: str, delta: int) -> None:
    """A process that knows the old counter repeats it: its token or marker is still there."""
    world = _world()
    seller = _seller(world, method)
    order = IdempotencyKey("order-1", to_datetime(seller.process.now_ms()))
    assert isinstance(seller.strict.change(COUNTER, 5, key=order), Applied)
    _made_again(world, method)

    outcome = seller.strict.change(COUNTER, delta, key=order)

    assert isinstance(outcome, Applied)
    assert seller.strict.show(COUNTER).value == delta


@pytest.mark.parametrize("method", ["crt", "marker"])
@pytest.mark.parametrize("before", [True, False], ids=["given up before", "given up behind"])
def test_a_key_is_not_given_up_in_a_making_that_is_gone(method: str, before: bool) -> None:  # noqa: FBT001 - a parameter
    """What it stands for in the new one is said, and is not written over."""
    world = _world()
    seller = _seller(world, method)
    order = IdempotencyKey("order-1", to_datetime(seller.process.now_ms()))
    if before:
        assert isinstance(seller.strict.withdraw(COUNTER, order), Withdrawn)
    other = _made_again(world, method)
    assert isinstance(other.strict.change(COUNTER, 5, key=order), Applied)

    assert isinstance(seller.strict.withdraw(COUNTER, order), Duplicate)
    assert isinstance(other.strict.change(COUNTER, 5, key=order), Duplicate)


def test_a_producer_that_cannot_begin_lets_go_of_its_spool(tmp_path: Path) -> None:
    """The disk was full as it opened what was left: the same process can open it later."""
    world = calm_world()
    buffering = Buffering(spool=tmp_path / "spool")

    def open_it() -> BufferedProducer:
        process = world.process("home", "app")
        threads.belongs(process)
        return open_producer(process, buffering, None)

    def live() -> None:
        first = open_it()
        first.add("n:clicks", 1)
        threads.owner().die()
        world.faults.rates[Fault.DISK] = 1.0
        with pytest.raises(SpoolRefused, match="full"):
            open_it()
        world.faults.rates.clear()

        last = open_it()
        last.close()

        assert Product(world.process("home", "reader")).exact.read("n:clicks").sum == 1
        world.schedule.stop()

    world.schedule.spawn("app", live)
    with threads.under(world, SimulatedSpool):
        world.schedule.run()


def _override(world: World) -> tuple[Product, LateResender]:
    """A person at the expired entries of a stack."""
    product = Product(world.process("home", "person"))
    late_ms = late_ms_of(world)
    sender = product.recorder.sender
    return product, LateResender(sender, product.reads, product.process, late_ms=late_ms)


def _late_entry(product: Product, age_ms: int) -> Entry:
    """An entry of the ingest that was made so long ago."""
    at_ms = product.process.now_ms() - age_ms
    product.namespaces.create("n", horizon_ms=product.world.shape.horizon_ms)
    entry_id = product.world.new_id(at_ms)
    return Entry(counter="n:clicks", id=entry_id, delta=1, at_ms=at_ms, origin="home")


def test_what_came_too_late_is_not_sent_again_once_its_second_sending_may_be_merged() -> None:
    """A person sent it, died before its message was deleted, and comes back after a compaction."""
    world = calm_world()
    product, override = _override(world)
    entry = _late_entry(product, 10 * MINUTE_MS)
    assert override.resolve(entry, send=True).resolved
    world.schedule.now_ms += HOUR_MS
    assert product.compactor().compact(entry.counter).merged == 1

    again = override.resolve(entry, send=True)

    assert again.status is LateStatus.UNKNOWN
    assert product.exact.read(entry.counter).sum == 1


def test_what_came_too_late_is_not_sent_again_while_its_first_sending_may_still_land() -> None:
    """To the clock of one ingest it had expired; that of another still writes it."""
    world = calm_world()
    product, override = _override(world)
    entry = _late_entry(product, world.shape.horizon_ms + 1)

    assert override.resolve(entry, send=True).status is LateStatus.UNKNOWN
    world.schedule.now_ms -= SECOND_MS
    product.recorder.resend(entry)

    assert product.exact.read(entry.counter).sum == 1


def test_a_bare_key_is_not_sent_into_the_stream_again_after_a_standstill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It counts as made when its record arrives: a second one, much later, could count again."""
    world = calm_world()
    way = IngestWay(world)
    producer = way.producer(world.process("home", "app"))
    script(world, Fault.AFTER, Fault.FROZEN)

    def freeze_ms(_operation: str) -> float:
        world.schedule.now_ms += HOUR_MS
        return 0

    monkeypatch.setattr(world, "freeze_ms", freeze_ms)

    (outcome,) = producer.send_many([Event("n:clicks", 1, "job 1")])

    assert isinstance(outcome, Unacknowledged)
    assert sum(len(log.records) for log in way.stream.shards.values()) == 1
