"""Runs `countledger` as a user does: as a process with an environment; or in this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from countledger.infra.cli.run import run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest

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
        """The one JSON document on stdout."""
        return json.loads(self.out)


@dataclass(frozen=True)
class Command:
    """The command line under one environment."""

    environment: Mapping[str, str]

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

    def line(self, *arguments: str) -> list[str]:
        """The command as a list."""
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
class Here:
    """The command line in this process, which saves the start of one for each command."""

    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str) -> Finished:
        """Run it to its end."""
        self.capsys.readouterr()
        code = run(arguments)
        printed = self.capsys.readouterr()
        return Finished(code, printed.out, printed.err)


def eventually(done: Callable[[], bool]) -> None:
    """Ask again until it is so; fail when patience ends."""
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.05)
