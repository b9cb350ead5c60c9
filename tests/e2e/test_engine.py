"""The embedded engine keeps to itself and leaves nothing behind, however it ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from botocore.exceptions import ClientError

from countledger.infra.local.engine import ROOT_KEY, Engine, EngineFailed
from countledger.infra.local.running import processes_under
from countledger.infra.local.stack import Credentials, LocalStack

# A child that runs an engine with a function in flight, says where, and waits to be killed.
CHILD = """
import io, sys, threading, time, zipfile
from countledger.infra.local.stack import LocalStack

with LocalStack() as stack:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("busy.py", "import time\\ndef handler(e, c):\\n    time.sleep(300)\\n")
    client = stack.client("lambda")
    client.create_function(FunctionName="busy", Runtime="python3.13", Handler="busy.handler",
        Role="arn:aws:iam::000000000000:role/x", Code={"ZipFile": buffer.getvalue()}, Timeout=300)
    threading.Thread(target=lambda: client.invoke(FunctionName="busy"), daemon=True).start()
    print(stack.engine.home, flush=True)
    time.sleep(300)
"""


def test_it_ends_without_a_trace() -> None:
    """After the block there is no process, no directory, and nothing answers."""
    with Engine() as engine:
        home, pid = engine.home, engine.pid
        assert home.is_dir()
        assert home.stat().st_mode & 0o077 == 0
        assert psutil.pid_exists(pid)

    assert not home.exists()
    assert processes_under(home) == []
    assert not engine.alive()


def test_a_busy_function_does_not_hold_up_the_end(stack_of_a_busy_child: "Child") -> None:
    """A parent that ends in good order takes the function in flight with it."""
    child = stack_of_a_busy_child

    child.process.send_signal(signal.SIGINT)
    child.process.wait(20)

    child.assert_gone()


def test_it_does_not_outlive_a_killed_parent(stack_of_a_busy_child: "Child") -> None:
    """After a kill -9 of the parent the engine, its busy workers and its directory go too."""
    child = stack_of_a_busy_child

    child.process.kill()
    child.process.wait(10)

    child.assert_gone()


def test_it_listens_on_loopback_only(stack: LocalStack) -> None:
    """Nobody on the network reaches a server that runs code for whoever asks."""
    engine = psutil.Process(stack.engine.pid)
    listening = [
        connection.laddr.ip
        for process in [engine, *engine.children(recursive=True)]
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    ]

    assert listening == ["127.0.0.1"]


def test_the_users_own_aws_does_not_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile, an endpoint or a key of the user's environment is not passed on."""
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://example.invalid")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "secret")
    monkeypatch.setenv("COUNTLEDGER_LEDGER_TABLE", "production-ledger")
    monkeypatch.setenv("PERSIST_STATE", "1")

    with Engine() as engine:
        environment = psutil.Process(engine.pid).environ()

    assert environment["AWS_ENDPOINT_URL"] == engine.url
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "COUNTLEDGER_LEDGER_TABLE", "PERSIST_STATE"):
        assert name not in environment


def test_a_profile_of_the_user_does_no_harm(
    stack: LocalStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our own sessions look at neither profile nor files of the user."""
    monkeypatch.setenv("AWS_PROFILE", "nobody")

    assert stack.client("s3", Credentials(ROOT_KEY, "any")).list_buckets()["Buckets"]


def test_what_keeps_it_from_starting_is_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The message has the end of the engine's log, and nothing is left behind."""
    (tmp_path / "hypercorn.py").write_text("raise RuntimeError('broken install')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    with pytest.raises(EngineFailed, match="broken install"):
        Engine(parent_dir=tmp_path).start()

    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] in ([], ["__pycache__"])


@pytest.mark.parametrize("expression", ["ADD #t :d", "SET #t = #t + :d"])
def test_sums_keep_38_digits_and_refuse_more(stack: LocalStack, expression: str) -> None:
    """Arithmetic is exact to 38 digits; what needs more is refused and changes nothing."""
    dynamodb, table = stack.client("dynamodb"), stack.outputs["CountersTableName"]
    key = {"counter": {"S": f"digits:{expression}"}, "part": {"S": "total"}}
    dynamodb.put_item(TableName=table, Item={**key, "total": {"N": "9" * 37}})

    def add(number: str) -> None:
        dynamodb.update_item(
            TableName=table,
            Key=key,
            UpdateExpression=expression,
            ExpressionAttributeNames={"#t": "total"},
            ExpressionAttributeValues={":d": {"N": number}},
        )

    add("9" * 37)
    with pytest.raises(ClientError, match="overflow"):
        add("0.01")

    stored = dynamodb.get_item(TableName=table, Key=key)["Item"]["total"]["N"]
    assert int(stored) == 2 * int("9" * 37)


class Child:
    """A process with an engine and a function in flight."""

    def __init__(self, temporary: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(temporary)},
        )
        assert self.process.stdout is not None
        self.home = Path(self.process.stdout.readline().strip())
        assert self.home.parent == temporary
        # The engine, and the worker of the busy function.
        _until(lambda: len(processes_under(self.home)) >= 2)

    def assert_gone(self) -> None:
        """Assert that processes and directory are gone soon."""
        _until(lambda: not processes_under(self.home))
        _until(lambda: not self.home.exists())


@pytest.fixture
def stack_of_a_busy_child(tmp_path: Path) -> Iterator[Child]:
    child = Child(tmp_path)
    with child.process:  # closes its pipe
        yield child
        child.process.kill()


def _until(holds: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.02)
