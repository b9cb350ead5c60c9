"""Each rule that protects a pair of calls is needed: without it the explorer finds a schedule."""

import pytest

from tests.exploring.canaries import CANARIES
from tests.exploring.canary import SwitchedOff


@pytest.mark.parametrize("canary", CANARIES, ids=lambda one: one.rule)
def test_a_rule_that_is_switched_off_is_found(canary: SwitchedOff) -> None:
    """With the rule kept, as many states of the same search are right."""
    found = canary.found()

    assert found.violation is not None
    assert canary.kept(found.states).violation is None
