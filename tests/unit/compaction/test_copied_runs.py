"""Two copies of one process merge under one run id, which their memory had before the copy."""

from contextlib import suppress

from countledger.compaction.report import CompactionStep, RunOutcome, Verb
from tests.unit.compaction.world import COUNTER, DELTAS, Stopped, World


def test_a_run_takes_no_head_of_its_copy_for_its_own() -> None:
    """It would delete what the other one did not merge."""
    world = World()
    world.age()

    def stop(step: CompactionStep) -> None:
        if (step.verb, step.generation) == (Verb.AWAIT, 1):
            raise Stopped

    def copy() -> None:
        with suppress(Stopped):
            other = world.compactor(new_run=lambda: "run", covers_max=1)
            other.compact(COUNTER, on_step=stop)

    world.before_write(copy)
    report = world.compactor(new_run=lambda: "run").compact(COUNTER)

    assert report.outcome is RunOutcome.OVERTAKEN
    assert (world.head.entries, world.exact()) == (1, sum(DELTAS))
