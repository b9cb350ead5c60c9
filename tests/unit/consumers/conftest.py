"""What the tests of consumers begin with."""

import pytest

from tests.unit.consumers.world import World


@pytest.fixture
def world() -> World:
    """One open shard."""
    world = World()
    world.add_shard("s")
    return world
