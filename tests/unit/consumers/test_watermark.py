"""Watermarks: bytes that compare like the numbers they hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.consumers import progress
from countledger.ledger.limits import MINUTE_MS, STREAM_RECORD_MAX_AGE_MS, WATERMARK_LIFE_MS
from tests.unit.ledger.clocks import NOW_MS

_SEQUENCES = st.integers(0, 10**40 - 1)
_TIMES_MS = st.integers(0, 1 << 47)


@given(mark=_SEQUENCES, first=_SEQUENCES, moved_ms=_TIMES_MS)
def test_a_watermark_lies_below_a_floor_exactly_if_its_number_does(
    mark: int, first: int, moved_ms: int
) -> None:
    assert (progress.encode(mark, moved_ms) < progress.floor(first)) == (mark < first)


@given(sequence=_SEQUENCES, moved_ms=_TIMES_MS)
def test_a_watermark_holds_its_number(sequence: int, moved_ms: int) -> None:
    item = {progress.attribute("s"): progress.encode(sequence, moved_ms)}

    assert progress.sequence_in(item, "s") == sequence
    assert progress.sequence_in(item, "another") is None
    assert progress.sequence_in(None, "s") is None


def test_the_stored_form_never_changes() -> None:
    """Read by another release as another number, it would let records count twice."""
    assert progress.attribute("2030-01-31T12:00:00.000/shardId-000000017") == "w79ffmGF6Q45_"
    assert progress.encode(100_000_000_000_000_012_345, NOW_MS).hex() == (
        "0000000000000000056bc75e2d6310303901e331ea"
    )


@given(shards=st.sets(st.text(max_size=40), min_size=2, max_size=20))
def test_every_shard_has_an_attribute_of_its_own(shards: set[str]) -> None:
    names = {progress.attribute(shard) for shard in shards}

    assert len(names) == len(shards)
    assert {len(name) for name in names} == {13}


def test_a_watermark_is_stale_when_nothing_it_refuses_can_come_any_more() -> None:
    """After 48 hours; records are applied for 30 hours at the most."""
    fresh = progress.encode(1, NOW_MS - WATERMARK_LIFE_MS)
    stale = progress.encode(2, NOW_MS - WATERMARK_LIFE_MS - MINUTE_MS)
    item = {
        "counter": "a:b",
        "wfresh": fresh,
        "wstale": stale,
        "wrong": "text",
        "total": 5,
        "other": stale,
    }

    assert progress.stale(item, NOW_MS) == {"wstale": stale}
    assert WATERMARK_LIFE_MS - MINUTE_MS > STREAM_RECORD_MAX_AGE_MS


@pytest.mark.parametrize("shards", [1, 8, 20])
def test_a_total_with_many_shards_stays_within_one_write_unit(shards: int) -> None:
    size = sum(
        len(progress.attribute(str(n))) + len(progress.encode(n, NOW_MS)) for n in range(shards)
    )

    assert size == 34 * shards
    assert size + 200 < 1024
