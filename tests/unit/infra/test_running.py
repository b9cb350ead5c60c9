"""What is written down of the local stack that runs."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import psutil

from countledger.infra.local.following import STATE_FILE
from countledger.infra.local.running import kept_in_of, read_running

if TYPE_CHECKING:
    from pathlib import Path


def test_a_stack_that_an_earlier_release_started_is_found(tmp_path: Path) -> None:
    """So `down` of the new release ends it."""
    state = {
        "url": "http://127.0.0.1:4566",
        "dashboard": "http://127.0.0.1:4567",
        "environment": {},
        "outputs": {},
        "regions": ["us-east-1"],
        "started_at_s": 1_800_000_000.0,
        "processes": [(os.getpid(), psutil.Process().create_time())],
    }
    (tmp_path / STATE_FILE).write_text(json.dumps(state))

    running = read_running("old", tmp_path)

    assert running is not None
    assert (running.pids, running.allow_writes, running.kept_in) == ((os.getpid(),), False, None)
    assert kept_in_of(tmp_path) is None
