"""A fork has one thread: what another one held as it forked must not stay held for ever."""

import mmap
import sys

import pytest

from countledger.ledger import processes
from tests.unit.ledger.processes import FORKS, printed

# While another thread holds each lock of a module, the process forks; the child uses what it
# guards, in good time.
FORKING = """
import ctypes, os, signal, sys, threading, time
import boto3
from countledger.ledger import connection, dynamo
from countledger.ledger.settings import Settings

session = boto3.Session("id", "secret", region_name="eu-west-1")
made = connection.Connection(Settings(), session)
holding = threading.Event()

def hold(lock):
    with lock:
        holding.set()
        time.sleep(0.3)

fork = os.fork if sys.argv[1] == "os" else ctypes.PyDLL(None).fork

def use_in_a_fork(use):
    child = fork()
    if child == 0:
        signal.alarm(30)
        use()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

for lock, use in (
    (connection._ONE_CLIENT_AT_A_TIME, lambda: made.dynamo("none")),
    (dynamo._COUNTING, lambda: made.meter.refused()),
):
    holding.clear()
    thread = threading.Thread(target=hold, args=(lock,))
    thread.start()
    holding.wait()
    print(use_in_a_fork(use))
    thread.join()
    use()
"""


@FORKS
def test_what_another_thread_holds_is_open_in_a_fork(fork: str) -> None:
    assert printed(FORKING, fork) == ["0", "0"]


# Each process has its own value, and what a process inherits is not closed there.
INHERITING = """
import ctypes, os, signal, sys, threading, time
from countledger.ledger.processes import PerProcess, made_once

class Kept:
    def __del__(self):
        os.write(1, b"closed ")

class Owner:
    @made_once
    def slow(self):
        working.set()
        go_on.wait(20)
        return os.getpid()

working, go_on = threading.Event(), threading.Event()
mine = PerProcess(Kept)
owner = Owner()
thread = threading.Thread(target=lambda: owner.slow)
thread.start()
working.wait(20)
fork = os.fork if sys.argv[1] == "os" else ctypes.PyDLL(None).fork
first = id(mine.get())
child = fork()
if child == 0:
    signal.alarm(20)
    other = id(mine.get())
    same = other == id(mine.get())
    go_on = threading.Event()
    go_on.set()
    assert owner.slow == os.getpid()
    os.write(1, f"{other != first} {same} ".encode())
    import gc; gc.collect()
    os._exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
go_on.set()
thread.join()
os.write(1, f"{code} {id(mine.get()) == first} ".encode())
os._exit(0)
"""


@FORKS
def test_each_process_makes_its_own_and_closes_nothing(fork: str) -> None:
    """Whether or not Python hears of the fork; a property that was being made is made there."""
    assert printed(INHERITING, fork) == ["True", "True", "0", "True"]


# Where the kernel wipes no page in a fork.
UNWIPED = """
from countledger.ledger import processes
processes._WIPED, processes._KNOWN = None, bytearray(1)
"""


@FORKS
def test_without_a_wiped_page_the_kernel_is_asked(fork: str) -> None:
    assert printed(UNWIPED + INHERITING, fork) == ["True", "True", "0", "True"]


# Where the kernel accepts the advice and wipes nothing, as emulators of Linux do.
IGNORED = """
from countledger.ledger import processes
processes._WIPED = processes._KNOWN = bytearray(1)
"""


def test_a_fork_that_python_sees_is_known_also_if_its_kernel_wipes_nothing() -> None:
    assert printed(IGNORED + INHERITING, "os") == ["True", "True", "0", "True"]


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
def test_on_linux_the_identity_is_kept_until_a_fork() -> None:
    assert processes._WIPED is not None
    assert processes.this_process() is processes.this_process()


def test_a_kernel_that_accepts_any_advice_is_not_relied_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It also accepts one that does not exist; here one that does stands for that."""
    monkeypatch.setattr(processes, "_NO_ADVICE", mmap.MADV_NORMAL)

    assert processes._wiped_page() is None


# The first uses of a value in a fork, by several threads at once.
AT_ONCE = """
import ctypes, os, signal, sys, threading
from countledger.ledger.processes import PerProcess

def make():
    barrier.wait(20)
    return object()

barrier = threading.Barrier(1)
mine = PerProcess(make)
child = ctypes.PyDLL(None).fork()
if child == 0:
    signal.alarm(20)
    barrier = threading.Barrier(4)
    found = []
    threads = [threading.Thread(target=lambda: found.append(mine.get())) for _ in range(4)]
    [one.start() for one in threads]
    [one.join() for one in threads]
    os.write(1, f"{len(set(map(id, found)))} {mine.get() is found[0]} ".encode())
    os._exit(0)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_threads_that_come_first_at_once_have_one_value() -> None:
    """A second lock would let two threads in; a second buffer's events would be lost."""
    assert printed(AT_ONCE) == ["1", "True"]


# A client that a fork has inherited, as an event loop's has where the child goes on with the loop.
INHERITED = """
import ctypes, os, signal, sys
import boto3
from countledger.ledger.connection import Connection
from countledger.ledger.errors import CountledgerError
from countledger.ledger.service_errors import translated
from countledger.ledger.settings import Settings

session = boto3.Session("id", "secret", region_name="eu-west-1")
made = Connection(Settings(), session, endpoint_url="http://127.0.0.1:9")
client = made.make_client("dynamodb", "none", None)

def call():
    try:
        with translated("ListTables"):
            client.list_tables()
    except CountledgerError as error:
        os.write(1, f"{type(error).__name__}{' before' * ('before' in str(error))}\\n".encode())

fork = os.fork if sys.argv[1] == "os" else ctypes.PyDLL(None).fork
child = fork()
if child == 0:
    signal.alarm(20)
    call()
    os._exit(0)
os.waitpid(child, 0)
call()
"""


@FORKS
def test_no_request_leaves_through_a_client_of_the_parents(fork: str) -> None:
    assert printed(INHERITED, fork) == ["SetupError", "before", "Unreachable"]
