"""A line of an export: what is written is what is read, and what is wrong is named."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.infra.portability.lines import CounterLine, NamespaceLine, encode_line, parse_line
from countledger.ledger.errors import BadPayload
from countledger.ledger.namespace import Kind

VALUES = st.one_of(
    st.integers(-(10**38) + 1, 10**38 - 1),
    st.decimals(
        allow_nan=False, allow_infinity=False, places=4, min_value=-(10**12), max_value=10**12
    ),
)


@given(value=VALUES, lower=st.none() | VALUES, events=st.none() | st.integers(0, 10**15))
def test_a_value_comes_back_to_the_last_digit(
    value: int | Decimal, lower: int | Decimal | None, events: int | None
) -> None:
    line = CounterLine(
        counter="a:b", kind=Kind.STRICT, value=value, method="occ", lower=lower, events=events
    )

    back = parse_line(encode_line(line))

    assert back == line
    assert isinstance(back, CounterLine)
    assert back.value == value


def test_a_namespace_comes_back() -> None:
    line = NamespaceLine(
        namespace="a", kind=Kind.LEDGER, spread=16, horizon_ms=60_000, description="ä"
    )

    assert parse_line(encode_line(line)) == line


def test_a_line_by_hand_is_short() -> None:
    assert parse_line('{"counter": "a:b", "value": 14}') == CounterLine(counter="a:b", value=14)


def test_big_values_are_texts() -> None:
    assert '"value": 9007199254740991' in encode_line(CounterLine(counter="a", value=2**53 - 1))
    assert '"value": "9007199254740992"' in encode_line(CounterLine(counter="a", value=2**53))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not valid JSON"),
        ("[]", "is not a JSON object"),
        ('{"counter": "a:b"}', "value: Field required"),
        ('{"counter": "a:b", "value": true}', "not an exact number"),
        ('{"counter": "a:b", "value": NaN}', "not a number of JSON"),
        ('{"counter": "a:b", "value": "seven"}', "is not a decimal number"),
        ('{"counter": "a:b", "value": "1e99"}', "has an exponent"),
        ('{"counter": "a:b", "value": 1.23457E+12}', "shows fewer digits"),
        ('{"counter": "a:b", "value": 1, "value": 2}', "named twice"),
        ('{"counter": "a:b", "value": 1, "colour": "red"}', "colour: Extra inputs"),
        ('{"counter": "a:b", "value": 1, "kind": "strict"}', "needs its method"),
        ('{"v": 2, "counter": "a:b", "value": 1}', "v: Input should be 1"),
        ('{"namespace": "a", "kind": "ledger"}', "horizon_ms: Field required"),
        (f'{{"counter": "{"x" * 20_000}", "value": 1}}', "longer than"),
        ("[" * 10_000, "not valid JSON"),
    ],
    ids=lambda text: str(text)[:40],
)
def test_what_is_wrong_is_named(text: str, says: str) -> None:
    with pytest.raises(BadPayload, match=says):
        parse_line(text)


def test_what_was_held_is_in_the_line() -> None:
    line = CounterLine(counter="a:b", kind=Kind.STRICT, value=7, method="marker", held=2)

    assert '"held": 2' in encode_line(line)
    assert parse_line(encode_line(line)) == line
