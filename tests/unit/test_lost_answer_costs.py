"""What calls cost after a request without an answer, in write and read units: see docs/costs.md.

Each call is made on a stack in memory whose next write gets no answer: it was applied; or it never
arrived, and costs nothing; or it never arrived, and another call comes before the next request.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from countledger import CountLedger
from countledger.ledger.errors import CountledgerError
from countledger.ledger.limits import DAY_MS, HOUR_MS
from countledger.producers.quotas.quota import Admitted
from countledger.producers.strict.outcome import Held
from countledger.testing import MemoryStack

_DOCS: Final = Path(__file__).parents[2] / "docs"
_HOUR: Final = timedelta(hours=1)
_COUNTER, _OTHER, _BUDGET = "s:x", "s:y", "a:x"

# Write and read units.
Units = tuple[float, float]
# What a call did in each of the three ways, and what it cost.
Told = tuple[tuple[str, Units], tuple[str, Units], tuple[str, Units]]
_Call = Callable[[CountLedger, Any], object]


@dataclass(frozen=True, slots=True)
class AfterNoAnswer:
    """A call, and another one that comes before its second request.

    Attributes:
        name: as the guide names it.
        prepare: what there was before; its result goes to both calls.
        call: what is measured.
        other: makes it refuse, or changes what it was about to change.
        told: what it answers and costs.
    """

    name: str
    prepare: Callable[[CountLedger], object]
    call: _Call
    other: _Call
    told: Told

    def __str__(self) -> str:
        """As the guide names it."""
        return self.name

    def measured(self, plan: str, *, disturbed: bool) -> tuple[str, Units]:
        """What it answers and costs, without the other call."""
        stack = MemoryStack(at=datetime(2030, 1, 1, tzinfo=UTC))
        ledger = stack.ledger
        prepared = self.prepare(ledger)
        spent = _Spent(ledger)

        def other() -> None:
            before = spent.units
            self.other(ledger, prepared)
            spent.without(before)

        getattr(stack, plan)()
        if disturbed:
            stack.before_next_request(other)
        try:
            answer = type(self.call(ledger, prepared))
        except CountledgerError as error:
            answer = type(error)
        return answer.__name__, spent.units


class _Spent:
    """What a ledger has spent since it was made, without what is left out."""

    def __init__(self, ledger: CountLedger) -> None:
        """Nothing yet."""
        self._ledger = ledger
        self._from = (0.0, 0.0)
        self._from = self.units

    @property
    def units(self) -> Units:
        """Write and read units."""
        write, read = self._ledger.write_units, self._ledger.read_units
        return write - self._from[0], read - self._from[1]

    def without(self, before: Units) -> None:
        """What was spent since then does not count."""
        now = self.units
        self._from = self._from[0] + now[0] - before[0], self._from[1] + now[1] - before[1]


def _strict(
    name: str, method: str, told: Told, *, bins: int = 1, prefer: str | None = None
) -> AfterNoAnswer:
    """A change of a counter that has two left, or two in each bin; the other call takes all."""

    def prepare(ledger: CountLedger) -> None:
        history = 3 if method == "history" else None
        ledger.strict.create(
            _COUNTER, method=method, bins=bins, lower=0, opening=2 * bins, history=history
        )

    def change(ledger: CountLedger, _: object) -> object:
        key = None if method == "atomic" else "order-1"
        return ledger.strict.change(_COUNTER, -1, key=key, prefer=prefer)

    def taken(ledger: CountLedger, _: object) -> None:
        for delta in (-1, -1) if method == "set" else (-2 * bins,):
            ledger.strict.change(_COUNTER, delta)

    return AfterNoAnswer(name, prepare, change, taken, told)


def _two(ledger: CountLedger) -> None:
    ledger.strict.create(_COUNTER, method="marker", lower=0, opening=1)
    ledger.strict.create(_OTHER, method="marker")


def _held(ledger: CountLedger) -> str:
    _two(ledger)
    held = ledger.strict.hold(_COUNTER, 1, expires_in=_HOUR)
    assert isinstance(held, Held)
    return held.id


def _quota(method: str) -> Callable[[CountLedger], None]:
    def prepare(ledger: CountLedger) -> None:
        ledger.quotas.create("a:", limit=2, per="day", method=method)
        ledger.quotas.acquire("a:y", 1)  # its window is known
        ledger.quotas.show(_BUDGET)

    return prepare


def _reserved(ledger: CountLedger) -> object:
    _quota("marker")(ledger)
    reserved = ledger.quotas.reserve(_BUDGET, 2)
    assert isinstance(reserved, Admitted)
    return reserved.ticket


def _hourly(ledger: CountLedger) -> None:
    ledger.namespaces.create("likes")
    ledger.schedules.create("likes", every_ms=HOUR_MS)


STRICT: Final = (
    _strict("`atomic`", "atomic", (("Unknown", (1, 0)), ("Unknown", (0, 0)), ("Unknown", (0, 0)))),
    _strict(
        '`atomic`, `prefer="over"`',
        "atomic",
        (("Applied", (2, 0)), ("Applied", (1, 0)), ("Unknown", (1, 0))),
        prefer="over",
    ),
    _strict("`occ`", "occ", (("Applied", (1, 2)), ("Applied", (2, 2)), ("BoundReached", (0, 2)))),
    _strict(
        "`history`", "history", (("Applied", (1, 2)), ("Applied", (2, 2)), ("BoundReached", (0, 2)))
    ),
    _strict(
        "`request_token`",
        "request_token",
        (("Applied", (3, 3)), ("Applied", (5, 1)), ("BoundReached", (5, 0))),
    ),
    _strict(
        "`request_token`, two bins",
        "request_token",
        (("Applied", (3, 3)), ("Applied", (5, 0)), ("BoundReached", (9, 4))),
        bins=2,
    ),
    _strict(
        "`marker`", "marker", (("Applied", (4, 5)), ("Applied", (4, 1)), ("BoundReached", (8, 0)))
    ),
    _strict(
        "`marker`, two bins",
        "marker",
        (("Applied", (4, 4)), ("Applied", (4, 0)), ("BoundReached", (12, 4))),
        bins=2,
    ),
    _strict("`set`", "set", (("Applied", (2, 0)), ("Applied", (1, 0)), ("BoundReached", (2, 0)))),
    AfterNoAnswer(
        "`transfer`",
        _two,
        lambda ledger, _: ledger.strict.transactions.transfer(_COUNTER, _OTHER, 1, key="k"),
        lambda ledger, _: ledger.strict.change(_COUNTER, -1),
        (("Applied", (6, 6)), ("Applied", (6, 0)), ("BoundReached", (7, 0))),
    ),
    AfterNoAnswer(
        "`set_value`",
        _two,
        lambda ledger, _: ledger.strict.transactions.set_value(_COUNTER, 5, key="k"),
        lambda ledger, _: ledger.strict.set_bounds(_COUNTER, lower=9, force=True),
        (("Applied", (4, 5)), ("Applied", (4, 1)), ("BadBounds", (5, 2))),
    ),
    AfterNoAnswer(
        "`hold`",
        _two,
        lambda ledger, _: ledger.strict.hold(_COUNTER, 1, expires_in=_HOUR),
        lambda ledger, _: ledger.strict.change(_COUNTER, -1),
        (("Held", (5, 4)), ("Held", (5, 0)), ("BoundReached", (8, 0))),
    ),
    AfterNoAnswer(
        "`confirm`",
        _held,
        lambda ledger, hold: ledger.strict.confirm(hold),
        lambda ledger, hold: ledger.strict.cancel(hold),
        (("Confirmed", (9, 2)), ("Confirmed", (5, 1)), ("HoldCancelled", (4, 2))),
    ),
    AfterNoAnswer(
        "`strict.create`",
        lambda ledger: ledger.strict.create(_OTHER, method="atomic"),
        lambda ledger, _: ledger.strict.create(_COUNTER, method="occ"),
        lambda ledger, _: ledger.strict.create(_COUNTER, method="atomic"),
        (("StrictCounter", (4, 4.5)), ("StrictCounter", (4, 0.5)), ("CounterExists", (5, 0.5))),
    ),
    AfterNoAnswer(
        "`strict.delete`",
        _two,
        lambda ledger, _: ledger.strict.delete(_COUNTER),
        lambda ledger, _: ledger.strict.hold(_COUNTER, 1, expires_in=_HOUR),
        (("NoneType", (4, 5)), ("NoneType", (4, 1)), ("OpenHolds", (9, 2.5))),
    ),
    AfterNoAnswer(
        "`strict.set_bounds`",
        _two,
        lambda ledger, _: ledger.strict.set_bounds(_COUNTER, lower=1),
        lambda ledger, _: ledger.strict.change(_COUNTER, -1),
        (("StrictCounter", (2, 2)), ("StrictCounter", (1, 2)), ("BadBounds", (2, 2))),
    ),
)
QUOTAS: Final = (
    AfterNoAnswer(
        "`acquire` without a key",
        _quota("marker"),
        lambda ledger, _: ledger.quotas.acquire(_BUDGET, 1),
        lambda ledger, _: ledger.quotas.acquire(_BUDGET, 2),
        (("Unclear", (1, 0)), ("Unclear", (0, 0)), ("Unclear", (0, 0))),
    ),
    AfterNoAnswer(
        '`acquire`, `prefer="over"`',
        _quota("marker"),
        lambda ledger, _: ledger.quotas.acquire(_BUDGET, 1, prefer="over"),
        lambda ledger, _: ledger.quotas.acquire(_BUDGET, 2),
        (("Admitted", (2, 0)), ("Admitted", (1, 0)), ("Unclear", (1, 0))),
    ),
    AfterNoAnswer(
        "`acquire` by `request_token`",
        _quota("request_token"),
        lambda ledger, _: ledger.quotas.acquire(_BUDGET, 1, key="k"),
        lambda ledger, _: ledger.quotas.acquire(_BUDGET, 2),
        (("Admitted", (3, 3)), ("Admitted", (5, 1)), ("Denied", (5, 0))),
    ),
    AfterNoAnswer(
        "`acquire` by `marker`",
        _quota("marker"),
        lambda ledger, _: ledger.quotas.acquire(_BUDGET, 1, key="k"),
        lambda ledger, _: ledger.quotas.acquire(_BUDGET, 2),
        (("Admitted", (4, 5)), ("Admitted", (4, 1)), ("Unclear", (4, 1))),
    ),
    AfterNoAnswer(
        "`reserve`",
        _quota("marker"),
        lambda ledger, _: ledger.quotas.reserve(_BUDGET, 1),
        lambda ledger, _: ledger.quotas.acquire(_BUDGET, 2),
        (("Admitted", (4, 5)), ("Admitted", (4, 1)), ("Unclear", (4, 1))),
    ),
    AfterNoAnswer(
        "`commit`",
        _reserved,
        lambda ledger, ticket: ledger.quotas.commit(ticket, 1),
        lambda ledger, ticket: ledger.quotas.release(ticket),
        (("Committed", (4, 4)), ("Committed", (4, 0)), ("TicketResolved", (4, 0))),
    ),
    AfterNoAnswer(
        "`release`",
        _reserved,
        lambda ledger, ticket: ledger.quotas.release(ticket),
        lambda ledger, ticket: ledger.quotas.commit(ticket, 1),
        (("bool", (4, 4)), ("bool", (4, 0)), ("TicketResolved", (4, 0))),
    ),
    AfterNoAnswer(
        "`quotas.create`",
        lambda _: None,
        lambda ledger, _: ledger.quotas.create("a:", limit=1, per="day"),
        lambda ledger, _: ledger.quotas.create("a:", limit=2, per="day"),
        (("Quota", (2, 0)), ("Quota", (1, 0)), ("Unclear", (1, 0))),
    ),
    AfterNoAnswer(
        "`quotas.set_limit`",
        _quota("marker"),
        lambda ledger, _: ledger.quotas.set_limit("a:", 5),
        lambda ledger, _: ledger.quotas.set_limit("a:", 6),
        (("NoneType", (2, 1)), ("NoneType", (1, 1)), ("NoneType", (2, 1))),
    ),
    AfterNoAnswer(
        "`quotas.delete`",
        _quota("marker"),
        lambda ledger, _: ledger.quotas.delete("a:"),
        lambda ledger, _: ledger.quotas.delete("a:"),
        (("NoneType", (2, 2)), ("NoneType", (1, 2)), ("NoSuchQuota", (1, 1))),
    ),
)
SCHEDULES: Final = (
    AfterNoAnswer(
        "`schedules.create`",
        lambda ledger: ledger.namespaces.create("likes"),
        lambda ledger, _: ledger.schedules.create("likes", every_ms=HOUR_MS),
        lambda ledger, _: ledger.schedules.create("likes", every_ms=DAY_MS),
        (("Schedule", (2, 2)), ("Schedule", (1, 2)), ("Unclear", (1, 1))),
    ),
    AfterNoAnswer(
        "`schedules.set`",
        _hourly,
        lambda ledger, _: ledger.schedules.set("likes", every_ms=DAY_MS),
        lambda ledger, _: ledger.schedules.delete("likes"),
        (("Schedule", (2, 2)), ("Schedule", (1, 2)), ("NoSuchSchedule", (1, 1))),
    ),
    AfterNoAnswer(
        "`schedules.delete`",
        _hourly,
        lambda ledger, _: ledger.schedules.delete("likes"),
        lambda ledger, _: ledger.schedules.delete("likes"),
        (("bool", (2, 1)), ("bool", (1, 1)), ("bool", (1, 1))),
    ),
)


def _assert_told(one: AfterNoAnswer) -> None:
    applied = one.measured("lose_next_answer", disturbed=False)
    lost = one.measured("fail_next", disturbed=False)
    refused = one.measured("fail_next", disturbed=True)
    assert (applied, lost, refused) == one.told


@pytest.mark.parametrize("one", STRICT, ids=str)
def test_a_call_of_a_strict_counter_costs_this_after_no_answer(one: AfterNoAnswer) -> None:
    _assert_told(one)


@pytest.mark.parametrize("one", QUOTAS, ids=str)
def test_a_call_of_a_quota_costs_this_after_no_answer(one: AfterNoAnswer) -> None:
    _assert_told(one)


@pytest.mark.parametrize("one", SCHEDULES, ids=str)
def test_a_call_of_a_schedule_costs_this_after_no_answer(one: AfterNoAnswer) -> None:
    _assert_told(one)


def test_the_guide_says_what_calls_cost_after_no_answer() -> None:
    text = (_DOCS / "costs.md").read_text()
    table = text.partition("**After a request without an answer**")[2]
    rows = re.findall(r"^\| (`.*?) \| (.*?) \| (.*?) \| (.*?) \|$", table, re.MULTILINE)

    assert rows == [(one.name, *map(_shown, one.told)) for one in (*STRICT, *QUOTAS, *SCHEDULES)]


def _shown(told: tuple[str, Units]) -> str:
    """As the guide shows it: `Applied` 2 + 1."""
    answer, (write, read) = told
    done = {"NoneType", "bool", "StrictCounter", "Quota", "Schedule"}
    return f"{'' if answer in done else f'`{answer}` '}{write:g} + {read:g}"
