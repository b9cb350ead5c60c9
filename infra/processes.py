"""Finds and ends processes of ours, and only of ours."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import psutil

KILL_TIMEOUT_S: Final = 5.0


def processes_under(home: Path) -> list[psutil.Process]:
    """The processes of this user whose temporary directory is `home`.

    That directory's name is made for one engine, and all its processes inherit it: they are found
    also when their parent was killed, and no recycled process id can be taken for one of them.
    """
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR") == str(home):
                found.append(process)
        except (psutil.Error, OSError):
            continue  # gone meanwhile, or of another user
    return found


def kill_all(processes: Iterable[psutil.Process]) -> None:
    """Kill processes and wait until they are gone. psutil refuses a recycled id by itself."""
    victims = list(processes)
    for process in victims:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(victims, timeout=KILL_TIMEOUT_S)
