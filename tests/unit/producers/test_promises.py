"""What every producer promises: with threads, on an event loop, and of lists of events."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest

from countledger.ledger.errors import (
    BadCounterName,
    BadDelta,
    BadInput,
    IdempotencyKeyReused,
    NoCredentials,
    RequestRejected,
    Throttled,
    Unacknowledged,
    Unclear,
    WrongKind,
)
from countledger.ledger.limits import DAY_MS
from countledger.ledger.namespace import Kind, Namespaces
from countledger.producers.buffer.settings import (
    BufferFull,
    Buffering,
    NotRecorded,
    ProducerClosed,
    StillBuffered,
)
from countledger.producers.event import Event, Status
from tests.unit.connections import connection_on
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import Fault, MemoryClient
from tests.unit.producers.buffers import (
    FORMS,
    PATIENT_MS,
    Awaited,
    GatedClient,
    in_a_loop,
    producer_on,
)
from tests.unit.producers.kinesis import streams
from tests.unit.producers.kinesis.streams import MemoryStream
from tests.unit.producers.senders import TABLE, entries_in, recorder_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from countledger.producers.buffer.settings import Failure

PATIENT = partial(Buffering, linger_ms=PATIENT_MS)
EXPIRED = Fault(NoCredentials("expired"))
NO_EVENT = cast("Event", 7)


@pytest.fixture
def dynamo() -> GatedClient:
    return GatedClient()


@pytest.fixture(params=FORMS)
def opened(request: pytest.FixtureRequest, dynamo: GatedClient) -> Callable[..., Awaited]:
    """A producer of one form, by its settings."""
    return lambda *given, **named: Awaited(FORMS[request.param](dynamo, *given, **named))


def _sorted(dynamo: GatedClient) -> list[int]:
    return sorted(int(str(delta)) for delta in entries_in(dynamo))


@in_a_loop
async def test_plain_events_go_in_batches_and_each_has_its_receipt(
    opened: Callable[..., Awaited], dynamo: GatedClient
) -> None:
    async with opened() as producer:
        pendings = [await producer.add("a:b", n) for n in range(1, 61)]
        await producer.flush()
        assert {(await producer.result(one)).status for one in pendings} == {Status.RECORDED}
        assert producer.statistics.recorded == 60

    assert _sorted(dynamo) == list(range(1, 61))
    assert dynamo.calls.count("put_batch") == 3


@in_a_loop
async def test_an_event_waits_for_others_no_longer_than_it_lingers(
    opened: Callable[..., Awaited],
) -> None:
    async with opened(Buffering(linger_ms=5)) as producer:
        pending = await producer.add("a:b", 1)
        assert (await producer.result(pending)).status is Status.RECORDED


@in_a_loop
async def test_an_entry_has_the_time_at_which_its_event_was_added(
    opened: Callable[..., Awaited], dynamo: GatedClient
) -> None:
    """However long the event waits, and with it the creation of the entry."""
    clock = ManualClock()
    began_ms = clock.at_ms
    async with opened(clock=clock) as producer:
        await producer.add("a:b", 1)
        clock.at_ms += 7
        await producer.add_many([Event("a:b", 2)])
        clock.at_ms += 5_000
        await producer.flush()

    found = [item for item in dynamo.items(TABLE) if item["entry"].startswith("e#")]
    assert {item["delta"]: item["at"] - began_ms for item in found} == {1: 0, 2: 7}


@pytest.mark.parametrize("coalesce", [False, True])
@in_a_loop
async def test_bad_input_is_refused_by_the_call_and_not_taken(
    opened: Callable[..., Awaited], dynamo: GatedClient, *, coalesce: bool
) -> None:
    refused: list[tuple[Any, Any, type[Exception]]] = [
        ("a#b", 1, BadCounterName),
        (["a:b"], 1, BadCounterName),
        ("a:b", 0, BadDelta),
        ("a:b", 0.5, BadDelta),
    ]
    async with opened(PATIENT(coalesce=coalesce)) as producer:
        await producer.add("a:b", 1)
        for counter, delta, error in refused:
            with pytest.raises(error):
                await producer.add(counter, delta)
        assert producer.statistics.events == 1
    with pytest.raises(ProducerClosed):
        await producer.add("a:b", 1)

    assert entries_in(dynamo) == [1]


@in_a_loop
async def test_a_list_with_what_is_no_event_is_not_taken(
    opened: Callable[..., Awaited], dynamo: GatedClient
) -> None:
    async with opened() as producer:
        with pytest.raises(BadInput, match="7 is of type int, not an Event"):
            await producer.add_many([*[Event("a:b", 1)] * 600, NO_EVENT])

    assert entries_in(dynamo) == []


@in_a_loop
async def test_keyed_events_are_recognised(
    opened: Callable[..., Awaited], dynamo: GatedClient
) -> None:
    async with opened() as producer:
        first, again, other = [await producer.add("a:b", delta, key="k") for delta in (1, 1, 2)]
        plain = await producer.add("a:b", 5)
        assert (await producer.result(first)).status is Status.RECORDED
        assert (await producer.result(again)).status is Status.DUPLICATE
        with pytest.raises(IdempotencyKeyReused):
            await producer.result(other)
        await producer.flush()
        assert plain.done

    assert _sorted(dynamo) == [1, 5]


@in_a_loop
async def test_coalesced_events_are_one_entry_with_their_sum_and_number(
    opened: Callable[..., Awaited], dynamo: GatedClient
) -> None:
    async with opened(PATIENT(coalesce=True)) as producer:
        pendings = [await producer.add("a:b", delta) for delta in (1, 2, -5)]
        zero = [await producer.add("a:zero", delta) for delta in (1, -1)]
        await producer.add("a:b", 7, key="k")
        await producer.add("a:b", 7, note={"n": "1"})
        await producer.add("a:b", 7, occurred_at=datetime(2026, 1, 1, tzinfo=UTC))
        await producer.flush()
        assert len({(await producer.result(one)).id for one in pendings}) == 1

    items = [item for item in dynamo.items(TABLE) if item["entry"].startswith("e#")]
    facts = sorted((i["counter"], i["delta"], i.get("events", 1)) for i in items)
    assert facts == [("a:b", -2, 3), *[("a:b", 7, 1)] * 3, ("a:zero", 0, 2)]
    assert zero[0] is zero[1]


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("error", [Unclear("lost"), Throttled("slow")])
@in_a_loop
async def test_what_fails_comes_back_with_its_entry_which_can_be_sent_again(
    opened: Callable[..., Awaited], dynamo: GatedClient, error: Exception, key: str | None
) -> None:
    applied = isinstance(error, Unclear) and key is None
    dynamo.faults.extend([Fault(error, applied=applied)] * 3)

    async with opened(Buffering(linger_ms=1, attempts=2)) as producer:
        pending = await producer.add("a:b", 1, key=key)
        with pytest.raises(Unacknowledged) as raised:
            await producer.result(pending)
        again = await producer.resend(raised.value.entry)
        assert (await producer.result(again)).id == raised.value.entry.id
        assert producer.statistics.waits == 2

    assert entries_in(dynamo) == [1]


@in_a_loop
async def test_an_entry_beyond_the_horizon_is_not_sent(
    opened: Callable[..., Awaited], dynamo: GatedClient
) -> None:
    clock = ManualClock()
    dynamo.faults.append(Fault(RequestRejected("no")))
    async with opened(clock=clock) as producer:
        pendings = [await producer.add("a:b", n) for n in (1, 2)]
        await producer.flush()
        assert {(await producer.result(one)).status for one in pendings} == {Status.RECORDED}
        old = await producer.add("a:b", 3)
        clock.at_ms += DAY_MS + 1
        with pytest.raises(NotRecorded, match="beyond the horizon"):
            await producer.flush()
        assert old.done

    assert _sorted(dynamo) == [1, 2]


@in_a_loop
async def test_a_failure_is_reported_once_to_its_first_reader(
    opened: Callable[..., Awaited], dynamo: GatedClient
) -> None:
    told: list[Failure] = []
    dynamo.faults.extend([EXPIRED] * 3)
    async with opened(on_failure=told.append) as producer:
        await producer.add("a:b", 1)
        await producer.flush()
    assert [type(failure.error) for failure in told] == [NoCredentials]

    async with opened() as producer:
        await producer.add("a:b", 2)
        called = await producer.add("a:b", 3)
        heard: list[object] = []
        called.add_done_callback(heard.append)
        with pytest.raises(NotRecorded) as raised:
            await producer.flush()
        await producer.flush()
        assert heard == [called]
        assert [failure.entry.delta for failure in raised.value.failures if failure.entry] == [2]

    async with opened(Buffering(linger_ms=1)) as producer:
        with pytest.raises(NoCredentials):
            await producer.result(await producer.add("a:b", 4))


@in_a_loop
async def test_an_error_of_one_counter_fails_no_other_in_its_batch(
    opened: Callable[..., Awaited], dynamo: GatedClient
) -> None:
    namespaces = Namespaces(connection_on(MemoryClient(tables=dynamo.tables)))
    namespaces.create("stock", kind=Kind.STRICT)
    async with opened() as producer:
        good, bad = [await producer.add(name, 1) for name in ("a:b", "stock:x")]
        with pytest.raises(NotRecorded) as raised:
            await producer.flush()
        assert [type(failure.error) for failure in raised.value.failures] == [WrongKind]
        assert (await producer.result(good)).status is Status.RECORDED
        assert bad.done


@in_a_loop
async def test_a_full_buffer_refuses_or_waits_as_chosen(
    opened: Callable[..., Awaited], dynamo: GatedClient
) -> None:
    dynamo.gate.clear()
    async with opened(PATIENT(max_entries=25, when_full="error")) as producer:
        await producer.add_many([Event("a:b", 1)] * 25)
        with pytest.raises(BufferFull, match="25 entries are not acknowledged"):
            await producer.add("a:b", 1)
        dynamo.gate.set()
    async with opened(PATIENT(max_entries=25)) as producer:
        await asyncio.gather(*(producer.add("a:b", 1) for _ in range(60)))

    assert len(entries_in(dynamo)) == 85


@in_a_loop
async def test_add_many_says_which_events_were_taken_where_it_fails(
    opened: Callable[..., Awaited], dynamo: GatedClient
) -> None:
    """The first ones, in their order; of events that cannot be gathered none is taken."""
    dynamo.gate.clear()
    async with opened(PATIENT(max_entries=60, when_full="error")) as producer:
        with pytest.raises(BadDelta):
            await producer.add_many(Event("a:b", delta) for delta in (1, 2, 0))
        with pytest.raises(BufferFull) as raised:
            await producer.add_many(Event("a:b", n) for n in range(1, 200))
        dynamo.gate.set()

    assert [one.delta for one in raised.value.taken] == list(range(1, 61))
    assert _sorted(dynamo) == list(range(1, 61))


@pytest.mark.parametrize("listens", [False, True])
@in_a_loop
async def test_flush_and_close_end_in_time_and_hand_back_what_is_left(
    opened: Callable[..., Awaited], dynamo: GatedClient, *, listens: bool
) -> None:
    told: list[Failure] = []
    on_failure = told.append if listens else None
    producer = opened(PATIENT(senders=1), on_failure=on_failure)
    dynamo.gate.clear()
    pendings = await producer.add_many([Event("a:b", 1)] * 30)

    with pytest.raises(StillBuffered, match="30 entries"):
        await producer.flush(0.01)
    if listens:
        await producer.close(0.01)
    else:
        with pytest.raises(NotRecorded) as raised:
            await producer.close(0.01)
        told.extend(raised.value.failures)
    dynamo.gate.set()

    back = [failure.entry.id for failure in told if failure.entry]
    assert sorted(back) == sorted(one.entry.id for one in pendings)


@in_a_loop
async def test_a_wait_for_an_outcome_ends_in_its_time_and_leaves_the_failure_to_others(
    opened: Callable[..., Awaited], dynamo: GatedClient
) -> None:
    dynamo.faults.append(EXPIRED)
    dynamo.gate.clear()
    async with opened(Buffering(linger_ms=1)) as producer:
        pending = await producer.add("a:b", 1)
        with pytest.raises(TimeoutError, match=r"has no outcome after 0.01 s"):
            await producer.result(pending, 0.01)
        dynamo.gate.set()
        with pytest.raises(NotRecorded):
            await producer.flush()
        with pytest.raises(NoCredentials):
            await producer.result(pending, 0)


@in_a_loop
async def test_a_spool_keeps_what_is_not_acknowledged_for_the_next_start(
    opened: Callable[..., Awaited], dynamo: GatedClient, tmp_path: Path
) -> None:
    dynamo.faults.append(EXPIRED)
    spooling = PATIENT(spool=tmp_path / "spool")
    with pytest.raises(NotRecorded):
        async with opened(spooling) as producer:
            await producer.add("a:b", 1)
    assert entries_in(dynamo) == []

    for waiting in (1, 0):
        async with opened(spooling) as producer:
            assert producer.statistics.waiting == waiting
    assert entries_in(dynamo) == [1]


@dataclass(frozen=True, slots=True)
class Lists:
    """How one producer records a list of events, and how many were written."""

    many: Callable[..., Sequence[Any]]
    stream: Callable[..., Iterator[Any]]
    written: Callable[[], int]


def _recorder() -> Lists:
    dynamo = MemoryClient()
    made = recorder_on(dynamo)
    return Lists(made.record_many, made.record_stream, lambda: len(entries_in(dynamo)))


def _buffered() -> Lists:
    dynamo = MemoryClient()
    made = producer_on(dynamo, Buffering(linger_ms=1))
    return Lists(made.record_many, made.record_stream, lambda: len(entries_in(dynamo)))


def _kinesis() -> Lists:
    stream = MemoryStream()
    made = streams.producer_on(stream)
    return Lists(made.send_many, made.send_stream, lambda: len(streams.deltas(stream)))


@pytest.fixture(params=[_recorder, _buffered, _kinesis])
def lists(request: pytest.FixtureRequest) -> Lists:
    made: Lists = request.param()
    return made


def test_every_event_of_a_list_has_its_outcome_in_order(lists: Lists) -> None:
    events = [Event(f"a:{n}", n + 1, f"key-{n}" if n % 3 == 0 else None) for n in range(450)]

    assert [one.counter for one in lists.many(events)] == [one.counter for one in events]
    assert lists.written() == 450


def test_a_list_is_sent_when_the_call_returns_and_a_stream_while_it_is_iterated(
    lists: Lists,
) -> None:
    lists.many(Event("a:b", n) for n in range(1, 31))
    assert lists.written() == 30
    outcomes = lists.stream(Event("a:b", n) for n in range(31, 61))
    assert lists.written() == 30
    assert len(list(outcomes)) == 30
    assert lists.written() == 60


def test_a_list_with_what_is_no_event_is_refused_before_anything_is_sent(lists: Lists) -> None:
    """Far behind in it as well: the groups before it would be recorded without a receipt."""
    with pytest.raises(BadInput, match="7 is of type int, not an Event"):
        lists.many([*[Event("a:b", 1)] * 6_100, NO_EVENT])

    assert lists.written() == 0


@pytest.mark.parametrize("make", [_recorder, _kinesis])
def test_a_stream_gives_an_outcome_of_all_that_was_sent_before_what_is_no_event(
    make: Callable[[], Lists],
) -> None:
    lists, outcomes = make(), list[object]()

    with pytest.raises(BadInput, match="7 is of type int, not an Event"):
        outcomes.extend(lists.stream([*[Event("a:b", 1)] * 6_100, NO_EVENT]))

    assert 0 < len(outcomes) == lists.written() < 6_100
