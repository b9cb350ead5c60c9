"""`countledger serve`, and the front of a local stack, on the deployed stack."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest

from countledger import CountLedger
from countledger.infra.local.front import READ_ONLY, Front, listening_socket
from countledger.infra.local.stack import LocalStack
from tests.e2e.command import Command, eventually


def _ask(url: str, path: str, body: dict[str, str] | None = None, **headers: str) -> Any:  # noqa: ANN401 - JSON
    """Ask the API that an address with a token leads to: its answer."""
    parts = urlsplit(url)
    token = parse_qs(parts.query)["token"][0]
    request = urllib.request.Request(
        f"http://{parts.netloc}{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        },
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - as above
        return json.load(answer)


@contextmanager
def _serving(command: Command, *options: str) -> Iterator[dict[str, Any]]:
    """`countledger serve --json` as a process: what it printed; it ends with Ctrl-C."""
    process = subprocess.Popen(
        command.line("serve", "--json", *options),
        env=command.variables(None),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield json.loads(_document(process.stdout))
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(20)
        process.stdout.close()
    assert code == 0


def _document(lines: Iterator[str]) -> str:
    text = ""
    for line in lines:
        text += line
        if line == "}\n":
            break
    return text


def test_serve_reads_with_the_token_until_it_is_ended(
    command: Command, client: CountLedger, name: str
) -> None:
    receipt = client.record(f"{name}:a", 3)
    client.total(f"{name}:a", after=receipt)

    with _serving(command) as served:
        assert served["stack_name"] == "countledger"
        assert served["allow_writes"] is False
        assert _ask(served["url"], f"/v1/counters/{name}:a")["value"] == "3"
        with pytest.raises(urllib.error.HTTPError, match="403"):
            _ask(served["url"], f"/v1/counters/{name}:a/entries", {"delta": "1"})


def test_serve_writes_if_it_is_told_to(command: Command, client: CountLedger, name: str) -> None:
    with _serving(command, "--allow-writes") as served:
        for status in ("recorded", "duplicate"):
            path = f"/v1/counters/{name}:a/entries"
            done = _ask(served["url"], path, {"delta": "2"}, Idempotency_Key="k-1")
            assert done["status"] == status

    assert client.exact(f"{name}:a").value == 2


def test_serve_says_at_once_what_keeps_it_from_serving(command: Command) -> None:
    missing = command("serve", "--stack-name", "no-such-stack")
    assert (missing.code, missing.out, missing.err.count("\n")) == (2, "", 1)
    assert "no-such-stack" in missing.err

    with listening_socket() as taken:
        refused = command("serve", "--port", str(taken.getsockname()[1]))
    assert (refused.code, refused.out) == (2, "")
    assert "give another one with --port" in refused.err


def test_the_first_request_starts_the_server_of_a_front_and_a_crash_is_no_end(
    stack: LocalStack, client: CountLedger, name: str
) -> None:
    client.total(f"{name}:a", after=client.record(f"{name}:a", 5))
    me = psutil.Process(os.getpid())

    def servers() -> list[psutil.Process]:
        return [one for one in me.children() if "countledger.infra.http.server" in one.cmdline()]

    with Front(stack.environment()) as front:
        assert servers() == []
        assert _ask(front.url, f"/v1/counters/{name}:a")["value"] == "5"
        (first,) = servers()
        first.kill()
        assert _ask(front.url, f"/v1/counters/{name}:a")["value"] == "5"
        (second,) = servers()
        assert second.pid != first.pid
    assert servers() == []
    with pytest.raises(OSError, match="refused"):
        _ask(front.url, "/v1")


@pytest.mark.parametrize("by", ["the process that started it", "a signal"])
def test_a_server_ends_with(stack: LocalStack, by: str) -> None:
    """Also when that process was killed: the server reads a pipe to its end."""
    with listening_socket() as taken:
        reading, writing = os.pipe()
        server = subprocess.Popen(
            [
                *(sys.executable, "-m", "countledger.infra.http.server"),
                *(str(taken.fileno()), str(reading), READ_ONLY),
            ],
            env=os.environ | stack.environment(),
            pass_fds=(taken.fileno(), reading),
        )
        os.close(reading)
        os.write(writing, b"a-token\n")
        port = taken.getsockname()[1]
        with pytest.raises(urllib.error.HTTPError, match="404"):
            _ask(f"http://127.0.0.1:{port}/?token=a-token", "/none")
        if by == "a signal":
            server.terminate()
            eventually(lambda: server.poll() is not None)
        os.close(writing)

        eventually(lambda: server.poll() is not None)
    assert server.returncode == 0
