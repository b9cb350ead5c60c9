"""A command finds the local stack by itself, and never where its environment says otherwise."""

import json
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.request import urlopen

import pytest

from countledger.infra.local.following import (
    STATE_FILE,
    LocalStackEnded,
    check_it_is_ours,
    directory_of,
    followed,
    new_secret,
    proof_of,
    proves,
)

NAME = "stack-of-a-test"
SECRET = new_secret()
KEYS = {"AWS_ACCESS_KEY_ID": "000000000000", "AWS_SECRET_ACCESS_KEY": SECRET}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a new user, and a temporary directory of their own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return {"HOME": str(tmp_path)}


@pytest.fixture
def url() -> Iterator[str]:
    """An endpoint that proves to have the secret."""
    with _engine(SECRET) as found:
        yield found


@contextmanager
def _engine(secret: str) -> Iterator[str]:
    """The address of a program that answers challenges as an engine with that secret does."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            proof = proof_of(secret, server.server_address[1], self.path.partition("?")[2])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(proof.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _up(url: str, *, mode: int = 0o700) -> dict[str, str]:
    """Write down what `up` does; the environment of the stack."""
    environment = {"AWS_ENDPOINT_URL": url, "AWS_REGION": "us-east-1", **KEYS}
    directory = directory_of(NAME)
    directory.mkdir()
    directory.chmod(mode)
    (directory / STATE_FILE).write_text(json.dumps({"environment": environment}))
    return environment


def test_a_shell_that_names_no_aws_finds_the_stack_that_runs(
    home: dict[str, str], url: str
) -> None:
    assert followed(home, NAME) == {}

    wanted = _up(url)

    assert followed(home, NAME) == wanted
    assert followed({**home, "COUNTLEDGER_STACK_NAME": NAME}, NAME) == wanted
    assert followed(home, "another") == {}


def test_a_shell_of_a_stack_that_has_ended_finds_the_one_that_runs_now(
    home: dict[str, str], url: str
) -> None:
    wanted = _up(url)
    ended = {**home, **wanted, "AWS_ENDPOINT_URL": _ended()}
    earlier = {**home, **wanted, "AWS_SECRET_ACCESS_KEY": new_secret()}

    assert followed(ended, NAME) == wanted
    assert followed(earlier, NAME) == wanted
    assert followed({**home, **wanted}, NAME) == {}


@pytest.mark.parametrize(
    "said",
    [
        {"AWS_REGION": "eu-west-1"},
        {"AWS_PROFILE": "mine"},
        {"AWS_ACCESS_KEY_ID": "AKIA"},
        {"AWS_WEB_IDENTITY_TOKEN_FILE": "token"},
        {"COUNTLEDGER_LEDGER_TABLE": "mine"},
        {"AWS_ENDPOINT_URL": "https://dynamodb.eu-west-1.amazonaws.com"},
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_SECRET_ACCESS_KEY": "of another engine"},
    ],
    ids=str,
)
def test_what_the_environment_says_wins(
    home: dict[str, str], url: str, said: dict[str, str]
) -> None:
    _up(url)

    assert followed({**home, **said}, NAME) == {}


@pytest.mark.parametrize("file", ["config", "credentials"])
def test_what_the_user_has_configured_wins(home: dict[str, str], url: str, file: str) -> None:
    _up(url)
    folder = directory_of(NAME).parent / ".aws"
    folder.mkdir()
    (folder / file).touch()

    assert followed(home, NAME) == {}


def test_a_stack_that_has_ended_or_whose_directory_others_may_enter_is_not_followed(
    home: dict[str, str], url: str
) -> None:
    _up(_ended())
    assert followed(home, NAME) == {}

    (directory_of(NAME) / STATE_FILE).unlink()
    directory_of(NAME).rmdir()
    _up(url, mode=0o755)
    assert followed(home, NAME) == {}


def test_a_stranger_on_the_port_of_a_stack_that_has_ended_is_never_called(
    home: dict[str, str],
) -> None:
    """Neither by a shell that the stack was printed for, nor by one that finds it written down."""
    with _engine("a secret of another user") as stranger:
        printed = _up(stranger)

        assert followed(home, NAME) == {}
        with pytest.raises(LocalStackEnded, match="has ended"):
            followed({**home, **printed}, NAME)
        with pytest.raises(LocalStackEnded, match="has ended"):
            check_it_is_ours(printed)


def test_a_proof_is_good_for_one_port(url: str) -> None:
    """A stranger passes each challenge on to an engine that runs elsewhere, and is found out."""

    class Relay(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with urlopen(url + self.path) as answer:  # noqa: S310 - of this test
                proof = answer.read()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(proof)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Relay)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        relayed = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_address[1]}", **KEYS}
        assert proves({"AWS_ENDPOINT_URL": url, **KEYS})
        assert not proves(relayed)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _ended() -> str:
    """An endpoint where nothing listens any more."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"http://127.0.0.1:{listening.getsockname()[1]}"
