"""The deployed materializer, under its own role and with each actor under its own policy."""

import json
import re
import time
from pathlib import Path

import pytest

from countledger import Event, Judgement
from countledger.infra.deploy.bundle import OWN, build_bundle
from countledger.infra.local.shards import Invocation
from countledger.infra.local.stack import LocalStack
from countledger.ledger.errors import AccessDenied
from tests.e2e.world import client_of, logged


def test_entries_become_totals_each_actor_under_its_policy(
    auth_stack: LocalStack, counter: str
) -> None:
    emitter = client_of(auth_stack, "EmitPolicyArn")
    reader = client_of(auth_stack, "ReadPolicyArn")
    operator = client_of(auth_stack, "OperatePolicyArn")

    emitter.record(counter, 5)
    emitter.record(counter, -2)
    auth_stack.pump.drain()

    assert reader.total(counter).value == 3
    assert reader.exact(counter).value == 3
    assert reader.freshness().shards
    assert operator.audit.verify(counter).verdict is Judgement.EXACT
    with pytest.raises(AccessDenied):
        emitter.total(counter)
    with pytest.raises(AccessDenied):
        reader.record(counter, 1)


def test_the_documented_query_follows_an_entry_from_its_receipt_to_its_total(
    auth_stack: LocalStack, counter: str
) -> None:
    """The engine runs no queries of Logs Insights: its text is read, and carried out here."""
    page = (Path(__file__).parents[2] / "docs/operating.md").read_text()
    query = re.search(
        r'fields @timestamp, (.+)\n +\| filter message = "(\w+)" and (\w+) like "[0-9a-f-]{36}"',
        page,
    )
    assert query is not None
    shown, message, searched = query[1].split(", "), query[2], query[3]
    emitter = client_of(auth_stack, "EmitPolicyArn")
    receipts = [emitter.record(counter, 1), emitter.record(counter, 1, key="k")]
    auth_stack.pump.drain()
    function = auth_stack.outputs["MaterializerFunctionName"]
    lines = logged(auth_stack, function, "MaterializerLogs")

    for receipt in receipts:
        found = [
            one
            for one in lines
            if one.get("message") == message and receipt.id in one.get(searched, "")
        ]
        assert len(found) == 1
        assert all(found[0][field] for field in shown)
        batches = [one for one in lines if one.get("message") == "batch"]
        assert found[0]["request_id"] in {one["request_id"] for one in batches}
    assert client_of(auth_stack, "ReadPolicyArn").total(counter).entries == 2


def test_a_malformed_record_is_quarantined_under_the_functions_role(
    auth_stack: LocalStack, counter: str
) -> None:
    entry = {"counter": {"S": counter}, "entry": {"S": "e#not-an-id"}, "delta": {"S": "many"}}
    auth_stack.client("dynamodb").put_item(
        TableName=auth_stack.outputs["LedgerTableName"], Item=entry
    )
    client_of(auth_stack, "EmitPolicyArn").record(counter, 1)

    auth_stack.pump.drain()

    assert client_of(auth_stack, "ReadPolicyArn").total(counter).value == 1
    sqs = auth_stack.client("sqs", auth_stack.credentials_for("OperatePolicyArn"))
    queue = auth_stack.outputs["QuarantineQueueUrl"]
    messages = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10)["Messages"]
    bodies = [json.loads(message["Body"]) for message in messages]
    (ours,) = [
        body for body in bodies if body["record"]["dynamodb"]["Keys"]["counter"]["S"] == counter
    ]
    assert ours["reason"]
    for message in messages:
        sqs.change_message_visibility(
            QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
        )


def test_an_operator_works_off_the_quarantine_and_nothing_beside_it(
    auth_stack: LocalStack, counter: str
) -> None:
    key = {"counter": {"S": counter}, "entry": {"S": "e#not-an-id"}}
    dynamodb, table = auth_stack.client("dynamodb"), auth_stack.outputs["LedgerTableName"]
    dynamodb.put_item(TableName=table, Item={**key, "delta": {"S": "many"}})
    client_of(auth_stack, "EmitPolicyArn").record(counter, 1)
    auth_stack.pump.drain()
    service = client_of(auth_stack, "OperatePolicyArn").quarantine

    (copy,) = (one for one in service.list("ledger") if one.counter == counter)
    with pytest.raises(AccessDenied):
        list(client_of(auth_stack, "ReadPolicyArn").quarantine.discard([copy.id], by="eve"))
    (before,) = service.resend([copy.id], by="ann")
    dynamodb.delete_item(TableName=table, Key=key)
    auth_stack.pump.drain()
    (after,) = service.resend([copy.id], by="ann")

    assert "malformed" in copy.reason
    assert not before.resolved
    assert after.resolved
    assert counter not in [one.counter for one in service.list()]
    reader = client_of(auth_stack, "ReadPolicyArn")
    assert reader.total(counter).value == reader.exact(counter).value == 1
    with pytest.raises(AccessDenied):
        next(client_of(auth_stack, "EmitPolicyArn").quarantine.list())


def test_the_end_of_a_window_changes_no_total(stack: LocalStack, counter: str) -> None:
    everything = client_of(stack)
    everything.record(counter, 7)
    stack.pump.drain()
    in_an_hour_s = time.time() + 3600

    made = stack.new_pump(now_s=lambda: in_an_hour_s).drain()

    assert [one.final for one in made][-1] is True
    assert not _failures(made)
    total = everything.total(counter)
    assert (total.value, total.version) == (7, 1)


def test_the_bundle_runs_where_the_checkout_does(counter: str) -> None:
    bundle = build_bundle(OWN)

    with LocalStack(
        name="countledger-bundle",
        bundle=bundle.content,
        parameters={"IngestStream": "provisioned"},
    ) as bundled:
        function = bundled.client("lambda").get_function_configuration(
            FunctionName=bundled.outputs["MaterializerFunctionName"]
        )
        everything = client_of(bundled)
        everything.record(counter, 2)
        list(everything.kinesis.send_many([Event(counter, 3)]))
        bundled.drain()

        assert function["CodeSize"] == len(bundle.content)
        assert everything.total(counter).value == 5


def test_a_stack_with_every_parameter_of_capacity_counts(counter: str) -> None:
    """With auto scaling between its limits, where an engine has it, and reserved invocations."""
    with LocalStack(
        name="countledger-capacity",
        parameters={
            "CapacityMode": "provisioned",
            "LedgerWriteUnits": "5,4000",
            "LedgerReadUnits": "6,4000",
            "CountersWriteUnits": "7,4000",
            "CountersReadUnits": "8,4000",
            "LedgerWarmWriteUnits": "24000",
            "CountersWarmWriteUnits": "12000",
            "MaterializerConcurrency": "9",
            "MaterializerMemoryMb": "512",
            "MaterializerBatchSize": "10000",
            "BatchingWindowSeconds": "0",
        },
    ) as provisioned:
        dynamodb = provisioned.client("dynamodb")
        for table, write in (("LedgerTableName", 5), ("CountersTableName", 7)):
            described = dynamodb.describe_table(TableName=provisioned.outputs[table])["Table"]
            assert described["BillingModeSummary"]["BillingMode"] == "PROVISIONED"
            assert described["ProvisionedThroughput"]["WriteCapacityUnits"] == write
        everything = client_of(provisioned)
        everything.record(counter, 2)
        provisioned.drain()

        assert everything.total(counter).value == 2


def _failures(made: list[Invocation]) -> list[Invocation]:
    return [one for one in made if one.failed]
