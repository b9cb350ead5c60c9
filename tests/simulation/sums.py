"""Sums that show what they are made of: every delta of a simulation is another power of four."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from countledger.ledger import amount
from countledger.ledger.limits import NUMBER_MAX_DIGITS


@contextmanager
def deltas_of_any_size() -> Iterator[None]:
    """Let deltas have up to 38 digits: each is a power of four that no other delta is.

    So a sum tells which deltas it is made of. How large a delta may be is tested elsewhere.
    """
    limits = vars(amount)
    before = limits["_AMOUNT_LIMIT"]
    limits["_AMOUNT_LIMIT"] = 10**NUMBER_MAX_DIGITS
    try:
        yield
    finally:
        limits["_AMOUNT_LIMIT"] = before


class Wrong(AssertionError):
    """A promise is broken."""


def digits(number: int) -> Counter[int]:
    """How often each delta is in a sum: deltas are powers of four, none is used four times."""
    if number < 0:
        raise Wrong(f"a sum of {number}")
    found: Counter[int] = Counter()
    place = 1
    while number:
        number, count = divmod(number, 4)
        if count:
            found[place] = count
        place *= 4
    return found


def check_sum(total: int, required: Counter[int], allowed: Counter[int]) -> None:
    """Every required delta is in the sum, and none more often than allowed."""
    found = digits(total)
    missing, extra = required - found, found - allowed
    if missing or extra:
        raise Wrong(f"missing {sorted(missing.elements())}, extra {sorted(extra.elements())}")
