"""The local stack in the background: `up`, `status`, `down`.

A detached supervisor owns engine and pump. It and all its processes have one private directory, by
which they are found, and which `down` deletes. Data live as long as the supervisor runs.
"""

import contextlib
import fcntl
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn

import psutil

from countledger.infra.local.engine import REGION, cleaned_environment
from countledger.infra.local.following import directory_of
from countledger.infra.local.front import ALLOW_WRITES, READ_ONLY
from countledger.infra.local.replication import Way
from countledger.infra.local.running import (
    Running,
    kill_all,
    log_path,
    processes_under,
    read_cut,
    read_running,
    recorded_processes,
    wait_until_gone,
    write_cut,
)
from countledger.infra.local.stack import STACK_NAME, check_regions
from countledger.ledger.errors import SetupError

__all__ = ["Running", "UpFailed", "change_cut", "down", "status", "up", "ways_cut"]

START_TIMEOUT_S: Final = 90.0
STOP_TIMEOUT_S: Final = 15.0
_LOG_TAIL_LINES: Final = 20


class UpFailed(SetupError):
    """The local stack did not start; the message has the end of the supervisor's log."""


def up(
    stack_name: str = STACK_NAME,
    *,
    regions: Sequence[str] | None = None,
    port: int | None = None,
    allow_writes: bool = False,
    timeout_s: float = START_TIMEOUT_S,
) -> Running:
    """Start the local stack in the background and wait until it is ready.

    Args:
        stack_name: of the stack; each name has an engine of its own.
        regions: where it is deployed, home first; None: in one region, or as it runs.
        port: of the endpoint; None: any free one, or as it runs.
        allow_writes: whether requests to the HTTP API may change anything.
        timeout_s: how long to wait.

    Returns:
        The stack that runs; `was_running` says whether it did before.

    Raises:
        UpFailed: it did not start, and what was started is gone again; or it runs in other regions,
            on another port, or with an HTTP API that only reads.
        BadSetting: no name for a stack, or no regions for one.
    """
    directory = directory_of(stack_name)
    wanted = check_regions(regions) if regions is not None else None
    with _held(directory):
        running = read_running(stack_name, directory)
        if running is not None:
            if wanted not in {None, running.regions}:
                raise UpFailed(
                    f"the local stack {stack_name!r} runs in {', '.join(running.regions)}: end it "
                    "with `countledger down` first"
                )
            if port is not None and not running.url.endswith(f":{port}"):
                raise UpFailed(
                    f"the local stack {stack_name!r} runs on {running.url}: end it with "
                    "`countledger down` first"
                )
            if allow_writes and not running.allow_writes:
                raise UpFailed(
                    f"the HTTP API of the local stack {stack_name!r} only reads: end the stack "
                    "with `countledger down` first, or start another server with "
                    "`countledger serve --allow-writes`"
                )
            return running
        _end_all(directory)  # what a crash may have left
        options = [str(port or 0), ALLOW_WRITES if allow_writes else READ_ONLY]
        _start(stack_name, directory, [*options, *(wanted or (REGION,))], timeout_s)
        running = read_running(stack_name, directory)
    if running is None:
        raise UpFailed(f"the local stack {stack_name!r} ended as soon as it was ready")
    return replace(running, was_running=False)


def status(stack_name: str = STACK_NAME) -> Running | None:
    """The local stack, if it runs: its supervisor and its engine both live.

    Raises:
        BadSetting: no name for a stack.
        UpFailed: its directory belongs to another user.
    """
    directory = directory_of(stack_name)
    _check_private(directory)
    return read_running(stack_name, directory)


def down(stack_name: str = STACK_NAME) -> bool:
    """End the local stack and delete its data, also after a crash of it.

    Returns:
        Whether there was anything to end or to delete.

    Raises:
        BadSetting: no name for a stack.
    """
    directory = directory_of(stack_name)
    if not directory.exists():
        return False
    with _held(directory):
        _end_all(directory)
        shutil.rmtree(directory, ignore_errors=True)
    return True


