"""Amounts are exact: integers or decimals, never floats."""

import time
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.ledger import amount
from countledger.ledger.amount import Amount
from countledger.ledger.attributes import decode, encode
from countledger.ledger.errors import BadDelta
from countledger.ledger.values import parse_delta_text

_INTEGERS = st.integers(-(10**38 - 1), 10**38 - 1)


@st.composite
def _decimals(draw: st.DrawFn) -> Decimal:
    """Of at most 38 places around the point."""
    behind = draw(st.integers(0, 38))
    digits = draw(st.integers(-(10**38 - 1), 10**38 - 1))
    return Decimal(digits).scaleb(-behind, context=amount.EXACT)


_AMOUNTS: st.SearchStrategy[Amount] = st.one_of(_INTEGERS, _decimals())


def _fraction(value: Amount) -> Fraction:
    return Fraction(value)


@given(left=_AMOUNTS, right=_AMOUNTS)
def test_addition_is_exact(left: Amount, right: Amount) -> None:
    assert _fraction(amount.add(left, right)) == _fraction(left) + _fraction(right)


@given(st.lists(_AMOUNTS, max_size=30))
def test_sums_are_exact_in_any_order(amounts: list[Amount]) -> None:
    exact = sum(map(_fraction, amounts), Fraction(0))

    assert _fraction(amount.total_of(amounts)) == exact
    assert _fraction(amount.total_of(reversed(amounts))) == exact


def test_a_callers_decimal_context_changes_nothing() -> None:
    with localcontext() as context:
        context.prec = 2
        assert amount.add(Decimal("0.001"), 123456) == amount.from_number("123456.001")
        assert amount.total_of([Decimal("1.23456"), 99999]) == amount.from_number("100000.23456")


@given(_AMOUNTS)
def test_an_amount_has_one_spelling(value: Amount) -> None:
    """Integral ones are int; text and back is the same value of the same type."""
    one = amount.canonical(value)

    assert one == value
    assert isinstance(one, int) == (_fraction(value).denominator == 1)
    assert amount.from_number(amount.to_text(one)) == one
    assert type(amount.from_number(amount.to_text(one))) is type(one)
    assert "E" not in amount.to_text(one)


@given(_decimals(), st.integers(0, 5))
def test_trailing_zeros_make_no_other_amount(value: Decimal, zeros: int) -> None:
    longer = Decimal(f"{value:f}" + ("" if "." in f"{value:f}" else ".") + "0" * zeros)

    assert repr(amount.canonical(longer)) == repr(amount.canonical(value))


@given(_AMOUNTS)
def test_what_fits_is_stored_exactly(value: Amount) -> None:
    """boto3's serialiser raises where it would round."""
    one = amount.canonical(value)
    if amount.fits(one):
        stored = decode(encode({"delta": one}))["delta"]
        assert stored == one
        assert type(stored) is type(one)


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        (10**38 - 1, True),
        (-(10**38) + 1, True),
        (10**38, False),
        (Decimal("1E-38"), True),
        (Decimal("1E-39"), False),
        (Decimal("0." + "9" * 38), True),
        (Decimal("9." + "9" * 37), True),
        (Decimal("9." + "9" * 38), False),
        (Decimal("1E+37"), True),
        (Decimal("1E+38"), False),
        (Decimal("NaN"), False),
        (Decimal("Infinity"), False),
    ],
)
def test_at_most_38_places_around_the_point_fit(value: Amount, *, fits: bool) -> None:
    """So that no sum of a few amounts leaves the numbers of DynamoDB."""
    assert amount.fits(value) is fits


