"""Tests that fork run in a process of their own."""

import subprocess
import sys

import pytest

# A server written in C may fork without Python's hooks.
FORKS = pytest.mark.parametrize("fork", ["os", "libc"])


def printed(code: str, *given: str) -> list[str]:
    """The words that a program prints, which ends well within a minute."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *given],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.split()
