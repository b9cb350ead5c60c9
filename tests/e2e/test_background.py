"""`up`, `status` and `down` agree on what runs, and `down` leaves nothing, whatever was killed."""

import os
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from countledger.infra.local.background import Running, UpFailed, down, status, up
from countledger.infra.local.running import lives, processes_under
from countledger.ledger.errors import BadSetting


@pytest.fixture
def name() -> Iterator[str]:
    """The name of a stack of this test alone; nothing of it stays."""
    stack_name = f"test-{uuid.uuid4().hex[:12]}"
    yield stack_name
    down(stack_name)


def test_up_status_down(name: str) -> None:
    """What `up` says is what `status` says, until `down`."""
    assert status(name) is None

    started = up(name)

    assert not started.was_running
    assert started.environment["AWS_ENDPOINT_URL"] == started.url
    assert started.environment["COUNTLEDGER_STACK_NAME"] == name
    assert "LedgerTableName" in started.outputs
    found = status(name)
    assert found is not None
    assert found.pids == started.pids
    assert down(name)
    assert status(name) is None
    assert_gone(started)


def test_up_twice_is_one_stack(name: str) -> None:
    """A second `up`, later or at the same time, finds the first."""
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: up(name), range(2))

    third = up(name)

    assert first.pids == second.pids == third.pids
    assert [first.was_running, second.was_running].count(False) == 1
    assert third.was_running
    assert third.environment == first.environment


def test_down_without_up_has_nothing_to_do(name: str) -> None:
    """It says so, and makes nothing."""
    assert down(name) is False


@pytest.mark.parametrize("victims", [(0,), (1,), (0, 1)], ids=["supervisor", "engine", "both"])
def test_down_cleans_up_after_a_crash(name: str, victims: tuple[int, ...]) -> None:
    """After a kill -9 `status` says that nothing runs, and `down` leaves no process and no file."""
    started = up(name)
    for victim in victims:
        os.kill(started.pids[victim], signal.SIGKILL)

    until(lambda: status(name) is None)

    assert down(name)
    assert_gone(started)


def test_up_after_a_crash_starts_afresh(name: str) -> None:
    """What a crash left does not keep the next stack from starting."""
    crashed = up(name)
    os.kill(crashed.pids[0], signal.SIGKILL)
    until(lambda: status(name) is None)

    fresh = up(name)

    assert not fresh.was_running
    assert not set(fresh.pids) & set(crashed.pids)


def test_what_keeps_it_from_starting_is_shown(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The message has the end of the log, and nothing is left behind."""
    (tmp_path / "hypercorn.py").write_text("raise RuntimeError('broken install')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    with pytest.raises(UpFailed, match="broken install"):
        up(name)

    assert status(name) is None
    assert down(name) is False


def test_a_directory_that_others_may_enter_is_refused(name: str) -> None:
    """Whoever else could write there could name an endpoint of theirs."""
    directory = Path(tempfile.gettempdir()) / f"countledger-{os.getuid()}-{name}"
    directory.mkdir()
    directory.chmod(0o755)
    try:
        for call in (up, status, down):
            with pytest.raises(UpFailed, match="not a private directory"):
                call(name)
    finally:
        directory.rmdir()


def test_a_name_that_is_none_is_refused() -> None:
    """A name that could lead out of the directory, or that CloudFormation refuses."""
    for bad in ("", "../x", "a/b", "1a", "a" * 129):
        with pytest.raises(BadSetting):
            up(bad)


def assert_gone(running: Running) -> None:
    """Assert that no process and no file of it is left."""
    directory = running.log.parent
    assert not directory.exists()
    assert processes_under(directory) == []
    assert not [one for one in psutil.process_iter() if one.pid in running.pids and lives(one)]


def until(holds: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Wait until it holds."""
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.02)
