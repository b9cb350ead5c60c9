"""Events are valid at birth; an entry is made of one once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from countledger.ledger.errors import (
    BadCounterName,
    BadDelta,
    BadInput,
    BadKey,
    BadNote,
    BadTime,
    IdempotencyKeyReused,
)
from countledger.ledger.ids import IdempotencyKey, id_of_key, new_id
from countledger.producers.event import Event, Receipt, Status, judge_existing, make_entry
from tests.unit.ledger.clocks import NOW_MS

_AT = datetime(2030, 1, 31, 12, tzinfo=UTC)
_NAIVE = datetime(2030, 1, 31)  # noqa: DTZ001 - that is the point
_BEYOND = datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"counter": ""}, BadCounterName),
        ({"counter": "x" * 513}, BadCounterName),
        ({"counter": "namespace#x"}, BadCounterName),
        ({"counter": None}, BadCounterName),
        ({"delta": 0}, BadDelta),
        ({"delta": Decimal("NaN")}, BadDelta),
        ({"delta": 1.5}, BadDelta),
        ({"delta": True}, BadDelta),
        ({"delta": 10**20}, BadDelta),
        ({"delta": "5"}, BadDelta),
        ({"key": ""}, BadKey),
        ({"key": "x" * 1025}, BadKey),
        ({"key": 7}, BadKey),
        ({"key": "a\nb"}, BadKey),
        ({"occurred_at": _NAIVE}, BadTime),
        ({"occurred_at": "2030-01-31"}, BadTime),
        ({"occurred_at": _BEYOND}, BadTime),
        ({"note": {"a": "x" * 1024}}, BadNote),
        ({"note": {"a": 5}}, BadNote),
        ({"note": {5: "a"}}, BadNote),
        ({"note": {"": "a"}}, BadNote),
        ({"note": {"a": "\ud800"}}, BadNote),
        ({"note": "text"}, BadNote),
        ({"note": [("a", "b")]}, BadNote),
    ],
)
def test_what_is_no_event_never_comes_into_being(
    arguments: dict[str, Any], kind: type[BadInput]
) -> None:
    """A specific error of one short line; it is a ValueError as well, and exit code 2."""
    with pytest.raises(kind) as refused:
        Event(**{"counter": "a:b", "delta": 1, **arguments})

    assert isinstance(refused.value, ValueError)
    assert refused.value.exit_code == 2
    assert 0 < len(str(refused.value)) < 300
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "note", [{}, {"a": ""}, {"a": "x" * 1023}, {"é": "é" * 511}, {str(n): "" for n in range(300)}]
)
def test_a_note_holds_up_to_1024_bytes(note: dict[str, str]) -> None:
    assert Event("a", 1, note=note).note == note


def test_a_note_is_the_events_own() -> None:
    note = {"by": "me"}
    event = Event("a", 1, note=note)
    note["by"] = "you"

    assert event.note == {"by": "me"}


def test_a_delta_has_its_one_spelling() -> None:
    """So that a retry with 1.50 is the duplicate of 1.5."""
    assert repr(Event("a", Decimal("2.00")).delta) == "2"
    assert Event("a", Decimal("1.50")) == Event("a", Decimal("1.5"))


def _id_of(event: Event, now_ms: int = NOW_MS) -> str:
    return make_entry(event, now_ms=now_ms, origin="r", new_id=new_id).id


def test_the_identity_of_a_timed_key_is_the_pair() -> None:
    """Another time is another change; the same pair is the same one, whenever it is sent."""
    event = Event("a", 1, IdempotencyKey("k", _AT))
    later = Event("a", 1, IdempotencyKey("k", _AT + timedelta(seconds=1)))

    assert _id_of(event) == _id_of(event, NOW_MS + 5_000)
    assert _id_of(event) != _id_of(later)
    assert _id_of(event) != _id_of(Event("a", 1, "k"))


def test_occurred_at_and_note_are_no_part_of_the_identity() -> None:
    for key in ("k", IdempotencyKey("k", _AT)):
        plain = Event("a", 1, key)
        told = Event("a", 1, key, occurred_at=_AT - timedelta(days=400), note={"by": "me"})
        assert _id_of(plain) == _id_of(told)


def test_an_event_without_key_is_a_new_change_every_time() -> None:
    event = Event("a", 1)

    assert _id_of(event) != _id_of(event)


def test_an_entry_says_when_it_was_made() -> None:
    """By its key, or by the clock; the business time stands beside it."""
    occurred_at = datetime(1815, 6, 18, 11, 35, tzinfo=UTC)
    timed = Event("a", 5, IdempotencyKey("k", _AT), occurred_at=occurred_at, note={"by": "me"})

    entry = make_entry(timed, now_ms=NOW_MS, origin="eu-west-1", new_id=new_id)

    assert entry.at == _AT
    assert entry.occurred_at == occurred_at
    assert (entry.counter, entry.delta, entry.origin, entry.key) == ("a", 5, "eu-west-1", "k")
    assert (entry.events, entry.note) == (1, {"by": "me"})
    bare = make_entry(Event("a", 5, "k"), now_ms=NOW_MS, origin="r", new_id=new_id)
    assert (bare.at_ms, bare.id) == (NOW_MS, id_of_key("k"))


def test_an_id_is_made_for_the_time_of_its_entry() -> None:
    made: list[int] = []

    def maker(at_ms: int) -> str:
        made.append(at_ms)
        return "an-id"

    entry = make_entry(Event("a", 1), now_ms=NOW_MS, origin="r", new_id=maker)

    assert (entry.id, made) == ("an-id", [NOW_MS])


@pytest.mark.parametrize("stored", [5, Decimal(5), Decimal("5.0")])
def test_the_same_delta_is_a_duplicate(stored: object) -> None:
    entry = make_entry(Event("a", 5, "k"), now_ms=NOW_MS, origin="r", new_id=new_id)

    assert judge_existing(entry, {"delta": stored}) == Receipt("a", entry.id, Status.DUPLICATE)


@pytest.mark.parametrize(
    ("stored", "shown"), [(7, "7"), (-5, "-5"), (Decimal("1E-7"), "0.0000001"), (None, "None")]
)
def test_another_delta_is_a_reused_key(stored: object, shown: str) -> None:
    entry = make_entry(Event("a:b", 5, "k"), now_ms=NOW_MS, origin="r", new_id=new_id)

    with pytest.raises(IdempotencyKeyReused) as reused:
        judge_existing(entry, {"delta": stored})

    assert f"'k' of counter 'a:b' was used for a delta of {shown}, and" in str(reused.value)
    assert "with 5" in str(reused.value)


def test_an_entry_without_key_that_meets_another_is_named_by_its_id() -> None:
    entry = make_entry(Event("a:b", 5), now_ms=NOW_MS, origin="r", new_id=new_id)

    with pytest.raises(IdempotencyKeyReused, match=f"entry {entry.id} of counter 'a:b'"):
        judge_existing(entry, {"delta": 7})
