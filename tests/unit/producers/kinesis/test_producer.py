"""The producer: one outcome for each event, whatever becomes of its record."""

from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError
from hypothesis import given, settings
from hypothesis import strategies as st

from countledger.ledger.departure import leave
from countledger.ledger.errors import (
    AccessDenied,
    CountledgerError,
    SetupError,
    Unacknowledged,
    Unreachable,
)
from countledger.ledger.limits import HORIZON_MIN_MS
from countledger.producers.event import Event
from countledger.producers.kinesis import Sent, decode, unpack_record
from tests.transport.proof import refused_connection
from tests.unit.ledger.clocks import NOW_MS, ManualClock
from tests.unit.producers.kinesis.streams import (
    ARN,
    REGION,
    Fault,
    MemoryStream,
    deltas,
    producer_on,
)


def failed(code: str, status: int = 400) -> ClientError:
    return ClientError(
        {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}},  # type: ignore[typeddict-item]
        "PutRecords",
    )


TIMEOUT = ReadTimeoutError(endpoint_url="https://kinesis")
NOBODY = EndpointConnectionError(endpoint_url="https://kinesis", error=refused_connection())
APPLIED = Fault(error=TIMEOUT, applied=True)
DENIED = Fault(error=failed("AccessDeniedException"))


def events(count: int) -> list[Event]:
    return [Event(f"a:{number % 7}", number) for number in range(1, count + 1)]


def large(count: int) -> list[Event]:
    """Some of them fill a call."""
    return [Event("c" * 500, n, note={"n": "x" * 1_000}) for n in range(1, count + 1)]


def handed_back(outcomes: list[Any]) -> list[object]:
    return [one.entry.delta for one in outcomes if isinstance(one, Unacknowledged)]


def test_thousands_of_events_go_in_one_call_of_few_records() -> None:
    stream = MemoryStream()

    outcomes = producer_on(stream).send_many(events(4_000))

    assert [type(one) for one in outcomes] == [Sent] * 4_000
    assert deltas(stream) == list(range(1, 4_001))
    assert stream.calls == [len(stream.records)]
    assert len(stream.records) < 10


def test_a_stream_is_named_by_its_arn_as_well() -> None:
    stream = MemoryStream()

    producer_on(stream, name=ARN).send_many(events(1))

    assert deltas(stream) == [1]


def test_only_what_failed_of_a_call_is_sent_again() -> None:
    """And every outcome belongs to its own event."""
    stream = MemoryStream(faults=[Fault(refused=(1, 3)), Fault(refused=(0,)), None])
    clock = ManualClock()

    outcomes = producer_on(stream, clock).send_many(events(4_000))

    assert stream.calls[1:] == [2, 1]
    assert len(clock.slept_ms) == 2
    assert sorted(map(int, map(str, deltas(stream)))) == list(range(1, 4_001))
    sequences = {one.id: one.sequence for one in outcomes if isinstance(one, Sent)}
    assert len(sequences) == 4_000
    for number, (data, _) in enumerate(stream.records, start=1):
        for payload in unpack_record(data).messages:
            entry = decode(payload, arrived_ms=NOW_MS, origin=REGION)
            assert sequences[entry.id] == f"{number:056d}"


@pytest.mark.parametrize(
    "fault",
    [
        Fault(error=TIMEOUT),
        APPLIED,
        Fault(error=failed("InternalFailure", 500)),
        Fault(error=failed("ProvisionedThroughputExceededException")),
        Fault(applied=True, cut=True),
        Fault(refused=(0,), code="InternalFailure"),
        Fault(error=NOBODY),
    ],
)
def test_a_fault_is_followed_by_the_very_same_entries(fault: Fault) -> None:
    stream = MemoryStream(faults=[fault])

    outcomes = producer_on(stream).send_many(events(3))

    assert all(isinstance(one, Sent) for one in outcomes)
    assert deltas(stream) == [1, 2, 3]
    assert len(stream.calls) == 2


@pytest.mark.parametrize("applied", [False, True])
def test_what_stays_without_answer_comes_back_with_its_entry(*, applied: bool) -> None:
    stream = MemoryStream(faults=[Fault(error=TIMEOUT, applied=applied)] * 8)
    producer = producer_on(stream)

    lost = [one for one in producer.send_many(events(2)) if isinstance(one, Unacknowledged)]
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
    stream = MemoryStream(faults=[Fault(error=error)] * 8)

    with pytest.raises(kind):
        producer_on(stream).send_many(events(2))

    assert stream.records == []


def test_an_error_after_a_lost_answer_hands_the_entries_back() -> None:
    stream = MemoryStream(faults=[APPLIED, DENIED])

    outcomes = producer_on(stream).send_many(events(2))

    assert [type(one) for one in outcomes] == [Unacknowledged] * 2


def test_what_may_be_in_the_stream_comes_back_before_what_concerns_every_event() -> None:
    """The answers of one call are lost, and the next call is denied."""
    stream, outcomes = MemoryStream(faults=[*[APPLIED] * 8, DENIED]), list[Any]()

    with pytest.raises(AccessDenied):
        outcomes.extend(producer_on(stream).send_stream(large(4_096)))

    assert len(outcomes) == 4_096
    assert handed_back(outcomes) == deltas(stream)

    stream = MemoryStream(faults=[*[APPLIED] * 8, DENIED])
    listed = list(producer_on(stream).send_many(large(5_000)))

    back = handed_back(listed)
    assert back == deltas(stream)
    assert [type(one) for one in listed[len(back) :]] == [AccessDenied] * (5_000 - len(back))


def test_a_process_that_is_suspended_for_too_long_sends_nothing_more() -> None:
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
    stream = MemoryStream(faults=[Fault(refused=(0,))] * 8)
    (outcome,) = producer_on(stream).send_many(events(1))
    assert isinstance(outcome, Unacknowledged)
    stream.faults = [DENIED]

    with pytest.raises(AccessDenied):
        producer_on(stream).resend(outcome.entry)


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 9), max_size=10), max_size=12))
def test_no_pattern_of_refusals_loses_or_mixes_up_an_event(refusals: list[list[int]]) -> None:
    """An outcome of success is in the stream; all others come back with their entries."""
    stream = MemoryStream(faults=[Fault(refused=tuple(one)) for one in refusals])
    made = [Event("c" * 500, number) for number in range(1, 401)]

    outcomes = list(producer_on(stream).send_many(made))

    sent = [e.delta for e, one in zip(made, outcomes, strict=True) if isinstance(one, Sent)]
    assert sorted(map(int, [*sent, *map(int, map(str, handed_back(outcomes)))])) == [*range(1, 401)]
    assert sorted(map(str, deltas(stream))) == sorted(map(str, sent))
