"""What is checked as a signed request leaves: the clock may have been set since the first look."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from countledger.ledger.errors import ClockSkew, KeyExpired
from countledger.ledger.ids import new_id
from countledger.ledger.limits import CLOCK_SKEW_DEFAULT_MS, HORIZON_DEFAULT_MS, SECOND_MS
from countledger.producers.event import Event, Receipt, make_entry
from tests.unit.ledger.clocks import NOW_MS, ManualClock
from tests.unit.ledger.memory import MemoryClient, meanwhile
from tests.unit.producers.senders import REGION, entries_in, sender_on, sent

if TYPE_CHECKING:
    from countledger.ledger.entry import Entry

AHEAD_MS = HORIZON_DEFAULT_MS
BACK_MS = -CLOCK_SKEW_DEFAULT_MS


def _entry(delta: int, at_ms: int = NOW_MS) -> Entry:
    return make_entry(Event("a:b", delta), now_ms=at_ms, origin=REGION, new_id=new_id)


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize(
    ("set_by_ms", "refused"),
    [(BACK_MS, None), (BACK_MS - 1, ClockSkew), (AHEAD_MS, None), (AHEAD_MS + 1, KeyExpired)],
)
def test_an_entry_leaves_only_while_the_clock_allows_it(
    set_by_ms: int, refused: type[Exception] | None, *, batch: bool
) -> None:
    """Not too late, and not dated ahead: another clock might merge what comes after it."""
    dynamo, clock = MemoryClient(), ManualClock()
    sender = sender_on(dynamo, clock)
    sender.send(_entry(1))

    def set_clock() -> None:
        clock.at_ms += set_by_ms

    dynamo.plans.append(meanwhile(set_clock))
    left = [1] if refused else [1, 2]
    if batch:
        # The others of the batch are sent again at once.
        other_ms = NOW_MS + (-SECOND_MS if set_by_ms < 0 else SECOND_MS)
        first, second = sent(sender, [_entry(2), _entry(3, other_ms)])
        assert isinstance(first, refused or Receipt)
        assert isinstance(second, Receipt)
        left.append(3)
    elif refused:
        with pytest.raises(refused):
            sender.send(_entry(2))
    else:
        sender.send(_entry(2))

    assert sorted(map(str, entries_in(dynamo))) == [*map(str, left)]
