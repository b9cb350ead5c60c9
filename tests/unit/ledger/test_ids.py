"""The identity of entries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.ledger import keys, texts
from countledger.ledger.errors import BadKey, BadTime
from countledger.ledger.ids import IdempotencyKey, check_key, id_of_key, new_id, new_ids
from tests.unit.ledger.clocks import NOW_MS

_AT = datetime(2030, 1, 31, 12, 0, 0, 123_000, tzinfo=UTC)
_MOMENTS_MS = st.integers(0, 4_000_000_000_000)


def _timed(key: str, at_ms: int) -> IdempotencyKey:
    return IdempotencyKey(key, datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at_ms))


@pytest.mark.parametrize(
    ("key", "entry_id"),
    [
        ("order-1", "kd593a9f57921fa87fb828e3fb20c3130"),
        ("x", "kb3fe1382d797cf48ef73a4dbb16f14a4"),
        ("日本語 \U0001f600", "k010065bd30c61fe05f8a477ce9b6cd10"),
        (IdempotencyKey("order-1", _AT), "01b977d7-aa7b-8560-a289-542ffca061f0"),
        (
            IdempotencyKey("order-1", datetime(1970, 1, 1, tzinfo=UTC)),
            "00000000-0000-87a7-b132-a0a2ce0a2572",
        ),
        (IdempotencyKey("日本語 \U0001f600", _AT), "01b977d7-aa7b-8234-b3ec-aca42a6e4a9b"),
    ],
)
def test_ids_of_keys_never_change(key: str | IdempotencyKey, entry_id: str) -> None:
    """Never edit these vectors.

    A retry after an upgrade has to meet the entry of the release before it. If the same key gave
    another id, it would be another entry, and every retry in flight would count twice.
    """
    assert id_of_key(key) == entry_id


@pytest.mark.parametrize(
    ("spread", "sort_key"),
    [
        (1, "e#kd593a9f57921fa87fb828e3fb20c3130"),
        (16, "e#0kd593a9f57921fa87fb828e3fb20c3130"),
        (256, "e#0fkd593a9f57921fa87fb828e3fb20c3130"),
    ],
)
def test_sort_keys_of_entries_never_change(spread: int, sort_key: str) -> None:
    """Never edit these vectors: under another sort key a retry would be another entry."""
    assert keys.entry_key(id_of_key("order-1"), spread) == sort_key


@given(st.sets(st.tuples(st.text(min_size=1, max_size=8), _MOMENTS_MS), max_size=30))
def test_distinct_pairs_have_distinct_ids(pairs: set[tuple[str, int]]) -> None:
    usable = {(k, ms) for k, ms in pairs if texts.broken_rule(k, 1_024) is None}

    ids = {id_of_key(_timed(key, at_ms)) for key, at_ms in usable}
    bare = {id_of_key(key) for key, _ in usable}

    assert len(ids) == len(usable)
    assert len(bare) == len({key for key, _ in usable})
    assert not ids & bare


@given(st.lists(_MOMENTS_MS, min_size=2, max_size=10))
def test_ids_with_a_time_lie_in_its_order(moments_ms: list[int]) -> None:
    """Made here or of a timed key: the change log is read by key order."""
    for make in (new_id, lambda at_ms: id_of_key(_timed("k", at_ms))):
        ids = sorted((make(at_ms), at_ms) for at_ms in moments_ms)
        assert [at_ms for _, at_ms in ids] == sorted(moments_ms)


@given(_MOMENTS_MS, st.text(min_size=1).filter(lambda t: texts.broken_rule(t, 1_024) is None))
def test_a_timed_id_is_a_uuid_that_carries_its_time(at_ms: int, key: str) -> None:
    found = UUID(id_of_key(_timed(key, at_ms)))

    assert found.version == 8
    assert found.variant == "specified in RFC 4122"
    assert found.int >> 80 == at_ms


def test_a_made_id_carries_the_millisecond_it_was_given() -> None:
    """However many are made in it: one that ran ahead would be refused as dated ahead."""
    new_id(NOW_MS + 5_000)  # the clock is set back
    ids = [UUID(new_id(NOW_MS)) for _ in range(50_000)]

    assert {one.int >> 80 for one in ids} == {NOW_MS}
    assert {one.version for one in ids} == {7}
    assert len(set(ids)) == 50_000


@pytest.mark.parametrize("count", [0, 1, 25, 256, 257, 1_000])
def test_ids_that_are_made_together_are_uuids_in_order(count: int) -> None:
    ids = new_ids(NOW_MS, count)

    assert len(ids) == len(set(ids)) == count
    for block in (ids[at : at + 256] for at in range(0, count, 256)):
        assert block == sorted(block)
    assert {str(UUID(one)) for one in ids} == {*ids}
    assert {UUID(one).int >> 80 for one in ids} <= {NOW_MS}
    assert {UUID(one).version for one in ids} <= {7}


def test_ids_of_many_calls_and_blocks_differ() -> None:
    """Each 256 of them count on from 66 bits of their own."""
    calls = [*(new_ids(NOW_MS, 2) for _ in range(20_000)), new_ids(NOW_MS, 256 * 1_000)]

    assert len({one for ids in calls for one in ids}) == 40_000 + 256_000


def test_identity_is_the_moment_whatever_its_offset() -> None:
    """The same instant in another zone; below the millisecond it is the same one as well."""
    elsewhere = _AT.astimezone(timezone(timedelta(hours=9)))

    assert id_of_key(IdempotencyKey("k", elsewhere)) == id_of_key(IdempotencyKey("k", _AT))
    later = _AT + timedelta(microseconds=999)
    assert id_of_key(IdempotencyKey("k", later)) == id_of_key(IdempotencyKey("k", _AT))
    next_ms = _AT + timedelta(milliseconds=1)
    assert id_of_key(IdempotencyKey("k", next_ms)) != id_of_key(IdempotencyKey("k", _AT))


@pytest.mark.parametrize("key", ["a", "x" * 1024, "é" * 512, "a#b:c", "a b", "\U0001f600"])
def test_a_key_is_up_to_1024_bytes_of_text(key: str) -> None:
    assert check_key(key) == key
    assert IdempotencyKey(key, _AT).at_ms == 1_896_091_200_123


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("", "is empty"),
        (5, "5 is a int"),
        (b"a", "is a bytes"),
        ("a\n", "control characters"),
        ("\ud800", "control characters"),
        ("x" * 1025, "is 1025 bytes long; at most 1024 fit"),
        ("é" * 513, "is 1026 bytes long"),
    ],
)
def test_any_other_key_is_refused(key: str, reason: str) -> None:
    """Bare or with a time; one short line."""
    with pytest.raises(BadKey, match=reason) as refused:
        check_key(key)
    assert len(str(refused.value)) < 250

    with pytest.raises(BadKey, match=reason):
        IdempotencyKey(key, _AT)


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (datetime(2030, 1, 31), "has no offset"),  # noqa: DTZ001 - that is the point
        (datetime(1969, 12, 31, tzinfo=UTC), "before 1970"),
        ("2030-01-31T12:00:00Z", "is a str, not a datetime"),
        (1_896_091_200_123, "is a int, not a datetime"),
        (None, "is a NoneType, not a datetime"),
    ],
)
def test_a_keys_time_is_a_moment_since_1970(at: datetime, reason: str) -> None:
    with pytest.raises(BadTime, match=reason):
        IdempotencyKey("k", at)
