"""Recording many events: one outcome each, in order, none lost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from countledger.ledger.errors import (
    AccessDenied,
    BadDelta,
    CountledgerError,
    IdempotencyKeyReused,
    NoCredentials,
    TableNotFound,
    Throttled,
    WrongKind,
)
from countledger.ledger.namespace import Kind, Namespace, Namespaces
from countledger.producers.event import Event, Receipt, Status
from countledger.producers.recorder import Recorder
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import Fault, MemoryClient
from tests.unit.producers.senders import REGION, TABLE, entries_in, recorder_on, sender_on

if TYPE_CHECKING:
    from collections.abc import Iterator


def _ones(number: int) -> Iterator[Event]:
    return (Event("a:b", 1) for _ in range(number))


def test_every_event_has_its_outcome_in_order() -> None:
    """Plain and keyed ones, more than one chunk of them."""
    dynamo = MemoryClient()
    events = [Event(f"a:{n}", n + 1, f"key-{n}" if n % 3 == 0 else None) for n in range(450)]

    outcomes = list(recorder_on(dynamo).record_many(events))

    assert [o.counter for o in outcomes if isinstance(o, Receipt)] == [e.counter for e in events]
    assert len(entries_in(dynamo)) == 450


def test_an_error_of_one_event_is_a_value() -> None:
    """The others are recorded."""
    dynamo = MemoryClient()
    recorder = recorder_on(dynamo)
    recorder.sender.namespaces.create("stock", kind=Kind.STRICT)
    recorder.record(Event("a:b", 1, "used"))

    outcomes = list(
        recorder.record_many([Event("a:b", 1), Event("stock:x", 1), Event("a:b", 2, "used")])
    )

    assert [type(outcome) for outcome in outcomes] == [Receipt, WrongKind, IdempotencyKeyReused]


def test_plain_events_go_by_batches_of_25() -> None:
    """A thousand events are forty round trips."""
    dynamo = MemoryClient()

    list(recorder_on(dynamo).record_many(_ones(1000)))

    assert dynamo.calls == ["put_batch"] * 40


def _until_raised(outcomes: Iterator[Receipt | CountledgerError]) -> tuple[list[object], Exception]:
    seen: list[object] = []
    try:
        seen.extend(outcomes)
    except CountledgerError as error:
        return seen, error
    raise AssertionError("nothing was raised")


def test_credentials_that_expire_on_the_way_lose_no_receipt() -> None:
    """Events without a key could never be sent again safely, were their outcomes lost."""
    dynamo = MemoryClient(faults=[None, Fault(NoCredentials("expired")), None])

    seen, error = _until_raised(recorder_on(dynamo).record_stream(_ones(400)))

    assert isinstance(error, NoCredentials)
    recorded = [o for o in seen if isinstance(o, Receipt)]
    assert len(seen) == 200
    assert len(recorded) == len(entries_in(dynamo)) == 175
    assert {o.status for o in recorded} == {Status.RECORDED}


def test_what_concerns_every_event_is_raised_at_once() -> None:
    """No table: two hundred outcomes would say the same."""
    dynamo = MemoryClient(faults=[Fault(TableNotFound("no such table"))] * 8)

    seen, error = _until_raised(recorder_on(dynamo).record_stream(_ones(200)))

    assert isinstance(error, TableNotFound)
    assert seen == []


def test_all_is_written_when_it_returns() -> None:
    """Nobody has to look at the outcomes."""
    dynamo = MemoryClient()

    recorder_on(dynamo).record_many(_ones(450))

    assert len(entries_in(dynamo)) == 450


def test_a_stream_writes_only_while_it_is_iterated() -> None:
    """200 at a time, so that any number of events fits into memory."""
    dynamo = MemoryClient()
    outcomes = recorder_on(dynamo).record_stream(_ones(450))

    assert dynamo.calls == []
    next(outcomes)
    assert len(entries_in(dynamo)) == 200


def test_a_list_hides_no_receipt_where_something_concerns_every_event() -> None:
    """Credentials expired on the way: that is the outcome of all events that were not sent."""
    dynamo = MemoryClient(faults=[None, Fault(NoCredentials("expired")), None])

    outcomes = recorder_on(dynamo).record_many(_ones(450))

    assert len(outcomes) == 450
    recorded = [o for o in outcomes if isinstance(o, Receipt)]
    assert len(recorded) == len(entries_in(dynamo)) == 175
    assert all(isinstance(o, NoCredentials) for o in outcomes if o not in recorded)


def test_a_namespace_that_cannot_be_read_hides_no_receipt() -> None:
    """It is met in the second group of events; the first one is written by then."""

    class Shut(Namespaces):
        def for_use(self, counter: str, kind: Kind) -> Namespace:
            if counter.startswith("shut:"):
                raise AccessDenied("not allowed")
            return super().for_use(counter, kind)

    dynamo = MemoryClient()
    sender = sender_on(dynamo, ManualClock())
    shut = replace(sender, namespaces=Shut(dynamo, TABLE, REGION, REGION))
    recorder = Recorder(shut, REGION, sender.clock)

    outcomes = recorder.record_many([*_ones(300), Event("shut:x", 1)])

    assert [type(o) for o in outcomes] == [Receipt] * 200 + [AccessDenied] * 101
    assert len(entries_in(dynamo)) == 200


def test_a_list_that_wrote_nothing_raises_what_concerns_every_event() -> None:
    """No table: two hundred outcomes would say the same."""
    dynamo = MemoryClient(faults=[Fault(TableNotFound("no such table"))] * 8)

    with pytest.raises(TableNotFound):
        recorder_on(dynamo).record_many(_ones(200))


def test_events_that_cannot_be_gathered_write_nothing() -> None:
    """An event that is refused at birth comes before the first write."""
    dynamo = MemoryClient()

    with pytest.raises(BadDelta):
        recorder_on(dynamo).record_many(Event("a:b", delta) for delta in [*[1] * 300, 0])
    assert dynamo.calls == []


def test_of_several_with_one_key_the_first_is_recorded() -> None:
    """Also when an unclear answer delays it: a later one of the same call never overtakes it."""
    dynamo = MemoryClient(faults=[Fault(Throttled("try again"))])
    events = [Event("a:b", delta, "key") for delta in (1, 2, 3)]

    outcomes = list(recorder_on(dynamo).record_many(events))

    assert entries_in(dynamo) == [1]
    assert [type(o) for o in outcomes] == [Receipt, IdempotencyKeyReused, IdempotencyKeyReused]
