"""What a client keeps in memory, above the bare interpreter, however much it works through.

Peak resident size of a process of its own for each (`peak`). The server makes up its pages, in
another process.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from tools.bench.peak import BARE, BATCH
from tools.bench.rounds import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MB: Final = 1 << 20
SIZE: Final = 1_000_000
# An export reads each counter by calls of its own: it takes a tenth.
_CALLS: Final = 10


@dataclass(frozen=True, slots=True)
class Peak:
    """The peak of one scenario.

    Attributes:
        name: its row.
        peak_mb: above the bare interpreter.
        limit_mb: the goal; None: there is none.
    """

    name: str
    peak_mb: float
    limit_mb: float | None


def measured(name: str, url: str, count: int) -> float:
    """The peak of a scenario in MB, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.bench.peak", name, url, str(count)],
        env=environment(),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return int(done.stdout.split()[-1]) * 1_024 / MB


@contextmanager
def server(size: int) -> Iterator[str]:
    """The address of a server whose tables have that size."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tools.bench.large_tables", str(size)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        port = process.stdout.readline().strip() if process.stdout else ""
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.communicate()


def rows(scale: float, show: Callable[[str], object]) -> list[Peak]:
    """Every scenario, at a part of its size."""
    count = int(SIZE * scale)

    def peak(
        name: str, limit_mb: float | None, what: str = "", count: int = int(SIZE * scale)
    ) -> Peak:
        show(f"memory: {name}")
        with server(count) as url:
            return Peak(what or name, measured(name, url, count) - bare_mb, limit_mb)

    bare_mb = measured(BARE, "", 0)
    imported = peak("import boto3, botocore.client", None)
    many = partial(peak, limit_mb=150)
    return [
        imported,
        peak("import countledger", 1.2 * imported.peak_mb),
        many("record_stream", what=f"record_stream of {count:,} events"),
        many("exact", what=f"exact of a counter with {count:,} entries"),
        many("compaction", what=f"a compaction run over {count:,} entries"),
        many("export", what=f"an export of {count // _CALLS:,} counters", count=count // _CALLS),
        peak("materializer", 250, f"materializer, batches of {BATCH:,}"),
    ]
