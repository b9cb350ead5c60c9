"""A client that a kept generator makes from the document: it is typed, and its example works."""

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import pytest

from tests.http.test_openapi import PATH
from tests.http.world import Api, memory_api
from tests.unit.local_server.server import TOKEN, running
from tools.guide.http import HTTP

_TOOLS: Final = Path(__file__).parents[2] / ".cache/client/bin"
_PACKAGE: Final = "countledger_client"
(_EXAMPLE,) = re.findall(
    rf"```python\n((?:(?!```).)*{_PACKAGE}.*?)```", HTTP.read_text(), re.DOTALL
)


def _run(*line: str, at: Path) -> subprocess.CompletedProcess[str]:
    known = {**os.environ, "PATH": f"{_TOOLS}:{os.environ['PATH']}"}
    return subprocess.run(line, cwd=at, env=known, capture_output=True, text=True, check=False)


def _materialize(api: Api, ended: threading.Event) -> None:
    while not ended.wait(0.05):
        api.materialize()


@pytest.mark.skipif(not _TOOLS.exists(), reason="`make client-tools` installs the generator")
def test_the_generated_client_is_typed_and_its_example_works(tmp_path: Path) -> None:
    assert len(_EXAMPLE.splitlines()) < 40
    options = ("--path", str(PATH), "--meta", "none", "--output-path", _PACKAGE)
    generated = _run(str(_TOOLS / "openapi-python-client"), "generate", *options, at=tmp_path)
    assert (generated.returncode, "arning" in generated.stdout) == (0, False), generated.stdout
    (tmp_path / "example.py").write_text(_EXAMPLE)

    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = true\n")
    mypy = (sys.executable, "-m", "mypy", "--python-executable", str(_TOOLS / "python"))
    checked = _run(*mypy, "example.py", _PACKAGE, at=tmp_path)
    errors = [one for one in checked.stdout.splitlines() if ": error:" in one]
    assert "errors in 1 file (checked" in checked.stdout or not errors, checked.stdout
    # Of the generator's own: it passes what `__exit__` gets on as a tuple.
    assert [one for one in errors if not one.startswith(f"{_PACKAGE}/client.py:")] == []

    ended = threading.Event()
    with memory_api() as api, running(api=api.app, allow_writes=True) as server:
        reader = threading.Thread(target=_materialize, args=(api, ended))
        reader.start()
        url = f"http://127.0.0.1:{server.port}"
        done = _run(str(_TOOLS / "python"), "example.py", url, TOKEN, at=tmp_path)
        ended.set()
        reader.join()

    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[:2] == ["recorded", "duplicate"]
    assert lines[2] in {"total 0", "total 1"}
    assert lines[3].startswith("page of ")
    assert lines[-1] == "urn:countledger:problem:idempotency-key-reused"
