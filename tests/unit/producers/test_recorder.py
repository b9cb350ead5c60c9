"""Recording many events: one outcome each, in order, none lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countledger.ledger.errors import (
    CountledgerError,
    IdempotencyKeyReused,
    NoCredentials,
    TableNotFound,
    WrongKind,
)
from countledger.ledger.namespace import Kind
from countledger.producers.event import Event
from countledger.producers.receipt import Receipt, Status
from tests.unit.ledger.memory import Fault, MemoryDoor
from tests.unit.producers.senders import entries_in, recorder_on

if TYPE_CHECKING:
    from collections.abc import Iterator


def _ones(number: int) -> Iterator[Event]:
    return (Event("a:b", 1) for _ in range(number))


def test_every_event_has_its_outcome_in_order() -> None:
    """Plain and keyed ones, more than one chunk of them."""
    door = MemoryDoor()
    events = [Event(f"a:{n}", n + 1, f"key-{n}" if n % 3 == 0 else None) for n in range(450)]

    outcomes = list(recorder_on(door).record_many(events))

    assert [o.counter for o in outcomes if isinstance(o, Receipt)] == [e.counter for e in events]
    assert len(entries_in(door)) == 450


def test_an_error_of_one_event_is_a_value() -> None:
    """The others are recorded."""
    door = MemoryDoor()
    recorder = recorder_on(door)
    recorder.sender.namespaces.create("stock", kind=Kind.STRICT)
    recorder.record(Event("a:b", 1, "used"))

    outcomes = list(
        recorder.record_many([Event("a:b", 1), Event("stock:x", 1), Event("a:b", 2, "used")])
    )

    assert [type(outcome) for outcome in outcomes] == [Receipt, WrongKind, IdempotencyKeyReused]


def test_plain_events_go_by_batches_of_25() -> None:
    """A thousand events are forty round trips."""
    door = MemoryDoor()

    list(recorder_on(door).record_many(_ones(1000)))

    assert door.calls == ["put_batch"] * 40


def _until_raised(outcomes: Iterator[Receipt | CountledgerError]) -> tuple[list[object], Exception]:
    seen: list[object] = []
    try:
        seen.extend(outcomes)
    except CountledgerError as error:
        return seen, error
    raise AssertionError("nothing was raised")


def test_credentials_that_expire_on_the_way_lose_no_receipt() -> None:
    """Events without a key could never be sent again safely, were their outcomes lost."""
    door = MemoryDoor(faults=[None, Fault(NoCredentials("expired")), None])

    seen, error = _until_raised(recorder_on(door).record_many(_ones(400)))

    assert isinstance(error, NoCredentials)
    recorded = [o for o in seen if isinstance(o, Receipt)]
    assert len(seen) == 200
    assert len(recorded) == len(entries_in(door)) == 175
    assert {o.status for o in recorded} == {Status.RECORDED}


def test_what_concerns_every_event_is_raised_at_once() -> None:
    """No table: two hundred outcomes would say the same."""
    door = MemoryDoor(faults=[Fault(TableNotFound("no such table"))] * 8)

    seen, error = _until_raised(recorder_on(door).record_many(_ones(200)))

    assert isinstance(error, TableNotFound)
    assert seen == []
