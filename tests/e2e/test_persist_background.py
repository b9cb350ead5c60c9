"""`up --persist`: what a crash leaves, what is refused, and a stack that moves to another port."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from countledger import CountLedger, Settings
from countledger.infra.local.background import NotSaved, Running, UpFailed, down, status, up
from countledger.infra.local.saved_stack import FILE, read_header
from countledger.infra.local.stack import session_in
from tests.e2e.command import eventually


@pytest.fixture
def name(name: str) -> Iterator[str]:
    """The name of a stack of this test alone; no process of it stays."""
    yield name
    down(name)


@pytest.fixture
def kept_in(tmp_path: Path) -> Path:
    """A directory that does not exist yet."""
    return tmp_path / "kept"


def client_of(running: Running) -> CountLedger:
    """A client of a stack in the background."""
    settings = Settings(stack_name=running.stack_name)
    return CountLedger(settings, session=session_in(running.environment), endpoint_url=running.url)


def counted(client: CountLedger, counter: str) -> int:
    """The total, once it is the exact sum."""
    eventually(lambda: client.total(counter).value == client.exact(counter).value)
    return int(client.total(counter).value)


def test_a_supervisor_that_is_killed_loses_nothing(name: str, kept_in: Path) -> None:
    """The engine notices, saves what was written last, and ends."""
    first = up(name, persist=kept_in)
    client_of(first).record("likes:a", 5)
    os.kill(first.pids[0], signal.SIGKILL)
    eventually(lambda: status(name) is None)

    second = up(name, persist=kept_in)

    assert not second.was_running
    assert (second.url, second.lost_after) == (first.url, None)
    assert counted(client_of(second), "likes:a") == 5


def test_an_engine_that_is_killed_leaves_what_was_saved_last(name: str, kept_in: Path) -> None:
    first = up(name, persist=kept_in)
    client = client_of(first)
    client.record("likes:a", 5, key="saved")
    assert counted(client, "likes:a") == 5
    began = read_header(kept_in)
    assert began is not None
    eventually(lambda: _saved_ms(kept_in) > began.saved_at_ms)
    for n in range(100):  # some of them after it was saved last
        client.record("likes:a", 1, key=f"late-{n}")
    os.kill(first.pids[1], signal.SIGKILL)
    eventually(lambda: status(name) is None)

    second = up(name, persist=kept_in)

    saved = read_header(kept_in)
    assert saved is not None
    assert second.lost_after is not None
    client = client_of(second)
    assert client.record("likes:a", 5, key="saved").status == "duplicate"
    for n in range(100):  # what is lost is recorded by its retry, and nothing twice
        client.record("likes:a", 1, key=f"late-{n}")
    assert counted(client, "likes:a") == 105
    assert client.audit.verify("likes:a").verdict == "exact"


def _saved_ms(kept_in: Path) -> int:
    saved = read_header(kept_in)
    return 0 if saved is None else saved.saved_at_ms


def test_a_stack_whose_port_is_taken_moves_with_its_queues(name: str, kept_in: Path) -> None:
    first = up(name, persist=kept_in)
    client_of(first).record("likes:a", 1)
    counted(client_of(first), "likes:a")
    down(name)
    port = int(first.url.rpartition(":")[2])

    with socket.create_server(("127.0.0.1", port)):
        second = up(name, persist=kept_in)

    assert second.url != first.url
    client = client_of(second)
    assert second.outputs["QuarantineQueueUrl"].startswith(f"{second.url}/")
    table = second.outputs["LedgerTableName"]
    dynamodb = session_in(second.environment).client("dynamodb", endpoint_url=second.url)
    broken = {"counter": {"S": "likes:a"}, "entry": {"S": "e#broken"}, "delta": {"S": "one"}}
    dynamodb.put_item(TableName=table, Item=broken)
    client.record("likes:a", 1)
    eventually(lambda: client.total("likes:a").value == 2)
    (bad,) = client.quarantine.list()
    assert bad.queued_at_ms is not None


def test_a_directory_in_use_and_another_way_to_run_are_refused(name: str, kept_in: Path) -> None:
    up(name, persist=kept_in)

    assert up(name, persist=kept_in).kept_in == str(kept_in)
    assert up(name).kept_in == str(kept_in)
    with pytest.raises(UpFailed, match=f"runs and is kept in {kept_in}: end it"):
        up(name, persist=kept_in.with_name("other"))
    with pytest.raises(UpFailed, match=f"{kept_in} is in use by another stack"):
        up(f"{name}-2", persist=kept_in)
    assert down(f"{name}-2") is False
    down(name)

    with pytest.raises(UpFailed, match=f"{kept_in} has the stack '{name}', not"):
        up(f"{name}-2", persist=kept_in)


def test_a_stack_that_could_not_be_saved_at_its_end_says_so(name: str, kept_in: Path) -> None:
    running = up(name, persist=kept_in)
    client_of(running).record("likes:a", 1)
    eventually(lambda: _saved_ms(kept_in) > 0)
    eventually(lambda: not (kept_in / f"{FILE}.new").exists())
    (kept_in / f"{FILE}.new").mkdir()

    with pytest.raises(NotSaved, match=f"could not be saved in {kept_in}: what is there was saved"):
        down(name)

    assert status(name) is None
    assert down(name) is False
