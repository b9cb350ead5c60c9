"""What a canary is, and what a simulation may be limited to that looks for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from countledger.ledger.errors import CountledgerError
from tests.simulation import faults
from tests.simulation.accidents import ACCIDENTS
from tests.simulation.shape import drawn
from tests.simulation.simulation import Simulation

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.faults import Fault
    from tests.simulation.shape import Shape
    from tests.switches import Switch


@dataclass(frozen=True)
class Canary:
    """A wrong variant.

    Attributes:
        rule: what it lacks.
        switch_off: takes the rule out of the product.
        focus: what the simulations do, in which it is looked for; None: anything.
        within: in how many of them it must be caught.
        seed: the one in which it was caught last, tried first.
        rare: whether few seeds catch it, or long ones, so that another one is a long search: it
            is left to `make test-all`.
    """

    rule: str
    switch_off: Switch
    focus: str | None = None
    within: int = 400
    seed: int = 0
    rare: bool = False

    def caught_by(self) -> int | None:
        """The seed that breaks a promise without the rule; that the variant crashes is no catch."""
        with pytest.MonkeyPatch.context() as patch:
            self.switch_off(patch)
            seeds = (self.seed, *range(self.within))
            return next((seed for seed in seeds if self._breaks(seed)), None)

    def _breaks(self, seed: int) -> bool:
        try:
            Simulation(seed, focus=self.focus).run()
        except AssertionError:
            return True
        except CountledgerError:
            return False
        return False


def shaped(**changes: Any) -> Switch:  # noqa: ANN401 - of a `Shape`
    """Each simulation has the shape of its seed with these changes."""

    def changed(random: Random, operations: dict[str, float], focus: str | None) -> Shape:
        return replace(drawn(random, operations, focus), **changes)

    return lambda patch: patch.setattr("tests.simulation.simulation.drawn", changed)


def little_but(*accidents: str) -> Switch:
    """No other accidents happen than these."""
    some = {name: ACCIDENTS[name] for name in accidents}
    return lambda patch: patch.setattr("tests.simulation.simulation.ACCIDENTS", some)


def rated(fault: Fault, rate: float) -> Switch:
    """A fault has this rate, where it occurs at all."""
    return lambda patch: patch.setitem(faults._RATES, fault, (rate,))
