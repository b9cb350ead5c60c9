"""A stack that is kept goes on where it ended: every number, promise and setting, and no more."""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from countledger import Claim, Direction, Event, outcomes
from countledger.infra.deploy.deployment import deploy
from countledger.infra.local.saved_stack import StackDirectory
from countledger.infra.local.stack import LocalStack, empty_bundle
from countledger.infra.template import template_text
from countledger.ledger.limits import DAY_MS, HOUR_MS
from tests.e2e.command import eventually
from tests.e2e.world import client_of, record_aged, record_all
from tools.smoke.paths import Paths

ARCHIVE: Final = "s3://kept-archive/trail"


@pytest.fixture
def kept_in(tmp_path: Path) -> Iterator[StackDirectory]:
    """An empty directory of `up --persist`."""
    with StackDirectory(tmp_path / "kept") as directory:
        yield directory


def test_what_was_recorded_and_not_counted_is_counted_by_the_next_one_once(
    kept_in: StackDirectory,
) -> None:
    with LocalStack(name="kept", kept_in=kept_in, pumping=False) as stack:
        client, place = client_of(stack), stack.outputs
        client.namespaces.create("likes")
        record_aged(client, "likes:a", [2] * 30, 3 * DAY_MS)
        client.record("likes:a", 5, key="once")

    with LocalStack(name="kept", kept_in=kept_in, pumping=False) as stack:
        client = client_of(stack)
        assert stack.outputs == place
        stack.drain()
        assert client.record("likes:a", 5, key="once").status == "duplicate"
        client.record("likes:a", 1)
        stack.drain()
        report = client.compactor().compact("likes:a")
        assert (str(report.outcome), report.merged) == ("merged", 30)
        stack.drain()
        assert client.total("likes:a").value == client.exact("likes:a").value == 66
        assert client.audit.verify("likes:a").verdict == "exact"


def test_a_stack_has_all_that_it_had(kept_in: StackDirectory) -> None:
    """Bounds, numbers, owners, schedules, messages, and archives; also after a second time."""
    claim = Claim("names", "ann", "user-1")
    with LocalStack(name="kept", kept_in=kept_in) as stack:
        client = client_of(stack)
        stack.client("s3").create_bucket(Bucket="kept-archive")
        client.namespaces.create("likes")
        client.schedules.create("likes", every_ms=HOUR_MS, min_entries=10, archive=ARCHIVE)
        record_aged(client, "likes:a", [2] * 30, 3 * DAY_MS)
        client.strict.create("seats:hall", method="marker", lower=0, opening=3)
        client.strict.change("seats:hall", -2, key="first")
        client.sequences.create("bills:2026")
        assert client.sequences.draw("bills:2026") == 1
        client.claims.take(claim)
        queue = stack.outputs["QuarantineQueueUrl"]
        stack.client("sqs").send_message(QueueUrl=queue, MessageBody="waits")
        stack.drain()

    with LocalStack(name="kept", kept_in=kept_in) as stack:
        client, strict = client_of(stack), client_of(stack).strict
        assert isinstance(strict.change("seats:hall", -2, key="first"), outcomes.Duplicate)
        assert isinstance(strict.change("seats:hall", -2, key="second"), outcomes.BoundReached)
        assert client.sequences.draw("bills:2026") == 2
        assert client.claims.owner("names", "ann") == "user-1"
        assert [one.namespace for one in client.schedules.list()] == ["likes"]
        (message,) = stack.client("sqs").receive_message(QueueUrl=queue)["Messages"]
        assert message["Body"] == "waits"
        record_all(client, ["likes:a"] * 7)
        stack.drain()
        report = client.compactor().compact("likes:a")
        assert (str(report.outcome), report.merged) == ("merged", 30)

    with LocalStack(name="kept", kept_in=kept_in) as stack:
        client = client_of(stack)
        assert len(list(client.archived("likes:a", ARCHIVE))) == 30
        client.record("likes:a", 1)
        stack.drain()
        assert client.total("likes:a").value == client.exact("likes:a").value == 68
        assert client.audit.verify("likes:a").verdict == "exact"


