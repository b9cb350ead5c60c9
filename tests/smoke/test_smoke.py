"""What `make smoke-aws` does to an account is done to a local engine first."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING

import pytest

from countledger import CountLedger, Settings
from countledger.infra.local.stack import LocalStack
from tests.e2e.command import Command
from tests.smoke.__main__ import main, walk
from tests.smoke.own_stack import OwnStack
from tests.smoke.paths import Paths

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalStack]:
    """An engine with a stack whose pumps deliver."""
    with LocalStack(name="smoked") as running:
        yield running


def test_every_main_path_is_right(
    engine: LocalStack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in engine.environment().items():
        monkeypatch.setenv(name, value)

    assert main(["--endpoint", engine.url, "--stack", engine.name]) == 0

    told = capsys.readouterr().out.splitlines()
    assert told[-1] == "all paths are right"
    assert len(told) == 13


def test_a_path_that_goes_wrong_is_told_and_stops_no_other(
    engine: LocalStack, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(stack_name=engine.name)
    client = CountLedger(settings, session=engine.session(), endpoint_url=engine.url)

    assert walk(Paths(client, patience_s=-1.0)) == 1

    out = capsys.readouterr().out
    assert "WRONG  emit, retry, total: Wrong: waited" in out
    assert "ok     sequence" in out


def test_nothing_is_left_of_a_stack_of_its_own(engine: LocalStack, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.zip"
    with zipfile.ZipFile(bundle, "w") as archive:
        archive.writestr("bundle.json", json.dumps({}))
    own = OwnStack(
        engine.session(),
        engine.url,
        Command(engine.environment()).variables(),
        ("--bundle", str(bundle)),
        poll_s=0.05,
    )
    tables = engine.client("dynamodb").list_tables()["TableNames"]

    def broken() -> None:
        with own.made() as outputs:
            made = set(engine.client("dynamodb").list_tables()["TableNames"]) - set(tables)
            assert made == {outputs["LedgerTableName"], outputs["CountersTableName"]}
            raise RuntimeError("a path broke")

    with pytest.raises(RuntimeError, match="a path broke"):
        broken()

    assert engine.client("dynamodb").list_tables()["TableNames"] == tables
    stacks = engine.client("cloudformation").list_stacks()["StackSummaries"]
    living = [one for one in stacks if one["StackStatus"] != "DELETE_COMPLETE"]
    assert own.name not in {one["StackName"] for one in living}


def test_nobody_is_charged_unasked(
    engine: LocalStack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in engine.environment().items():
        monkeypatch.setenv(name, value)

    assert main(["--endpoint", engine.url]) == 2

    assert "say --yes" in capsys.readouterr().out
