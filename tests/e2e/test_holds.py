"""`countledger strict hold`, `confirm`, `cancel` and `holds`, as a user calls them."""

import json
from datetime import timedelta

import pytest

from countledger import outcomes
from countledger.consumers.verify import Judgement
from countledger.infra.cli.audit_outcomes import all_with_holds, held_verdicts
from countledger.infra.local.stack import LocalStack
from countledger.ledger.clock import SystemClock
from countledger.ledger.errors import AccessDenied
from countledger.ledger.expressions import Assign
from countledger.ledger.limits import MINUTE_MS
from countledger.ledger.operations import Update
from countledger.producers.strict.counters import StrictCounters
from tests.e2e.command import Command
from tests.e2e.world import client_of


def test_two_seats_are_held_and_one_is_taken(stack: LocalStack, name: str) -> None:
    run, hall = Command(stack.environment()), f"{name}:hall"
    run("strict", "create", hall, "--method", "marker", "--lower", "0", "--opening", "10")
    hold = ("strict", "hold", hall, "2", "--key", "basket-7", "--expires-in", "10m", "--json")

    first, again = run(*hold).json, run(*hold).json
    listed = run("strict", "holds", hall, "--json").json
    refused = run("strict", "change", hall, "-9", "--key", "order-1")
    confirmed = run("strict", "confirm", first["hold"], "1", "--json")
    shown = run("strict", "show", hall, "--json").json

    assert (first["status"], again["status"]) == ("held", "duplicate")
    assert [one["id"] for one in listed] == [first["hold"]] == [again["hold"]]
    assert refused.code == 4
    assert (confirmed.code, confirmed.json["released"]) == (0, 1)
    assert (shown["value"], shown["held"], shown["available"]) == (9, 0, 9)


def test_a_hold_that_is_cancelled_cannot_be_confirmed(stack: LocalStack, name: str) -> None:
    run, hall = Command(stack.environment()), f"{name}:hall"
    run("strict", "create", hall, "--method", "marker", "--lower", "0", "--opening", "10")
    hold = run("strict", "hold", hall, "10", "--key", "b", "--json").json["hold"]

    cancelled = run("strict", "cancel", hold, "--json")
    late = run("strict", "confirm", hold)

    assert (cancelled.code, cancelled.json["status"]) == (0, "cancelled")
    assert late.code == 4
    assert "was cancelled" in late.err
    assert run("strict", "show", hall, "--json").json["available"] == 10


def test_other_methods_and_unknown_holds_are_refused_with_the_reason(
    stack: LocalStack, name: str
) -> None:
    run, hall = Command(stack.environment()), f"{name}:hall"
    run("strict", "create", hall, "--method", "atomic", "--lower", "0", "--opening", "10")

    other = run("strict", "hold", hall, "1", "--key", "b")
    unknown = run("strict", "confirm", f"{hall}#k{'0' * 32}")

    assert other.code == 2
    assert "marker" in other.err
    assert unknown.code == 2
    assert "no hold" in unknown.err.lower() or "unknown" in unknown.err.lower()


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

    answer = auth_stack.client("lambda").invoke(
        FunctionName=auth_stack.outputs["ReleaserFunctionName"], Payload="{}"
    )
    content = json.loads(answer["Payload"].read())

    assert "FunctionError" not in answer, content
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
    dynamo, table = client_of(stack).connection.dynamo("none"), stack.outputs["CountersTableName"]
    ended_ms = SystemClock().now_ms() - 2 * MINUTE_MS
    for one in app.holds(hall):
        clauses = Assign("lapses_at", ended_ms), Assign("due_at", ended_ms)
        dynamo.update(Update(table, one.place, clauses))
