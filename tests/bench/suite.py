"""The tables of ways that are measured in rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.bench import applying, emitting

if TYPE_CHECKING:
    from tests.bench.way import Way


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


SUITES: Final = {
    "emit": Suite("Emitting", "event", emitting.WAYS),
    "fold": Suite("Folding a batch of 1,000 records of 64 counters", "record", applying.FOLDS),
    "apply": Suite("Applying such a batch", "record", applying.HANDLERS),
    "near": Suite("The same, each call answered after 3 ms", "record", applying.HANDLERS_NEAR),
}
