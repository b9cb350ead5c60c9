"""A total is ranked as the rule of its namespace says, also when two calls switch it at once."""

from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

import pytest

from countledger import errors
from countledger.infra.memory.tables import COUNTERS
from countledger.ledger import keys
from countledger.testing import MemoryStack

_AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
_X = "seats:x"
_GAPS = 40


def _stack(*, on: bool) -> MemoryStack:
    made = MemoryStack(at=_AT)
    made.ledger.strict.create(_X, method="occ", opening=5)
    if on:
        made.ledger.rankings.switch_on("seats", wait=False)
    return made


def _switch(stack: MemoryStack, *, on: bool) -> None:
    rankings = stack.ledger.rankings
    with suppress(errors.Unclear):
        rankings.switch_on("seats", wait=False) if on else rankings.switch_off("seats")


def _is_ranked(stack: MemoryStack) -> bool:
    item = stack.ledger.connection.dynamo("standard").get(COUNTERS, keys.total_key(_X)) or {}
    return "ranked" in item


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_a_ranking_that_another_call_switches_meanwhile_is_as_the_last_rule_says(
    *, begun: bool, first: bool
) -> None:
    for skip in range(_GAPS):
        stack, ran = _stack(on=begun), list[int]()

        def meanwhile(stack: MemoryStack = stack, ran: list[int] = ran) -> None:
            ran.append(1)
            _switch(stack, on=not first)

        stack.before_next_request(meanwhile, skip=skip)
        _switch(stack, on=first)
        if not ran:
            assert skip > 1
            return
        assert _is_ranked(stack) is stack.ledger.rankings.is_on("seats")
    raise AssertionError("the call never ends")


@pytest.mark.parametrize("first", [True, False])
def test_a_late_write_of_a_sweep_undoes_no_later_one(*, first: bool) -> None:
    delayed = 0
    for skip in range(_GAPS):
        stack, ran = _stack(on=not first), list[int]()
        stack.before_next_request(partial(ran.append, 1), skip=skip)
        stack.delay_next()
        _switch(stack, on=first)
        if not ran:
            break
        late = stack.planned_faults == 1
        _switch(stack, on=not first)
        delayed += late
        stack.land()
        if late:
            assert stack.ledger.rankings.is_on("seats") is not first
            assert _is_ranked(stack) is not first
    assert delayed > 1
