"""What a record of the stream of `counters` says of a total, and what can be evaluated of it."""

from decimal import Decimal
from typing import Any

import pytest

from countledger.consumers.alerts.crossing import (
    TotalChange,
    is_publishable,
    total_change_of,
)
from countledger.consumers.record import MalformedRecord, sequence_of
from countledger.ledger.limits import HOUR_MS
from tests.unit.alerts.evaluating import START_MS, record
from tests.unit.consumers.records import with_stream
from tests.unit.ledger.clocks import NOW_MS

STRICT = {"method": {"S": "atomic"}, "incarnation": {"S": "m"}}


def _change(of: dict[str, Any], now_ms: int = NOW_MS) -> TotalChange | None:
    return total_change_of(of, sequence_of(of), now_ms)


def _image(more: dict[str, Any] | None = None, **numbers: object) -> dict[str, object]:
    return {name: {"N": str(value)} for name, value in numbers.items()} | (more or {})


def _put(number: int, **images: object) -> dict[str, Any]:
    """An item that is put for the first time, or a change of it."""
    first = "OldImage" not in images
    return with_stream(record(number, None if first else 3, 5), **images)


_SEQUENCE = {"method": {"S": "sequence"}}
_SPREAD = _image(STRICT, version=9, bins=3)
_LISTED = {"counter": {"S": "strict#default"}, "part": {"S": "total"}}


_CHANGES: dict[str, tuple[dict[str, Any], int, int]] = {
    "the first total of a ledger": (record(1, None, 5), 0, 5),
    "the first draw of a sequence": (
        _put(1, NewImage=_image(_SEQUENCE, total=1_000, version=1)),
        0,
        1_000,
    ),
    "a strict counter": (
        _put(
            2,
            NewImage=_image(STRICT, total=5, version=9),
            OldImage=_image(STRICT, total=3, version=8),
        ),
        3,
        5,
    ),
    "a sequence": (
        _put(2, NewImage=_image(total=5, version=9), OldImage=_image(total=3, version=8)),
        3,
        5,
    ),
}


@pytest.mark.parametrize(("of", "old", "new"), _CHANGES.values(), ids=_CHANGES)
def test_a_total_of_every_kind_changes_from_one_value_to_another(
    of: dict[str, Any], old: int, new: int
) -> None:
    found = _change(of)

    assert found is not None
    assert (found.old, found.new) == (old, new)


_NO_CHANGES = {
    "the same amount is held": record(3, 5, 5, held={"N": "2"}),
    "the same total": record(3, 5, 5),
    "a mark of the due index": record(3, 5, 5, due_at={"N": "1"}),
    "a total that is removed": {**record(3, 5, 0), "eventName": "REMOVE"},
    "another item": with_stream(
        record(3, 3, 5), Keys={"counter": {"S": "a"}, "part": {"S": "alert#x"}}
    ),
    "a strict counter is created": _put(1, NewImage=_image(STRICT, total=50, version=17 * 10**11)),
    "a sequence is created": _put(1, NewImage=_image(_SEQUENCE, total=41, version=1, first=42)),
    "a ranked total that was never recorded": _put(
        1, NewImage=_image(total=0, events=0, entries=0, version=0)
    ),
    "the directory entry of a counter called total": _put(
        1, Keys=_LISTED, NewImage={**_LISTED, "incarnation": {"S": "m"}}
    ),
    "a counter with bins": _put(2, NewImage=_SPREAD, OldImage=_SPREAD),
    "a counter with bins is created": _put(2, NewImage=_SPREAD),
}


@pytest.mark.parametrize("of", _NO_CHANGES.values(), ids=_NO_CHANGES)
def test_what_changes_no_total_sets_nothing_off(of: dict[str, Any]) -> None:
    assert _change(of) is None


def _corrupt(which: str = "NewImage", **changed: object) -> dict[str, Any]:
    whole = record(3, 3, 5)
    image = {**whole["dynamodb"][which], **changed}
    return with_stream(whole, **{which: {n: v for n, v in image.items() if v is not None}})


@pytest.mark.parametrize(
    ("malformed", "reason"),
    [
        (with_stream(record(3, 3, 5), SequenceNumber="abc"), "no sequence number"),
        (with_stream(record(3, 3, 5), Keys=None), "lacks its keys"),
        (with_stream(record(3, 3, 5), Keys={"counter": {"S": 1}, "part": {"S": "t"}}), "not texts"),
        ({**record(3, 3, 5), "eventName": "UPSERT"}, "'UPSERT' is unknown"),
        (with_stream(record(3, 3, 5), NewImage=None), "has no NewImage"),
        (with_stream(record(3, 3, 5), OldImage=None), "has no OldImage"),
        (with_stream(record(3, 3, 5), ApproximateCreationDateTime=None), "no creation time"),
        (_corrupt(total=None), "no well-formed total"),
        (_corrupt(total={"S": "5"}), "no well-formed total"),
        (_corrupt(total={"N": "NaN"}), "no well-formed total"),
        (_corrupt("OldImage", total=None), "no well-formed total"),
        (_corrupt(version=None), "no well-formed version"),
        (_corrupt(version={"N": "1.5"}), "no well-formed version"),
        (_corrupt(version={"N": float("inf")}), "no well-formed version"),
        (_corrupt(version={"N": 1.5}), "no well-formed version"),
        (_corrupt(total={"N": float("inf")}), "no well-formed total"),
        (with_stream(record(3, 3, 5), ApproximateCreationDateTime=1e300), "no creation time"),
        (_corrupt(version={"N": "0"}), "out of range"),
        (_corrupt(version={"N": str(2**53)}), "out of range"),
        (_corrupt(total={"N": "1E+77"}), "no message of an alert holds"),
        (_corrupt(total={"N": "-1E+125"}), "no message of an alert holds"),
        (_corrupt("OldImage", total={"N": "1E-39"}), "no message of an alert holds"),
        (_corrupt(v={"N": "2"}), "this release reads 1"),
    ],
)
def test_p8_a_record_that_cannot_be_understood_is_malformed(
    malformed: dict[str, Any], reason: str
) -> None:
    with pytest.raises(MalformedRecord, match=reason):
        _change(malformed)


@pytest.mark.parametrize("value", ["9" * 38 + "0" * 39, "-" + "9" * 38, "1E-38", "-1.5E-37"])
def test_whatever_a_total_may_sum_up_to_is_evaluated(value: str) -> None:
    found = _change(_corrupt(total={"N": value}, version={"N": str(2**53 - 1)}))

    assert found is not None
    assert (found.new, found.version) == (Decimal(value), 2**53 - 1)


def test_a_record_older_than_the_stream_keeps_is_malformed() -> None:
    """The rules of its time may be gone."""
    at_last = START_MS + 30 * HOUR_MS

    assert _change(record(3, 3, 5), at_last) is not None
    with pytest.raises(MalformedRecord, match="older than a stream keeps"):
        _change(record(3, 3, 5), at_last + 1)


@pytest.mark.parametrize(
    ("version", "tellable"), [(-1, False), (0, True), (2**53 - 1, True), (2**53, False)]
)
def test_a_version_fits_a_json_number_exactly(version: int, tellable: bool) -> None:  # noqa: FBT001
    assert is_publishable(5, version) is tellable
