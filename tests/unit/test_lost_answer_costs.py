"""What calls cost after a request without an answer, in write and read units: see docs/costs.md.

Each call is made on a stack in memory whose next write gets no answer: it was applied; or it never
arrived, and costs nothing; or it never arrived, and another call comes before the next request.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from countledger import CountLedger
from countledger.ledger.errors import CountledgerError
from countledger.ledger.limits import DAY_MS, HOUR_MS
from countledger.testing import MemoryStack
from tests.unit.capabilities import AMOUNT, CAPABILITIES, KEY, SETTINGS, UNKEYED, Capability

_DOCS: Final = Path(__file__).parents[2] / "docs"
_ROWS: Final = {row.name: row for row in (*CAPABILITIES, *UNKEYED)}
_NAMED: Final = {row.name: row for row in SETTINGS}

# Write and read units.
Units = tuple[float, float]
# What a call did in each of the three ways, and what it cost.
Told = tuple[tuple[str, Units], tuple[str, Units], tuple[str, Units]]


@dataclass(frozen=True, slots=True)
class AfterNoAnswer:
    """A call, and another one that comes before its second request.

    Attributes:
        name: as the guide names it.
        row: the call; its `take` makes it refuse, or changes what it was about to change.
        told: what it answers and costs.
    """

    name: str
    row: Capability
    told: Told

    def __str__(self) -> str:
        """As the guide names it."""
        return self.name

    def measured(self, plan: str, *, disturbed: bool) -> tuple[str, Units]:
        """What it answers and costs, without the other call."""
        stack, row = MemoryStack(at=datetime(2030, 1, 1, tzinfo=UTC)), self.row
        ledger, take = stack.ledger, row.take
        prepared = row.prepare(ledger)
        spent = _Spent(ledger)

        def other() -> None:
            assert take is not None
            before = spent.units
            take(ledger, prepared)
            spent.without(before)

        getattr(stack, plan)()
        if disturbed:
            stack.before_next_request(other)
        try:
            answer = type(row.call(ledger, prepared, AMOUNT, KEY))
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


def _of(name: str, row: str, *told: tuple[str, Units]) -> AfterNoAnswer:
    first, second, third = told
    return AfterNoAnswer(name, _ROWS[row], (first, second, third))


def _beside(
    name: str,
    prepare: Callable[[CountLedger], object],
    call: Callable[[CountLedger], object],
    other: Callable[[CountLedger], object],
    *told: tuple[str, Units],
) -> AfterNoAnswer:
    """A call that nothing refuses, or that counts nothing."""
    first, second, third = told
    row = Capability(
        name=name,
        prepare=prepare,
        call=lambda ledger, *_: call(ledger),
        number=lambda _ledger, _made: 0,
        take=lambda ledger, _: other(ledger),
    )
    return AfterNoAnswer(name, row, (first, second, third))


def _created(name: str, setting: str, *told: tuple[str, Units]) -> AfterNoAnswer:
    row = _NAMED[setting]
    return _beside(
        name,
        row.prepare,
        lambda ledger: row.create(ledger, 1),
        lambda ledger: row.create(ledger, 2),
        *told,
    )


def _hourly(ledger: CountLedger) -> None:
    ledger.namespaces.create("likes")
    ledger.schedules.create("likes", every_ms=HOUR_MS)


STRICT: Final = (
    _of("`atomic`", "atomic", ("Unknown", (1, 0)), ("Unknown", (0, 0)), ("Unknown", (0, 0))),
    _of(
        '`atomic`, `prefer="over"`',
        "atomic, over",
        ("Applied", (2, 0)),
        ("Applied", (1, 0)),
        ("Unknown", (1, 0)),
    ),
    _of("`occ`", "occ", ("Applied", (1, 2)), ("Applied", (2, 2)), ("BoundReached", (0, 2))),
    _of("`history`", "history", ("Applied", (1, 2)), ("Applied", (2, 2)), ("BoundReached", (0, 2))),
    _of(
        "`request_token`",
        "request_token",
        ("Applied", (3, 3)),
        ("Applied", (5, 1)),
        ("BoundReached", (5, 0)),
    ),
    _of(
        "`request_token`, two bins",
        "request_token, bins",
        ("Applied", (3, 3)),
        ("Applied", (5, 0)),
        ("BoundReached", (9, 4)),
    ),
    _of("`marker`", "marker", ("Applied", (4, 5)), ("Applied", (4, 1)), ("BoundReached", (8, 0))),
    _of(
        "`marker`, two bins",
        "marker, bins",
        ("Applied", (4, 4)),
        ("Applied", (4, 0)),
        ("BoundReached", (12, 4)),
    ),
    _of("`set`", "set", ("Applied", (2, 0)), ("Applied", (1, 0)), ("BoundReached", (2, 0))),
    _of(
        "`transfer`",
        "transfer",
        ("Applied", (6, 6)),
        ("Applied", (6, 0)),
        ("BoundReached", (7, 0)),
    ),
    _beside(
        "`set_value`",
        lambda ledger: ledger.strict.create("s:x", method="marker", lower=0, opening=1),
        lambda ledger: ledger.strict.transactions.set_value("s:x", 5, key=KEY),
        lambda ledger: ledger.strict.set_bounds("s:x", lower=9, force=True),
        ("Applied", (4, 5)),
        ("Applied", (4, 1)),
        ("BadBounds", (5, 2)),
    ),
    _of("`hold`", "hold", ("Held", (5, 4)), ("Held", (5, 0)), ("BoundReached", (8, 0))),
    _of(
        "`confirm`",
        "confirm",
        ("Confirmed", (9, 2)),
        ("Confirmed", (5, 1)),
        ("HoldCancelled", (4, 2)),
    ),
    _beside(
        "`strict.create`",
        lambda ledger: ledger.strict.create("s:y", method="atomic"),
        lambda ledger: ledger.strict.create("s:x", method="occ"),
        lambda ledger: ledger.strict.create("s:x", method="atomic"),
        ("StrictCounter", (4, 4.5)),
        ("StrictCounter", (4, 0.5)),
        ("CounterExists", (5, 0.5)),
    ),
    _of(
        "`strict.delete`",
        "delete a strict counter",
        ("NoneType", (4, 5)),
        ("NoneType", (4, 1)),
        ("OpenHolds", (9, 2.5)),
    ),
    _of(
        "`strict.set_bounds`",
        "move a bound",
        ("StrictCounter", (2, 2)),
        ("StrictCounter", (1, 2)),
        ("BadBounds", (2, 2)),
    ),
)
QUOTAS: Final = (
    _of(
        "`acquire` without a key",
        "acquire without a key",
        ("Unclear", (1, 0)),
        ("Unclear", (0, 0)),
        ("Unclear", (0, 0)),
    ),
    _of(
        '`acquire`, `prefer="over"`',
        "acquire without a key, over",
        ("Admitted", (2, 0)),
        ("Admitted", (1, 0)),
        ("Unclear", (1, 0)),
    ),
    _of(
        "`acquire` by `request_token`",
        "acquire by request_token",
        ("Admitted", (3, 3)),
        ("Admitted", (5, 1)),
        ("Denied", (5, 0)),
    ),
    _of(
        "`acquire` by `marker`",
        "acquire by marker",
        ("Admitted", (4, 5)),
        ("Admitted", (4, 1)),
        ("Unclear", (4, 1)),
    ),
    _of("`reserve`", "reserve", ("Admitted", (4, 5)), ("Admitted", (4, 1)), ("Unclear", (4, 1))),
    _of(
        "`commit`",
        "commit",
        ("Committed", (4, 4)),
        ("Committed", (4, 0)),
        ("TicketResolved", (4, 0)),
    ),
    _of("`release`", "release", ("bool", (4, 4)), ("bool", (4, 0)), ("TicketResolved", (4, 0))),
    _created("`quotas.create`", "quota", ("Quota", (2, 0)), ("Quota", (1, 0)), ("Unclear", (1, 0))),
    _beside(
        "`quotas.set_limit`",
        _ROWS["set a limit"].prepare,
        lambda ledger: ledger.quotas.set_limit("a:", 5),
        lambda ledger: ledger.quotas.set_limit("a:", 6),
        ("NoneType", (2, 1)),
        ("NoneType", (1, 1)),
        ("NoneType", (2, 1)),
    ),
    _beside(
        "`quotas.delete`",
        _ROWS["set a limit"].prepare,
        lambda ledger: ledger.quotas.delete("a:"),
        lambda ledger: ledger.quotas.delete("a:"),
        ("NoneType", (2, 2)),
        ("NoneType", (1, 2)),
        ("NoSuchQuota", (1, 1)),
    ),
)
SCHEDULES: Final = (
    _created(
        "`schedules.create`",
        "schedule",
        ("Schedule", (2, 2)),
        ("Schedule", (1, 2)),
        ("Unclear", (1, 1)),
    ),
    _beside(
        "`schedules.set`",
        _hourly,
        lambda ledger: ledger.schedules.set("likes", every_ms=DAY_MS),
        lambda ledger: ledger.schedules.delete("likes"),
        ("Schedule", (2, 2)),
        ("Schedule", (1, 2)),
        ("NoSuchSchedule", (1, 1)),
    ),
    _beside(
        "`schedules.delete`",
        _hourly,
        lambda ledger: ledger.schedules.delete("likes"),
        lambda ledger: ledger.schedules.delete("likes"),
        ("bool", (2, 1)),
        ("bool", (1, 1)),
        ("bool", (1, 1)),
    ),
)


@pytest.mark.parametrize("one", [*STRICT, *QUOTAS, *SCHEDULES], ids=str)
def test_a_call_costs_this_after_no_answer(one: AfterNoAnswer) -> None:
    applied = one.measured("lose_next_answer", disturbed=False)
    lost = one.measured("fail_next", disturbed=False)
    refused = one.measured("fail_next", disturbed=True)
    assert (applied, lost, refused) == one.told


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
