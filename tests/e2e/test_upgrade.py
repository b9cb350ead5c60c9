"""From one release to the next: a loaded stack is brought up to this one, and every number stays.

`releases/` holds the templates of releases that somebody may have deployed.
"""

import io
import uuid
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from countledger import CountLedger, Event, Judgement, Settings, outcomes
from countledger.infra.deploy.deployment import Deployment
from countledger.infra.local.pump import Pump
from countledger.infra.local.stack import LocalStack
from countledger.ledger.limits import HOUR_MS
from tests.e2e.command import Command

RELEASES = sorted((Path(__file__).parent / "releases").glob("*.yaml"))
COUNTERS = [f"likes:{n}" for n in range(7)]
# What names data: were one of them another after the upgrade, numbers would begin anew.
DATA = ("LedgerTableName", "CountersTableName", "LedgerStreamArn", "CountersStreamArn")


@dataclass(frozen=True)
class Upgraded:
    """A stack beside the shared one, on the same engine."""

    stack: LocalStack
    name: str

    @property
    def deployment(self) -> Deployment:
        return Deployment(
            cloudformation=self.stack.client("cloudformation"),
            s3=self.stack.client("s3"),
            stack_name=self.name,
            poll_s=0.01,
        )

    def deploy(self, template: str) -> None:
        self.stack.client("s3").create_bucket(Bucket=self.name)
        proposal = self.deployment.propose(
            bucket=self.name,
            bundle=_bundle(),
            parameters={"DeletionProtection": "false"},
            template=template,
        )
        assert proposal is not None
        self.deployment.execute(proposal)

    def client(self) -> CountLedger:
        return CountLedger(
            Settings(stack_name=self.name),
            session=self.stack.session(),
            endpoint_url=self.stack.url,
        )

    def pump(self) -> Pump:
        """A mapping that was made anew: it begins at the start of the stream."""
        outputs = self.deployment.outputs()
        return self.stack.new_pump(
            stream_arn=outputs["LedgerStreamArn"],
            function_name=outputs["MaterializerFunctionName"],
        )


def _bundle() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("bundle.json"), "{}")
    return buffer.getvalue()


def _record(client: CountLedger, rounds: int) -> None:
    events = [Event(counter, n + 1) for n in range(rounds) for counter in COUNTERS]
    assert all(getattr(one, "status", None) for one in client.record_many(events))


@pytest.fixture
def upgraded(stack: LocalStack) -> Upgraded:
    return Upgraded(stack, f"upgrade-{uuid.uuid4().hex[:8]}")


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.stem)
def test_an_upgrade_keeps_every_number(upgraded: Upgraded, release: Path, tmp_path: Path) -> None:
    """Tables, stream, totals, strict counters and schedules; entries of before and behind it."""
    upgraded.deploy(release.read_text())
    before = upgraded.deployment.outputs()
    client = upgraded.client()
    _record(client, 4)
    client.strict.create("seats:hall", opening=10, lower=0, method="marker")
    client.strict.change("seats:hall", -3, key="order-1")
    client.schedules.create("likes", every_ms=6 * HOUR_MS)
    pump = upgraded.pump()
    pump.drain()
    _record(client, 2)  # not in the totals yet
    bundle = tmp_path / "bundle.zip"
    bundle.write_bytes(_bundle())

    done = Command(upgraded.stack.environment())(
        "deploy", "--stack-name", upgraded.name, "--bundle", str(bundle), "--yes"
    )

    assert done.code == 0, done.err
    after = upgraded.deployment.outputs()
    assert [after[name] for name in DATA] == [before[name] for name in DATA]
    client = upgraded.client()
    _record(client, 1)
    pump.drain()
    expected = dict.fromkeys(COUNTERS, 10 + 3 + 1)
    assert _totals(client) == expected
    assert {one.verdict for one in client.audit.verify_many(COUNTERS)} == {Judgement.EXACT}
    again = client.strict.change("seats:hall", -3, key="order-1")
    assert isinstance(again, outcomes.Duplicate)
    assert client.total("seats:hall").total == 7
    assert [one.namespace for one in client.schedules.list()] == ["likes"]


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.stem)
def test_a_mapping_made_anew_counts_nothing_twice(upgraded: Upgraded, release: Path) -> None:
    """It delivers the whole stream again; what a watermark has passed is dropped."""
    upgraded.deploy(release.read_text())
    client = upgraded.client()
    _record(client, 3)
    upgraded.pump().drain()
    once = _totals(client)

    upgraded.pump().drain()

    assert _totals(client) == once == dict.fromkeys(COUNTERS, 6)


def _totals(client: CountLedger) -> dict[str, object]:
    return {counter: total.total for counter, total in client.totals(COUNTERS).items()}
