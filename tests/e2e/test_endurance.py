"""Every scenario of `make endurance`, small, on the deployed stack."""

import pytest

from countledger.infra.local.stack import LocalStack
from tests.e2e.world import alter_total
from tests.exploring.canary import SwitchedOff
from tests.exploring.producer_canaries import RULES_OF_HOLDS
from tools.endurance import reserving
from tools.endurance.scenarios import SCENARIOS, Scenario
from tools.endurance.world import Sent, World

SCALE = 0.002
# So few events as 100 are sent before the process can be killed.
SCALES = {"killed-producer": 0.05}


def world_of(stack: LocalStack) -> World:
    return World(stack.environment(), stack.engine.home, stack.outputs, say=lambda _line: None)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[one.name for one in SCENARIOS])
def test_a_small_run_ends_with_every_number_right(scenario: Scenario, stack: LocalStack) -> None:
    scale = SCALES.get(scenario.name, SCALE)

    row = scenario.run(world_of(stack), scale)

    assert row.problems == ()
    assert row.events == round(scenario.events * scale)
    assert (row.kills > 0) == scenario.name.startswith("killed-")


def test_a_wrong_number_is_reported(stack: LocalStack) -> None:
    world = world_of(stack)
    (counter,) = world.counters(1)
    world.ledger.record(counter, 5)
    sent = {counter: Sent(4, 1)}

    assert world.wait_for_totals(sent, stalled_s=2) == [counter]
    assert world.problems(sent) == [
        f"total of {counter}: 5 by 1 events",
        f"exact sum of {counter}: 5 by 1 events",
    ]


def test_a_corrupted_total_is_reported_by_verify(stack: LocalStack) -> None:
    world = world_of(stack)
    (counter,) = world.counters(1)
    world.ledger.record(counter, 5)
    assert world.wait_for_totals({counter: Sent(5, 1)}) == []
    alter_total(stack, counter, 1)

    problems = world.problems({counter: Sent(5, 1)})

    assert problems == [f"total of {counter}: 6 by 1 events", "verify: {'drift': 1}"]


def test_the_materializer_that_is_killed_is_that_function_alone(stack: LocalStack) -> None:
    """A scenario that kills nothing would prove nothing."""
    world = world_of(stack)
    (counter,) = world.counters(1)
    world.ledger.record(counter, 5)
    assert world.wait_for_totals({counter: Sent(5, 1)}) == []

    found = world.materializers()

    assert found
    assert {one.environ()["AWS_LAMBDA_FUNCTION_NAME"] for one in found} == {
        stack.outputs["MaterializerFunctionName"]
    }


def test_a_small_run_of_reservations_leaks_nothing() -> None:
    """In virtual time, on the simulated tables; no stack is needed."""
    row = reserving.run(3_000, 1, lambda _line: None)

    assert row.problems == ()
    assert row.events >= 3_000


@pytest.mark.parametrize("canary", RULES_OF_HOLDS, ids=lambda one: one.rule)
def test_a_run_of_reservations_notices_a_wrong_rule(
    canary: SwitchedOff, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary.switch_off(monkeypatch)

    assert reserving.run(4_000, 1, lambda _line: None).problems
