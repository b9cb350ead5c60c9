"""Events as lines of JSON."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.ledger.errors import (
    BadCounterName,
    BadDelta,
    BadInput,
    BadKey,
    BadNote,
    BadPayload,
    BadTime,
)
from countledger.ledger.values import parse_time
from countledger.producers.event import Event
from countledger.producers.payload import MAX_BYTES, parse_event_line


def _line(**fields: Any) -> str:  # noqa: ANN401 - JSON
    return json.dumps({"counter": "a:b", "delta": 1, **fields})


@pytest.mark.parametrize("events", [1, 412, 10**9])
def test_a_line_says_how_many_events_its_delta_sums(events: int) -> None:
    assert parse_event_line(_line(events=events)) == Event("a:b", 1, events=events)


@pytest.mark.parametrize(
    ("spelled", "delta"),
    [
        ("0.1", Decimal("0.1")),
        ("12345678901234567890.123456789", Decimal("12345678901234567890.123456789")),
        ("2.50", Decimal("2.5")),
        ("-7.0", -7),
        ('"0.30"', Decimal("0.3")),
        ('"-5"', -5),
        ("9" * 20, 10**20 - 1),
    ],
)
def test_a_delta_stays_exact(spelled: str, delta: object) -> None:
    """A float never comes into being; a program whose numbers are floats writes a text."""
    event = parse_event_line(f'{{"counter": "a", "delta": {spelled}}}')

    assert repr(event.delta) == repr(delta)


def _parsed(line: str) -> Event | BadInput:
    try:
        return parse_event_line(line)
    except BadInput as error:
        return error


@given(
    st.text(max_size=40), st.text(max_size=40), st.dictionaries(st.text(), st.text(), max_size=3)
)
def test_a_line_is_an_event_or_bad_input(counter: str, key: str, note: dict[str, str]) -> None:
    """Nothing else is raised, whatever the texts are."""
    found = _parsed(_line(counter=counter, key=key, note=note))

    if isinstance(found, Event):
        assert (found.counter, found.key, found.note) == (counter, key, note)
    else:
        assert "\n" not in str(found)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=5))
def test_no_value_of_json_is_more_than_bad_input(value: object) -> None:
    for field in ("counter", "delta", "key", "at", "occurred_at", "note"):
        assert "\n" not in str(_parsed(_line(**{"key": "k", field: value})))
    assert isinstance(_parsed(json.dumps(value)), BadPayload)


@pytest.mark.parametrize(
    ("line", "kind", "reason"),
    [
        ("", BadPayload, "not valid JSON"),
        ("{", BadPayload, "not valid JSON"),
        ("counter", BadPayload, "not valid JSON"),
        (b"\xff\xfe", BadPayload, "not valid JSON"),
        ("[1]", BadPayload, r"the line is not a JSON object \(it is \[1\]\)"),
        ("null", BadPayload, r"the line is not a JSON object"),
        ("{}", BadPayload, "counter: Field required"),
        ('{"counter": "a"}', BadPayload, "delta: Field required"),
        ('{"counter": 5, "delta": 1}', BadPayload, r"counter: .*string \(it is 5\)"),
        (_line(delta=None), BadDelta, "NoneType"),
        (_line(delta=[1]), BadDelta, "is a list"),
        (_line(delta=True), BadDelta, "is a bool"),
        (_line(delta=0), BadDelta, "changes nothing"),
        (_line(delta="x"), BadDelta, "'x' is not a decimal number"),
        ('{"counter": "a", "delta": NaN}', BadPayload, "NaN is not a number of JSON"),
        ('{"counter": "a", "delta": -Infinity}', BadPayload, "-Infinity is not a number"),
        ('{"counter": "a", "delta": 1e99999}', BadPayload, "may have been rounded"),
        ('{"counter": "a", "delta": 1e' + "9" * 30 + "}", BadPayload, "is no number"),
        ('{"counter": "a", "delta": ' + "9" * 5000 + "}", BadDelta, "more than 20 digits"),
        (_line(delta=10**20), BadDelta, "more than 20 digits"),
        (_line(counter="a#b"), BadCounterName, "reserved"),
        (_line(counter="\ud800"), BadCounterName, "control characters"),
        (_line(key=""), BadKey, "is empty"),
        (_line(key=5), BadPayload, "key: "),
        (_line(note={"a": 1}), BadPayload, "note.a: "),
        (_line(note="x"), BadPayload, "note: "),
        (_line(note={"a": "x" * 1024}), BadNote, "1025 bytes"),
        (_line(at="2030-01-31T12:00:00Z"), BadTime, "there is no key"),
        (_line(key="k", at="2030-01-31"), BadPayload, "at: time '2030-01-31' is neither ISO 8601"),
        (_line(key="k", at="--5"), BadPayload, "at: time '--5' is neither"),
        (_line(key="k", at=1.5), BadPayload, "at: time '1.5' is neither"),
        (_line(key="k", at=True), BadPayload, "at: time 'True' is neither"),
        (_line(key="k", at=int("9" * 400)), BadPayload, "at: time 9+.* outside the years"),
        (_line(key="k", at=-(10**12)), BadTime, "before 1970"),
        (_line(occurred_at="noon"), BadPayload, "occurred_at: time 'noon' is neither"),
        (_line(amount=5), BadPayload, r"amount: .*not permitted"),
        (_line(**{"a\nb": 5}), BadPayload, r"not permitted"),
        (_line(**{"x" * 9000: 5}), BadPayload, r"not permitted"),
        ('{"counter": "a", "delta": 1, "delta": 2}', BadPayload, "'delta' is named twice"),
        (_line()[:-1] + ', "note": {"a": "1", "a": "2"}}', BadPayload, "'a' is named twice"),
        (_line(note={"a": "x" * MAX_BYTES}), BadPayload, f"longer than {MAX_BYTES} bytes"),
        (_line(note="é" * 10_000).encode(), BadPayload, f"longer than {MAX_BYTES} bytes"),
        ("[" * MAX_BYTES, BadPayload, "not valid JSON"),
        ('{"counter": "a", "delta": 1} x', BadPayload, "not valid JSON"),
    ],
)
def test_a_bad_line_says_what_is_wrong_with_what(
    line: str | bytes, kind: type[BadInput], reason: str
) -> None:
    with pytest.raises(BadInput, match=reason) as refused:
        parse_event_line(line)

    assert type(refused.value) is kind
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "neither"),
        ("--5", "neither"),
        ("9" * 5000, "neither"),
        ("2030-13-01T00:00:00Z", "neither"),
        ("2030-01-31T12:00:00", "has no offset"),
        ("x\ny", "neither"),
        (1_896_091_200, "looks like seconds"),
        ("1896091200", "looks like seconds"),
        (-5, "looks like seconds"),
        (10**18, "outside the years"),
        (None, "neither"),
        (True, "neither"),
        (Decimal("1.5"), "neither"),
    ],
)
def test_any_other_time_is_refused(value: object, reason: str) -> None:
    with pytest.raises(BadTime, match=reason) as refused:
        parse_time(value)

    assert len(str(refused.value)) < 200
    assert "\n" not in str(refused.value)
