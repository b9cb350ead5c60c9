"""Holds on the deployed stack: their commands, what releases them, and which policies they need."""

from datetime import timedelta
from typing import Final

import pytest

from countledger import outcomes
from countledger.consumers.verify import Judgement
from countledger.infra.cli.audit import all_with_holds, held_verdicts
from countledger.infra.local.stack import LocalStack
from countledger.ledger.clock import SystemClock
from countledger.ledger.errors import AccessDenied
from countledger.ledger.ids import id_of_key
from countledger.ledger.limits import MINUTE_MS
from countledger.producers.strict.counters import StrictCounters
from countledger.producers.strict.hold import hold_id
from tests.e2e.command import Command
from tests.e2e.steps import Story, play, step
from tests.e2e.world import client_of, edit, invoke

_HOLD: Final = hold_id("NS:hall", id_of_key("k"))
_CREATE: Final = "strict create NS:hall --lower 0 --method marker --opening 10"
_STORIES: Final[dict[str, Story]] = {
    "two seats are held and one is taken": (
        step(_CREATE),
        step("strict hold NS:hall 2 --key k --expires-in 10m", {"outcome": "held", "id": _HOLD}),
        step(
            "strict hold NS:hall 2 --key k --expires-in 10m",
            {"outcome": "duplicate", "hold": {"state": "open"}},
        ),
        step("strict holds NS:hall", {"items": [{"id": _HOLD}]}),
        step("strict change NS:hall -9 --key order-1", code=4),
        step(f"strict confirm {_HOLD} 1", {"released": "1"}),
        step("strict show NS:hall", {"value": "9", "held": "0", "available": "9"}),
    ),
    "a hold that is cancelled cannot be confirmed": (
        step(_CREATE),
        step("strict hold NS:hall 10 --key k", {"id": _HOLD}),
        step(f"strict cancel {_HOLD}", {"outcome": "cancelled"}),
        step(f"strict confirm {_HOLD}", code=4, err="was cancelled"),
        step("strict show NS:hall", {"available": "10"}),
    ),
}


@pytest.mark.parametrize("title", _STORIES)
def test_it_happens_as_told(command: Command, title: str) -> None:
    play(command, _STORIES[title])


def test_expired_holds_are_released_by_the_stack_under_its_own_policies(
    auth_stack: LocalStack, name: str
) -> None:
    """Placed, listed and confirmed under the strict policy; released under the releaser's role."""
    app, hall = client_of(auth_stack, "StrictPolicyArn").strict, f"{name}:hall"
    app.create(hall, method="marker", lower=0, opening=10, bins=3)
    first, second, third = (_held(app, hall, key) for key in "abc")
    assert isinstance(app.confirm(first, 1), outcomes.Confirmed)
    assert isinstance(app.cancel(second), outcomes.Cancelled)
    _end_time_of(auth_stack, app, hall)

    content = invoke(auth_stack, auth_stack.outputs["ReleaserFunctionName"], {})

    assert content["overdue"] == 0  # its schedule may have been faster
    shown = app.show(hall)
    assert (shown.value, shown.held, shown.available) == (9, 0, 9)
    assert isinstance(app.confirm(third), outcomes.HoldExpired)
    assert isinstance(app.confirm(third, readmit=True), outcomes.Confirmed)
    _held(app, hall, "d")
    _end_time_of(auth_stack, app, hall)
    assert isinstance(app.change(hall, -7, key="o"), outcomes.Applied)
    app.delete(hall)


def test_an_operator_compares_what_is_held_with_the_open_holds(
    auth_stack: LocalStack, name: str
) -> None:
    app, hall = client_of(auth_stack, "StrictPolicyArn").strict, f"{name}:hall"
    app.create(hall, method="marker", lower=0, opening=10, bins=3)
    app.create(f"{name}:bus", method="marker", lower=0, opening=10)
    _held(app, hall, "a")
    operator = client_of(auth_stack, "OperatePolicyArn")

    listed = [one for one in all_with_holds(operator) if one.startswith(name)]
    (good,) = held_verdicts(operator, listed)
    named = Command(auth_stack.environment())("verify", hall, f"{name}:bus", "--json")

    assert (good.counter, good.verdict, good.total, good.exact) == (hall, Judgement.EXACT, 2, 2)
    assert named.code == 0, named.err
    assert named.json["counts"] == {"exact": 2}
    assert app.verify_holds(hall).proven


@pytest.mark.parametrize("policy", ["ReadPolicyArn", "EmitPolicyArn", "QuotaPolicyArn"])
def test_no_other_policy_holds(auth_stack: LocalStack, name: str, policy: str) -> None:
    app, hall = client_of(auth_stack, "StrictPolicyArn").strict, f"{name}:hall"
    app.create(hall, method="marker", lower=0, opening=10)
    held = _held(app, hall, "a")
    other = client_of(auth_stack, policy).strict

    for act in (
        lambda: other.hold(hall, 1, key="b", expires_in=timedelta(minutes=1)),
        lambda: other.confirm(held),
        lambda: other.cancel(held),
        lambda: list(other.holds(hall)),
    ):
        with pytest.raises(AccessDenied):
            act()
    assert app.show(hall).held == 2


def _held(app: StrictCounters, hall: str, key: str) -> str:
    outcome = app.hold(hall, 2, key=key, expires_in=timedelta(minutes=1))
    assert isinstance(outcome, outcomes.Held), outcome
    return outcome.id


def _end_time_of(stack: LocalStack, app: StrictCounters, hall: str) -> None:
    """Nobody waits: the time of its open holds is over for two minutes."""
    root, ended_ms = client_of(stack), SystemClock().now_ms() - 2 * MINUTE_MS
    for one in app.holds(hall):
        edit(root, "counters_table", one.place, lapses_at=ended_ms, due_at=ended_ms)
