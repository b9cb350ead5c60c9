"""Events are valid at birth; an entry is made of one once."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from countledger.ledger.entry import decode_entry, encode_entry
from countledger.ledger.errors import (
    BadCounterName,
    BadDelta,
    BadInput,
    BadKey,
    BadNote,
    BadTime,
    IdempotencyKeyReused,
)
from countledger.ledger.ids import IdempotencyKey, new_id
from countledger.producers.buffer.spool import decode_row, encode_row
from countledger.producers.event import Event, judge_existing, make_entry
from tests.unit.ledger.clocks import NOW_MS

if TYPE_CHECKING:
    from collections.abc import Callable

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
        ({"events": 0}, BadDelta),
        ({"events": 10**9 + 1}, BadDelta),
        ({"events": True}, BadDelta),
        ({"events": 1.0}, BadDelta),
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


@pytest.mark.parametrize(
    "change",
    [
        lambda note: note.update(by="you"),
        lambda note: note.__setitem__("by", "x" * 2_000),
        lambda note: note.__delitem__("by"),
        lambda note: note.__ior__({"to": "you"}),
        lambda note: note.setdefault("to", "you"),
        lambda note: note.pop("by"),
        lambda note: note.popitem(),
        lambda note: note.clear(),
    ],
)
def test_what_was_checked_is_what_is_sent(change: Callable[[Any], object]) -> None:
    """Nobody changes a note in place: of the event, of its entry, or of one that was read."""
    given = {"by": "me"}
    event = Event("a", 1, note=given)
    given["by"] = "you"
    entry = make_entry(event, now_ms=NOW_MS, origin="r", new_id=new_id)
    spooled = decode_row(1, encode_row("a", 1, entry)).entry
    assert spooled

    for one in (event, entry, spooled, decode_entry(encode_entry(entry, 1))):
        for same in (one, copy.deepcopy(one), pickle.loads(pickle.dumps(one))):  # noqa: S301
            with pytest.raises(TypeError, match="cannot be changed"):
                change(same.note)
            assert same.note == {"by": "me"}


def test_an_event_without_key_is_a_new_change_every_time() -> None:
    event = Event("a", 1)

    assert _id_of(event) != _id_of(event)


@pytest.mark.parametrize(
    ("stored", "shown"), [(7, "7"), (-5, "-5"), (Decimal("1E-7"), "0.0000001"), (None, "None")]
)
def test_another_delta_is_a_reused_key(stored: object, shown: str) -> None:
    entry = make_entry(Event("a:b", 5, "k"), now_ms=NOW_MS, origin="r", new_id=new_id)

    with pytest.raises(IdempotencyKeyReused) as reused:
        judge_existing(entry, {"delta": stored})

    assert f"'k' of counter 'a:b' was used for a delta of {shown}, and" in str(reused.value)
    assert "with 5" in str(reused.value)
