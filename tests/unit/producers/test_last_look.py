"""What is checked as a signed request leaves: the clock may have been set since the first look."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from countledger.ledger.before_send import leave
from countledger.ledger.errors import ClockSkew, KeyExpired
from countledger.ledger.ids import new_id
from countledger.ledger.limits import CLOCK_SKEW_DEFAULT_MS, HORIZON_DEFAULT_MS, SECOND_MS
from countledger.producers.event import Event, Receipt, make_entry
from tests.unit.ledger.clocks import NOW_MS, ManualClock
from tests.unit.ledger.memory import MemoryClient
from tests.unit.producers.senders import REGION, entries_in, sender_on

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.attributes import Item
    from countledger.ledger.entry import Entry
    from countledger.ledger.operations import Put


@dataclass(frozen=True, slots=True)
class LeavingClient(MemoryClient):
    """A client whose clock is set before each request leaves.

    Attributes:
        clock: of the process.
        set_by_ms: by how much it is moved, once for each of the next requests.
    """

    clock: ManualClock = field(default_factory=ManualClock)
    set_by_ms: list[int] = field(default_factory=list)

    def put(self, write: Put) -> None:
        """Write one item."""
        self._leave()
        MemoryClient.put(self, write)

    def put_batch(self, table: str, items: Sequence[Item]) -> list[Item]:
        """Write several items."""
        self._leave()
        return MemoryClient.put_batch(self, table, items)

    def _leave(self) -> None:
        self.clock.at_ms += self.set_by_ms.pop(0) if self.set_by_ms else 0
        leave()


def _entry(delta: int, at_ms: int = NOW_MS) -> Entry:
    return make_entry(Event("a:b", delta), now_ms=at_ms, origin=REGION, new_id=new_id)


# A clock that is set, and what an entry of the time before hears.
MOVES = [
    (-CLOCK_SKEW_DEFAULT_MS, None),
    (-CLOCK_SKEW_DEFAULT_MS - 1, ClockSkew),
    (HORIZON_DEFAULT_MS, None),
    (HORIZON_DEFAULT_MS + 1, KeyExpired),
]


@pytest.mark.parametrize(("by_ms", "refused"), MOVES)
def test_an_entry_leaves_only_while_the_clock_allows_it(
    by_ms: int, refused: type[Exception] | None
) -> None:
    """Not too late, and not dated ahead either: another clock might merge what comes after it."""
    dynamo = LeavingClient()
    sender = sender_on(dynamo, dynamo.clock)
    sender.send(_entry(1))
    dynamo.set_by_ms.append(by_ms)

    if refused is None:
        sender.send(_entry(2))
    else:
        with pytest.raises(refused):
            sender.send(_entry(2))

    assert sorted(map(str, entries_in(dynamo))) == (["1", "2"] if refused is None else ["1"])


@pytest.mark.parametrize(("by_ms", "refused"), MOVES)
def test_a_batch_leaves_without_the_entry_that_the_clock_does_not_allow(
    by_ms: int, refused: type[Exception] | None
) -> None:
    """The others are sent again at once."""
    dynamo = LeavingClient()
    sender = sender_on(dynamo, dynamo.clock)
    sender.send(_entry(1))
    dynamo.set_by_ms.append(by_ms)
    other_ms = NOW_MS + (-SECOND_MS if by_ms < 0 else SECOND_MS)

    first, second = sender.send_batch([_entry(2), _entry(3, other_ms)])

    assert isinstance(second, Receipt)
    assert isinstance(first, Receipt if refused is None else refused)
    assert sorted(map(str, entries_in(dynamo))) == ["1", *(["2"] if refused is None else []), "3"]
