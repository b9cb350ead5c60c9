"""A command finds the local stack by itself, and never where its environment says otherwise."""

import json
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from countledger.infra.local.following import STATE_FILE, directory_of, followed

NAME = "stack-of-a-test"
KEYS = {"AWS_ACCESS_KEY_ID": "000000000000", "AWS_SECRET_ACCESS_KEY": "local"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a new user, and a temporary directory of their own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return {"HOME": str(tmp_path)}


@pytest.fixture
def url() -> Iterator[str]:
    """An endpoint that answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


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

    assert followed(ended, NAME) == wanted
    assert followed({**home, **wanted}, NAME) == {}


@pytest.mark.parametrize(
    "said",
    [
        {"AWS_REGION": "eu-west-1"},
        {"AWS_PROFILE": "mine"},
        {"AWS_ACCESS_KEY_ID": "AKIA"},
        {"AWS_WEB_IDENTITY_TOKEN_FILE": "token"},
        {"COUNTLEDGER_LEDGER_TABLE": "mine"},
        {"AWS_ENDPOINT_URL": "https://dynamodb.eu-west-1.amazonaws.com", **KEYS},
        {"AWS_ENDPOINT_URL": "ENDED", **KEYS, "AWS_SECRET_ACCESS_KEY": "of another engine"},
    ],
    ids=str,
)
def test_what_the_environment_says_wins(
    home: dict[str, str], url: str, said: dict[str, str]
) -> None:
    _up(url)
    said = {name: _ended() if value == "ENDED" else value for name, value in said.items()}

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


def _ended() -> str:
    """An endpoint where nothing listens any more."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"http://127.0.0.1:{listening.getsockname()[1]}"
