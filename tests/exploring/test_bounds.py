"""Bounds that a test scales keep the order that the real ones have.

A rule may rest on one bound being longer than another: a world in which they are the other way
round shows nothing of it. What the simulation reverses is listed, with what checks it instead.

The order is that of what is the same for everybody. Clock skew, replication bound, horizons and the
windows of counters are settings: a stack may have them in any order, and those of a simulation are
ones that the product accepts. The endurance tests scale settings alone.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final

import pytest

from countledger.ledger.limits import (
    INVOCATION_TIME_MS,
    LATE_WRITE_MS,
    LEASE_MS,
    SIGNED_REQUEST_LIFE_MS,
    STREAM_RECORD_MAX_AGE_MS,
    TOKEN_LIFE_MS,
    WATERMARK_LIFE_MS,
)
from tests.exploring.scopes import CAPABILITIES
from tests.simulation.shape import ALL_FOCUSES
from tests.simulation.simulation import Simulation

if TYPE_CHECKING:
    from tests.exploring.scope import Capability
    from tests.simulation.shape import Shape

_REAL: Final = {
    "invocation": INVOCATION_TIME_MS,
    "lease": LEASE_MS,
    "token": TOKEN_LIFE_MS,
    "life": SIGNED_REQUEST_LIFE_MS,
    "late": LATE_WRITE_MS,
    "record": STREAM_RECORD_MAX_AGE_MS,
    "watermark": WATERMARK_LIFE_MS,
}
_FOCUSES: Final = (None, *ALL_FOCUSES)

# Pairs that some seeds reverse. The explorer and the stack in memory have the real ones of all.
_REVERSED: Final = {
    ("invocation", "life"): "requests live for seconds there: both are added up, in LIFE",
    ("lease", "life"): "the same: another home waits for a lease and for the life of a request",
    (
        "token",
        "life",
    ): "tokens last ten minutes there; that requests outlive them is the explorer's",
    ("token", "late"): "the same; no rule compares a token with the progress of a shard",
    ("lease", "token"): "slow calls make the lease long; no rule compares it with tokens",
    ("lease", "late"): "the same; no rule compares a lease with the progress of a shard",
    ("invocation", "lease"): "the same: the materializer's function needs no lease",
}


def _scaled(shape: Shape) -> dict[str, int]:
    """What the simulation does not scale is as it is."""
    return {
        **_REAL,
        "invocation": shape.invocation_ms,
        "lease": shape.lease_ms,
        "life": shape.life_ms,
        "late": shape.late_ms,
    }


def _reversed(scaled: dict[str, int]) -> set[tuple[str, str]]:
    """The pairs that have another order than the real ones; of equal ones either may be longer."""
    ordered = combinations(sorted(_REAL, key=_REAL.__getitem__), 2)
    return {(less, more) for less, more in ordered if scaled[less] > scaled[more]}


def test_the_simulation_reverses_only_bounds_that_are_listed() -> None:
    """Of whatever it does: a seed draws some of them for its focus."""
    drawn = [Simulation(seed, focus=focus).shape for focus in _FOCUSES for seed in range(20)]
    found = {pair for shape in drawn for pair in _reversed(_scaled(shape))}

    assert found == set(_REVERSED)


@pytest.mark.parametrize("capability", CAPABILITIES, ids=lambda one: one.name)
def test_the_explorer_has_the_real_bounds(capability: Capability) -> None:
    """And a jump that tokens do not outlive, but requests do."""
    assert capability.bounds.life_ms == SIGNED_REQUEST_LIFE_MS
    jumps_ms = (*capability.bounds.jumps_ms, *capability.alone_jumps_ms)
    assert any(TOKEN_LIFE_MS < jump_ms < SIGNED_REQUEST_LIFE_MS for jump_ms in jumps_ms)
