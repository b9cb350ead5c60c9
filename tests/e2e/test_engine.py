"""The embedded engine keeps to itself and leaves nothing behind, however it ends."""

import io
import json
import os
import signal
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from countledger.infra.local.engine import Engine
from countledger.infra.local.running import processes_under
from countledger.infra.local.stack import LocalStack
from tests.e2e.command import eventually

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


def test_it_ends_without_a_trace_and_the_users_own_aws_does_not_reach_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs = {
        "AWS_PROFILE": "production",
        "AWS_ENDPOINT_URL": "https://example.invalid",
        "AWS_SESSION_TOKEN": "secret",
        "COUNTLEDGER_LEDGER_TABLE": "production-ledger",
        "PERSIST_STATE": "1",
    }
    for name, value in theirs.items():
        monkeypatch.setenv(name, value)

    with Engine() as engine:
        home = engine.home
        assert home.stat().st_mode & 0o077 == 0
        environment = psutil.Process(engine.pid).environ()

    assert environment.pop("AWS_ENDPOINT_URL") == engine.url
    assert not set(theirs) & set(environment)
    assert not home.exists()
    assert processes_under(home) == []
    assert not engine.alive()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_it_does_not_outlive_its_parent_with_a_function_in_flight(
    tmp_path: Path, number: signal.Signals
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as child:
        assert child.stdout is not None
        home = Path(child.stdout.readline().strip())
        assert home.parent == tmp_path
        # The engine, and the worker of the busy function.
        eventually(lambda: len(processes_under(home)) >= 2)

        child.send_signal(number)
        child.wait(20)

    eventually(lambda: not processes_under(home))
    eventually(lambda: not home.exists())


def test_it_listens_on_loopback_only(stack: LocalStack) -> None:
    """Nobody on the network reaches a server that runs code for whoever asks."""
    engine = psutil.Process(stack.engine.pid)
    listening: list[str] = []
    for process in [engine, *engine.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):  # a worker of a function may just end
            listening += [
                connection.laddr.ip
                for connection in process.net_connections(kind="inet")
                if connection.status == psutil.CONN_LISTEN
            ]

    assert listening == ["127.0.0.1"]


def test_a_profile_of_the_user_does_no_harm(
    stack: LocalStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")

    assert stack.client("s3").list_buckets()["Buckets"]


_ASKING = """
import boto3
from countledger.ledger.connection import Connection
from countledger.ledger.settings import Settings

def handler(event, context):
    client = Connection(Settings(transport="fast"), boto3.Session()).dynamo("none").client
    return client._handlers.allow("UpdateItem")
"""


def test_a_function_makes_its_calls_on_items_by_the_fast_transport(stack: LocalStack) -> None:
    """As on AWS: no handler of the engine's own prevents it."""
    archive, client = io.BytesIO(), stack.client("lambda")
    with zipfile.ZipFile(archive, "w") as code:
        code.writestr("asking.py", _ASKING)
    client.create_function(
        FunctionName="asking",
        Runtime="python3.13",
        Role="arn:aws:iam::000000000000:role/asking",
        Handler="asking.handler",
        Code={"ZipFile": archive.getvalue()},
        Timeout=30,
    )

    answer = client.invoke(FunctionName="asking")

    assert json.loads(answer["Payload"].read()) is True
    client.delete_function(FunctionName="asking")
