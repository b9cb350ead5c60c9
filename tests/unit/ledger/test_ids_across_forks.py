"""No id is made twice, also by a process and its fork, whichever way it was forked."""

from __future__ import annotations

import pytest

from tests.unit.ledger.processes import printed

# A server written in C may fork without Python's hooks, so what a library reseeds there stays.
_MAKE = """
import ctypes, os, sys
fork = {fork}
{imports}
make = {make}
make()
read, write = os.pipe()
child = fork()
if child == 0:
    with os.fdopen(write, "w") as pipe:
        pipe.write(" ".join(make() for _ in range(100_000)))
    os._exit(0)
os.close(write)
mine = {{make() for _ in range(100_000)}}
with os.fdopen(read) as pipe:
    theirs = set(pipe.read().split())
os.waitpid(child, 0)
print(len(mine), len(theirs), len(mine & theirs))
"""
_FORKS = {"hooks run": "os.fork", "hooks skipped": "ctypes.PyDLL(None).fork"}
_SOURCES = {
    "entries, tokens, incarnations": (
        "from countledger.ledger.ids import new_id",
        "lambda: new_id(1_900_000_000_000)",
    ),
    "runs of the compactor": (
        "from countledger.compaction.compactor import _new_run",
        "_new_run",
    ),
}


@pytest.mark.parametrize("fork", _FORKS.values(), ids=_FORKS)
@pytest.mark.parametrize("source", _SOURCES.values(), ids=_SOURCES)
def test_a_process_and_its_fork_make_different_ids(source: tuple[str, str], fork: str) -> None:
    imports, make = source
    code = _MAKE.format(fork=fork, imports=imports, make=make)

    assert printed(code) == ["100000", "100000", "0"]
