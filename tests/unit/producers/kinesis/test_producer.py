"""The producer: one outcome for each event, whatever becomes of its record."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError
from hypothesis import given
from hypothesis import strategies as st

from countledger.ledger.before_send import leave
from countledger.ledger.errors import (
    AccessDenied,
    CountledgerError,
    SetupError,
    Unacknowledged,
    Unreachable,
)
from countledger.ledger.limits import HORIZON_MIN_MS
from countledger.producers.event import Event
from countledger.producers.kinesis.aggregate import unpack
from countledger.producers.kinesis.message import decode
from countledger.producers.kinesis.sender import Sent
from tests.transport.proof import refused_connection
from tests.unit.ledger.clocks import NOW_MS, ManualClock
from tests.unit.producers.kinesis.streams import REGION, Fault, MemoryStream, producer_on

LOST = ReadTimeoutError(endpoint_url="https://kinesis")
NOBODY = EndpointConnectionError(endpoint_url="https://kinesis", error=refused_connection())


def failed(code: str, status: int = 400) -> ClientError:
    """An answer of the service."""
    return ClientError(
        {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}},  # type: ignore[typeddict-item]
        "PutRecords",
    )


def events(count: int) -> list[Event]:
    """Plain ones."""
    return [Event(f"a:{number % 7}", number) for number in range(1, count + 1)]


def deltas(stream: MemoryStream) -> list[object]:
    """What the stream holds, each identity once, in order."""
    made = [
        decode(payload, arrived_ms=NOW_MS, origin=REGION)
        for data, _ in stream.records
        for payload in unpack(data)
    ]
    return [entry.delta for entry in {entry.id: entry for entry in made}.values()]


def test_events_go_in_few_records_and_each_has_its_outcome() -> None:
    """One call for thousands of them."""
    stream = MemoryStream()

    outcomes = list(producer_on(stream).send_many(events(4_000)))

    assert [type(one) for one in outcomes] == [Sent] * 4_000
    assert [one.counter for one in outcomes if isinstance(one, Sent)][:3] == ["a:1", "a:2", "a:3"]
    assert deltas(stream) == list(range(1, 4_001))
    assert stream.calls == [len(stream.records)]
    assert len(stream.records) < 10


def test_only_what_failed_of_a_call_is_sent_again() -> None:
    """And every outcome belongs to its own event."""
    stream = MemoryStream(faults=[Fault(refused=(1, 3)), Fault(refused=(0,)), None])
    clock = ManualClock()

    outcomes = list(producer_on(stream, clock).send_many(events(4_000)))

    assert stream.calls[1:] == [2, 1]
    assert len(clock.slept_ms) == 2
    assert sorted(map(int, map(str, deltas(stream)))) == list(range(1, 4_001))
    sequences = {one.id: one.sequence for one in outcomes if isinstance(one, Sent)}
    assert len(sequences) == 4_000
    for number, (data, _) in enumerate(stream.records, start=1):
        for payload in unpack(data):
            entry = decode(payload, arrived_ms=NOW_MS, origin=REGION)
            assert sequences[entry.id] == f"{number:056d}"


@pytest.mark.parametrize(
    "fault",
    [
        Fault(error=LOST),
        Fault(error=LOST, applied=True),
        Fault(error=failed("InternalFailure", 500)),
        Fault(error=failed("ProvisionedThroughputExceededException")),
        Fault(applied=True, cut=True),
        Fault(refused=(0,), code="InternalFailure"),
        Fault(error=NOBODY),
    ],
)
def test_a_fault_is_followed_by_the_very_same_entries(fault: Fault) -> None:
    """They are there once or twice under their ids, and the outcomes are of success."""
    stream = MemoryStream(faults=[fault])

    outcomes = list(producer_on(stream).send_many(events(3)))

    assert all(isinstance(one, Sent) for one in outcomes)
    assert deltas(stream) == [1, 2, 3]
    assert len(stream.calls) == 2


@pytest.mark.parametrize("applied", [False, True])
def test_what_stays_without_answer_comes_back_with_its_entry(*, applied: bool) -> None:
    """Sent again by hand it is the same entry."""
    stream = MemoryStream(faults=[Fault(error=LOST, applied=applied)] * 8)
    producer = producer_on(stream)

    outcomes = list(producer.send_many(events(2)))
    lost = [one for one in outcomes if isinstance(one, Unacknowledged)]
    sent = [producer.resend(one.entry) for one in lost]

    assert len(stream.calls) == 8 + 2
    assert [one.id for one in sent] == [one.entry.id for one in lost]
    assert deltas(stream) == [1, 2]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (failed("AccessDeniedException"), AccessDenied),
        (failed("ResourceNotFoundException"), SetupError),
        (NOBODY, Unreachable),
    ],
)
def test_what_concerns_every_event_is_raised(
    error: Exception, kind: type[CountledgerError]
) -> None:
    """Nothing was sent, and none of it needs to be sent again under its old id."""
    stream = MemoryStream(faults=[Fault(error=error)] * 8)

    with pytest.raises(kind):
        list(producer_on(stream).send_many(events(2)))

    assert stream.records == []


def test_an_error_behind_a_lost_answer_hands_the_entries_back() -> None:
    """The lost call may have got through."""
    denied = Fault(error=failed("AccessDeniedException"))
    stream = MemoryStream(faults=[Fault(error=LOST, applied=True), denied])

    outcomes = list(producer_on(stream).send_many(events(2)))

    assert [type(one) for one in outcomes] == [Unacknowledged] * 2


def test_what_may_be_in_the_stream_comes_back_before_what_concerns_every_event() -> None:
    """The answer of one call is lost, and the next is denied: those of the first may have it."""
    denied = Fault(error=failed("AccessDeniedException"))
    stream = MemoryStream(faults=[*[Fault(error=LOST, applied=True)] * 8, denied])
    large = [Event("c" * 500, n, note={"n": "x" * 1_000}) for n in range(1, 4_097)]
    outcomes: list[object] = []

    with pytest.raises(AccessDenied):
        outcomes.extend(producer_on(stream).send_stream(large))

    back = [one.entry.delta for one in outcomes if isinstance(one, Unacknowledged)]
    assert len(outcomes) == len(large)
    assert back == deltas(stream)


def test_a_list_hides_nothing_that_may_be_in_the_stream() -> None:
    """All is sent when it returns; what was stopped has the reason as its outcome."""
    lost, denied = Fault(error=LOST, applied=True), Fault(error=failed("AccessDeniedException"))
    stream = MemoryStream(faults=[*[lost] * 8, denied])
    large = [Event("c" * 500, n, note={"n": "x" * 1_000}) for n in range(1, 5_001)]

    outcomes = producer_on(stream).send_many(large)

    assert len(outcomes) == len(large)
    back = [one.entry.delta for one in outcomes if isinstance(one, Unacknowledged)]
    assert back == deltas(stream)
    assert all(isinstance(one, AccessDenied) for one in outcomes[len(back) :])


def test_all_is_sent_when_it_returns() -> None:
    """Nobody has to look at the outcomes; the form that streams sends only while iterated."""
    stream = MemoryStream()
    producer = producer_on(stream)

    producer.send_many(events(10))
    assert deltas(stream) == list(range(1, 11))
    assert next(producer.send_stream([Event("a:b", 77)]))
    producer.send_stream([Event("a:b", 78)])
    assert deltas(stream) == [*range(1, 11), 77]


def test_a_process_that_stands_still_for_too_long_sends_nothing_more() -> None:
    """A bare key counts as made when its record arrives: hours later it would be another one."""
    clock = ManualClock()

    class Frozen(MemoryStream):
        def put_records(self, **call: Any) -> dict[str, Any]:  # noqa: ANN401 - handed on
            clock.at_ms += HORIZON_MIN_MS
            leave()
            return MemoryStream.put_records(self, **call)

    stream = Frozen()
    (outcome,) = producer_on(stream, clock).send_many([Event("a:b", 1, "key")])

    assert isinstance(outcome, Unacknowledged)
    assert stream.records == []


def test_a_refused_resend_is_raised() -> None:
    """It is one entry: an error of its own."""
    stream = MemoryStream(faults=[Fault(refused=(0,))] * 8)
    (outcome,) = producer_on(stream).send_many(events(1))
    assert isinstance(outcome, Unacknowledged)
    stream.faults = [Fault(error=failed("AccessDeniedException"))]

    with pytest.raises(AccessDenied):
        producer_on(stream).resend(outcome.entry)


@given(st.lists(st.lists(st.integers(0, 9), max_size=10), max_size=12))
def test_no_pattern_of_refusals_loses_or_mixes_up_an_event(refusals: list[list[int]]) -> None:
    """An outcome of success is in the stream; all others come back with their entries."""
    stream = MemoryStream(faults=[Fault(refused=tuple(one)) for one in refusals])
    made = [Event("c" * 500, number) for number in range(1, 401)]

    outcomes = list(producer_on(stream).send_many(made))

    assert len(outcomes) == len(made)
    sent = [e.delta for e, one in zip(made, outcomes, strict=True) if isinstance(one, Sent)]
    back = [one.entry.delta for one in outcomes if isinstance(one, Unacknowledged)]
    assert sorted(map(int, sent + back)) == list(range(1, 401))
    assert sorted(map(str, deltas(stream))) == sorted(map(str, sent))
