"""What the calls of quotas cost, in write and read units; the guide's table is made of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pytest

from countledger.testing import MemoryStack
from tests.unit.quotas.processes import admitted, denied

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.producers.quotas.quota import Ticket
    from countledger.producers.quotas.quotas import Quotas

_KINDS: Final = ("minute", "hour", "day", "month")


@dataclass(frozen=True)
class QuotaCost:
    """A call.

    Attributes:
        name: as the guide names it.
        write, read: its units: for each limit, and for the call.
        after: what happens after a lost answer.
        call: what is measured: it gets one counter with all limits, and a reservation of 2.
        limits: for which numbers of limits the formulas hold.
        method: of the quotas.
    """

    name: str
    write: tuple[int, int]
    read: tuple[int, int]
    after: str
    call: Callable[[Quotas, str, Ticket], object]
    limits: tuple[int, ...] = (1, 2, 4)
    method: str = "marker"

    def units(self, limits: int) -> tuple[int, int]:
        """Write and read units under so many limits."""
        (written, more), (read, beside) = self.write, self.read
        return limits * written + more, limits * read + beside

    def row(self) -> list[str]:
        """Its row in the guide."""
        return [self.name, _formula(self.write), _formula(self.read), self.after]


def _formula(units: tuple[int, int]) -> str:
    """Units as the guide writes them: `2 n + 2`."""
    each, more = units
    found = [*(["n" if each == 1 else f"{each} n"] if each else []), *([str(more)] if more else [])]
    return " + ".join(found) or "0"


_ONCE: Final = "exactly once, if repeated within a day"
QUOTA_COSTS: Final = (
    QuotaCost(
        "`acquire` without a key, n = 1",
        (0, 1),
        (0, 0),
        "at most once, or at least once, as you choose (`prefer`)",
        lambda quotas, name, _: admitted(quotas.acquire(name, 1)),
        limits=(1,),
    ),
    QuotaCost(
        "`acquire` without a key, n > 1",
        (2, 0),
        (1, 0),
        "the same",
        lambda quotas, name, _: admitted(quotas.acquire(name, 1)),
        limits=(2, 4),
    ),
    QuotaCost(
        "`acquire` with a key, method `request_token`",
        (2, 0),
        (1, 0),
        "exactly once, if repeated within ten minutes",
        lambda quotas, name, _: admitted(quotas.acquire(name, 1, key="k")),
        method="request_token",
    ),
    QuotaCost(
        "`acquire` with a key, method `marker`",
        (2, 2),
        (1, 0),
        _ONCE,
        lambda quotas, name, _: admitted(quotas.acquire(name, 1, key="k")),
    ),
    QuotaCost(
        "`reserve`",
        (2, 2),
        (1, 0),
        "exactly once with a key",
        lambda quotas, name, _: admitted(quotas.reserve(name, 1, key="k")),
    ),
    QuotaCost(
        "`commit` of another amount, `release`",
        (2, 2),
        (0, 0),
        "exactly once",
        lambda quotas, _, ticket: quotas.commit(ticket, 1),
    ),
    QuotaCost(
        "`commit` of what was reserved",
        (0, 1),
        (0, 0),
        "exactly once",
        lambda quotas, _, ticket: quotas.commit(ticket),
    ),
    QuotaCost(
        "`acquire` with a key, method `marker`, denied by a window",
        (2, 2),
        (0, 1),
        "",
        lambda quotas, name, _: denied(quotas.acquire(name, 9, key="k")),
    ),
    QuotaCost(
        "an amount above a limit, without a key",
        (0, 0),
        (0, 0),
        "",
        lambda quotas, name, _: denied(quotas.acquire(name, 11)),
    ),
)


@pytest.mark.parametrize("one", QUOTA_COSTS, ids=lambda one: one.name)
def test_a_call_costs_what_the_guide_says(one: QuotaCost) -> None:
    for limits in one.limits:
        stack = MemoryStack(at=datetime(2030, 1, 1, tzinfo=UTC))
        ledger = stack.ledger
        for per in _KINDS[:limits]:
            ledger.quotas.create("a:", limit=10, per=per, method=one.method)
        ticket = admitted(ledger.quotas.reserve("a:x", 2)).ticket
        assert ticket is not None
        before = ledger.write_units, ledger.read_units

        one.call(ledger.quotas, "a:x", ticket)

        spent = ledger.write_units - before[0], ledger.read_units - before[1]
        assert spent == one.units(limits)
