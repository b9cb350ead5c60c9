"""Bounds and opening values as people type them."""

from __future__ import annotations

from decimal import Decimal, DecimalException
from typing import TYPE_CHECKING, Final

from countledger.ledger.errors import BadBounds, shown
from countledger.producers.strict.bounds import KEEP, Keep, check_amount

if TYPE_CHECKING:
    from countledger.ledger.amount import Amount

NO_BOUND: Final = "none"


def parse_amount(what: str, text: str) -> Amount:
    """An amount from text such as `0`, `-5` or `12.50`.

    Args:
        what: its name, for messages.
        text: as typed.

    Raises:
        BadBounds: it is no finite decimal number, or needs more digits than a counter has.
    """
    try:
        value = Decimal(text.strip())
    except DecimalException:
        raise BadBounds(f"{what} {shown(text)} is not a decimal number") from None
    amount = check_amount(what, value)
    if amount is None:
        raise AssertionError("a number is an amount")
    return amount


def parse_bound(what: str, text: str | None) -> Amount | Keep | None:
    """A bound from text; `none` takes it away, and None (not given) leaves it as it is.

    Raises:
        BadBounds: as `parse_amount`.
    """
    if text is None:
        return KEEP
    return None if text.strip().lower() == NO_BOUND else parse_amount(what, text)
