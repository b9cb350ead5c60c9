"""The background process of `countledger up`: owns engine and pump until it is stopped.

Run by `background.py`. It writes its state into its temporary directory, and reports through an
inherited pipe that it is ready.
"""

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

from countledger.infra.local.front import ALLOW_WRITES, Front
from countledger.infra.local.running import SupervisorState, read_cut
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
    stack_name, ready_fd, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    allow_writes, regions = sys.argv[4] == ALLOW_WRITES, tuple(sys.argv[5:])
    # Functions, and whatever else is started from here, do not get the pipe: it is ours to close.
    os.set_inheritable(ready_fd, False)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("botocore").setLevel(logging.WARNING)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stopping.set())
    try:
        return serve(stack_name, ready_fd, stopping, regions, port, allow_writes=allow_writes)
    except CountledgerError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


def serve(
    stack_name: str,
    ready_fd: int,
    stopping: threading.Event,
    regions: tuple[str, ...],
    port: int,
    *,
    allow_writes: bool,
) -> int:
    """Run the stack, say when it is ready, follow its replicas, wait for the end."""
    directory = Path(tempfile.gettempdir())
    local = LocalStack(
        name=stack_name, parent_dir=directory, parameters=PARAMETERS, regions=regions, port=port
    )
    with local as stack, Front(stack.environment(), allow_writes=allow_writes) as front:
        stack.replicator.read_cut = partial(read_cut, directory)
        SupervisorState(
            url=stack.url,
            dashboard=front.url,
            allow_writes=allow_writes,
            environment=stack.environment(),
            outputs=stack.outputs,
            regions=regions,
            started_at_s=time.time(),
            processes=[_identity(os.getpid()), _identity(stack.engine.pid)],
        ).write(directory)
        os.write(ready_fd, b"ready")
        os.close(ready_fd)
        _LOG.info("stack %s is ready on %s", stack_name, stack.url)
        while not stopping.wait(WATCH_PAUSE_S):
            if not stack.engine.alive():
                _LOG.error("the engine has ended by itself; its data are lost")
                return 1
            stack.follow_replicas()
    _LOG.info("stopped")
    return 0


def _identity(pid: int) -> tuple[int, float]:
    return pid, psutil.Process(pid).create_time()


if __name__ == "__main__":
    sys.exit(main())
