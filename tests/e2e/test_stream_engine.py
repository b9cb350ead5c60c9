"""A stream engine that is killed and replays its records: each counts once."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from countledger import CountLedger, Settings
from countledger.infra.local.stack import LocalStack

pytest.importorskip("bytewax", reason="bytewax has no wheel for this Python")
_GUIDE = Path(__file__).parents[2] / "docs" / "stream-engines.md"
_BLOCK = 100
_BLOCKS = 60
_KILLS = 4
_PATIENCE_S = 60


def _write_log(path: Path, namespace: str) -> Counter[str]:
    """A log of records; returns the sum of each counter."""
    random, sums = Random(7), Counter[str]()  # noqa: S311 - data
    with path.open("w") as log:
        for _ in range(_BLOCK * _BLOCKS):
            counter, delta = f"{namespace}:{random.randrange(5)}", random.randint(1, 9)
            sums[counter] += delta
            log.write(json.dumps({"counter": counter, "delta": delta}) + "\n")
    return sums


class _Flow:
    """The guide's flow, as a process that can be started and killed."""

    def __init__(self, folder: Path, stack: LocalStack, snapshot_s: int) -> None:
        code = _GUIDE.read_text().split("<!-- flow.py")[1]
        (folder / "flow.py").write_text(re.findall(r"```python\n(.*?)```", code, re.DOTALL)[0])
        self._folder, self._snapshot_s = folder, snapshot_s
        self._environment = {**os.environ, **stack.environment(), "CLICKS": "clicks.log"}
        (folder / "checkpoints").mkdir()
        self._run("-m", "bytewax.recovery", "checkpoints", "1").wait(_PATIENCE_S)

    def start(self) -> subprocess.Popen[bytes]:
        flow = ("flow:flow", "-r", "checkpoints", "-s", str(self._snapshot_s), "-b", "0")
        return self._run("-m", "bytewax.run", *flow)

    def _run(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, *arguments], cwd=self._folder, env=self._environment
        )


@pytest.mark.parametrize("snapshot_s", [0, 3_600], ids=["checkpoints", "from the first record"])
def test_a_killed_engine_counts_each_record_once(
    stack: LocalStack, tmp_path: Path, snapshot_s: int
) -> None:
    ledger = CountLedger(
        Settings(stack_name=stack.name), session=stack.session(), endpoint_url=stack.url
    )
    sums = _write_log(tmp_path / "clicks.log", f"clicks-{snapshot_s}")
    counter = min(sums)
    flow = _Flow(tmp_path, stack, snapshot_s)

    for _ in range(_KILLS):
        before, process = ledger.exact(counter).entries, flow.start()
        deadline_s = time.monotonic() + _PATIENCE_S
        while ledger.exact(counter).entries <= before:
            assert time.monotonic() < deadline_s, "the flow wrote nothing"
        assert process.poll() is None, "it ended before it was killed"
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert flow.start().wait(_PATIENCE_S) == 0

    assert {name: ledger.exact(name).value for name in sums} == sums
    stack.pump.drain()
    totals = [ledger.total(name) for name in sums]
    assert {total.counter: total.value for total in totals} == sums
    assert sum(total.events for total in totals) == _BLOCK * _BLOCKS
    assert sum(total.entries for total in totals) <= 5 * _BLOCKS
