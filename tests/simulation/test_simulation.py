"""P1 to P8 over the whole system, on the worst days that a seed can think of; and what is missed.

`COUNTLEDGER_SIMULATIONS=100000` runs as many seeds; `make simulate` does it on every core.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from typing import Final

import pytest

from countledger.ledger.errors import BadInput
from tests.simulation.accidents import ACCIDENTS
from tests.simulation.canaries import CANARIES
from tests.simulation.canary import Canary
from tests.simulation.coverage import APART, FUNCTIONS, SILENT
from tests.simulation.faults import Fault
from tests.simulation.operations import OPERATIONS
from tests.simulation.region_accidents import ACCIDENTS as REGION_ACCIDENTS
from tests.simulation.runner import Tally, quiet_core, run_block
from tests.simulation.shape import COPIES, DELETED_EVERYWHERE, HOMES, WINDOW_ALERTS
from tests.simulation.shrink import Failure, read_skipped, spelled
from tests.simulation.simulation import Simulation
from tests.switches import replaced

SEEDS: Final = int(os.environ.get("COUNTLEDGER_SIMULATIONS", "300"))
# `make test` runs the first ones.
PARTS: Final = (range(SEEDS // 8), range(SEEDS // 8, SEEDS))
NAMES: Final = ("the first seeds", "the other seeds")
# And in which share of the seeds little happens but what the focus names.
FOCUSES: Final = (
    ("merges", 5),  # runs of compaction are overtaken at each of their steps, by reads and retries
    (HOMES, 5),  # every region takes itself for home, while processes stand still for minutes
    (DELETED_EVERYWHERE, 30),  # days pass, names are used again, any region goes on with a deletion
    (COPIES, 10),  # a process goes on twice, with all that it holds
    (WINDOW_ALERTS, 20),  # rules that watch windows, among crashes, repairs and late events
)


@pytest.fixture(scope="module", autouse=True)
def _one_core() -> Iterator[None]:
    """The turn passes from thread to thread on one core, three times as fast as between two."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    disabled = logging.root.manager.disable
    quiet_core()
    yield
    logging.disable(disabled)
    if cores:
        os.sched_setaffinity(0, cores)


@pytest.fixture(scope="module")
def block() -> Callable[[range], Tally]:
    """What came of some seeds, which are run once."""
    return cache(run_block)


@pytest.mark.parametrize("seeds", PARTS, ids=NAMES)
def test_p1_to_p8_hold_in_every_seed(block: Callable[[range], Tally], seeds: range) -> None:
    """Nothing lost, nothing twice, no bound passed, every crossing told, nothing stuck."""
    failures = [
        f"seed {one.seed}: {one.text}; replay: {one.replay}" for one in block(seeds).failures
    ]

    assert failures == []


@pytest.mark.parametrize("seeds", PARTS, ids=NAMES)
@pytest.mark.parametrize(("focus", "share"), FOCUSES)
def test_p4_p5_p7_hold_where_hardly_another_focus_leads(
    focus: str, share: int, seeds: range
) -> None:
    """In a share of the seeds, little else happens than this."""
    some = range(seeds.start // share, seeds.stop // share)
    tally = run_block(some, Failure(0, "", focus=focus))

    assert [one.replay for one in tally.failures] == []
    assert tally.seeds == len(some) > 0


def test_everything_has_happened(block: Callable[[range], Tally]) -> None:
    """Every operation made calls, every fault struck, every accident took place."""
    tally = Tally()
    for seeds in PARTS:
        tally.merge(block(seeds))
    silent = {*SILENT, *APART}
    names = {one.name for one in OPERATIONS} | set(FUNCTIONS)

    assert {name for name in names - silent if not tally.coverage.met[name]} == set()
    assert {f for f in Fault if not any(one == f for _, one in tally.coverage.struck)} == set()
    accidents = [*ACCIDENTS, *REGION_ACCIDENTS]
    assert {name for name in accidents if not tally.coverage.accidents[name]} == set()
    assert tally.coverage.unmoved == 0


def _told(seed: int) -> str:
    simulation = Simulation(seed)
    simulation.run()
    return "\n".join(simulation.world.told)


def test_a_seed_replays_to_the_letter() -> None:
    """Here again, and in another process whose hashes are others."""
    first = _told(7)
    code = "import sys; from tests.simulation.simulation import Simulation; s = Simulation(7); "
    code += "s.run(); sys.stdout.write('\\n'.join(s.world.told))"
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    other = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment
    ).stdout

    assert _told(7) == first
    assert sha256(other.encode()).hexdigest() == sha256(first.encode()).hexdigest()


def test_what_is_left_out_of_a_failure_is_read_as_it_is_spelled() -> None:
    """Clients, and runs of their operations."""
    skipped = ((0, 1), (0, 2), (0, 3), (0, 5), (2, 11))

    assert spelled(skipped) == "0:1-3,5/2:11"
    assert read_skipped(spelled(skipped)) == skipped


def test_many_seeds_have_the_focus_and_the_limits_that_the_command_names() -> None:
    command = [sys.executable, "-m", "tests.simulation", "--seeds", "8", "--jobs", "1"]
    command += ["--focus", "joint", "--without", "joint give up"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout

    # The row of an operation that was met has numbers.
    rows = [line.strip() for line in output.splitlines() if line.strip()[-1:].isdigit()]
    names = {one.name for one in OPERATIONS}
    assert {name for name in names for row in rows if row.startswith(f"{name} ")} == {
        "joint transfer"
    }


def test_a_seed_in_which_a_variant_crashes_is_passed_over() -> None:
    def crash(simulation: Simulation) -> None:
        raise BadInput("refused") if simulation.seed < 2 else AssertionError

    assert Canary("none", replaced(Simulation, "run", crash)).caught_by() == 2


@pytest.mark.parametrize(
    "canary",
    [
        pytest.param(one, id=one.rule, marks=[pytest.mark.thorough] if one.rare else [])
        for one in CANARIES
    ],
)
def test_each_wrong_variant_is_caught(canary: Canary) -> None:
    """With the rule kept, the very seed that catches the variant is good."""
    caught = canary.caught_by()

    assert caught is not None, f"nothing goes wrong without: {canary.rule}"
    _run(caught, canary.focus)


@cache
def _run(seed: int, focus: str | None) -> None:
    """Once for all rules that it catches."""
    Simulation(seed, focus=focus).run()
