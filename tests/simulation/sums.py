"""What accounts are made of: sums that show their deltas, and removals that calls answer for.

Every delta of a simulation is another power of four.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

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


@dataclass
class Removals:
    """What calls have removed that each remove what they read, or nothing.

    Attributes:
        gone: the ids of what is gone.
    """

    gone: set[str] = field(default_factory=set)
    _calls: int = 0

    @contextmanager
    def one(self, *refusals: type[Exception]) -> Iterator[None]:
        """A call that may remove one thing; after such a refusal, or none, it removes no other."""
        before = len(self.gone)
        self._calls += 1
        try:
            yield
        except refusals:
            self._end(before)
            raise
        self._end(before)

    def _end(self, before: int) -> None:
        # If nothing went meanwhile, what it saw was gone: it cannot remove anything later.
        self._calls -= len(self.gone) == before

    def note(self, name: str, removed: str) -> None:
        """Something of that name is gone."""
        self.gone.add(removed)
        if len(self.gone) > self._calls:
            raise Wrong(f"{self._calls} calls removed {sorted(self.gone)} of {name}")
