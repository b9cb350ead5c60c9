"""Replays one seed and tells what happened: `python -m tests.simulation.compaction SEED`."""

import sys

from tests.simulation.compaction.simulation import ModelRun

simulation = ModelRun(int(sys.argv[1]))
try:
    simulation.run()
finally:
    for line in simulation.told:
        print(line)  # noqa: T201 - that is what it is for
