"""What a record of the stream of `counters` says of a total, and what can be evaluated of it."""

from __future__ import annotations

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


def _image(**attributes: object) -> dict[str, object]:
    return {name: {"N": str(value)} for name, value in attributes.items()}


def test_an_update_moves_from_the_old_total_to_the_new_one() -> None:
    """With the version behind it and the stream's own time."""
    assert _change(record(7, 3, Decimal("4.5"), at_s=2)) == TotalChange(
        10**20 + 7, "a:b", 3, Decimal("4.5"), 7, START_MS + 2_000
    )


def test_the_first_total_of_a_ledger_comes_from_zero() -> None:
    """There was none before."""
    found = _change(record(1, None, 5))

    assert found is not None
    assert (found.old, found.new) == (0, 5)


@pytest.mark.parametrize(
    "made",
    [
        {"total": {"N": "50"}, "version": {"N": "1700000000000"}, **STRICT},
        {**_image(total=41, version=1, first=42), "method": {"S": "sequence"}},
    ],
    ids=["strict", "sequence"],
)
def test_the_making_of_any_other_counter_crosses_nothing(made: dict[str, Any]) -> None:
    """It opens with the value that it was given."""
    assert _change(with_stream(record(1, None, 5), NewImage=made)) is None


def test_the_first_draw_of_a_sequence_comes_from_zero() -> None:
    """It makes the sequence and takes numbers in one write."""
    drawn = {**_image(total=1_000, version=1), "method": {"S": "sequence"}}

    found = _change(with_stream(record(1, None, 5), NewImage=drawn))

    assert found is not None
    assert (found.old, found.new) == (0, 1_000)


def test_a_ranked_total_that_was_never_recorded_is_no_move() -> None:
    """A ledger counter of a ranked group has a total of zero, and no version yet."""
    ranked = _image(total=0, events=0, entries=0, version=0)

    assert _change(with_stream(record(1, None, 5), NewImage=ranked)) is None


def test_the_directory_entry_of_a_counter_called_total_is_no_total() -> None:
    """Its sort key is that of a total."""
    listed = {"counter": {"S": "strict#default"}, "part": {"S": "total"}}
    item = {**listed, "incarnation": {"S": "m"}}

    assert _change(with_stream(record(1, None, 5), Keys=listed, NewImage=item)) is None


@pytest.mark.parametrize("more", [STRICT, {}], ids=["strict", "sequence"])
def test_a_change_of_any_other_counter_is_a_move(more: dict[str, Any]) -> None:
    """Old total, new total, version: it is all alike."""
    found = _change(
        with_stream(
            record(2, 3, 5),
            NewImage={**_image(total=5, version=9), **more},
            OldImage={**_image(total=3, version=8), **more},
        )
    )

    assert found is not None
    assert (found.old, found.new, found.version) == (3, 5, 9)


def test_a_counter_with_bins_is_never_evaluated() -> None:
    """Its total lies in many items."""
    spread = {**_image(version=9, bins=3), **STRICT}

    assert _change(with_stream(record(2, 3, 5), NewImage=spread, OldImage=spread)) is None
    assert _change(with_stream(record(2, None, 5), NewImage=spread)) is None


@pytest.mark.parametrize(
    "still",
    [
        record(3, 5, 5),
        record(3, 5, 5, due_at={"N": "1"}),
        {**record(3, 5, 0), "eventName": "REMOVE"},
        with_stream(record(3, 3, 5), Keys={"counter": {"S": "a"}, "part": {"S": "alert#x"}}),
    ],
    ids=["same total", "mark of the due index", "removed", "another item"],
)
def test_what_moves_no_total_is_no_move(still: dict[str, Any]) -> None:
    """Whatever else changed in the item: compaction, marks, watermarks."""
    assert _change(still) is None


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
    """With a reason that a person can act on."""
    with pytest.raises(MalformedRecord, match=reason):
        _change(malformed)


@pytest.mark.parametrize("value", ["9" * 38 + "0" * 39, "-" + "9" * 38, "1E-38", "-1.5E-37"])
def test_whatever_a_total_may_sum_up_to_is_evaluated(value: str) -> None:
    """More digits than one entry has, and the last place that one has."""
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
    """Readers of a message may hold numbers as doubles."""
    assert is_publishable(5, version) is tellable
