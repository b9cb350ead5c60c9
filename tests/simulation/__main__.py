"""Replays one seed and tells what happened: `python -m tests.simulation SEED`."""

import sys

from tests.simulation.simulation import Simulation

simulation = Simulation(int(sys.argv[1]))
try:
    simulation.run()
finally:
    for line in simulation.told:
        print(line)  # noqa: T201 - that is what it is for
