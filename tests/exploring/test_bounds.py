"""Bounds that a test scales keep the order that the real ones have.

A rule may rest on one bound being longer than another: a world in which they are the other way
round shows nothing of it. What the simulation reverses is listed, with what checks it instead.
"""

from __future__ import annotations

from itertools import combinations
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from countledger.ledger.limits import (
    CLOCK_SKEW_DEFAULT_MS,
    HORIZON_DEFAULT_MS,
    LEASE_MS,
    REPLICATION_BOUND_DEFAULT_MS,
    SIGNED_REQUEST_LIFE_MS,
    TOKEN_LIFE_MS,
)
from tests.exploring.scopes import CAPABILITIES
from tests.simulation.shape import Shape, drawn

_REAL: Final = {
    "skew": CLOCK_SKEW_DEFAULT_MS,
    "lease": LEASE_MS,
    "token": TOKEN_LIFE_MS,
    "life": SIGNED_REQUEST_LIFE_MS,
    "replication": REPLICATION_BOUND_DEFAULT_MS,
    "horizon": HORIZON_DEFAULT_MS,
}
if TYPE_CHECKING:
    from tests.exploring.scope import Capability

# Pairs that some seeds reverse. The explorer and the stack in memory have the real ones of all.
_REVERSED: Final = {
    ("skew", "life"): "clocks that differ more than requests live: checks that both are added up",
    ("skew", "replication"): "the same",
    ("lease", "life"): "leases that outlive requests: a late merge under a lease of another home",
    ("lease", "replication"): "the same",
    ("token", "life"): "tokens last ten minutes there: that twins outlive them is the explorer's",
    ("token", "replication"): "the same",
    ("token", "horizon"): "the horizon there is a minute; no rule compares it with tokens",
}


def _scaled(shape: Shape) -> dict[str, int]:
    return {
        "skew": shape.skew_ms,
        "lease": shape.lease_ms,
        "token": TOKEN_LIFE_MS,
        "life": shape.life_ms,
        "replication": shape.replication_ms,
        "horizon": shape.horizon_ms,
    }


def _reversed(scaled: dict[str, int]) -> set[tuple[str, str]]:
    """The pairs that have another order than the real ones; of equal ones either may be longer."""
    pairs = combinations(sorted(_REAL, key=_REAL.__getitem__), 2)
    ordered = [(less, more) for less, more in pairs if _REAL[less] < _REAL[more]]
    return {(less, more) for less, more in ordered if scaled[less] > scaled[more]}


def test_the_simulation_reverses_only_bounds_that_are_listed() -> None:
    shapes = (drawn(Random(seed), {"record": 1.0}) for seed in range(300))  # noqa: S311 - a seed
    found = {pair for shape in shapes for pair in _reversed(_scaled(shape))}

    assert found == set(_REVERSED)


@pytest.mark.parametrize("capability", CAPABILITIES, ids=lambda one: one.name)
def test_the_explorer_has_the_real_bounds(capability: Capability) -> None:
    """And a jump that tokens do not outlive, but requests do."""
    assert capability.bounds.life_ms == SIGNED_REQUEST_LIFE_MS
    jumps_ms = (*capability.bounds.jumps_ms, *capability.alone_jumps_ms)
    assert any(TOKEN_LIFE_MS < jump_ms < SIGNED_REQUEST_LIFE_MS for jump_ms in jumps_ms)
