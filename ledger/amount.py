"""Amounts: exact numbers, integers or decimals, never floats.

An integral amount is always an `int`, any other a normalised `Decimal`, so that equal amounts
are equal values of equal type, however they were written.
"""

from __future__ import annotations

from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation, Overflow
from operator import index
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from countledger.ledger.errors import BadDelta, shown
from countledger.ledger.limits import (
    AMOUNT_MAX_DECIMALS,
    AMOUNT_MAX_DIGITS,
    NUMBER_MAX_DIGITS,
    SUM_ENTRIES_DIGITS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from countledger.ledger.errors import BadInput

Amount: TypeAlias = int | Decimal

_INTEGER_LIMIT: Final[int] = 10**NUMBER_MAX_DIGITS
# Larger and smaller than every number of DynamoDB (1E-130 to 1E+126). Writing out the digits of a
# far larger exponent would take minutes.
_EXPONENT_LIMIT: Final = 150
# Enough digits for the sum of the largest and the smallest of these numbers, and for the carries of
# a long sum, so that amounts written by hand are added exactly as well. Python's default context
# silently rounds to 28 digits; this one raises.
EXACT = Context(
    prec=2 * _EXPONENT_LIMIT + 2 * NUMBER_MAX_DIGITS, traps=[Inexact, InvalidOperation, Overflow]
)
_SHOWN: Final = 60
_AMOUNT_LIMIT: Final[int] = 10**AMOUNT_MAX_DIGITS
_LOWER_LIMIT: Final = -_AMOUNT_LIMIT
# Why an amount that a caller gives is refused: follows the amount in a message.
TOO_LONG: Final = (
    f"has more than {AMOUNT_MAX_DIGITS} digits before the decimal point or more than "
    f"{AMOUNT_MAX_DECIMALS} after it: a sum of 10^{SUM_ENTRIES_DIGITS} such amounts must fit into "
    f"the {NUMBER_MAX_DIGITS} digits of a DynamoDB number"
)


def canonical(value: Amount) -> Amount:
    """The one spelling of an amount: `int` where it is integral, else a normalised `Decimal`."""
    if isinstance(value, int):
        return value
    if value == value.to_integral_value(context=EXACT):
        return int(value)
    return value.normalize(EXACT)


def plain_amount(value: Amount) -> Amount:
    """The number itself: an app's own class of numbers formats and compares in its own way."""
    return int.__pos__(value) if isinstance(value, int) else Decimal(value)


def add(left: Amount, right: Amount) -> Amount:
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    return canonical(EXACT.add(Decimal(left), Decimal(right)))


def negated(value: Amount) -> Amount:
    """Minus the amount, exactly (the minus sign alone would round a long decimal)."""
    return -value if isinstance(value, int) else canonical(value.copy_negate())


def total_of(amounts: Iterable[Amount]) -> Amount:
    """The exact sum of amounts; 0 for none."""
    held: tuple[Any, ...] = tuple(amounts)
    try:
        return sum(map(index, held))
    except TypeError:
        pass  # a decimal is among them
    whole = 0
    rest = Decimal(0)
    for amount in held:
        if isinstance(amount, int):
            whole += amount
        else:
            rest = EXACT.add(rest, amount)
    return add(whole, canonical(rest))


def fits(value: Amount) -> bool:
    """Whether DynamoDB can hold the amount exactly: at most 38 places around the point."""
    if isinstance(value, int):
        return -_INTEGER_LIMIT < value < _INTEGER_LIMIT
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return False
    significant = "".join(map(str, digits)).rstrip("0")
    exponent += len(digits) - len(significant)
    places: int = max(len(significant) + exponent, 0) + max(-exponent, 0)
    return places <= NUMBER_MAX_DIGITS or not significant


def may_be_added(value: Amount) -> bool:
    """Whether any 10^9 amounts of this size have a sum that DynamoDB can hold exactly.

    True for at most 20 digits before the decimal point and 9 after it. Stored amounts may be longer
    (`fits`): sums are, and so are entries that another program wrote.
    """
    if isinstance(value, int):
        return _LOWER_LIMIT < value < _AMOUNT_LIMIT
    if not fits(value):
        return False
    return value.copy_abs() < _AMOUNT_LIMIT and _decimals(value) <= AMOUNT_MAX_DECIMALS


def _decimals(value: Amount) -> int:
    """How many digits follow the decimal point, of an amount that fits."""
    if isinstance(value, int):
        return 0
    exponent = value.normalize(EXACT).as_tuple().exponent
    return max(-exponent, 0) if isinstance(exponent, int) else 0


def parse_delta(value: object) -> Amount:
    """A caller's delta as an exact amount; BadDelta if it is zero, or as `check_exact`."""
    if type(value) is int and value and _LOWER_LIMIT < value < _AMOUNT_LIMIT:
        return value
    delta = check_exact("delta", value, BadDelta)
    if delta == 0:
        raise BadDelta("delta 0 changes nothing: leave the entry out")
    return delta


def check_exact(what: str, value: object, error: type[BadInput]) -> Amount:
    """A caller's finite `int` or `Decimal` that `may_be_added`; else `error` is raised."""
    value = _exact(what, value, error)
    if not may_be_added(value):
        raise error(f"{what} {short(value)} {TOO_LONG}")
    return canonical(value)


def _exact(what: str, value: object, error: type[BadInput]) -> Amount:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise error(
            f"{what} {shown(value)} is a {type(value).__name__}: give an int or a "
            "decimal.Decimal (a float cannot carry an exact amount)"
        )
    value = plain_amount(value)
    if isinstance(value, Decimal) and not value.is_finite():
        raise error(f"{what} {value} is not a finite number")
    return value


def check_sum(what: str, value: object, error: type[BadInput]) -> Amount:
    """As `check_exact`, of what changes may have added up to: 38 digits, 9 of them decimals."""
    value = _exact(what, value, error)
    if not fits(value) or _decimals(value) > AMOUNT_MAX_DECIMALS:
        raise error(
            f"{what} {short(value)} has more than {NUMBER_MAX_DIGITS} digits, or more than "
            f"{AMOUNT_MAX_DECIMALS} after the decimal point: no counter can have it"
        )
    return canonical(value)


def to_text(value: Amount) -> str:
    """The amount in plain digits, without an exponent."""
    return str(value) if isinstance(value, int) else format(value, "f")


def from_number(text: str) -> Amount:
    """An amount from DynamoDB's text of a number; ValueError if it is no finite number."""
    if text.isdecimal() or text.lstrip("-").isdecimal():
        return int(text)
    try:
        value = Decimal(text)
    except DecimalException:
        raise ValueError(f"{shown(text)} is no number") from None
    if not value.is_finite():
        raise ValueError(f"{shown(text)} is not finite")
    if abs(value.adjusted()) > _EXPONENT_LIMIT:
        raise ValueError(f"{shown(text)} is out of range")
    return canonical(value)


def short(value: Amount) -> str:
    """An amount for a message; a huge integer is never turned into digits (that is slow)."""
    if isinstance(value, int) and not -(_INTEGER_LIMIT**2) < value < _INTEGER_LIMIT**2:
        return f"of {value.bit_length()} bits"
    text = str(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
