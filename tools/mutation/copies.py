"""A private copy of the checkout, in which modules are changed and tests are run."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tools.mutation.hits import RECORD_VARIABLE, TEST_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).resolve().parents[2]
# What is built or cached is not copied; the virtual environment is used where it is.
_NOT_COPIED: Final = shutil.ignore_patterns(
    ".git", ".venv", ".cache", ".*_cache", ".hypothesis", "__pycache__", "build", "dist"
)
# pytest's options for every run: this process only, quick to start, nothing kept.
PYTEST: Final = ("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--tb=line")
_FAILED: Final = ("FAILED ", "ERROR ")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended.

    Attributes:
        code: its exit code; None if it was killed after its time-out.
        output: what it printed.
    """

    code: int | None
    output: str

    @property
    def failure(self) -> str:
        """The first line that names a failed test, or the last line."""
        lines = self.output.splitlines()
        named = [line for line in lines if line.startswith(_FAILED)]
        return (named or lines[-1:] or ["no output"])[0]


class Copy:
    """One copy; the checkout itself is never changed."""

    def __init__(self, directory: Path) -> None:
        """Make the copy in a directory that does not exist yet."""
        shutil.copytree(ROOT, directory, symlinks=True, ignore=_NOT_COPIED)
        self._directory = directory

    def write(self, module: str, source: str) -> None:
        """Replace a module. Its byte code goes too: it is compared by second and size alone."""
        path = self._directory / module
        path.write_text(source, encoding="utf-8")
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)

    def restore(self, module: str) -> None:
        """Make a module what it is in the checkout."""
        self.write(module, (ROOT / module).read_text(encoding="utf-8"))

    def run(
        self, arguments: Sequence[str], *, timeout_s: float, record: Path | None = None
    ) -> Ended:
        """Run Python with these arguments; all that it started ends with it.

        Args:
            arguments: of the interpreter.
            timeout_s: after how many seconds it is killed.
            record: where instrumented modules write which test reaches them.
        """
        with subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self._directory,
            env=self._environment(record),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            try:
                output = process.communicate(timeout=timeout_s)[0].decode(errors="replace")
                return Ended(process.returncode, output)
            except subprocess.TimeoutExpired:
                return Ended(None, f"killed after {timeout_s:.0f} s")
            finally:
                _kill_group(process.pid)

    def arguments_file(self, lines: Sequence[str]) -> str:
        """Arguments for pytest, of any number, as one argument."""
        path = self._directory / "mutation-arguments.txt"
        path.write_text("\n".join(lines), encoding="utf-8")
        return f"@{path}"

    def _environment(self, record: Path | None) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        ours.pop(TEST_VARIABLE, None)
        # The copy comes before the installed checkout. Names of tests must not depend on hashes.
        ours |= {"PYTHONPATH": str(self._directory), "PYTHONHASHSEED": "0"}
        return ours | ({RECORD_VARIABLE: str(record)} if record else {})


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
