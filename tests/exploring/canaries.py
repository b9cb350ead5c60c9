"""Rules that are switched off, one at a time: the explorer must find each.

A canary names the rule, how to switch it off, the case in which that is wrong, and within how many
states the search must find it. How many seconds that takes says what else the machine does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from countledger.ledger.expressions import Compare
from countledger.producers.sender import Sender
from countledger.producers.sequences import sequences

if TYPE_CHECKING:
    import pytest


@dataclass(frozen=True, slots=True)
class SwitchedOff:
    """A rule without which a case is wrong.

    Attributes:
        rule: what it says.
        capability: the name of the explored capability.
        case: of it, as `--case` takes it.
        states: within how many states it is found.
        switch: switches it off, until the test ends.
        faults: how many the search allows.
    """

    rule: str
    capability: str
    case: str
    states: int
    switch: Callable[[pytest.MonkeyPatch], None]
    faults: int = 1


def _any_incarnation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sequences, "unchanged", lambda *_: Compare("method", "=", "sequence"))


def _any_age(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sender, "_check_it_stays", lambda *_: None)


CANARIES: Final = (
    SwitchedOff(
        "an entry that may be deleted soon refuses no call with an unclear attempt",
        "ledger",
        "an old key: record key | compact",
        5_000,
        _any_age,
    ),
    SwitchedOff(
        "a deletion deletes the sequence that it has read, and no other",
        "sequences",
        "created: delete | delete, create at 5",
        5_000,
        _any_incarnation,
    ),
)