@given(
    st.lists(
        st.one_of(
            st.sampled_from([10**20 - 1, 1 - 10**20, Decimal("1E-9"), Decimal("-1E-9")]),
            st.decimals(-(10**20) + 1, 10**20 - 1, places=9),
        ),
        max_size=20,
    )
)
def test_any_sum_of_a_billion_amounts_fits(amounts: list[Amount]) -> None:
    """Whatever is largest and whatever is smallest: each of them fifty million times."""
    assert all(map(amount.may_be_added, amounts))
    once = Decimal(amount.total_of(amounts))
    assert amount.fits(amount.EXACT.multiply(once, Decimal(10**9 // 20)))
    assert amount.fits(amount.add((10**9 - 1) * (10**20 - 1), Decimal("0.999999999")))


@pytest.mark.parametrize(
    ("value", "may"),
    [
        (10**20 - 1, True),
        (-(10**20), False),
        (Decimal("99999999999999999999.999999999"), True),
        (Decimal("99999999999999999999.9999999999"), False),
        (Decimal("0." + "0" * 9 + "1"), False),
        (Decimal("5." + "0" * 500), True),
        (Decimal("0E+500"), True),
        (Decimal("1E+20"), False),
        (Decimal("NaN"), False),
    ],
)
def test_an_amount_has_twenty_digits_before_the_point_and_nine_after_it(
    value: Amount,
    *,
    may: bool,
) -> None:
    with localcontext() as context:
        context.prec = 2
        assert amount.may_be_added(value) is may


@pytest.mark.parametrize(
    ("value", "canonical"),
    [
        (5, 5),
        (10**19, 10**19),
        (Decimal("5.00"), 5),
        (Decimal("-0.10"), Decimal("-0.1")),
        (Decimal("1." + "0" * 60), 1),
        ("+5", 5),
        ("12.50", Decimal("12.5")),
    ],
)
def test_a_delta_has_one_spelling(value: Any, canonical: Amount) -> None:  # noqa: ANN401 - text too
    text = isinstance(value, str)
    found = parse_delta_text(value) if text else amount.parse_delta(value)

    assert repr(found) == repr(canonical)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (0, "delta 0 changes nothing"),
        (Decimal("0.00"), "changes nothing"),
        (Decimal("-0"), "changes nothing"),
        (Decimal("0E+50"), "changes nothing"),
        (1.5, "delta 1.5 is a float: give an int or a decimal.Decimal"),
        (True, "delta True is a bool"),
        ("5", "delta '5' is a str"),
        (None, "delta None is a NoneType"),
        (Fraction(1, 2), "is a Fraction"),
        # Python refuses to write out so many digits; the type is shown then.
        (Fraction(1 << 100_000, 3), "is a Fraction"),
        ([1 << 100_000], "is a list"),
        ("x" * 5000, "is a str"),
        (Decimal("NaN"), "delta NaN is not a finite number"),
        (Decimal("sNaN"), "not a finite number"),
        (Decimal("-Infinity"), "delta -Infinity is not a finite number"),
        (10**20, "delta 100000000000000000000 has more than 20 digits before the decimal point"),
        (Decimal("1E+20"), "more than 20 digits"),
        (Decimal("1E-10"), "or more than 9 after it"),
        (Decimal("1E-39"), "more than 20 digits"),
        (Decimal("1E+999999"), "fit into the 38 digits of a DynamoDB number"),
    ],
)
def test_any_other_delta_is_refused(value: object, reason: str) -> None:
    with pytest.raises(BadDelta, match=reason) as refused:
        amount.parse_delta(value)

    assert len(str(refused.value)) < 250
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_huge_int_is_refused_quickly(sign: int) -> None:
    """Written out in digits it would take minutes; its bits are counted instead."""
    value = sign * (1 << 10_000_000)
    began = time.perf_counter()

    with pytest.raises(BadDelta, match=r"of 10000001 bits has more than 20 digits"):
        amount.parse_delta(value)

    assert time.perf_counter() - began < 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "five",
        "1,5",
        "0x10",
        "--5",
        "1e",
        "5 5",
        "NaN",
        "inf",
        "9" * 5000,
        "1E9999999999999999999",
    ],
)
def test_any_other_text_is_no_delta(text: str) -> None:
    with pytest.raises(BadDelta) as refused:
        parse_delta_text(text)

    assert len(str(refused.value)) < 250


@pytest.mark.parametrize(
    "text",
    ["", "x", "--5", "NaN", "-Infinity", "1E1000000", "1E-1000000", "9" * 5000, "1E" + "9" * 30],
)
def test_what_is_no_number_of_dynamodb_is_refused_quickly(text: str) -> None:
    """A malformed image must not keep a stream busy for minutes."""
    began = time.perf_counter()

    with pytest.raises(ValueError, match=r".+"):
        amount.from_number(text)

    assert time.perf_counter() - began < 1


@pytest.mark.parametrize(
    ("text", "value"), [("1E+125", 10**125), ("-1E-130", Decimal("-1E-130")), ("100", 100)]
)
def test_every_number_of_dynamodb_can_be_read(text: str, value: Amount) -> None:
    """Also those that we would never write."""
    assert amount.from_number(text) == value
