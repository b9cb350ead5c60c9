"""`up`, `status` and `down` agree on what runs, and `down` leaves nothing, whatever was killed."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen

import psutil
import pytest

from countledger import CountLedger
from countledger.infra.local.background import Running, UpFailed, down, status, up
from countledger.infra.local.running import lives, processes_under
from countledger.ledger.errors import BadSetting
from tests.e2e.command import eventually


@pytest.fixture
def name(name: str) -> Iterator[str]:
    """The name of a stack of this test alone; nothing of it stays."""
    yield name
    down(name)


def test_two_at_once_and_one_later_are_one_stack_until_down(name: str) -> None:
    assert status(name) is None
    assert down(name) is False

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: up(name), range(2))
    third, found = up(name), status(name)

    assert [first.was_running, second.was_running].count(False) == 1
    assert third.was_running
    assert third.environment == first.environment
    assert first.environment["AWS_ENDPOINT_URL"] == first.url
    assert first.environment["COUNTLEDGER_STACK_NAME"] == name
    assert "LedgerTableName" in first.outputs
    assert first.dashboard == third.dashboard
    with urlopen(first.dashboard) as page:  # noqa: S310 - of this machine
        assert b"<title>countledger</title>" in page.read()
    assert not first.allow_writes
    assert _record(first) == 403
    with pytest.raises(UpFailed, match="only reads: end it with `countledger down` first"):
        up(name, allow_writes=True)
    assert found is not None
    assert first.pids == second.pids == third.pids == found.pids
    assert down(name)
    assert status(name) is None
    assert_gone(first)


@pytest.mark.parametrize("victims", [(0,), (1,), (0, 1)], ids=["supervisor", "engine", "both"])
def test_after_a_crash_down_cleans_up(name: str, victims: tuple[int, ...]) -> None:
    started = up(name)
    for victim in victims:
        os.kill(started.pids[victim], signal.SIGKILL)
    eventually(lambda: status(name) is None)

    if victims == (0,):  # What a crash left does not keep the next stack from starting.
        fresh = up(name)
        assert not fresh.was_running
        assert not set(fresh.pids) & set(started.pids)

    assert down(name)
    assert_gone(started)


def test_what_keeps_it_from_starting_is_shown(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
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


def test_the_http_api_of_a_stack_writes_if_it_is_asked_to(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first test has one that only reads."""
    started = up(name, allow_writes=True)

    assert (_record(started), _record(started)) == (201, 200)
    assert up(name).allow_writes
    for variable, value in started.environment.items():
        monkeypatch.setenv(variable, value)
    assert CountLedger().exact("likes:post-1").value == 1


def _record(running: Running) -> int:
    """Record an event over HTTP, always with the same key: the status of the answer."""
    parts = urlsplit(running.dashboard)
    headers = {
        "Authorization": f"Bearer {parse_qs(parts.query)['token'][0]}",
        "Content-Type": "application/json",
        "Idempotency-Key": "k-1",
    }
    url = f"http://{parts.netloc}/v1/counters/likes:post-1/entries"
    request = Request(url, b'{"delta": "1"}', headers)
    try:
        with urlopen(request, timeout=60) as answer:  # noqa: S310 - as above
            return int(answer.status)
    except HTTPError as refused:
        return refused.code


def test_a_port_that_was_asked_for_is_taken_and_commands_find_the_next_one_by_themselves(
    name: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UpFailed, match=f"port {port} of 127.0.0.1 cannot be used"):
            up(name, port=port)

    first = up(name, port=port)
    assert first.url == f"http://127.0.0.1:{port}"
    assert up(name, port=port).was_running
    with pytest.raises(UpFailed, match="end it with `countledger down` first"):
        up(name, port=port + 1)
    down(name)
    second = up(name)

    shell = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    for environment in (shell | {"COUNTLEDGER_STACK_NAME": name}, shell | first.environment):
        done = subprocess.run(
            [sys.executable, "-m", "countledger", "total", "likes:a", "--json"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert '"value": "0"' in done.stdout
        assert f"local stack {name} on {second.url}" in done.stderr