def change_cut(stack_name: str, change: Callable[[set[Way]], set[Way]]) -> set[Way]:
    """Change which ways between the regions of the local stack are cut, and return them.

    What is written after this returns does not pass a way that is cut.

    Args:
        stack_name: of the stack.
        change: gives the ways that shall be cut, from those that are.

    Raises:
        UpFailed: the stack does not run.
        BadSetting: no name for a stack.
    """
    if status(stack_name) is None:
        raise UpFailed(f"no stack {stack_name!r} of `countledger up` runs on this machine")
    directory = directory_of(stack_name)
    with _held(directory):
        ways = change(read_cut(directory))
        write_cut(directory, ways)
    return ways


def ways_cut(stack_name: str) -> set[Way]:
    """The ways between the regions of the local stack that are cut."""
    return read_cut(directory_of(stack_name))


# ---- its directory ----


@contextlib.contextmanager
def _held(directory: Path) -> Iterator[None]:
    """Make the directory if need be, and keep every other `up` and `down` out of it."""
    while True:
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        _check_private(directory)
        descriptor = os.open(directory, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # A `down` that held it before us has deleted it: then ours is a ghost.
            if directory.exists() and os.path.samestat(os.fstat(descriptor), directory.stat()):
                yield
                return
        finally:
            os.close(descriptor)


def _check_private(directory: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        found = directory.lstat()
        private = stat.S_ISDIR(found.st_mode) and found.st_mode & 0o077 == 0
        if not private or found.st_uid != os.getuid():
            raise UpFailed(f"{directory} is not a private directory of yours; remove it")


# ---- its processes ----


def _start(stack_name: str, directory: Path, options: Sequence[str], timeout_s: float) -> None:
    """Start the supervisor; it closes its end of a pipe when it is ready or has failed.

    Our child is a starter that forks the supervisor and ends, so that no process must wait for it.
    """
    ready, theirs = os.pipe()
    try:
        with log_path(directory).open("wb") as log:
            starter = subprocess.Popen(  # noqa: S603 - our own module
                [
                    sys.executable,
                    "-m",
                    "countledger.infra.local.supervisor",
                    stack_name,
                    str(theirs),
                    *options,
                ],
                # By this its processes are found.
                env=cleaned_environment(os.environ) | {"TMPDIR": str(directory)},
                cwd="/",
                pass_fds=(theirs,),
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        os.close(theirs)
        theirs = -1
        in_time = bool(select.select([ready], [], [], timeout_s)[0])
        if in_time and os.read(ready, 16):
            starter.wait()
            return
    finally:
        os.close(ready)
        if theirs >= 0:
            os.close(theirs)
    _fail(stack_name, directory, starter, "did not start" if in_time else "took too long")


def _fail(
    stack_name: str, directory: Path, starter: subprocess.Popen[bytes], what: str
) -> NoReturn:
    text = log_path(directory).read_text(encoding="utf-8", errors="replace")
    tail = "\n".join(text.splitlines()[-_LOG_TAIL_LINES:]) or "(its log is empty)"
    _end_all(directory)
    starter.wait()
    shutil.rmtree(directory, ignore_errors=True)
    raise UpFailed(f"the local stack {stack_name!r} {what}:\n{tail}")


def _end_all(directory: Path) -> None:
    """End the processes of this directory, and only those; leave it empty."""
    processes = processes_under(directory)
    supervisors = [one for one in processes if _temporary(one) == str(directory)]
    for supervisor in supervisors:
        with contextlib.suppress(psutil.NoSuchProcess):
            supervisor.send_signal(signal.SIGTERM)
    wait_until_gone(supervisors, STOP_TIMEOUT_S)
    # A process that is just dying has no environment to be found by any more.
    kill_all([*processes_under(directory), *recorded_processes(directory)])
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _temporary(process: psutil.Process) -> str | None:
    try:
        return process.environ().get("TMPDIR")
    except psutil.Error:
        return None
