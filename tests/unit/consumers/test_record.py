"""What one stream record does to a total."""

from decimal import Decimal
from typing import Any

import pytest

from countledger.consumers.record import EntryChange, MalformedRecord, change_of, find, sequence_of
from countledger.consumers.total_writer import fold
from countledger.ledger.limits import STREAM_RECORD_MAX_AGE_MS
from tests.unit.consumers.records import COUNTER, image, record, with_stream
from tests.unit.ledger.clocks import NOW_MS

_UUID = "018bcfe5-6800-7180-a4c0-91067b062169"


def _change_of(one: dict[str, Any]) -> EntryChange | None:
    return change_of(one, sequence_of(one), NOW_MS)


def test_a_modify_adds_the_difference_and_no_entry() -> None:
    modified = record(111, 7, name="MODIFY", old=image(5, 2), events=3)

    assert _change_of(modified) == EntryChange(111, COUNTER, 2, 1, 0)


def test_a_modify_of_something_else_adds_nothing() -> None:
    assert _change_of(record(111, 5, name="MODIFY", old=image(5))) is None


def test_a_long_decimal_is_taken_back_exactly() -> None:
    """A plain minus would round it to 28 digits."""
    old = "0.12345678901234567890123456789012345678"

    change = _change_of(record(111, 1, name="MODIFY", old=image(old)))

    assert change is not None
    assert change.delta == Decimal("0.87654321098765432109876543210987654322")


@pytest.mark.parametrize("name", ["INSERT", "MODIFY", "REMOVE"])
@pytest.mark.parametrize("entry", ["s#head", "settings"])
def test_records_of_other_items_add_nothing(name: str, entry: str) -> None:
    assert _change_of(record(111, name=name, entry=entry)) is None


def test_a_remove_adds_nothing() -> None:
    assert _change_of(with_stream(record(111, name="REMOVE"), NewImage=None)) is None


_GOOD = record(111)
_MALFORMED: list[tuple[dict[str, Any], str]] = [
    (with_stream(_GOOD, Keys=None), "keys"),
    (with_stream(_GOOD, Keys={"counter": {"S": "a"}}), "keys"),
    (with_stream(_GOOD, Keys={"counter": {"N": "1"}, "entry": {"S": "e#"}}), "keys"),
    (with_stream(_GOOD, Keys={"counter": {"S": "a"}, "entry": {"S": 5}}), "keys"),
    (with_stream(_GOOD, Keys={"counter": {"S": ["a"]}, "entry": {"S": f"e#{_UUID}"}}), "keys"),
    (with_stream(_GOOD, Keys="keys"), "keys"),
    ({"dynamodb": _GOOD["dynamodb"]}, "event name"),
    ({**_GOOD, "eventName": "UPSERT"}, "'UPSERT' is unknown"),
    (record(111, entry="x#1"), "'x#1' has an unknown prefix"),
    (record(111, entry=""), "unknown prefix"),
    (record(111, entry="e#not-an-id"), "'e#not-an-id' is malformed"),
    (record(111, entry=f"e#abc{_UUID}"), "malformed"),
    (with_stream(_GOOD, ApproximateCreationDateTime=None), "no creation time"),
    (with_stream(_GOOD, ApproximateCreationDateTime="noon"), "no creation time"),
    (with_stream(_GOOD, ApproximateCreationDateTime=float("inf")), "no creation time"),
    (with_stream(_GOOD, ApproximateCreationDateTime=float("nan")), "no creation time"),
    (with_stream(_GOOD, ApproximateCreationDateTime=1e300), "no creation time"),
    (with_stream(_GOOD, ApproximateCreationDateTime=-1e300), "no creation time"),
    (with_stream(_GOOD, ApproximateCreationDateTime=10**400), "no creation time"),
    (with_stream(_GOOD, NewImage=None), "new image"),
    (with_stream(_GOOD, NewImage=[1]), "new image"),
    (with_stream(_GOOD, NewImage={}), "new image"),
    (with_stream(_GOOD, NewImage={"delta": {"S": "5"}}), "new image"),
    (with_stream(_GOOD, NewImage={"delta": {"N": "five"}}), "new image"),
    (with_stream(_GOOD, NewImage={"delta": {"N": 5}}), "new image"),
    (with_stream(_GOOD, NewImage={"delta": {"N": "NaN"}}), "new image"),
    (with_stream(_GOOD, NewImage={"delta": {"N": "1E1000000"}}), "new image"),
    (with_stream(_GOOD, NewImage=image("1" * 39)), "out of range"),
    (with_stream(_GOOD, NewImage=image("1E+125")), "out of range"),
    (with_stream(_GOOD, NewImage=image(1, -1)), "out of range"),
    (with_stream(_GOOD, NewImage=image(1, 10**38)), "out of range"),
    (with_stream(_GOOD, NewImage=image(1, 10**28 + 1)), "out of range"),
    (with_stream(_GOOD, NewImage={**image(1), "events": {"N": "1.5"}}), "new image"),
    (with_stream(_GOOD, NewImage={**image(1), "events": {"S": "1"}}), "new image"),
    (with_stream(_GOOD, NewImage={**image(1), "events": {"N": float("inf")}}), "new image"),
    (with_stream(_GOOD, NewImage={**image(1), "events": {"N": 1.5}}), "new image"),
    (with_stream(_GOOD, NewImage={"delta": {"N": float("inf")}}), "new image"),
    (with_stream(_GOOD, NewImage={**image(1), "v": {"N": "2"}}), "format"),
    (with_stream(_GOOD, NewImage={**image(1), "v": {"S": "1"}}), "format"),
    (record(111, name="MODIFY"), "old image"),
    (record(111, name="MODIFY", old={}), "old image"),
]


