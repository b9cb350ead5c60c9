"""A world of one region in which nothing goes wrong by itself, outside of any schedule."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from tests.simulation.auditor import Auditor
from tests.simulation.faults import Fault, Faults
from tests.simulation.queue import Queue, Scheduler
from tests.simulation.schedule import Schedule
from tests.simulation.shape import drawn
from tests.simulation.world import World


class Scripted(Faults):
    """Faults in the order in which a test names them; then none."""

    script: Iterator[Fault | None] = iter(())

    def of_call(self, operation: str, *, writes: bool, mortal: bool) -> Fault | None:  # noqa: ARG002
        """The next one."""
        return next(self.script, None)


def calm_world(*, watched: bool = True) -> World:
    """One region, clocks that agree, nothing stale or slow.

    Args:
        watched: whether the auditor looks at what is written; it knows the product's items alone.
    """
    random = Random(1)  # noqa: S311 - a test's
    schedule = Schedule(random)
    shape = replace(
        drawn(random, {}), regions=1, skew_ms=0, latency_ms=2.0, page_items=100, names_all=True
    )
    auditor = Auditor(shape, schedule, "home", by_hand=not watched)
    return World(random, schedule, shape, Scripted(random, {}), auditor, Queue(), Scheduler())


def script(world: World, *faults: Fault | None) -> None:
    """What the next calls meet, one after the other."""
    assert isinstance(world.faults, Scripted)
    world.faults.script = iter(faults)
