"""What each method says and does when one request goes wrong: the table that the guide shows.

`test_matrix` proves every cell on an engine; the guide's table is generated from here.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from countledger.producers.strict.definition import Method
from tests.faults.injection import Fault, Kind

OTHERS: Final = 7


class Trouble(Enum):
    """What happens to the change's first request."""

    BEFORE = "error, not applied"
    AFTER = "error, applied"
    TIMEOUT = "time-out, applied"
    THROTTLE = "throttle"
    CONFLICT = "conflict"
    SDK_BEFORE = "error, not applied, hidden by an SDK retry"
    SDK_AFTER = "error, applied, hidden by an SDK retry"

    @property
    def fault(self) -> Fault | None:
        """What is injected; None for a conflict, which is injected elsewhere."""
        match self:
            case Trouble.BEFORE | Trouble.SDK_BEFORE:
                return Fault(Kind.SERVER_ERROR)
            case Trouble.AFTER | Trouble.SDK_AFTER:
                return Fault(Kind.SERVER_ERROR, applied=True)
            case Trouble.TIMEOUT:
                return Fault(Kind.TIMEOUT, applied=True)
            case Trouble.THROTTLE:
                return Fault(Kind.THROTTLE)
            case Trouble.CONFLICT:
                return None

    @property
    def hidden(self) -> bool:
        """Whether the SDK retries, as it does unless the product forbids it."""
        return self in {Trouble.SDK_BEFORE, Trouble.SDK_AFTER}


class Company(Enum):
    """Who else is there: seven others change the counter before the answer (or none) comes."""

    ALONE = "alone"
    EIGHT = "eight writers"


@dataclass(frozen=True)
class Row:
    """A method, with the choice that a caller of it has."""

    method: Method
    prefer: str | None = None

    def __str__(self) -> str:
        """For the ids of tests and for the table."""
        return f"{self.method} ({self.prefer})" if self.prefer else str(self.method)


@dataclass(frozen=True)
class Cell:
    """What the caller gets for a change of one, and how often that change is in the value."""

    outcome: str
    counted: int

    def __str__(self) -> str:
        """For the table."""
        counted = {0: "not counted", 1: "counted once", 2: "**counted twice**"}[self.counted]
        return f"{self.outcome}, {counted}"


ROWS: Final = (
    Row(Method.ATOMIC, "under"),
    Row(Method.ATOMIC, "over"),
    Row(Method.OCC),
    Row(Method.HISTORY),
    Row(Method.CRT),
    Row(Method.MARKER),
    Row(Method.SET),
)
RIGHT: Final = Cell("Applied", 1)
SEEN: Final = Cell("Duplicate", 1)
TWICE: Final = Cell("Applied", 2)
LOST: Final = Cell("Unknown", 0)
IN: Final = Cell("Unknown", 1)

# By row: (alone, eight writers). What is not named here is RIGHT.
_DIFFERENT: Final[dict[tuple[str, Trouble], tuple[Cell, Cell]]] = {
    ("atomic (under)", Trouble.BEFORE): (LOST, LOST),
    ("atomic (under)", Trouble.AFTER): (IN, IN),
    ("atomic (under)", Trouble.TIMEOUT): (IN, IN),
    ("atomic (under)", Trouble.SDK_AFTER): (TWICE, TWICE),
    ("atomic (over)", Trouble.AFTER): (TWICE, TWICE),
    ("atomic (over)", Trouble.TIMEOUT): (TWICE, TWICE),
    ("atomic (over)", Trouble.SDK_AFTER): (TWICE, TWICE),
    ("occ", Trouble.BEFORE): (RIGHT, LOST),
    ("occ", Trouble.AFTER): (RIGHT, IN),
    ("occ", Trouble.TIMEOUT): (RIGHT, IN),
    ("occ", Trouble.SDK_AFTER): (SEEN, TWICE),
    ("history", Trouble.SDK_AFTER): (SEEN, SEEN),
    ("crt", Trouble.SDK_AFTER): (SEEN, SEEN),
    ("set", Trouble.SDK_AFTER): (SEEN, SEEN),
}


def expected(row: Row, trouble: Trouble, company: Company) -> Cell:
    """The cell of the table."""
    alone, eight = _DIFFERENT.get((str(row), trouble), (RIGHT, RIGHT))
    return alone if company is Company.ALONE else eight
