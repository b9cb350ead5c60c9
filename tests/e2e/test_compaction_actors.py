"""Compaction with IAM enforced: each function under its role, each person under a policy."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError

from countledger import CountLedger, Settings
from countledger.compaction.report import RunOutcome
from countledger.infra.local.stack import LocalStack
from countledger.ledger import keys
from countledger.ledger.errors import AccessDenied
from countledger.ledger.limits import DAY_MS, HOUR_MS
from tests.e2e.aged import age_mark, record_aged, total_item
from tests.e2e.command import Command, eventually
from tests.e2e.test_compaction import dispatch, work

if TYPE_CHECKING:
    from collections.abc import Iterator


def actor(stack: LocalStack, policy: str) -> CountLedger:
    """Someone who works on the stack under exactly one of its policies."""
    session = stack.session(stack.credentials_for(policy))
    return CountLedger(Settings(stack_name=stack.name), session=session, endpoint_url=stack.url)


@pytest.fixture
def root(auth_stack: LocalStack) -> CountLedger:
    """Someone who may do everything."""
    settings = Settings(stack_name=auth_stack.name)
    return CountLedger(settings, session=auth_stack.session(), endpoint_url=auth_stack.url)


@pytest.fixture
def namespace(root: CountLedger) -> str:
    """A namespace of this test alone."""
    name = f"c{uuid.uuid4().hex[:8]}"
    root.namespaces.create(name)
    return name


def test_who_operates_keeps_schedules(auth_stack: LocalStack, namespace: str) -> None:
    """All of their life, at the service as well."""
    schedules = actor(auth_stack, "OperatePolicyArn").schedules

    schedules.create(namespace, every_ms=HOUR_MS)
    schedules.set(namespace, cron="0 3 * * ? *")

    assert schedules.state(namespace) == "enabled"
    assert namespace in [one.namespace for one in schedules.list()]
    assert schedules.delete(namespace)


@pytest.mark.parametrize("policy", ["EmitPolicyArn", "ReadPolicyArn", "CompactPolicyArn"])
def test_nobody_else_keeps_schedules(
    auth_stack: LocalStack, root: CountLedger, namespace: str, policy: str
) -> None:
    """Neither who emits, nor who reads, nor who compacts by hand."""
    with pytest.raises(AccessDenied):
        actor(auth_stack, policy).schedules.create(namespace, every_ms=HOUR_MS)

    assert root.schedules.find(namespace) is None
    assert root.schedules.state(namespace) == "missing"


def test_who_operates_reaches_no_schedule_of_others(auth_stack: LocalStack) -> None:
    """The service's schedules outside the stack's group are not the operator's."""
    scheduler = auth_stack.client("scheduler", auth_stack.credentials_for("OperatePolicyArn"))

    with pytest.raises(ClientError, match="AccessDenied"):
        scheduler.get_schedule(Name="other")


def test_who_operates_deletes_no_total(auth_stack: LocalStack, namespace: str) -> None:
    """The right to delete schedules ends there."""
    dynamodb = auth_stack.client("dynamodb", auth_stack.credentials_for("OperatePolicyArn"))
    key = keys.total_key(f"{namespace}:x")

    with pytest.raises(ClientError, match="AccessDenied"):
        dynamodb.delete_item(
            TableName=auth_stack.outputs["CountersTableName"],
            Key={name: {"S": value} for name, value in key.items()},
        )


def test_the_functions_compact_under_their_roles(
    auth_stack: LocalStack, root: CountLedger, namespace: str
) -> None:
    """Dispatcher, queue and worker need no more than the template gives them."""
    counter = f"{namespace}:a"
    root.schedules.create(namespace, every_ms=HOUR_MS, min_entries=10)
    record_aged(root, counter, [3] * 120, 2 * DAY_MS)
    auth_stack.pump.drain()
    age_mark(root, counter)

    answer = dispatch(auth_stack, namespace)

    assert answer["sent"] == 1
    eventually(lambda: "due_at" not in total_item(root, counter))
    assert root.exact(counter).entries_read == 0
    assert (root.exact(counter).sum, root.total(counter).total) == (360, 360)


