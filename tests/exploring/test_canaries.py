"""Each rule that protects a pair of calls is needed: without it the explorer finds a schedule."""

from dataclasses import replace

import pytest

from tests.exploring.canaries import CANARIES, SwitchedOff
from tests.exploring.scope import Case
from tests.exploring.scopes import CAPABILITIES


@pytest.mark.parametrize("canary", CANARIES, ids=lambda one: one.rule)
def test_a_rule_that_is_switched_off_is_found(
    canary: SwitchedOff, monkeypatch: pytest.MonkeyPatch
) -> None:
    (capability,) = (one for one in CAPABILITIES if one.name == canary.capability)
    bounds = replace(capability.bounds, faults=canary.faults, states=canary.states)
    case = Case.parse(capability, canary.case, bounds)
    assert case.run().violation is None

    canary.switch(monkeypatch)

    assert case.run().violation is not None
