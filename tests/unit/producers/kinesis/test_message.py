"""The message: version 1 of the JSON that an entry travels as."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given

from countledger.ledger.entry import Entry
from countledger.ledger.errors import BadInput
from countledger.ledger.ids import IdempotencyKey, id_of_key, new_id
from countledger.ledger.limits import COUNTER_NAME_MAX_BYTES, KEY_MAX_BYTES, NOTE_MAX_BYTES
from countledger.ledger.values import parse_time
from countledger.producers.event import Event, make_entry
from countledger.producers.kinesis import decode, encode
from countledger.producers.payload import MAX_BYTES
from tests.unit.ledger.clocks import NOW_MS
from tests.unit.producers.kinesis.entries import ORIGIN, entries, entry

UUID7 = "0197a1b2-c3d4-7abc-9def-0123456789ab"
PLAIN = {"v": 1, "counter": "likes:post-1", "delta": 3, "id": UUID7}


def decoded(message: dict[str, Any], arrived_ms: int = NOW_MS) -> Entry:
    return decode(json.dumps(message).encode(), arrived_ms=arrived_ms, origin=ORIGIN)


@given(entries())
def test_an_entry_comes_out_as_it_went_in(made: Entry) -> None:
    """Of a bare key the arrival is the time; all else travels."""
    assert decode(encode(made), arrived_ms=made.at_ms, origin=ORIGIN) == made


@given(entries())
def test_the_same_entry_gives_the_same_bytes(made: Entry) -> None:
    """JSON, as any reader would have it."""
    assert encode(made) == encode(made)
    assert json.loads(encode(made))["counter"] == made.counter


def test_the_form_can_never_change() -> None:
    made = decoded(PLAIN)

    assert encode(made).decode() == (
        '{"v":1,"counter":"likes:post-1","delta":3,"id":"0197a1b2-c3d4-7abc-9def-0123456789ab"}'
    )
    assert made.at_ms == 0x0197A1B2C3D4
    assert made.id == "0197a1b2-c3d4-8660-9b37-18c2368c1778"
    full = {"delta": "-12.50", "events": 3, "occurred_at": NOW_MS, "note": {"b": "é", "a": "\n"}}
    assert decoded({**PLAIN, **full}).id == "0197a1b2-c3d4-8474-9b10-96a1df861db9"


def test_the_identity_is_the_id_and_the_content_however_they_are_spelled() -> None:
    """Nobody who knows an id can write another content over it."""
    full = {**PLAIN, "delta": "1.50", "note": {"b": "1", "a": "2"}, "occurred_at": NOW_MS}
    same = {**full, "delta": "1.5", "note": {"a": "2", "b": "1"}, "events": 1}
    others = [
        {**full, "delta": 2},
        {**full, "counter": "likes:post-2"},
        {**full, "events": 2},
        {**full, "note": {"a": "2"}},
        {**full, "occurred_at": NOW_MS + 1},
        {**full, "id": UUID7[:-1] + "c"},
    ]

    assert decoded(same).id == decoded(full).id
    assert len({decoded(one).id for one in [full, *others]}) == 7
    for one in others:
        assert decoded(one).id[:13] == UUID7[:13]
        with pytest.raises(BadInput, match="version 7"):
            decoded({**full, "id": decoded(one).id})


def test_an_entry_that_was_not_made_for_kinesis_is_refused() -> None:
    """The ledger may have it under its own id; through Kinesis it would count a second time."""
    made = make_entry(Event("a", 1), now_ms=NOW_MS, origin=ORIGIN, new_id=new_id)

    with pytest.raises(BadInput, match="was not created for Kinesis"):
        encode(made)


def test_the_largest_entry_fits() -> None:
    key = IdempotencyKey("k" * KEY_MAX_BYTES, parse_time(NOW_MS))
    event = Event("c" * COUNTER_NAME_MAX_BYTES, 1, key, note={"n": "\x01" * (NOTE_MAX_BYTES - 1)})
    made = make_entry(event, now_ms=NOW_MS, origin=ORIGIN, new_id=str)

    assert len(encode(made)) <= MAX_BYTES
    assert decode(encode(made), arrived_ms=0, origin=ORIGIN) == made


def test_a_key_is_the_identity_and_so_is_a_key_with_its_time() -> None:
    """The ids are those of `record`: one event sent both ways counts once."""
    bare = decoded({"v": 1, "counter": "a", "delta": 1, "key": "order-1"}, arrived_ms=5)
    timed = decoded({"v": 1, "counter": "a", "delta": 1, "key": "order-1", "at": NOW_MS})

    assert (bare.id, bare.at_ms) == (id_of_key("order-1"), 5)
    assert timed.id == id_of_key(IdempotencyKey("order-1", parse_time(NOW_MS)))
    assert timed.at_ms == NOW_MS


def test_an_id_in_capitals_is_the_same_id() -> None:
    """Some languages spell it so."""
    assert decoded({**PLAIN, "id": UUID7.upper()}) == decoded(PLAIN)


def test_decimals_stay_exact() -> None:
    """As a number of JSON and as text."""
    as_number = decode(
        json.dumps(PLAIN).replace(": 3", ": 0.1").encode(), arrived_ms=0, origin=ORIGIN
    )
    as_text = decoded({**PLAIN, "delta": "0.1"})
    exact: Decimal = as_text.delta  # type: ignore[assignment]

    assert as_number == as_text
    assert str(exact) == "0.1"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"v": 1, "counter": "a", "delta": 1}, "neither `id` nor `key`"),
        ({**PLAIN, "key": "k"}, "both `id` and `key`"),
        ({**PLAIN, "v": 2}, "version 2"),
        ({**PLAIN, "v": True}, "version True"),
        ({**PLAIN, "v": "1"}, "version '1'"),
        ({"counter": "a", "delta": 1, "id": UUID7}, "version None"),
        ({**PLAIN, "id": UUID7.replace("-7", "-4")}, "version 7"),
        ({**PLAIN, "id": "k" + "0" * 32}, "version 7"),
        ({**PLAIN, "id": 7}, "id: "),
        ({**PLAIN, "at": NOW_MS}, "`at`"),
        ({**PLAIN, "events": 0}, "events: "),
        ({**PLAIN, "events": True}, "events: "),
        ({**PLAIN, "counter": "a#b"}, "reserved"),
        ({**PLAIN, "delta": 0}, "delta 0"),
        ({**PLAIN, "more": 1}, "more: "),
    ],
)
def test_what_breaks_the_schema_is_refused_with_the_reason(
    message: dict[str, Any], reason: str
) -> None:
    with pytest.raises(BadInput, match=reason) as caught:
        decoded(message)

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"\xff\xfe{}", b'{"v":1,"v":1}', b"null", b"x" * (MAX_BYTES + 1)],
)
def test_what_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(BadInput):
        decode(data, arrived_ms=0, origin=ORIGIN)


def test_a_coalesced_entry_has_its_number_of_events() -> None:
    assert decoded({**PLAIN, "events": 17}).events == 17
    assert decoded(PLAIN).events == entry().events == 1