@pytest.mark.parametrize(("malformed", "reason"), _MALFORMED)
def test_a_malformed_record_is_malformed_with_its_reason(
    malformed: dict[str, Any], reason: str
) -> None:
    with pytest.raises(MalformedRecord, match=reason):
        _change_of(malformed)

    folded = fold([record(110), malformed, record(112)], NOW_MS)
    assert [change.sequence for change in folded.changes[COUNTER]] == [110, 112]
    assert [rejected.record for rejected in folded.rejected] == [malformed]


@pytest.mark.parametrize(
    "unnumbered",
    [
        None,
        "text",
        {},
        {"dynamodb": None},
        {"dynamodb": {}},
        with_stream(_GOOD, SequenceNumber=5),
        with_stream(_GOOD, SequenceNumber="5x"),
        with_stream(_GOOD, SequenceNumber="-5"),
        with_stream(_GOOD, SequenceNumber=""),
        with_stream(_GOOD, SequenceNumber="1" * 41),
        with_stream(_GOOD, SequenceNumber=["5"]),
    ],
)
def test_a_record_without_sequence_number_is_malformed(unnumbered: Any) -> None:  # noqa: ANN401
    with pytest.raises(MalformedRecord, match="sequence number"):
        sequence_of(unnumbered)

    folded = fold([unnumbered, record(112)], NOW_MS)
    assert len(folded.rejected) == 1
    assert folded.rejected[0].sequence is None
    assert folded.last_sequence == "112"


@pytest.mark.parametrize("events", [0, 10**28])
def test_a_number_of_events_at_its_bounds_counts(events: int) -> None:
    at_bound = with_stream(_GOOD, NewImage=image(5, events))

    assert _change_of(at_bound) == EntryChange(111, COUNTER, 5, events, 1)


def test_the_format_that_this_release_writes_may_be_spelled_out() -> None:
    spelled = with_stream(_GOOD, NewImage={**image(5), "v": {"N": "1"}})

    assert _change_of(spelled) == EntryChange(111, COUNTER, 5, 1, 1)


def test_a_record_older_than_a_stream_keeps_them_is_never_applied() -> None:
    assert _change_of(record(111, age_ms=STREAM_RECORD_MAX_AGE_MS)) is not None
    with pytest.raises(MalformedRecord, match="older than the stream's retention"):
        _change_of(record(111, age_ms=STREAM_RECORD_MAX_AGE_MS + 1000))


def test_a_record_is_found_by_its_number_among_malformed_ones() -> None:
    wanted = record(112)

    assert find([{}, record(111), wanted], 112) is wanted
    with pytest.raises(LookupError, match="113"):
        find([{}, wanted], 113)
