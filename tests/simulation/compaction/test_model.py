"""P4 and P5 in thousands of interleavings, and every rule of the protocol switched off in turn.

`COUNTLEDGER_SEEDS=1000000` runs as many seeds; `python -m tests.simulation.compaction SEED`
replays one.
"""

import os
from itertools import count

import pytest

from tests.simulation.canaries import Canary
from tests.simulation.compaction.canaries import CANARIES
from tests.simulation.compaction.simulation import ModelRun

SEEDS = int(os.environ.get("COUNTLEDGER_SEEDS", "1500"))
_BLOCKS = 8
# The rarest canary takes about a tenth of this.
_PATIENCE = 20_000


def _failure_of(seed: int) -> str | None:
    try:
        ModelRun(seed).run()
    except AssertionError as wrong:
        return f"{wrong}; replay: python -m tests.simulation.compaction {seed}"
    return None


@pytest.mark.parametrize("block", range(_BLOCKS))
def test_p4_p5_no_interleaving_changes_a_number(block: int) -> None:
    """Writers, readers, two compactors that pause and die anywhere; one, two and three regions."""
    failures = [f for seed in range(block, SEEDS, _BLOCKS) if (f := _failure_of(seed))]

    assert failures == []


@pytest.mark.parametrize("canary", CANARIES, ids=lambda canary: canary.rule)
def test_each_rule_switched_off_breaks_a_promise(
    canary: Canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule that the model does not miss would be a rule that nothing tests."""
    canary.switch_off(monkeypatch)

    for seed in count():
        if _failure_of(seed):
            return
        assert seed < _PATIENCE, f"nothing goes wrong without: {canary.rule}"