def test_every_main_path_holds_before_and_after(kept_in: StackDirectory) -> None:
    with LocalStack(name="kept", kept_in=kept_in) as stack:
        before = Paths(client_of(stack), mark="before")
        for _, path in before.all():
            path()
        totals = {one.counter: one.value for one in client_of(stack).counters("smoke-before")}

    with LocalStack(name="kept", kept_in=kept_in) as stack:
        client = client_of(stack)
        assert {one.counter: one.value for one in client.counters("smoke-before")} == totals
        Paths(client, mark="before").verify()
        for _, path in Paths(client, mark="after").all():
            path()


def test_streams_are_read_on_from_where_they_were_read(kept_in: StackDirectory) -> None:
    """A message of Kinesis that comes again after the horizon would be refused as expired."""
    parameters = {"IngestStream": "provisioned"}
    with LocalStack(name="kept", kept_in=kept_in, pumping=False, parameters=parameters) as stack:
        client = client_of(stack)
        client.namespaces.create("likes")
        assert len(list(client.kinesis.send_many([Event("likes:a", 1)]))) == 1
        stack.drain()
        stack.drain()
        client.record("likes:a", 1)

    with LocalStack(name="kept", kept_in=kept_in, pumping=False, parameters=parameters) as stack:
        delivered = {one.logical_id: pump.drain() for one, pump in stack.pumps.items()}
        assert [len(one.sequences) for one in delivered["MaterializerMapping"]] == [1]
        assert delivered["IngestMapping"] == []
        stack.drain()
        assert client_of(stack).total("likes:a").value == 2


def test_alerts_fire_by_the_states_that_were_kept(kept_in: StackDirectory, name: str) -> None:
    """A rule that has fired stays silent until it is armed again."""
    with LocalStack(name="kept", kept_in=kept_in) as stack:
        client = client_of(stack)
        client.namespaces.create(name)
        # No evaluator knows older rules of the name: it may be effective at once.
        alerts = replace(client.alerts, at_once=True)
        alerts.create(name, counter=f"{name}:a", threshold=10, direction=Direction.RISING)
        eventually(lambda: _has_fired(stack, f"{name}:a"))

    with LocalStack(name="kept", kept_in=kept_in) as stack:
        client = client_of(stack)
        log = client.alerts.log
        fired = len(list(log(f"{name}:a")))
        client.record(f"{name}:a", 1)
        stack.drain()
        client.set_value(f"{name}:a", 0, key="reset")
        stack.drain()
        client.record(f"{name}:a", 11)
        eventually(lambda: len(list(log(f"{name}:a"))) > fired)
        assert len(list(log(f"{name}:a"))) == fired + 1


def _has_fired(stack: LocalStack, counter: str) -> bool:
    """A new rule is known after some seconds: cross its threshold until it is."""
    client = client_of(stack)
    client.set_value(counter, 0, key=f"reset-{uuid.uuid4()}")
    stack.drain()  # the totals of one batch are one step
    client.record(counter, 20)
    stack.drain()
    return bool(list(client.alerts.log(counter)))


def test_a_stack_of_another_template_is_updated_and_keeps_its_data(
    kept_in: StackDirectory,
) -> None:
    other = template_text().replace("MemorySize: 512", "MemorySize: 256")
    assert other != template_text()

    with LocalStack(name="kept", kept_in=kept_in) as stack:
        client_of(stack).record("likes:a", 5)
        deployment = stack.home.deployment("kept")
        deploy(deployment, bucket="countledger-code", bundle=empty_bundle(), template=other)
        stack.drain()
        assert 256 in _memory_sizes(stack)

    with LocalStack(name="kept", kept_in=kept_in) as stack:
        client = client_of(stack)
        assert 256 not in _memory_sizes(stack)
        client.record("likes:a", 1)
        stack.drain()
        assert client.total("likes:a").value == client.exact("likes:a").value == 6
        table = stack.outputs["CountersTableName"]
        expiry = stack.client("dynamodb").describe_time_to_live(TableName=table)
        assert expiry["TimeToLiveDescription"]["TimeToLiveStatus"] == "ENABLED"


def _memory_sizes(stack: LocalStack) -> set[int]:
    functions = stack.client("lambda").list_functions()["Functions"]
    return {one["MemorySize"] for one in functions}
