"""From an earlier stage to this one: a loaded stack is updated, and every number stays.

`releases/` has the templates of the stages that somebody may have deployed.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from countledger import CountLedger, Judgement, Settings, outcomes
from countledger.infra.deploy.deployment import Deployment
from countledger.infra.local.pump import Pump
from countledger.infra.local.stack import LocalStack
from countledger.ledger.limits import HOUR_MS
from tests.e2e.command import Command
from tests.e2e.world import bundle_of, record_all, release

RELEASES = sorted((Path(__file__).parent / "releases").glob("*.yaml"))
COUNTERS = [f"likes:{n}" for n in range(7)]
# What names data: if one of them changed, numbers would start again at 0.
DATA = ("LedgerTableName", "CountersTableName", "LedgerStreamArn", "CountersStreamArn")


@dataclass(frozen=True)
class Upgraded:
    """A stack beside the shared one, on the same engine."""

    stack: LocalStack
    name: str

    @property
    def deployment(self) -> Deployment:
        return self.stack.home.deployment(self.name)

    def deploy(self, template: str) -> None:
        self.stack.client("s3").create_bucket(Bucket=self.name)
        release(self.deployment, template)

    def client(self) -> CountLedger:
        return CountLedger(
            Settings(stack_name=self.name),
            session=self.stack.session(),
            endpoint_url=self.stack.url,
        )

    def pump(self) -> Pump:
        """A mapping that was created again: it begins at the start of the stream."""
        outputs = self.deployment.outputs()
        return self.stack.new_pump(
            stream_arn=outputs["LedgerStreamArn"],
            function_name=outputs["MaterializerFunctionName"],
        )


def _record(client: CountLedger, rounds: int) -> None:
    for n in range(rounds):
        record_all(client, COUNTERS, n + 1)


def test_a_template_to_upgrade_from_is_stored() -> None:
    assert RELEASES


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.stem)
def test_an_upgrade_keeps_every_number(
    stack: LocalStack, name: str, release: Path, tmp_path: Path
) -> None:
    upgraded = Upgraded(stack, name)
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
    bundle.write_bytes(bundle_of())

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
    assert client.total("seats:hall").value == 7
    assert [one.namespace for one in client.schedules.list()] == ["likes"]


def _totals(client: CountLedger) -> dict[str, object]:
    return {counter: total.value for counter, total in client.totals(COUNTERS).items()}
