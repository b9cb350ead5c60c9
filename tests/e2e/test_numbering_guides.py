"""The examples of the guides to sequences and claims, and the tutorial's, do what they say."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from countledger.infra.cli.app import run
from countledger.infra.local.stack import LocalStack

ROOT = Path(__file__).parents[2]
GUIDES = "".join((ROOT / "docs" / name).read_text() for name in ("sequences.md", "claims.md"))
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
PYTHON_BLOCKS = re.findall(r"```python\n(.*?)```", GUIDES, re.DOTALL)
COMMAND_LINES = re.findall(
    r"^    (countledger (?:sequence|claim) .*)$", GUIDES + TUTORIAL, re.MULTILINE
)


@pytest.fixture(scope="module")
def own_tables(stack: LocalStack) -> Iterator[LocalStack]:
    """The tables that a reader of the guides has."""
    client: Any = stack.client("dynamodb")
    kinds: dict[str, dict[str, Literal["S", "N"]]] = {
        "posts": {"post": "S", "place": "N"},
        "users": {"id": "S"},
    }
    for table, keys in kinds.items():
        client.create_table(
            TableName=table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[
                {"AttributeName": key, "AttributeType": kind} for key, kind in keys.items()
            ],
            KeySchema=[
                {"AttributeName": key, "KeyType": role}
                for key, role in zip(keys, ("HASH", "RANGE"), strict=False)
            ],
        )
    yield stack
    for table in kinds:
        client.delete_table(TableName=table)


def test_there_are_examples() -> None:
    """In the form that these tests look for."""
    assert len(PYTHON_BLOCKS) == 5
    assert len(COMMAND_LINES) == 12


def test_the_python_runs(own_tables: LocalStack) -> None:
    """Each example as it is, twice; it ends by printing what its last comment says."""
    for block in [*PYTHON_BLOCKS, *PYTHON_BLOCKS]:
        promised = re.findall(r"^print\(.*\)  # (\S+)$", block, re.MULTILINE)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", block],
            env={**os.environ, **own_tables.environment()},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.split()[-1] == promised[-1]


def test_the_commands_run_in_their_order(
    own_tables: LocalStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other."""
    for name, value in own_tables.environment().items():
        monkeypatch.setenv(name, value)
    for line in COMMAND_LINES:
        assert run(shlex.split(line, comments=True)[1:]) == 0, line
