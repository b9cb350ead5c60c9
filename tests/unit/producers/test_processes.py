"""A buffered producer and its process: what a fork inherits, and what an end leaves."""

from __future__ import annotations

import ctypes
import multiprocessing.util
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from countledger.producers.buffer.settings import ProducerClosed
from tests.unit.ledger.memory import MemoryClient
from tests.unit.ledger.processes import printed
from tests.unit.producers.buffers import producer_on
from tests.unit.producers.senders import TABLE, entries_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


_REST_S = 0.03  # less than events wait for others


def without_hooks() -> int:
    """As a server forks that is written in C: Python hears nothing of it.

    The threads come to rest before: the child could not run Python while one of them holds a lock
    of the interpreter itself, which only Python's own fork makes again.
    """
    time.sleep(_REST_S)
    child: int = ctypes.PyDLL(None).fork()
    return child


FORKS = pytest.mark.parametrize("fork", [os.fork, without_hooks])


@FORKS
def test_a_fork_begins_with_nothing_in_hand(fork: Callable[[], int]) -> None:
    dynamo = MemoryClient()
    producer = producer_on(dynamo)
    before = producer.add("a:parent", 1)
    read, write = os.pipe()
    child = fork()
    if child == 0:  # pragma: no cover - another process
        signal.alarm(40)
        try:
            mine = [producer.add("a:child", 1) for _ in range(30)]
            producer.flush(20)
            refused = 0
            for ask in (lambda: before.result(20), lambda: before.add_done_callback(print)):
                try:
                    ask()
                except ProducerClosed:
                    refused += 1
            parents = [i for i in dynamo.items(TABLE) if i["counter"] == "a:parent"]
            ids = ",".join(pending.result().id for pending in mine)
            os.write(write, f"{refused} {len(parents)} {ids}".encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        refused_there, parents_there, ids = pipe.read().split()
    os.waitpid(child, 0)
    ours = [producer.add("a:parent", 1) for _ in range(30)]
    producer.close()

    assert (refused_there, parents_there) == ("2", "0")
    assert not set(ids.split(",")) & {pending.result().id for pending in ours}
    assert len(entries_in(dynamo)) == 31


ENDING = """
import ctypes, os, signal, sys, time
from pathlib import Path
from tests.unit.ledger.memory import MemoryClient, at
from tests.unit.producers.buffers import PATIENT_MS, producer_on
from countledger.producers.buffer.settings import Buffering

def note(kind, items, request):
    os.write(1, f"{os.getpid() == parent}:{len(items)} ".encode())
    return request()

parent, dynamo = os.getpid(), MemoryClient(plans=[at(note)])
producer = producer_on(dynamo)
producer.add("a:parent", 1)
closed = producer_on(dynamo)
closed.close()
spooled = producer_on(dynamo, Buffering(linger_ms=PATIENT_MS, spool=Path(sys.argv[2])))
spooled.add("a:spooled", 1)
fork = os.fork if sys.argv[1] == "os" else ctypes.PyDLL(None).fork
time.sleep(0.03)
child = fork()
if child == 0:
    signal.alarm(40)
    for one in (closed, spooled):
        try:
            one.add("a:child", 1)
        except Exception as error:
            os.write(1, f"{type(error).__name__} ".encode())
    if sys.argv[3] == "used":
        for _ in range(2):
            producer.add("a:child", 1)
    sys.exit()
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
os.write(1, f"{code} {Path(sys.argv[2] + '-wal').exists()} ".encode())
"""


@pytest.mark.parametrize("fork", ["os", "libc"])
@pytest.mark.parametrize("used", ["used", "unused"])
def test_a_fork_that_ends_sends_its_own_events_only(tmp_path: Path, fork: str, used: str) -> None:
    words = printed(ENDING, fork, str(tmp_path / "spool"), used)
    childs = ["False:2"] if used == "used" else []

    assert words == [
        "ProducerClosed",
        "SpoolRefused",
        *childs,
        "0",
        "True",
        "True:1",
        "True:1",
    ]


def test_a_process_that_ends_sends_what_it_has_in_hand() -> None:
    """Without a word of its own: at its exit, also where nothing of `multiprocessing` is loaded."""
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(len(entries_in(dynamo))))\n"
        "from tests.unit.ledger.memory import MemoryClient\n"
        "dynamo = MemoryClient()\n"
        "from tests.unit.producers.buffers import producer_on\n"
        "from tests.unit.producers.senders import entries_in\n"
        "sys.modules.pop('multiprocessing.util', None)\n"
        "[producer_on(dynamo).add('a:b', 1) for _ in range(3)]\n"
    )
    assert printed(code) == ["3"]


def test_a_fork_is_silent_where_nothing_of_multiprocessing_is_loaded() -> None:
    code = (
        "import os, sys\n"
        "from tests.unit.ledger.memory import MemoryClient\n"
        "from tests.unit.producers.buffers import producer_on\n"
        "producer = producer_on(MemoryClient())\n"
        "sys.modules.pop('multiprocessing.util', None)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
    )
    assert printed(code) == []


CALLBACK = """
import os, signal
from threading import Event
from tests.unit.ledger.memory import MemoryClient, at
from tests.unit.producers.buffers import producer_on

home = os.getpid()

def note(kind, items, request):
    os.write(1, b"parent " if os.getpid() == home else b"child ")
    return request()

producer = producer_on(MemoryClient(plans=[at(note)]))
ended = Event()

def fork(_):
    for _ in range(25):
        producer.add("a:b", 1)
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        return
    os.write(1, b"%d " % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    ended.set()

producer._here().queue.limit = 1
first = producer.add("a:b", 1)
first.add_done_callback(fork)
for _ in range(24):
    producer.add("a:b", 1)
ended.wait(20)
producer.close()
"""


def test_a_fork_in_a_callback_sends_nothing_of_its_parent() -> None:
    """Its one thread is a sender's."""
    assert printed(CALLBACK) == ["parent", "0", "parent"]


WORKER = """
import multiprocessing, sys
from tests.unit.ledger.memory import MemoryClient, at
from tests.unit.producers.buffers import producer_on

def note(kind, items, request):
    print(len(items), flush=True)
    return request()

dynamo = MemoryClient(plans=[at(note)])
inherited = producer_on(dynamo) if sys.argv[1] == "inherited" else None

def work():
    if inherited:
        inherited.add("a:b", 1)
    producer_on(dynamo).add_many([inherited_event] * 2)

from countledger import Event
inherited_event = Event("a:b", 1)
worker = multiprocessing.get_context("fork").Process(target=work)
worker.start()
worker.join()
"""


@pytest.mark.parametrize(("before", "sent"), [("inherited", ["1", "2"]), ("nothing", ["2"])])
def test_a_worker_of_multiprocessing_that_ends_sends_what_it_has_in_hand(
    before: str, sent: list[str]
) -> None:
    """It ends without `atexit`; both the producer that it made and the one that it inherited."""
    assert sorted(printed(WORKER, before)) == sent


def test_producers_that_are_closed_leave_nothing_behind() -> None:
    registry = multiprocessing.util._finalizer_registry  # type: ignore[attr-defined]
    producer_on(MemoryClient()).close()
    before = len(registry)
    for _ in range(5):
        producer_on(MemoryClient()).close()

    assert len(registry) == before
