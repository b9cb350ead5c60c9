"""The background process of `countledger up`: owns engine and pump until it is stopped.

Run by `background.py`. It writes its state into its temporary directory, and reports through an
inherited pipe that it is ready.
"""

import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from countledger.infra.local.front import Front
from countledger.infra.local.running import Running, WantedStack, read_cut
from countledger.infra.local.saved_stack import StackDirectory
from countledger.infra.local.stack import LocalStack
from countledger.ledger.errors import CountledgerError

WATCH_PAUSE_S: Final = 0.5
# On this machine a stream costs nothing: every way in is there to be tried.
PARAMETERS: Final = {"IngestStream": "provisioned"}
_LOG: Final = logging.getLogger(__name__)


def main() -> int:
    """Detach, then serve until SIGTERM or SIGINT, or until the engine ends; the exit code."""
    if os.fork():
        os._exit(0)
    ready_fd, wanted = int(sys.argv[1]), WantedStack(**json.loads(sys.argv[2]))
    # Functions, and whatever else is started from here, do not get the pipe: it is ours to close.
    os.set_inheritable(ready_fd, False)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("botocore").setLevel(logging.WARNING)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stopping.set())
    try:
        return serve(wanted, ready_fd, stopping)
    except CountledgerError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


def serve(wanted: WantedStack, ready_fd: int, stopping: threading.Event) -> int:
    """Run the stack, say when it is ready, follow its replicas, wait for the end."""
    with contextlib.ExitStack() as opened:
        kept_in = None
        if wanted.kept_in is not None:
            kept_in = opened.enter_context(StackDirectory(Path(wanted.kept_in)))
        local = LocalStack(
            name=wanted.stack_name,
            parent_dir=Path(tempfile.gettempdir()),
            parameters=PARAMETERS,
            regions=wanted.regions,
            port=wanted.port,
            kept_in=kept_in,
        )
        return _serve(local, wanted, ready_fd, stopping)


def _serve(local: LocalStack, wanted: WantedStack, ready_fd: int, stopping: threading.Event) -> int:
    directory, found = Path(tempfile.gettempdir()), local.found
    with (
        local as stack,
        Front(stack.environment(), allow_writes=wanted.allow_writes) as front,
    ):
        stack.replicator.read_cut = partial(read_cut, directory)
        Running(
            stack_name=wanted.stack_name,
            url=stack.url,
            dashboard=front.url,
            allow_writes=wanted.allow_writes,
            environment=stack.environment(),
            outputs=stack.outputs,
            regions=local.regions,
            started_at_s=time.time(),
            processes=[_identity(os.getpid()), _identity(stack.engine.pid)],
            kept_in=wanted.kept_in,
            lost_after_s=found.saved_at_ms / 1_000 if found and not found.complete else None,
        ).write(directory)
        os.write(ready_fd, b"ready")
        os.close(ready_fd)
        _LOG.info("stack %s is ready on %s", stack.name, stack.url)
        while not stopping.wait(WATCH_PAUSE_S):
            if not stack.engine.alive():
                _LOG.error("the engine has ended by itself; %s", _left(wanted))
                return 1
            stack.follow_replicas()
    _LOG.info("stopped")
    return 0


def _left(wanted: WantedStack) -> str:
    kept = wanted.kept_in
    return "its data are lost" if kept is None else f"what was saved last is in {kept}"


def _identity(pid: int) -> tuple[int, float]:
    return pid, psutil.Process(pid).create_time()


if __name__ == "__main__":
    sys.exit(main())
