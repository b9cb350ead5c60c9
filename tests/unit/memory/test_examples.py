"""The examples of the guides run on a stack in memory, as they are."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from countledger.infra.memory.faults import GUIDE
from countledger.testing import MemoryStack

_ROOT: Final = Path(__file__).resolve().parents[3]
# How many blocks of Python each page has that a stack in memory can run.
_PAGES: Final = {
    "README.md": 1,
    "docs/alerts.md": 1,
    "docs/claims.md": 2,
    "docs/groups.md": 1,
    "docs/holds.md": 1,
    "docs/names.md": 1,
    "docs/quotas.md": 2,
    "docs/sequences.md": 3,
    "docs/strict.md": 2,
    "docs/tutorial.md": 4,
    "docs/windows.md": 1,
}


def _blocks(page: str) -> list[str]:
    return re.findall(
        r"^```python\n(.*?)^```", (_ROOT / page).read_text(), re.MULTILINE | re.DOTALL
    )


@pytest.mark.parametrize("page", _PAGES)
def test_the_examples_of_a_page_run_in_memory(
    page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last line of each prints what its comment says."""
    stack = MemoryStack()
    stack.create_table("posts", "post", "place")
    stack.create_table("users", "id")
    blocks = _blocks(page)

    assert len(blocks) == _PAGES[page]
    with stack.installed():
        for block in blocks:
            exec(compile(block, page, "exec"), {"__name__": "example"})  # noqa: S102 - our own
            promised = re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE)
            printed = capsys.readouterr().out.splitlines()
            assert not promised or printed[-1] == promised[-1], block
    assert stack.failures == []


def test_the_examples_of_the_guide_to_tests_are_tests_that_pass(tmp_path: Path) -> None:
    """As a reader runs them: in one file, by pytest, with the plugin."""
    blocks = _blocks(GUIDE)
    (tmp_path / "test_app.py").write_text("\n\n".join(blocks))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    tests = sum(len(re.findall(r"^def test_", block, re.MULTILINE)) for block in blocks)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "countledger.pytest_plugin"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, tests) == (0, 9), done.stdout
    assert f"{tests} passed" in done.stdout
