"""What `make smoke-aws` does to an account is done to a local engine first."""

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from countledger import CountLedger, Settings
from countledger.infra.deploy.stack_operation import DeployFailed
from countledger.infra.local.stack import LocalStack, session_of
from countledger.infra.template import template_text
from tests.e2e.command import Command
from tests.e2e.world import bundle_of
from tools.smoke.__main__ import main, walk
from tools.smoke.checks import Checks, NotShown
from tools.smoke.own_stack import OwnStack
from tools.smoke.paths import Paths, Wrong


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalStack]:
    """An engine with a stack whose pumps deliver."""
    with LocalStack(name="smoked", parameters={"HttpApi": "iam"}) as running:
        yield running


_KINDS = ("ok", "saw", "WRONG", "-")
# What the local engine gets wrong: it drops the window of a mapping and the recovery of a replica,
# and starts a rate after a whole interval.
_WRONG_HERE = {"mappings", "tables", "tick of a schedule"}
_NOT_SHOWN_HERE = {"cold start", "metrics", "unsigned request"}


def test_every_main_path_and_every_row_of_the_checklist_is_walked(
    engine: LocalStack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in engine.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tools.smoke.__main__.CHECK_PATIENCE_S", 2.0)
    monkeypatch.setattr("tools.smoke.__main__.RATE_S", 1.0)

    assert main(["--endpoint", engine.url, "--stack", engine.name]) == 1

    lines = [
        one.partition(":")[0].split(maxsplit=1) for one in capsys.readouterr().out.splitlines()
    ]
    told = {kind: {line[1] for line in lines[:-1] if line[0] == kind} for kind in _KINDS}
    client = CountLedger(Settings(stack_name=engine.name), session=engine.session())
    rows = {name for name, _ in Checks(client).all()}
    assert told["ok"] == {name for name, _ in Paths(client).all()}
    assert told["WRONG"] == _WRONG_HERE
    assert told["-"] == _NOT_SHOWN_HERE
    assert told["saw"] == rows - _WRONG_HERE - _NOT_SHOWN_HERE


def test_a_gateway_that_answers_with_an_error_is_wrong(engine: LocalStack) -> None:
    """As where it may not invoke the function: that is no missing permission of the caller."""
    outputs = engine.outputs | {"HttpApiArn": "arn:aws:execute-api:us-east-1:0:nobodys"}
    client = CountLedger(Settings(stack_name=engine.name), session=engine.session())
    vars(client.connection)["outputs"] = outputs

    with pytest.raises(Wrong, match="it answers 404"):
        Checks(client, engine.url).http_api()
    del outputs["HttpApiUrl"]
    with pytest.raises(NotShown, match="HttpApi=iam"):
        Checks(client, engine.url).http_api()


def test_the_page_and_the_tool_have_the_same_rows() -> None:
    """Each row of docs/aws-checklist.md names its step, or that a person has to look."""
    page = (Path(__file__).parents[3] / "docs/aws-checklist.md").read_text()
    rows = page.partition("## What takes longer")[0]
    named = set(re.findall(r"`([a-z][a-z ,]+)` \|$", rows, re.MULTILINE))
    client = CountLedger(Settings(stack_name="any"), session=session_of())

    steps = {name for name, _ in (*Paths(client).all(), *Checks(client).all())}
    assert {name for name, _ in Checks(client).all()} <= named
    assert named <= steps | {"deploy", "remove"}


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
    variables = Command(engine.environment()).variables()
    own = OwnStack(engine.url, variables, ("--bundle", str(bundle)))
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


def test_nothing_is_left_of_a_creation_that_failed(engine: LocalStack) -> None:
    """As after an earlier attempt under this name: its tables were protected, so they stayed."""
    own = OwnStack(engine.url, Command(engine.environment()).variables())
    tables = engine.client("dynamodb").list_tables()["TableNames"]
    engine.client("s3").create_bucket(Bucket=own.name)
    failed = engine.home.deployment(own.name)
    made = failed.propose(
        bucket=own.name,
        bundle=bundle_of(),
        parameters={"DeletionProtection": "true"},
        template=template_text().replace("      MetricName: IteratorAge\n", ""),
    )
    assert made is not None
    with pytest.raises(DeployFailed, match="ROLLBACK"):
        failed.execute(made)
    assert len(engine.client("dynamodb").list_tables()["TableNames"]) == len(tables) + 2

    with pytest.raises(RuntimeError, match="was not created"), own.made():
        raise AssertionError("it was created")

    assert engine.client("dynamodb").list_tables()["TableNames"] == tables


def test_nobody_is_charged_unasked(
    engine: LocalStack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in engine.environment().items():
        monkeypatch.setenv(name, value)

    assert main(["--endpoint", engine.url]) == 2

    assert "say --yes" in capsys.readouterr().out
