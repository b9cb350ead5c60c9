"""The local stack in the background: `up`, `status`, `down`.

A detached supervisor owns engine and pump. It and all its processes have one private directory, by
which they are found, and which `down` deletes. Data live as long as the supervisor runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import psutil

from countledger.infra.local import saved_stack
from countledger.infra.local.engine import SAVE_TIMEOUT_S, cleaned_environment
from countledger.infra.local.following import directory_of
from countledger.infra.local.running import (
    STACK_NAME,
    Running,
    WantedStack,
    check_regions,
    kept_in_of,
    kill_all,
    log_path,
    log_tail,
    processes_under,
    read_cut,
    read_running,
    recorded_processes,
    wait_until_gone,
    write_cut,
)
from countledger.ledger.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from countledger.infra.local.replication import Way

__all__ = ["Running", "UpFailed", "change_cut", "down", "status", "up", "ways_cut"]

START_TIMEOUT_S: Final = 90.0
STOP_TIMEOUT_S: Final = 15.0


class UpFailed(SetupError):
    """The local stack did not start; the message has the end of the supervisor's log."""


class NotSaved(SetupError):
    """The local stack ended without being saved; the message has the end of its log."""


def up(
    stack_name: str = STACK_NAME,
    *,
    regions: Sequence[str] | None = None,
    port: int | None = None,
    persist: Path | None = None,
    allow_writes: bool = False,
    timeout_s: float = START_TIMEOUT_S,
) -> Running:
    """Start the local stack in the background and wait until it is ready.

    What is None stays as it runs, or as it is kept: else one region, any free port, memory alone.
    `persist` is the directory that the stack is kept in. `was_running` of the answer says whether
    it ran before. `UpFailed`: it did not start, and what was started is gone again; or it runs in
    other regions, on another port, or is kept in another directory.
    """
    directory = directory_of(stack_name)
    wanted = check_regions(regions) if regions is not None else None
    kept_in = None if persist is None else str(persist.expanduser().resolve())
    with _held(directory):
        running = read_running(directory)
        if running is not None:
            how = running.difference(wanted, port, kept_in, allow_writes=allow_writes)
            if how is not None:
                raise UpFailed(
                    f"the local stack {stack_name!r} runs {how}: end it with `countledger down` "
                    "first"
                )
            return running
        _end_all(directory)  # what a crash may have left
        started = WantedStack(
            stack_name=stack_name,
            regions=wanted or (),
            port=port or 0,
            kept_in=kept_in,
            allow_writes=allow_writes,
        )
        _start(started, directory, timeout_s)
        running = read_running(directory)
    if running is None:
        raise UpFailed(f"the local stack {stack_name!r} ended as soon as it was ready")
    return replace(running, was_running=False)


def status(stack_name: str = STACK_NAME) -> Running | None:
    """The local stack, if it runs: its supervisor and its engine both live."""
    directory = directory_of(stack_name)
    _check_private(directory)
    return read_running(directory)


def down(stack_name: str = STACK_NAME) -> bool:
    """End the local stack and delete its data, also after a crash of it; what is kept stays.

    False: there was nothing to end or to delete. `NotSaved`: it is gone and could not be saved.
    """
    directory = directory_of(stack_name)
    if not directory.exists():
        return False
    with _held(directory):
        running, log = read_running(directory), log_path(directory)
        _end_all(directory, keeping=log)
        tail = log_tail(directory)
        shutil.rmtree(directory, ignore_errors=True)
    if running is not None and running.kept_in is not None:
        _check_saved(Path(running.kept_in), tail)
    return True


def _check_saved(kept_in: Path, tail: str) -> None:
    saved = saved_stack.read_header(kept_in)
    if saved is None or not saved.complete:
        at = "nothing is there" if saved is None else f"what is there was saved at {saved.saved_at}"
        raise NotSaved(f"the stack has ended, and could not be saved in {kept_in}: {at}:\n{tail}")


def change_cut(stack_name: str, change: Callable[[set[Way]], set[Way]]) -> set[Way]:
    """Change which ways between the regions of the local stack are cut, and return them.

    What is written after this returns does not pass a way that is cut.
    """
    if status(stack_name) is None:
        raise UpFailed(f"no stack {stack_name!r} of `countledger up` runs on this machine")
    directory = directory_of(stack_name)
    with _held(directory):
        ways = change(read_cut(directory))
        write_cut(directory, ways)
    return ways


def ways_cut(stack_name: str) -> set[Way]:
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


def _start(wanted: WantedStack, directory: Path, timeout_s: float) -> None:
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
                    str(theirs),
                    json.dumps(asdict(wanted)),
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
    _fail(wanted.stack_name, directory, starter, "did not start" if in_time else "took too long")


def _fail(
    stack_name: str, directory: Path, starter: subprocess.Popen[bytes], what: str
) -> NoReturn:
    tail = log_tail(directory)
    _end_all(directory)
    starter.wait()
    shutil.rmtree(directory, ignore_errors=True)
    raise UpFailed(f"the local stack {stack_name!r} {what}:\n{tail}")


def _end_all(directory: Path, *, keeping: Path | None = None) -> None:
    """End the processes of this directory, and only those; leave it empty but for one file."""
    processes = processes_under(directory)
    supervisors = [one for one in processes if _temporary(one) == str(directory)]
    for supervisor in supervisors:
        with contextlib.suppress(psutil.NoSuchProcess):
            supervisor.send_signal(signal.SIGTERM)
    if kept_in_of(directory) is None:
        wait_until_gone(supervisors, STOP_TIMEOUT_S)
    else:  # also an engine whose supervisor was killed saves its memory
        wait_until_gone(processes, STOP_TIMEOUT_S + SAVE_TIMEOUT_S)
    # A process that is just dying has no environment to be found by any more.
    kill_all([*processes_under(directory), *recorded_processes(directory)])
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path != keeping:
            path.unlink(missing_ok=True)


def _temporary(process: psutil.Process) -> str | None:
    try:
        return process.environ().get("TMPDIR")
    except psutil.Error:
        return None
