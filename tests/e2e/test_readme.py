"""The examples of the README, the tutorial and the guides do as they say, also when run twice."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from countledger.infra.local.stack import LocalStack
from tests.e2e.command import Command
from tests.e2e.world import make_table

_ROOT: Final = Path(__file__).parents[2]
_FIRST_STEPS: Final = ("README.md", "docs/tutorial.md")
# How many blocks of Python a page has, and how many lines with a command.
_PAGES: Final = {
    "README.md": (1, 5),
    "docs/tutorial.md": (4, 18),
    "docs/strict.md": (2, 13),
    "docs/alerts.md": (1, 8),
    "docs/groups.md": (1, 11),
    "docs/sequences.md": (3, 6),
    "docs/claims.md": (2, 4),
    "docs/kinesis.md": (1, 0),
    "docs/quotas.md": (2, 11),
    "docs/windows.md": (1, 11),
    "docs/asyncio.md": (1, 0),
}
_TEXTS: Final = {page: (_ROOT / page).read_text() for page in _PAGES}
_BLOCKS: Final = {
    page: re.findall(r"```python\n(.*?)```", text, re.DOTALL) for page, text in _TEXTS.items()
}
# What a reader types on a stack that runs; those that make or end one have tests of their own.
_RUN: Final = (
    "emit|total|entries|verify|strict|alert|watch|sequence|claim|set|group|namespace|snapshot|"
    "schedule|compact|quota|windows"
)
_LINES: Final = {
    page: re.findall(rf"^    (countledger (?:{_RUN}) .*)$", text, re.MULTILINE)
    for page, text in _TEXTS.items()
}
# The tables that a reader of the guides has, with their keys.
_TABLES: Final = {"posts": {"post": "S", "place": "N"}, "users": {"id": "S"}}


@pytest.fixture(scope="module")
def stack() -> Iterator[LocalStack]:
    """A stack on which nothing else has been counted, as a reader of the README has it."""
    with LocalStack(parameters={"IngestStream": "provisioned"}) as running:
        for table, keys in _TABLES.items():
            make_table(running, table, **keys)
        yield running


@pytest.mark.parametrize("page", _PAGES)
def test_the_examples_of_a_page_are_found(page: str) -> None:
    assert (len(_BLOCKS[page]), len(_LINES[page])) == _PAGES[page]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[] if page in _FIRST_STEPS else [pytest.mark.thorough])
        for page in _PAGES
    ],
)
def test_the_examples_of_a_page_run_as_they_are(
    stack: LocalStack, command: Command, page: str
) -> None:
    """Python twice, and its last line prints what its comment says; then the commands in order."""
    for block in [*_BLOCKS[page], *_BLOCKS[page]]:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", block],
            env={**os.environ, **stack.environment()},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        promised = re.findall(r"^ *print\(.*\)  # (.*)$", block, re.MULTILINE)
        assert done.returncode == 0, f"{block}\n{done.stderr}"
        assert done.stdout.splitlines()[-1:] == promised[-1:], block

    for line in _LINES[page]:
        words = shlex.split(line, comments=True)
        stack.pump.drain()
        ran = command(*words[1:])
        assert ran.code == 0, f"{line}\n{ran.err}"
        if "a retry" in line:
            assert "duplicate" in ran.out
        if words[1] == "total":
            assert re.search(r"likes:post-1\s+\W*\s*2\b", ran.out), ran.out
