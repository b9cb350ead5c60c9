"""Compaction with IAM enforced: each function under its role."""

import json
from collections.abc import Iterator

import pytest

from countledger import CountLedger
from countledger.infra.local.stack import LocalStack
from countledger.ledger import keys
from countledger.ledger.limits import DAY_MS, HOUR_MS
from tests.e2e.command import Command, eventually
from tests.e2e.test_compaction import work
from tests.e2e.world import age_mark, client_of, record_aged, tick, total_item


@pytest.fixture
def namespace(root: CountLedger, name: str) -> str:
    """A namespace of this test alone."""
    root.namespaces.create(name)
    return name


def test_the_functions_compact_under_their_roles(
    auth_stack: LocalStack, root: CountLedger, namespace: str
) -> None:
    counter = f"{namespace}:a"
    root.schedules.create(namespace, every_ms=HOUR_MS, min_entries=10)
    record_aged(root, counter, [3] * 120, 2 * DAY_MS)
    auth_stack.pump.drain()
    age_mark(auth_stack, counter)

    answer = tick(auth_stack, namespace)

    assert answer["sent"] == 1
    eventually(lambda: "due_at" not in total_item(root, counter))
    assert root.exact(counter).entries_read == 0
    assert (root.exact(counter).value, root.total(counter).value) == (360, 360)


def test_the_functions_sweep_under_their_roles(
    auth_stack: LocalStack, root: CountLedger, namespace: str
) -> None:
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

    assert tick(auth_stack, namespace)["swept"]

    eventually(lambda: "due_at" in total_item(root, counter))
    rest = {"namespace": namespace, "segment": 0, "segments": 1, "after": None}
    assert work(auth_stack, json.dumps({"sweep": rest})) == []


@pytest.fixture(scope="module")
def archiving() -> Iterator[LocalStack]:
    """A stack with IAM enforced that knows a bucket for archives."""
    parameters = {"ArchiveBucketArn": "arn:aws:s3:::countledger-archive"}
    with LocalStack(name="countledger-archive", auth=True, parameters=parameters) as running:
        running.client("s3").create_bucket(Bucket="countledger-archive")
        running.client("s3").create_bucket(Bucket="countledger-elsewhere")
        yield running


def test_the_worker_archives_under_its_role_and_a_reader_reads_it(archiving: LocalStack) -> None:
    root = client_of(archiving)
    root.namespaces.create("kept")
    place = "s3://countledger-archive/trail"
    root.schedules.create("kept", every_ms=HOUR_MS, min_entries=10, archive=place)
    record_aged(root, "kept:a", range(1, 21), 2 * DAY_MS)
    archiving.pump.drain()
    age_mark(archiving, "kept:a")

    assert work(archiving, json.dumps({"counter": "kept:a"})) == []

    assert root.exact("kept:a").entries_read == 0
    reader = Command(archiving.environment(archiving.credentials_for("ReadPolicyArn")))
    shown = reader("entries", "kept:a", "--archived", place, "--json")
    assert shown.code == 0, shown.err
    assert "20" in shown.out


def test_an_archive_that_refuses_stops_the_deleting_and_nothing_else(
    archiving: LocalStack,
) -> None:
    root = client_of(archiving)
    root.namespaces.create("refused")
    place = "s3://countledger-elsewhere/trail"
    root.schedules.create("refused", every_ms=HOUR_MS, min_entries=10, archive=place)
    record_aged(root, "refused:a", [1] * 20, 2 * DAY_MS)
    archiving.pump.drain()
    age_mark(archiving, "refused:a")

    assert work(archiving, json.dumps({"counter": "refused:a"})) == ["0"]

    assert root.exact("refused:a").entries_read == 20
    assert (root.exact("refused:a").value, root.total("refused:a").value) == (20, 20)
