"""Runs `countledger` as a user does: with an environment, in this process or as one of its own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from typing import Any, Final
from unittest.mock import patch

from countledger.infra.cli.app import run

# How long a total may take to follow on a busy machine.
PATIENCE_S = 30.0


@dataclass(frozen=True)
class Finished:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401 - the test knows
        """The one JSON document on stdout: an object, whose amounts are texts."""
        document = json.loads(self.out)
        assert isinstance(document, dict)
        assert numbers_for_amounts(document) == []
        return document

    @property
    def items(self) -> Any:  # noqa: ANN401 - the test knows
        """What the document lists."""
        return self.json["items"]


_AMOUNTS: Final = frozenset(
    ["value", "delta", "sum", "lower", "upper", "held", "available", "amount"]
)


def numbers_for_amounts(document: Any) -> list[str]:  # noqa: ANN401 - any document
    """The amounts in a document that are no texts; `record` is what others have written."""
    if isinstance(document, list):
        return [found for one in document for found in numbers_for_amounts(one)]
    if not isinstance(document, dict):
        return []
    return [
        found
        for name, part in document.items()
        if name != "record"
        for found in (
            [f"{name}: {part}"]
            if name in _AMOUNTS and isinstance(part, int | float) and not isinstance(part, bool)
            else numbers_for_amounts(part)
        )
    ]


@dataclass(frozen=True)
class Command:
    """The command line under one environment, in this process: nothing has to be started for it."""

    environment: Mapping[str, str]

    def __call__(
        self, *arguments: str, stdin: str = "", env: Mapping[str, str | None] | None = None
    ) -> Finished:
        """Run it to its end, with changes to its environment (None takes a variable away)."""
        given, out, err = _pipe(stdin), _pipe(), _pipe()
        with (
            patch.dict(os.environ, self.variables(env), clear=True),
            patch.object(sys, "stdin", given),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            code = run(arguments)
        return Finished(code, _read(out), _read(err))

    def line(self, *arguments: str) -> list[str]:
        """The command as a list, for a process."""
        return [sys.executable, "-m", "countledger", *arguments]

    def variables(self, changes: Mapping[str, str | None] | None = None) -> dict[str, str]:
        """Its whole environment: nothing of the tester's own AWS."""
        base = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AWS_", "COUNTLEDGER_"))
        }
        base |= {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
        base |= {"AWS_EC2_METADATA_DISABLED": "true"}
        merged: dict[str, str | None] = {**base, **self.environment, **(changes or {})}
        return {name: value for name, value in merged.items() if value is not None}


@dataclass(frozen=True)
class Process(Command):
    """The command line as a user's shell runs it: a process of its own."""

    def __call__(
        self, *arguments: str, stdin: str = "", env: Mapping[str, str | None] | None = None
    ) -> Finished:
        """Run it to its end, with changes to its environment (None takes a variable away)."""
        done = subprocess.run(
            self.line(*arguments),
            input=stdin.encode(),
            env=self.variables(env),
            capture_output=True,
            timeout=120,
            check=False,
        )
        return Finished(done.returncode, done.stdout.decode(), done.stderr.decode())


def _pipe(content: str = "") -> TextIOWrapper:
    """A stream that is no terminal."""
    return TextIOWrapper(BytesIO(content.encode()), encoding="utf-8", write_through=True)


def _read(stream: TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


def eventually(done: Callable[[], bool]) -> None:
    """Ask again until it is so; fail when patience ends."""
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.05)
