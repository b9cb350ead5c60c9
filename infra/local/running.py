"""A local stack in the background: what its supervisor writes down, and its processes.

Only processes of this project are found and ended.
"""

import contextlib
import json
import os
import re
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import psutil

from countledger.infra.local.following import STATE_FILE, directory_of
from countledger.ledger.errors import BadSetting, SetupError

STACK_NAME: Final = "countledger"
_REGION: Final = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]")
_MOST_REGIONS: Final = 5
KILL_TIMEOUT_S: Final = 5.0
_PAUSE_S: Final = 0.02


def processes_under(home: Path) -> list[psutil.Process]:
    """The processes of this user whose temporary directory is `home` or inside it.

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
    """Whether it runs. A zombie does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until_gone(processes: Collection[psutil.Process], timeout_s: float) -> None:
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


_CUT: Final = "cut.json"
_LOG: Final = "supervisor.log"
_LOG_TAIL_LINES: Final = 20


class AnotherRelease(SetupError):
    """A local stack runs whose state another release of countledger wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A local stack in the background, as its supervisor writes it down once all is ready.

    Attributes:
        dashboard: the address of the dashboard, with its token.
        started_at_s: when it was ready, in seconds since 1970.
        processes: id and time of creation of the supervisor and of the engine.
        kept_in: the directory that it is kept in; None: it is in memory alone.
        lost_after_s: what was written after this time was lost: it was started again after a crash.
    """

    stack_name: str
    url: str
    dashboard: str
    allow_writes: bool
    environment: dict[str, str]
    outputs: dict[str, str]
    regions: tuple[str, ...]
    started_at_s: float
    processes: list[tuple[int, float]]
    kept_in: str | None = None
    lost_after_s: float | None = None
    was_running: bool = True

    @property
    def started_at(self) -> datetime:
        return datetime.fromtimestamp(self.started_at_s, UTC)

    @property
    def lost_after(self) -> datetime | None:
        lost_s = self.lost_after_s
        return None if lost_s is None else datetime.fromtimestamp(lost_s, UTC)

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(pid for pid, _created_s in self.processes)

    @property
    def log(self) -> Path:
        return log_path(directory_of(self.stack_name))

    def write(self, directory: Path) -> None:
        """Write it at once, so that a reader sees all or nothing."""
        _write(directory / STATE_FILE, asdict(self))

    def difference(
        self,
        regions: tuple[str, ...] | None,
        port: int | None,
        kept_in: str | None,
        *,
        allow_writes: bool,
    ) -> str | None:
        """How it runs otherwise than wanted; None of what is wanted: however it runs."""
        if regions not in {None, self.regions}:
            return f"in {', '.join(self.regions)}"
        if port is not None and not self.url.endswith(f":{port}"):
            return f"on {self.url}"
        if allow_writes and not self.allow_writes:
            return "with an HTTP API that only reads"
        if kept_in in {None, self.kept_in}:
            return None
        return f"and is kept in {self.kept_in}" if self.kept_in else "in memory alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedStack:
    """What the supervisor shall run, as JSON.

    Without regions it runs in one, or as it is kept; port 0 is any free one.
    """

    stack_name: str
    regions: Sequence[str]
    port: int
    kept_in: str | None
    allow_writes: bool


def _write(path: Path, document: object) -> None:
    """Write a document so that a reader sees all of it or nothing."""
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    # The environment in it has the secret of the engine.
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as written:
        written.write(json.dumps(document))
    new.replace(path)


def write_cut(directory: Path, ways: Iterable[tuple[str, str]]) -> None:
    """Write down which ways between regions are cut: pairs of from and to."""
    _write(directory / _CUT, sorted(ways))


def read_cut(directory: Path) -> set[tuple[str, str]]:
    try:
        text = (directory / _CUT).read_text(encoding="utf-8")
    except FileNotFoundError:
        return set()
    return {(origin, to) for origin, to in json.loads(text)}


def log_path(directory: Path) -> Path:
    return directory / _LOG


def log_tail(directory: Path) -> str:
    try:
        text = log_path(directory).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        text = ""
    return "\n".join(text.splitlines()[-_LOG_TAIL_LINES:]) or "(its log is empty)"


def read_running(directory: Path) -> Running | None:
    """The stack of this directory, if its supervisor and its engine both live."""
    state = _read(directory)
    lives = state is not None and len(_living(state, directory)) == len(state.processes)
    return state if lives else None


def kept_in_of(directory: Path) -> str | None:
    """Where the stack of this directory is kept, also after it ended."""
    state = _read(directory)
    return None if state is None else state.kept_in


def _read(directory: Path) -> Running | None:
    try:
        text = (directory / STATE_FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    state = json.loads(text)
    if state.keys() != {one.name for one in fields(Running)}:
        pids = ", ".join(str(pid) for pid, _created_s in state.get("processes", ())) or "unknown"
        raise AnotherRelease(
            f"the local stack in {directory} was started by another release of countledger: run "
            f"`countledger down` of that release, or end its processes ({pids}) and delete the "
            "directory"
        )
    return Running(**{**state, "regions": tuple(state["regions"])})


def recorded_processes(directory: Path) -> list[psutil.Process]:
    """Those of the processes written down in the directory that live."""
    state = _read(directory)
    return _living(state, directory) if state is not None else []


def _living(state: Running, directory: Path) -> list[psutil.Process]:
    found = []
    for pid, created_s in state.processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            # Its directory distinguishes it from a process with a reused id, also after the clock
            # was set. A process that is ending has lost its environment: then compare the time of
            # its creation.
            ours = is_under(process, directory) or process.create_time() == created_s
            if ours and lives(process):
                found.append(process)
    return found


def check_regions(regions: Sequence[str]) -> tuple[str, ...]:
    for name in regions:
        if not _REGION.fullmatch(name):
            raise BadSetting(f"{name!r} is not the name of a region, such as us-east-1")
    if len(set(regions)) != len(regions):
        raise BadSetting(f"a region is given twice: {', '.join(regions)}")
    if not 1 <= len(regions) <= _MOST_REGIONS:
        raise BadSetting(f"a stack has 1 to {_MOST_REGIONS} regions, not {len(regions)}")
    return tuple(regions)
