"""No id is made twice, also by a process and its fork, whichever way it was forked."""

from __future__ import annotations

import pytest

from tests.unit.ledger.processes import printed

# A server written in C may fork without Python's hooks, so what a library reseeds there stays.
_MAKE = """
import ctypes, os, sys
from countledger.ledger import processes

def copied():
    child = ctypes.PyDLL(None).fork()
    if child == 0:
        processes._KNOWN[0] = 1  # it takes itself for its parent
    return child

fork = {fork}
{imports}
make = {make}
make()
read, write = os.pipe()
child = fork()
if child == 0:
    with os.fdopen(write, "w") as pipe:
        pipe.write(" ".join(make() for _ in range({count})))
    os._exit(0)
os.close(write)
mine = {{make() for _ in range({count})}}
with os.fdopen(read) as pipe:
    theirs = set(pipe.read().split())
os.waitpid(child, 0)
print(len(mine), len(theirs), len(mine & theirs))
"""
_RECORDER = """
from countledger.producers.event import Event
from tests.unit.ledger.memory import MemoryClient
from tests.unit.producers.senders import recorder_on
recorder = recorder_on(MemoryClient())
"""
_PRODUCER = """
from tests.unit.ledger.memory import MemoryClient
from tests.unit.producers.buffers import producer_on
producer = producer_on(MemoryClient())
"""
_FORKS = {
    "hooks run": "os.fork",
    "hooks skipped": "ctypes.PyDLL(None).fork",
    # As two copies of one memory image are: nothing in them says that they are two.
    "not seen": "copied",
}
_SOURCES = {
    "entries, tokens, incarnations": (
        "from countledger.ledger.ids import new_id",
        "lambda: new_id(1_900_000_000_000)",
        100_000,
    ),
    "entries that are recorded": (
        _RECORDER,
        "lambda: recorder.record(Event('a:b', 1)).id",
        1_000,
    ),
    "entries of many": (
        _RECORDER,
        "lambda: recorder.record_many([Event('a:b', 1)])[0].id",
        50,
    ),
    "entries of a buffer": (
        _PRODUCER,
        "lambda: producer.connection.ids.new_ids(1_900_000_000_000, 1)[0]",
        1_000,
    ),
    "runs, memberships, leases": (
        "from countledger.ledger.ids import unique_id",
        "unique_id",
        100_000,
    ),
}


@pytest.mark.parametrize("fork", _FORKS.values(), ids=_FORKS)
@pytest.mark.parametrize("source", _SOURCES.values(), ids=_SOURCES)
def test_a_process_and_its_fork_make_different_ids(source: tuple[str, str, int], fork: str) -> None:
    imports, make, count = source
    code = _MAKE.format(fork=fork, imports=imports, make=make, count=count)

    assert printed(code) == [str(count), str(count), "0"]
