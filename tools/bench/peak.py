"""One scenario in a process of its own, which ends with the peak of its resident size in KB.

`python -m tools.bench.peak SCENARIO URL COUNT`. Each scenario imports what it uses, and nothing
else is imported here: the bare interpreter is one of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

BARE = "bare interpreter"
# Records of one batch: as many as a mapping can be set to.
BATCH = 10_000
_STATUS = Path("/proc/self/status")


def peak_kb() -> int:
    """The peak resident size of this process since it began to run its program."""
    lines = _STATUS.read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


# ---- scenarios; each imports what it uses ----


def _nothing(_url: str, _count: int) -> None:
    pass


def _boto3(_url: str, _count: int) -> None:
    import boto3  # noqa: F401, PLC0415
    import botocore.client  # noqa: F401, PLC0415


def _countledger(_url: str, _count: int) -> None:
    import countledger  # noqa: F401, PLC0415


def _record_stream(url: str, count: int) -> None:
    from countledger import Event, Receipt  # noqa: PLC0415
    from tools.bench.emitting import ledger_at  # noqa: PLC0415

    events = (Event(f"bench:{number % 1_000}", 1) for number in range(count))
    outcomes = ledger_at(url).record_stream(events)
    if sum(isinstance(one, Receipt) for one in outcomes) != count:
        raise AssertionError("an event was not recorded")


def _exact(url: str, count: int) -> None:
    from tools.bench.emitting import ledger_at  # noqa: PLC0415
    from tools.bench.large_tables import LARGE  # noqa: PLC0415

    found = ledger_at(url).exact(LARGE)
    if (found.value, found.entries) != (count, count):
        raise AssertionError(found)


def _export(url: str, count: int) -> None:
    from countledger.infra.portability.export import Exporter  # noqa: PLC0415
    from tools.bench.emitting import ledger_at  # noqa: PLC0415

    lines = Exporter(ledger_at(url)).walk()
    if sum(1 for _ in lines) != count:
        raise AssertionError("a counter was not exported")


def _compact(url: str, count: int) -> None:
    from countledger.compaction.compactor import Compactor  # noqa: PLC0415
    from tools.bench.emitting import ledger_at  # noqa: PLC0415
    from tools.bench.large_tables import LARGE  # noqa: PLC0415

    ledger = ledger_at(url)
    report = Compactor(ledger.connection).compact(LARGE)
    if report.merged != count:
        raise AssertionError(report)


def _materialize(url: str, _count: int) -> None:
    from tools.bench import applying  # noqa: PLC0415

    work = applying.materializing(BATCH, BATCH, url)
    work(["any"] * (3 * BATCH))


_SCENARIOS = {
    BARE: _nothing,
    "import boto3, botocore.client": _boto3,
    "import countledger": _countledger,
    "record_stream": _record_stream,
    "exact": _exact,
    "export": _export,
    "compaction": _compact,
    "materializer": _materialize,
}


if __name__ == "__main__":
    _SCENARIOS[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
    print(peak_kb())  # noqa: T201
