"""A fork has one thread: what another one held as it forked must not stay held for ever."""

from __future__ import annotations

import subprocess
import sys

import pytest

# While another thread holds each lock of a module, the process forks; the child uses what it
# guards, in good time.
FORKING = """
import os, signal, threading, time
import boto3
from countledger.ledger import connection, meter
from countledger.ledger.settings import Settings

session = boto3.Session("id", "secret", region_name="eu-west-1")
made = connection.Connection(Settings(), session)
holding = threading.Event()

def hold(lock):
    with lock:
        holding.set()
        time.sleep(0.3)

def use_in_a_fork(use):
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        use()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

for lock, use in (
    (connection._ONE_CLIENT_AT_A_TIME, lambda: made.door("none")),
    (meter._COUNTING, lambda: made.meter.refused()),
):
    holding.clear()
    thread = threading.Thread(target=hold, args=(lock,))
    thread.start()
    holding.wait()
    print(use_in_a_fork(use))
    thread.join()
    use()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_what_another_thread_holds_is_open_in_a_fork() -> None:
    """Servers fork their workers while a buffer's threads make clients and count units."""
    done = subprocess.run(
        [sys.executable, "-c", FORKING], capture_output=True, text=True, check=False, timeout=60
    )

    assert (done.stdout.split(), done.returncode) == (["0", "0"], 0), done.stderr
