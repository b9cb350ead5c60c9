"""The tables of ways that are measured in rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tools.bench import applying, emitting, reading, transports

if TYPE_CHECKING:
    from tools.bench.way import Way


@dataclass(frozen=True, slots=True)
class Suite:
    """Ways that are compared with the first of them.

    Attributes:
        title: above their table.
        each: what one of many is.
        ways: the rows.
    """

    title: str
    each: str
    ways: tuple[Way, ...]


_CALLS: Final = {
    "put": "call",
    "batch": "call of 25",
    "update": "call",
    "get": "call",
    "transact": "call of 2",
}
SUITES: Final = {
    "emit": Suite("Emitting", "event", emitting.WAYS),
    "fold": Suite("Folding a batch of 1,000 records of 64 counters", "record", applying.FOLDS),
    "windows": Suite("The same with windows", "record", applying.WINDOWED),
    "apply": Suite("Applying such a batch", "record", applying.HANDLERS),
    "near": Suite("The same, each call answered after 3 ms", "record", applying.HANDLERS_NEAR),
    "distinct": Suite(
        "Applying 1,000 records of 1,000 counters", "record", applying.HANDLERS_DISTINCT
    ),
    "evaluate": Suite("Evaluating a batch of totals", "record", applying.EVALUATORS),
    "total": Suite("Reading a total", "read", reading.TOTALS),
    "strict": Suite("Changing a strict counter", "change", reading.CHANGES),
    **{
        f"call-{kind}": Suite(f"Transports: {kind}", each, transports.ways(kind))
        for kind, each in _CALLS.items()
    },
}
