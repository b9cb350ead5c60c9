"""What a process loads: its own part of the package, and nothing of the others."""

import json
import subprocess
import sys

import pytest

import countledger
from countledger.infra.cli.app import COMMANDS

_LOADED = "import sys, json; print(json.dumps(sorted(sys.modules)))"
_RECORDING = """
from countledger import CountLedger, Settings
import boto3
session = boto3.Session("id", "secret", region_name="us-east-1")
client = CountLedger(Settings(ledger_table="l", counters_table="c", home_region="us-east-1"),
                     session=session, endpoint_url="http://127.0.0.1:9")
try:
    client.record("likes:post-1", 1)
except countledger.errors.Unreachable:
    pass
"""

_READING = """
import os
from countledger.infra.cli.app import run
os.environ.update(AWS_ACCESS_KEY_ID="id", AWS_SECRET_ACCESS_KEY="secret", AWS_REGION="us-east-1",
                  AWS_ENDPOINT_URL="http://127.0.0.1:9")
assert run(["total", "likes:post-1"]) != 0
"""


def _loaded_by(code: str) -> set[str]:
    """The modules that a process has loaded after it ran some code."""
    done = subprocess.run(
        [sys.executable, "-c", f"import countledger\n{code}\n{_LOADED}"],
        check=True,
        capture_output=True,
        text=True,
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def _packages(modules: set[str]) -> set[str]:
    return {".".join(name.split(".")[:2]) for name in modules if name.startswith("countledger.")}


def test_importing_the_package_loads_nothing_else() -> None:
    """Each name is loaded at its first use, so an app that never counts pays nothing."""
    loaded = _loaded_by("")

    assert _packages(loaded) == set()
    assert not {"boto3", "botocore", "pydantic"} & loaded
    assert not {"typer", "rich", "yaml", "aws_lambda_powertools"} & loaded
    assert not {"ministack", "hypercorn", "psutil"} & loaded


def test_every_public_name_is_loaded_on_demand() -> None:
    for name in countledger.__all__:
        assert getattr(countledger, name) is not None
        assert name in dir(countledger)
    with pytest.raises(AttributeError, match="has no attribute 'ledgr'"):
        getattr(countledger, "ledgr")  # noqa: B009 - the type checker knows better


def test_recording_loads_producers_and_the_core() -> None:
    loaded = _loaded_by(_RECORDING)

    assert _packages(loaded) == {
        "countledger.client",
        "countledger.ledger",
        "countledger.producers",
    }
    assert not {"pydantic", "greenlet"} & loaded


def test_the_materializer_loads_what_its_first_batch_needs() -> None:
    """Schedules, rankings, windows and the quarantine are loaded where a record needs them."""
    loaded = _loaded_by("import countledger.consumers.handler")

    core = ("calendar", "due", "message_queue", "quarantine_store", "ranking", "window_items")
    later = {"consumers.quarantine", "consumers.window_writer", *(f"ledger.{n}" for n in core)}
    assert not {f"countledger.{name}" for name in later} & loaded
    assert not {"ctypes", "tzdata", "zoneinfo", "pydantic"} & loaded


def test_help_loads_no_command_and_no_sdk() -> None:
    loaded = _loaded_by("from countledger.infra.cli.app import run\nassert run(['--help']) == 0")

    modules = {f"countledger.infra.cli.{one.module}" for one in COMMANDS.values()}
    assert not modules & loaded
    assert "boto3" not in loaded


def test_starting_a_local_stack_loads_no_sdk_in_the_process_that_waits() -> None:
    loaded = _loaded_by("import countledger.infra.cli.engine, countledger.infra.local.background")

    assert not {"boto3", "botocore", "pydantic", "yaml"} & loaded


def test_a_command_loads_no_engine() -> None:
    """Each looks for a local stack, also where the extra of the engine is not installed."""
    loaded = _loaded_by(_READING)

    assert "countledger.infra.cli.totals" in loaded
    assert not {"ministack", "hypercorn", "psutil"} & loaded


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_of_commands_says_what_each_commands_help_says(name: str) -> None:
    command = COMMANDS[name].load(name)

    assert command.help.splitlines()[0] == COMMANDS[name].summary


@pytest.mark.parametrize(
    ("handler", "packages"),
    [
        ("consumers.handler", {"consumers"}),
        ("consumers.alert_handler", {"consumers"}),
        ("consumers.audit_handler", {"consumers"}),
        ("compaction.functions", {"compaction"}),
        ("producers.ingest.handler", {"producers"}),
        ("infra.http.functions", {"client", "consumers", "infra", "producers"}),
    ],
)
def test_a_function_loads_its_own_package(handler: str, packages: set[str]) -> None:
    """And the core; a cold start waits for each module."""
    loaded = _loaded_by(f"import countledger.{handler}")

    assert _packages(loaded) == {f"countledger.{name}" for name in {*packages, "ledger"}}
