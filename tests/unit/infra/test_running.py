"""What is written down of the local stack that runs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from countledger.infra.local.following import STATE_FILE
from countledger.infra.local.running import AnotherRelease, Running, kept_in_of

_RUNNING = Running(
    stack_name="countledger",
    url="http://127.0.0.1:4566",
    dashboard="http://127.0.0.1:4567",
    allow_writes=False,
    environment={},
    outputs={},
    regions=("us-east-1",),
    started_at_s=1_800_000_000.0,
    processes=[(4_711, 1_800_000_000.0)],
    kept_in="/kept",
)


def test_what_is_written_down_is_read_again(tmp_path: Path) -> None:
    _RUNNING.write(tmp_path)

    assert kept_in_of(tmp_path) == "/kept"


@pytest.mark.parametrize("change", [{"kept_in": None}, {"of_a_later_release": 1}])
def test_a_stack_of_another_release_is_refused_by_name(
    tmp_path: Path, change: dict[str, object]
) -> None:
    state = {**asdict(_RUNNING), **change}
    if "kept_in" in change:
        del state["kept_in"]
    (tmp_path / STATE_FILE).write_text(json.dumps(state))

    with pytest.raises(AnotherRelease, match=r"another release .* \(4711\)"):
        kept_in_of(tmp_path)
