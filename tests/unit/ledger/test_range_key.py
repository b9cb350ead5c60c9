"""The key of a range of another system's records."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.ledger.errors import BadDelta, BadKey, BadTime
from countledger.ledger.ids import IdempotencyKey, RangeKey, id_of_key
from countledger.ledger.limits import KEY_MAX_BYTES
from countledger.ledger.texts import broken_rule
from countledger.producers.buffer.sending import may_coalesce
from countledger.producers.buffer.spool import decode_row, encode_row
from countledger.producers.event import Event, make_entry
from countledger.producers.kinesis import decode, encode
from tests.unit.ledger.clocks import NOW_MS

_AT = datetime(2030, 1, 31, 12, 0, tzinfo=UTC)
_POSITIONS = st.integers(0, 10**128 - 1)
_SOURCES = st.text(
    st.characters(exclude_categories=["C", "Zl", "Zp"]), min_size=1, max_size=766 // 4
).filter(lambda text: broken_rule(text, 766) is None)


def _id(key: RangeKey) -> str:
    event = Event("likes:post-1", 7, key=key, events=3)
    entry = make_entry(event, now_ms=NOW_MS, origin="eu-west-1", new_id=lambda _: "random")
    assert entry.events == 3
    return entry.id


@pytest.mark.parametrize(
    ("key", "text", "entry_id"),
    [
        (RangeKey("topic-1/0", 0, 999), "topic-1/0#0-999", "k388430f92360b526844949d661b2aad9"),
        (
            RangeKey("topic-1/0", 0, 999, at=_AT),
            IdempotencyKey("topic-1/0#0-999", _AT),
            "01b977d7-aa00-8dd0-9d49-67090885a170",
        ),
    ],
    ids=["without a time", "with a time"],
)
def test_ids_of_ranges_never_change(
    key: RangeKey, text: str | IdempotencyKey, entry_id: str
) -> None:
    """Never edit these vectors: a replay after an upgrade has to meet the earlier entry."""
    assert key.idempotency_key() == text
    assert _id(key) == id_of_key(text) == entry_id


@given(st.lists(st.tuples(_SOURCES, _POSITIONS, _POSITIONS), min_size=2, max_size=2, unique=True))
def test_other_ranges_have_other_keys_of_valid_size(parts: list[tuple[str, int, int]]) -> None:
    keys = [RangeKey(source, min(ends), max(ends)) for source, *ends in parts]
    texts = [str(key.idempotency_key()) for key in keys]

    assert (texts[0] == texts[1]) == (keys[0] == keys[1])
    assert all(len(text.encode()) <= KEY_MAX_BYTES for text in texts)


@pytest.mark.parametrize(
    ("source", "first", "last", "reason"),
    [
        ("", 0, 1, "empty"),
        ("a\n", 0, 1, "control characters"),
        ("é" * 384, 0, 1, "768 bytes long; at most 766"),
        ("a", -1, 1, "first -1"),
        ("a", True, 1, "first True"),
        ("a", 0, 1.0, r"last 1\.0"),
        ("a", 0, 10**128, "128 digits"),
        ("a", 2, 1, "last is before first"),
    ],
)
def test_what_is_no_range_is_refused(source: str, first: int, last: int, reason: str) -> None:
    with pytest.raises(BadKey, match=reason):
        RangeKey(source, first, last)


def test_a_naive_time_is_refused() -> None:
    with pytest.raises(BadTime):
        RangeKey("a", 0, 1, at=_AT.replace(tzinfo=None))


@pytest.mark.parametrize("events", [0, -1, True, 1.0, 10**9 + 1])
def test_a_delta_sums_a_possible_number_of_events(events: int) -> None:
    with pytest.raises(BadDelta, match="1 to 1,000,000,000 events"):
        Event("likes:post-1", 1, events=events)


@pytest.mark.parametrize("at", [None, _AT], ids=["without a time", "with a time"])
def test_a_range_is_the_same_through_a_spool_and_through_kinesis(at: datetime | None) -> None:
    """And carries its number of events; a coalescing buffer does not add to it."""
    event = Event("likes:post-1", 7, key=RangeKey('"' * 766, 0, 10**128 - 1, at), events=10**9)
    entry = make_entry(event, now_ms=NOW_MS, origin="eu-west-1", new_id=lambda _: "random")

    assert not may_coalesce(event)
    assert decode_row(1, encode_row(entry.counter, entry.delta, entry)).entry == entry
    assert decode(encode(entry), arrived_ms=NOW_MS, origin="eu-west-1") == entry
