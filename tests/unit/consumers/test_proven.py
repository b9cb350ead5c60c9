"""A counter is removed only once its total is what its ledger says, and stands still."""

from __future__ import annotations

from countledger.consumers.auditor import Auditor, why_not_exact
from countledger.ledger.namespace import Namespaces
from tests.unit.consumers.world import COUNTER, LEDGER, World


def _world() -> tuple[World, Auditor]:
    world = World()
    world.add_shard("s")
    world.handle(world.emit(5), 5)
    return world, Auditor(world.verifier(), Namespaces(world.dynamo, LEDGER, "r", "r"), "r")


def test_an_exact_total_is_the_last_word() -> None:
    """All that its ledger holds is in it."""
    _, auditor = _world()
    assert why_not_exact(auditor, COUNTER) is None


def test_a_total_that_drifts_is_none() -> None:
    """What it lacks may still be on its way, to a total that would be made anew by it."""
    world, auditor = _world()
    world.write(7)

    found = why_not_exact(auditor, COUNTER)

    assert found is not None
    assert "drift" in found
    assert "repair" in found


def test_a_total_that_is_missing_is_none() -> None:
    """A repair that is under way would make it, with all that is removed meanwhile."""
    world, auditor = _world()
    world.dynamo.tables["counters"] = {
        key: item for key, item in world.dynamo.tables["counters"].items() if key[1] != "total"
    }

    assert "drift" in (why_not_exact(auditor, COUNTER) or "")


def test_a_total_that_moves_or_lags_is_none() -> None:
    """Its stream has not been handled that far."""
    world, auditor = _world()
    world.emit(7)

    assert "busy" in (why_not_exact(auditor, COUNTER) or "")
