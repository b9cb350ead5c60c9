"""Finds and ends processes of ours, and only of ours."""

import contextlib
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

import psutil

KILL_TIMEOUT_S: Final = 5.0
_PAUSE_S: Final = 0.02


def processes_under(home: Path) -> list[psutil.Process]:
    """The processes of this user whose temporary directory is `home` or lies in it.

    That directory is made for one engine or one supervisor, and all its processes inherit it: they
    are found also when their parent was killed, and no recycled process id can be taken for one of
    them.
    """
    return [process for process in psutil.process_iter() if is_under(process, home)]


def is_under(process: psutil.Process, home: Path) -> bool:
    """Whether this process has its temporary directory there (a dying one has none any more)."""
    try:
        temporary = process.environ().get("TMPDIR")
    except (psutil.Error, OSError):
        return False  # gone meanwhile, or of another user
    return temporary is not None and Path(temporary).is_relative_to(home)


def lives(process: psutil.Process) -> bool:
    """Whether it runs. A dead one that nobody has waited for does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until_gone(processes: Collection[psutil.Process], timeout_s: float) -> None:
    """Wait until none of them lives, or until the time is over."""
    deadline_s = time.monotonic() + timeout_s
    while any(lives(process) for process in processes) and time.monotonic() < deadline_s:
        time.sleep(_PAUSE_S)


def kill_all(processes: Iterable[psutil.Process]) -> None:
    """Kill processes and wait until they are gone. psutil refuses a recycled id by itself."""
    victims = list(processes)
    for process in victims:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    wait_until_gone(victims, KILL_TIMEOUT_S)
