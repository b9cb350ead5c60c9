"""The page on the HTTP API: its examples run as they are, and its table is that of the code."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from countledger.infra.http.counters import LiveBounds
from tests.http.world import Api, memory_api
from tests.unit.local_server.server import TOKEN, running
from tools.guide.http import HTTP, http_tables
from tools.guide.marked import with_tables

_TEXT = HTTP.read_text()
_LINES = re.findall(r"^    (curl .*)  # (\d+)$", _TEXT, re.MULTILINE)
_BLOCKS = re.findall(r"```python\n(.*?)```", _TEXT, re.DOTALL)
(_MOUNTED,) = (one for one in _BLOCKS if "http_app(" in one)
(_LIVE,) = (one for one in _BLOCKS if "def live_totals" in one)


@pytest.fixture(scope="module")
def fresh() -> Iterator[Api]:
    """An API on which nothing was counted."""
    with memory_api() as api:
        yield api


def test_the_examples_answer_as_the_page_says(fresh: Api) -> None:
    assert len(_LINES) == 8
    for line, status in _LINES:
        words = iter(shlex.split(line.replace("$URL", "")))
        method, path, headers, content = "GET", "", {}, None
        next(words)
        for word in words:
            match word:
                case "-X":
                    method = next(words)
                case "-H":
                    name, _, value = next(words).partition(": ")
                    headers[name] = value
                case "-d":
                    content = next(words)
                case _:
                    path = word
        answer = fresh.http.request(method, path, headers=headers, content=content)

        assert answer.status_code == int(status), f"{line}\n{answer.text}"


def test_the_blocks_of_python_print_what_they_say() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MOUNTED], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.splitlines() == re.findall(r"^print\(.*\)  # (.*)$", _MOUNTED, re.MULTILINE)


@pytest.mark.parametrize("duration_s", [20, 0])
def test_the_client_of_live_totals_works_where_answers_are_buffered_too(duration_s: float) -> None:
    names: dict[str, Any] = {}
    exec(_LIVE, names)  # noqa: S102 - of our own page
    bounds = LiveBounds(duration_s=duration_s, poll_s=0.05, retry_ms=50)
    with memory_api(bounds) as api, running(api=api.app) as server:
        live = names["live_totals"](f"http://127.0.0.1:{server.port}", TOKEN, "likes:a", "likes:b")
        seen = [next(live)]
        for n in range(2):
            api.post("/v1/counters/likes:b/entries", {"delta": "1"}, f"k{n}")
            api.materialize()
            seen.append(next(live))
        live.close()

    assert [[one["value"] for one in totals] for totals in seen] == [
        ["0", "0"],
        ["0", "1"],
        ["0", "2"],
    ]


def test_the_page_has_the_problems_and_the_units_as_they_are() -> None:
    """After a change of an error or of a request, `make docs` writes them again."""
    assert with_tables(_TEXT, http_tables()) == _TEXT
