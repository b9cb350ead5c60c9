"""Recording many events where some of them fail: one outcome each, in order, none lost."""

from __future__ import annotations

import threading
from collections import Counter, deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import (
    AccessDenied,
    CountledgerError,
    NamespaceUnknown,
    NoCredentials,
    TableNotFound,
    Unclear,
    WrongKind,
)
from countledger.ledger.ids import new_id
from countledger.ledger.namespace import Kind, Namespace, Namespaces
from countledger.producers import recorder as recorder_module
from countledger.producers.event import Event, Receipt, Status, make_entry
from countledger.producers.recorder import Recorder
from countledger.producers.sender import ledgers_of
from tests.unit.connections import connection_on
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import Fault, MemoryClient, refuses
from tests.unit.producers.senders import REGION, entries_in, process_on, recorder_on

if TYPE_CHECKING:
    from collections.abc import Iterator

EXPIRED = [None, Fault(NoCredentials("expired")), None]
NO_TABLE = [Fault(TableNotFound("no such table"))] * 8


def _ones(number: int) -> Iterator[Event]:
    return (Event("a:b", 1) for _ in range(number))


@pytest.mark.parametrize("number", [24, 25, 26, 51, 60])
def test_every_outcome_is_that_of_its_event_also_of_mixed_ones(number: int) -> None:
    """Those without a key are batches of at most 25, those with one are written alone."""
    dynamo = MemoryClient()
    recorder = recorder_on(dynamo)
    recorder.sender.namespaces.create("stock", kind=Kind.STRICT)
    dynamo.calls.clear()
    keys = {n for n in range(number) if n % 7 == 3}
    refused = {n for n in range(number) if n % 11 == 5}
    events = [
        Event(f"{'stock' if n in refused else 'a'}:{n}", n + 1, f"key {n}" if n in keys else None)
        for n in range(number)
    ]

    outcomes = recorder.record_many(events)

    for n, outcome in enumerate(outcomes):
        if n in refused:
            assert isinstance(outcome, WrongKind)
            assert f"'stock:{n}'" in str(outcome)
        else:
            assert isinstance(outcome, Receipt)
            assert outcome.counter == f"a:{n}"
    assert sorted(map(str, entries_in(dynamo))) == sorted(
        str(n + 1) for n in range(number) if n not in refused
    )
    alone = len(keys - refused)
    assert dynamo.calls.count("put_batch") == -(-(number - len(refused) - alone) // 25)
    assert dynamo.calls.count("put") == alone


@pytest.mark.parametrize("given", [0, 1, 3])
def test_no_receipt_is_lost_where_the_system_gives_few_threads_or_none(
    given: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, started = threading.Thread.start, list[object]()

    def start_a_few(thread: threading.Thread) -> None:
        if len(started) == given:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    dynamo = MemoryClient()
    recorder = recorder_on(dynamo)
    with monkeypatch.context() as few:
        few.setattr(threading.Thread, "start", start_a_few)
        outcomes = recorder.record_many(_ones(2_300))

    assert [type(one) for one in outcomes] == [Receipt] * 2_300
    assert len(entries_in(dynamo)) == 2_300


def test_credentials_that_expire_on_the_way_lose_no_receipt() -> None:
    """An event without a key could never be sent again safely, were its outcome lost."""
    dynamo = MemoryClient(faults=[*EXPIRED])
    outcomes = recorder_on(dynamo).record_stream(_ones(400))
    seen: list[Receipt | CountledgerError] = []

    with pytest.raises(NoCredentials):
        seen.extend(outcomes)

    # A stream writes 200 events at a time, so that any number of them fits into memory.
    assert len(seen) == 200
    assert sum(isinstance(one, Receipt) for one in seen) == len(entries_in(dynamo)) == 175

    dynamo = MemoryClient(faults=[*EXPIRED])
    listed = recorder_on(dynamo).record_many(_ones(450))

    # Threads may have begun with later events before the error arrived.
    recorded = len(entries_in(dynamo))
    assert 175 <= recorded < 450
    assert [type(one) for one in listed].count(Receipt) == recorded
    assert [type(one) for one in listed].count(NoCredentials) == 450 - recorded


def test_what_concerns_every_event_is_raised_where_nothing_was_written() -> None:
    streamed: list[Receipt | CountledgerError] = []

    with pytest.raises(TableNotFound):
        streamed.extend(recorder_on(MemoryClient(faults=[*NO_TABLE])).record_stream(_ones(200)))
    with pytest.raises(TableNotFound):
        recorder_on(MemoryClient(faults=[*NO_TABLE])).record_many(_ones(200))

    assert streamed == []


def test_a_namespace_that_cannot_be_read_hides_no_receipt() -> None:
    """The second group of events meets it; the first one is written by then."""
    dynamo = MemoryClient()
    denied = refuses(
        AccessDenied("not allowed"),
        "get",
        times=99,
        where=lambda get: get.key["counter"] == "namespace#shut",
    )
    reads = MemoryClient(tables=dynamo.tables, plans=[denied])

    recorder = Recorder(process_on(dynamo, reads=reads))
    events = [*_ones(300), Event("shut:x", 1)]
    streamed: list[Receipt | CountledgerError] = []

    with pytest.raises(AccessDenied):
        recorder.record_many(events)  # a list of this length is one group

    assert entries_in(dynamo) == []

    with pytest.raises(AccessDenied):
        streamed.extend(recorder.record_stream(events))

    assert [type(o) for o in streamed] == [Receipt] * 200
    assert len(entries_in(dynamo)) == 200

    outcomes = recorder.record_many([*_ones(2_100), Event("shut:x", 1)])

    assert [type(o) for o in outcomes] == [Receipt] * 2_000 + [AccessDenied] * 101


def test_a_namespace_that_was_found_is_not_looked_up_again() -> None:
    """Another counter of it needs no answer any more."""

    class Once(Namespaces):
        asked: ClassVar[list[str]] = []

        def for_use(self, counter: str, kind: Kind, *more: Any) -> Namespace:  # noqa: ANN401
            self.asked.append(counter)
            return super().for_use(counter, kind, *more)

    namespaces = Once(connection_on(MemoryClient()))
    found, refused = ledgers_of(["a:1", "a:2", "b:1"], namespaces, (AccessDenied,))

    assert ([*found], refused) == (["a:1", "a:2", "b:1"], {})
    assert namespaces.asked == ["a:1", "b:1"]


def test_a_namespace_that_cannot_be_read_is_asked_for_once_in_a_call() -> None:
    """Waited for again for each event, a silent service would hold a call up for hours."""
    silent = MemoryClient(plans=[refuses(Unclear("no answer"), "get", times=2)])
    namespaces = Namespaces(connection_on(silent))

    found, refused = ledgers_of([f"a:{n}" for n in range(50)] + ["b:1"], namespaces, (Unclear,))

    assert found == {}
    assert [type(one) for one in refused.values()] == [Unclear] * 51
    assert silent.calls == []  # a third one would have been answered


def test_a_region_that_cannot_make_a_namespace_asks_for_it_once_in_a_call() -> None:
    away = MemoryClient()
    found, refused = ledgers_of(
        ["a:1", "a:2", "a:3"],
        Namespaces(connection_on(away, home_region="us-east-1")),
        (NamespaceUnknown,),
    )

    assert (found, len(refused)) == ({}, 3)
    assert away.calls == ["get"]


def test_each_counter_of_another_kind_is_named_without_a_request() -> None:
    dynamo = MemoryClient()
    namespaces = Namespaces(connection_on(dynamo))
    namespaces.for_use("a:1", Kind.STRICT)
    before = len(dynamo.calls)

    _, refused = ledgers_of(["a:1", "a:2"], namespaces, (WrongKind,))

    assert ["'a:1'" in str(refused[0]), "'a:2'" in str(refused[1])] == [True, True]
    assert len(dynamo.calls) == before
    with pytest.raises(WrongKind):
        ledgers_of(["a:1"], namespaces, (Unclear,))


def test_a_resend_that_sends_nothing_raises_as_the_recording_did() -> None:
    clock, expired = ManualClock(), Fault(NoCredentials("expired"))
    made = [
        make_entry(one, now_ms=clock.now_ms(), origin=REGION, new_id=new_id) for one in _ones(50)
    ]

    with pytest.raises(NoCredentials):
        recorder_on(MemoryClient(faults=[expired] * 2), clock).resend_many(made)

    dynamo = MemoryClient(faults=[None, expired])
    outcomes = recorder_on(dynamo, clock).resend_many(made)

    assert Counter(map(type, outcomes)) == {Receipt: 25, NoCredentials: 25}
    assert len(entries_in(dynamo)) == 25


def test_what_nobody_has_sent_is_no_receipt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong with the threads: only a job that was carried out acknowledges."""
    dynamo = MemoryClient()
    monkeypatch.setattr(recorder_module, "in_order", lambda jobs: deque(jobs[:-1]))

    with pytest.raises(KeyError):
        recorder_on(dynamo).record_many(_ones(30))

    assert len(entries_in(dynamo)) == 25


def test_the_receipt_of_a_duplicate_says_what_is_stored() -> None:
    """A retry with another time or number of events changes nothing of the entry that counts."""
    clock = ManualClock()
    recorder = recorder_on(MemoryClient(), clock)
    begun, own = to_datetime(clock.at_ms), datetime(2026, 1, 2, tzinfo=UTC)
    first = recorder.record(Event("a:b", 6, "k", own, events=3))
    plain = recorder.record(Event("a:b", 1, "plain"))
    clock.at_ms += 5_000

    again = recorder.record(Event("a:b", 6, "k", datetime(2026, 3, 4, tzinfo=UTC), events=2))

    assert (first.stored_at, first.occurred_at, first.events) == (None, None, None)
    assert again == Receipt("a:b", first.id, Status.DUPLICATE, begun, own, 3)
    assert recorder.record(Event("a:b", 1, "plain", own)) == Receipt(
        "a:b", plain.id, Status.DUPLICATE, begun, None, 1
    )
    assert [*recorder.record_many([Event("a:b", 6, "k")])] == [again]
