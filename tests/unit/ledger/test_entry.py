"""Entries: their stored form, and how old they may be."""

from contextlib import nullcontext
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.ledger.attributes import Item, decode, encode
from countledger.ledger.entry import Entry, check_age, decode_entry, encode_entry
from countledger.ledger.errors import BadTime, ClockSkew, CorruptItem, KeyExpired, NewerFormat
from countledger.ledger.exact import NO_HEAD, Covered, Head, decode_head
from countledger.ledger.ids import id_of_key, new_id
from countledger.ledger.limits import CLOCK_SKEW_DEFAULT_MS, HORIZON_DEFAULT_MS
from countledger.ledger.total import Total, decode_total
from tests.unit.ledger.clocks import NOW_MS

_DELTAS = st.one_of(
    st.integers(-(10**38) + 1, 10**38 - 1).filter(bool),
    st.decimals("-1e18", "1e18", places=9).filter(lambda d: d != d.to_integral_value()),
)
_TEXTS = st.text(max_size=20)
_ENTRIES = st.builds(
    Entry,
    counter=st.text(min_size=1, max_size=20),
    id=st.one_of(st.builds(id_of_key, st.text(min_size=1)), st.builds(new_id, st.just(NOW_MS))),
    delta=_DELTAS.map(lambda d: d if isinstance(d, int) else d.normalize()),
    at_ms=st.integers(0, 1 << 47),
    origin=_TEXTS,
    events=st.integers(1, 1000),
    key=st.none() | st.text(min_size=1, max_size=20),
    note=st.none() | st.dictionaries(st.text(min_size=1), _TEXTS, min_size=1, max_size=3),
    occurred_at_ms=st.none() | st.integers(-(10**13), 10**13),
)


def _stored(entry: Entry, spread: int) -> Item:
    return decode(encode(encode_entry(entry, spread)))


@given(_ENTRIES, st.sampled_from([1, 16, 256]))
def test_an_entry_is_stored_and_read_as_it_is(entry: Entry, spread: int) -> None:
    assert decode_entry(_stored(entry, spread)) == entry


def _entry(**changed: Any) -> Entry:  # noqa: ANN401 - of any attribute
    known = {"counter": "a:b", "id": id_of_key("k"), "delta": 5, "at_ms": NOW_MS, "origin": "r"}
    return Entry(**{**known, **changed})


def test_a_plain_entry_stores_nothing_that_goes_without_saying() -> None:
    """One event, no key, no note: five attributes; an entry stays one write unit."""
    assert _stored(_entry(), 1).keys() == {"counter", "entry", "delta", "at", "origin"}


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("delta", None, CorruptItem),
        ("delta", "5", CorruptItem),
        ("delta", True, CorruptItem),
        ("at", None, CorruptItem),
        ("at", Decimal("1.5"), CorruptItem),
        ("at", "now", CorruptItem),
        ("origin", None, CorruptItem),
        ("entry", "s#head", CorruptItem),
        ("entry", "e#x", CorruptItem),
        ("events", "1", CorruptItem),
        ("key", 5, CorruptItem),
        ("note", "text", CorruptItem),
        ("occurred_at", "noon", CorruptItem),
        ("v", 2, NewerFormat),
        ("v", "1", NewerFormat),
    ],
)
def test_an_item_that_is_no_entry_is_called_so(
    name: str, value: object, error: type[CorruptItem]
) -> None:
    item = {n: v for n, v in {**_stored(_entry(), 1), name: value}.items() if v is not None}

    with pytest.raises(error, match="a:b") as corrupt:
        decode_entry(item)

    assert type(corrupt.value) is error


_TOO_OLD = HORIZON_DEFAULT_MS + 1


@pytest.mark.parametrize(
    ("age_ms", "key", "error", "says"),
    [
        (0, None, None, ""),
        (HORIZON_DEFAULT_MS, None, None, ""),
        (_TOO_OLD, "k", KeyExpired, r"'k'.*'a:b' was made .*horizon of 24 h.*change log"),
        (_TOO_OLD, None, KeyExpired, f"entry {id_of_key('k')} of"),
        (-CLOCK_SKEW_DEFAULT_MS, None, None, ""),
        (-CLOCK_SKEW_DEFAULT_MS - 1, None, ClockSkew, "dated 60001 ms ahead; clocks may differ by"),
    ],
)
def test_an_entry_is_written_within_horizon_and_skew(
    age_ms: int, key: str | None, error: type[Exception] | None, says: str
) -> None:
    with pytest.raises(error, match=says) if error else nullcontext():
        check_age(
            _entry(at_ms=NOW_MS - age_ms, key=key),
            now_ms=NOW_MS,
            horizon_ms=HORIZON_DEFAULT_MS,
            clock_skew_ms=CLOCK_SKEW_DEFAULT_MS,
        )


def test_moments_of_an_entry_are_in_utc() -> None:
    """A time that no calendar holds is called so."""
    assert _entry().at.isoformat() == "2030-03-17T17:46:40+00:00"
    assert _entry().occurred_at is None
    with pytest.raises(BadTime, match="outside the years"):
        _ = _entry(at_ms=10**18).at


_HEAD = {
    "counter": "a:b",
    "entry": "s#head",
    "generation": 3,
    "run": "run-1",
    "incarnation": "run-0",
    "sum": Decimal("1.5"),
    "events": 7,
    "entries": 5,
    "from_at": 1,
    "to_at": 2,
    "covers": {"e#x": 2, "e#y": Decimal("-0.5")},
}


def test_a_head_is_read_as_it_is_stored() -> None:
    assert decode_head(dict(_HEAD)) == Head(
        generation=3,
        run="run-1",
        incarnation="run-0",
        sum=Decimal("1.5"),
        events=7,
        entries=5,
        from_at_ms=1,
        to_at_ms=2,
        covers={"e#x": Covered(2), "e#y": Covered(Decimal("-0.5"))},
    )
    assert decode_head({**_HEAD, "covers": {}}).covers == {}
    assert decode_head(None) == NO_HEAD
    assert (NO_HEAD.generation, NO_HEAD.sum, dict(NO_HEAD.covers)) == (0, 0, {})


@pytest.mark.parametrize(
    "name", ["generation", "run", "incarnation", "sum", "events", "entries", "covers"]
)
@pytest.mark.parametrize("value", [None, [1]])
def test_an_item_that_is_no_head_is_called_so(name: str, value: object) -> None:
    """Taken for an empty one, the sum would be wrong."""
    with pytest.raises(CorruptItem, match=name):
        decode_head({**_HEAD, name: value})
    with pytest.raises(NewerFormat):
        decode_head({**_HEAD, "v": 2})
    with pytest.raises(CorruptItem, match="covers"):
        decode_head({**_HEAD, "covers": {"e#x": "2"}})


def test_a_total_is_read_as_it_is_stored() -> None:
    item = {"counter": "a:b", "part": "total", "total": 5, "events": 2, "entries": 1, "version": 3}

    assert decode_total({**item, "updated_at": NOW_MS, "wx": b"1"}) == Total(
        "a:b", 5, 2, 1, 3, NOW_MS
    )
    assert decode_total(item).updated_at is None
    with pytest.raises(CorruptItem, match="version"):
        decode_total({**item, "version": "3"})
    with pytest.raises(NewerFormat):
        decode_total({**item, "v": 2})