def test_the_functions_sweep_under_their_roles(
    auth_stack: LocalStack, root: CountLedger, namespace: str
) -> None:
    """The dispatcher notes that it sent a sweep; the worker reads the totals."""
    counter = f"{namespace}:quiet"
    record_aged(root, counter, [1] * 20, 2 * DAY_MS)
    auth_stack.pump.drain()
    root.schedules.create(namespace, every_ms=HOUR_MS, min_entries=10)
    auth_stack.client("dynamodb").update_item(
        TableName=auth_stack.outputs["CountersTableName"],
        Key={name: {"S": value} for name, value in keys.schedule_key(namespace).items()},
        UpdateExpression="ADD unswept_since :past",
        ExpressionAttributeValues={":past": {"N": str(-HOUR_MS)}},
    )

    assert dispatch(auth_stack, namespace)["swept"]

    eventually(lambda: "due_at" in total_item(root, counter))
    rest = {"namespace": namespace, "segment": 0, "segments": 1, "after": None}
    assert work(auth_stack, json.dumps({"sweep": rest})) == []


def test_who_compacts_by_hand_needs_one_policy(
    auth_stack: LocalStack, root: CountLedger, namespace: str
) -> None:
    """Plan, compact, find what is due; and nothing is recorded under it but heads."""
    counter = f"{namespace}:b"
    root.schedules.create(namespace, every_ms=HOUR_MS, min_entries=10)
    record_aged(root, counter, [1] * 30, 2 * DAY_MS)
    auth_stack.pump.drain()
    age_mark(root, counter)
    by_hand = actor(auth_stack, "CompactPolicyArn")

    assert list(by_hand.due(namespace)) == [counter]
    assert [one.namespace for one in by_hand.schedules.list() if one.namespace == namespace]
    worker = by_hand.compactor()
    assert worker.plan(counter).entries == 30
    report = worker.compact(counter)

    assert (report.outcome, report.merged) == (RunOutcome.MERGED, 30)
    assert "due_at" not in total_item(root, counter)
    assert root.exact(counter).sum == 30


@pytest.mark.parametrize("policy", ["EmitPolicyArn", "ReadPolicyArn", "OperatePolicyArn"])
def test_nobody_else_compacts(
    auth_stack: LocalStack, root: CountLedger, namespace: str, policy: str
) -> None:
    """The attempt is a failure in the report, and leaves everything as it was."""
    counter = f"{namespace}:c"
    record_aged(root, counter, [1] * 5, 2 * DAY_MS)

    report = actor(auth_stack, policy).compactor().compact(counter)

    assert report.outcome is RunOutcome.FAILED
    assert isinstance(report.error, AccessDenied)
    assert root.exact(counter).entries_read == 5


@pytest.fixture(scope="module")
def archiving() -> Iterator[LocalStack]:
    """A stack with IAM enforced that knows a bucket for archives."""
    parameters = {"ArchiveBucketArn": "arn:aws:s3:::countledger-archive"}
    with LocalStack(name="countledger-archive", auth=True, parameters=parameters) as running:
        running.client("s3").create_bucket(Bucket="countledger-archive")
        running.client("s3").create_bucket(Bucket="countledger-elsewhere")
        yield running


def test_the_worker_archives_under_its_role_and_a_reader_reads_it(archiving: LocalStack) -> None:
    """Into the bucket that the stack was told of, before anything is deleted."""
    settings = Settings(stack_name=archiving.name)
    root = CountLedger(settings, session=archiving.session(), endpoint_url=archiving.url)
    root.namespaces.create("kept")
    place = "s3://countledger-archive/trail"
    root.schedules.create("kept", every_ms=HOUR_MS, min_entries=10, archive=place)
    record_aged(root, "kept:a", range(1, 21), 2 * DAY_MS)
    archiving.pump.drain()
    age_mark(root, "kept:a")

    assert work(archiving, json.dumps({"counter": "kept:a"})) == []

    assert root.exact("kept:a").entries_read == 0
    reader = Command(archiving.environment(archiving.credentials_for("ReadPolicyArn")))
    shown = reader("entries", "kept:a", "--archived", place, "--json")
    assert shown.code == 0, shown.err
    assert "20" in shown.out


def test_an_archive_that_refuses_stops_the_deleting_and_nothing_else(
    archiving: LocalStack,
) -> None:
    """A bucket that the role may not write to: the counter fails, its numbers stay."""
    settings = Settings(stack_name=archiving.name)
    root = CountLedger(settings, session=archiving.session(), endpoint_url=archiving.url)
    root.namespaces.create("refused")
    place = "s3://countledger-elsewhere/trail"
    root.schedules.create("refused", every_ms=HOUR_MS, min_entries=10, archive=place)
    record_aged(root, "refused:a", [1] * 20, 2 * DAY_MS)
    archiving.pump.drain()
    age_mark(root, "refused:a")

    assert work(archiving, json.dumps({"counter": "refused:a"})) == ["0"]

    assert root.exact("refused:a").entries_read == 20
    assert (root.exact("refused:a").sum, root.total("refused:a").total) == (20, 20)
