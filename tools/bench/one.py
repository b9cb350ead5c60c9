"""Measures one way once, in a process of its own: `python -m tools.bench.one TABLE ROW URL`."""

from __future__ import annotations

import json
import os
import sys
import time

from tools.bench.processor import CLIENT, stay_on
from tools.bench.suite import SUITES


def measure(table: str, row: int, url: str) -> dict[str, float]:
    """Processor time, time and write units for each event, after a tenth of them to warm up."""
    way = SUITES[table].ways[row]
    if way.transport is not None:
        os.environ["COUNTLEDGER_TRANSPORT"] = way.transport
    work = way.prepare(url)
    counters = way.counters(way.events)
    work(counters[: way.events // 10])
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    units = work(counters)
    cpu_s, wall_s = time.process_time() - began_cpu_s, time.perf_counter() - began_s
    count = way.events / way.per
    return {
        "cpu_us": cpu_s / count * 1e6,
        "wall_us": wall_s / count * 1e6,
        "write_units": units / count,
    }


if __name__ == "__main__":
    stay_on(CLIENT)
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), sys.argv[3])))  # noqa: T201
