"""From a schedule to merged entries, on the deployed stack: no number ever changes."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from countledger import CountLedger, Retire
from countledger.infra.local.stack import LocalStack
from countledger.ledger import keys
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS
from tests.e2e.command import Command, eventually
from tests.e2e.world import age_mark, invoke, record_aged, tick, total_item


@pytest.fixture
def namespace(client: CountLedger, name: str) -> Iterator[str]:
    """A namespace of this test alone; its schedule goes with it."""
    client.namespaces.create(name)
    yield name
    client.schedules.delete(name)


def work(stack: LocalStack, *bodies: str) -> list[str]:
    """Hand messages to a worker as the queue's mapping does; which of them have to come again."""
    records = [{"messageId": str(n), "body": body} for n, body in enumerate(bodies)]
    answer = invoke(stack, stack.outputs["CompactorFunctionName"], {"Records": records})
    return [one["itemIdentifier"] for one in answer["batchItemFailures"]]


def _head(client: CountLedger, counter: str) -> dict[str, Any]:
    table = client.connection.setting("ledger_table")
    return client.connection.dynamo("standard").get(table, keys.head_key(counter)) or {}


@pytest.mark.parametrize("retire", list(Retire))
def test_a_schedule_merges_what_is_due_and_no_number_changes(
    stack: LocalStack, client: CountLedger, namespace: str, retire: Retire
) -> None:
    counter = f"{namespace}:a"
    client.schedules.create(namespace, every_ms=15 * MINUTE_MS, min_entries=10, retire=retire)
    record_aged(client, counter, range(1, 251), 2 * DAY_MS)
    record_aged(client, counter, [7, 8, 9], HOUR_MS)
    stack.pump.drain()
    total, exact = client.total(counter), client.exact(counter)
    assert list(client.due(namespace)) == []

    age_mark(stack, counter)
    answer = tick(stack, namespace)

    assert (answer["due"], answer["sent"]) == (1, 1)
    eventually(lambda: "due_at" not in total_item(client, counter))
    assert client.exact(counter).entries_read == 3
    merged = client.exact(counter)
    assert (merged.value, merged.events, merged.entries) == (
        exact.value,
        exact.events,
        exact.entries,
    )
    stack.pump.drain()
    assert client.total(counter) == total
    assert total_item(client, counter)["compacted"] == 250
    assert _head(client, counter)["covers"] == {}
    assert client.audit.verify(counter).verdict == "exact"


def test_a_tick_of_a_schedule_at_rest_sends_nothing(
    stack: LocalStack, client: CountLedger, namespace: str
) -> None:
    assert tick(stack, namespace)["detail"] == "it has no schedule"
    client.schedules.create(namespace, every_ms=HOUR_MS)
    assert tick(stack, namespace)["sent"] == 0


def test_messages_fail_one_by_one(stack: LocalStack, client: CountLedger, namespace: str) -> None:
    good, bad = f"{namespace}:good", f"{namespace}:bad"
    client.schedules.create(namespace, every_ms=HOUR_MS, min_entries=2)
    for counter in (good, bad):
        record_aged(client, counter, [1] * 5, 2 * DAY_MS)
    stack.pump.drain()
    for counter in (good, bad):
        age_mark(stack, counter)
    corrupt = {**keys.head_key(bad), "generation": "one"}
    dynamodb, ledger = stack.client("dynamodb"), stack.outputs["LedgerTableName"]
    dynamodb.put_item(TableName=ledger, Item={name: {"S": text} for name, text in corrupt.items()})
    before = _stored(stack, bad)

    bodies = [json.dumps({"counter": bad}), "nonsense", json.dumps({"counter": good})]
    again = work(stack, *bodies)

    after = _stored(stack, bad)
    command = Command(stack.environment())
    done = command("compact", "--namespace", namespace, "--json")
    plan = command("compact", "--namespace", namespace, "--dry-run", "--json")
    dynamodb.delete_item(
        TableName=ledger, Key={name: {"S": text} for name, text in keys.head_key(bad).items()}
    )
    assert again == ["0", "1"]
    assert (done.code, done.json["findings"], len(done.json["items"])) == (1, 1, 2)
    assert (plan.code, plan.json["findings"], len(plan.json["items"])) == (1, 1, 2)
    assert client.exact(good).entries_read == 0
    assert len(before) == 6
    assert after == before, "nothing of it was touched"
    assert client.total(bad).value == 5


def _stored(stack: LocalStack, counter: str) -> list[dict[str, Any]]:
    """All that the ledger holds of a counter."""
    answer = stack.client("dynamodb").query(
        TableName=stack.outputs["LedgerTableName"],
        KeyConditionExpression="#c = :c",
        ExpressionAttributeNames={"#c": "counter"},
        ExpressionAttributeValues={":c": {"S": counter}},
    )
    return list(answer["Items"])


def test_a_schedule_is_one_of_the_services_own(
    stack: LocalStack, client: CountLedger, namespace: str
) -> None:
    scheduler = stack.client("scheduler")
    group = stack.outputs["ScheduleGroupName"]

    def ours() -> list[dict[str, Any]]:
        listed = scheduler.list_schedules(GroupName=group)["Schedules"]
        found = [scheduler.get_schedule(GroupName=group, Name=one["Name"]) for one in listed]
        return [
            one for one in found if json.loads(one["Target"]["Input"])["namespace"] == namespace
        ]

    assert ours() == []
    client.schedules.create(namespace, every_ms=15 * MINUTE_MS)
    (made,) = ours()
    assert made["ScheduleExpression"] == "rate(15 minutes)"
    assert made["State"] == "ENABLED"
    assert made["Target"]["Arn"] == stack.outputs["DispatcherFunctionArn"]
    assert made["Target"]["RoleArn"] == stack.outputs["SchedulerRoleArn"]
    assert client.schedules.state(namespace) == "enabled"

    client.schedules.set(namespace, cron="0 3 * * ? *")
    (changed,) = ours()
    assert changed["ScheduleExpression"] == "cron(0 3 * * ? *)"

    assert client.schedules.delete(namespace)
    assert ours() == []
    assert client.schedules.state(namespace) == "missing"
    assert not client.schedules.delete(namespace)


@pytest.mark.long
def test_the_schedule_runs_by_itself(
    stack: LocalStack, client: CountLedger, namespace: str
) -> None:
    counter = f"{namespace}:alone"
    client.schedules.create(namespace, every_ms=MINUTE_MS, min_entries=2)
    record_aged(client, counter, [1] * 5, 2 * DAY_MS)
    stack.pump.drain()
    age_mark(stack, counter)
    deadline_s = time.monotonic() + 180

    while client.exact(counter).entries_read:
        assert time.monotonic() < deadline_s, "it was never started"
        time.sleep(1)

    assert client.exact(counter).value == 5


def test_the_command_line_plans_and_compacts(
    stack: LocalStack, client: CountLedger, namespace: str
) -> None:
    command = Command(stack.environment())
    names = [f"{namespace}:{letter}" for letter in "abc"]
    client.schedules.create(namespace, every_ms=HOUR_MS, min_entries=5)
    for name in names:
        record_aged(client, name, [2] * 10, 2 * DAY_MS)
    stack.pump.drain()

    plan = command("compact", names[0], "--dry-run", "--json")
    assert plan.code == 0
    (planned,) = plan.json["items"]
    assert (planned["counter"], planned["entries"]) == (names[0], 10)
    assert planned["oldest_at"] <= planned["newest_at"]
    assert client.exact(names[0]).entries_read == 10

    done = command("compact", names[0], "--json")
    assert done.code == 0
    (report,) = done.json["items"]
    assert (report["outcome"], report["merged"]) == ("merged", 10)
    assert report["write_units"] == planned["write_units"]

    age_mark(stack, names[1])
    due = command("compact", "--due", "--namespace", namespace, "--json")
    assert [one["counter"] for one in due.json["items"]] == [names[1]]

    rest = command("compact", "--namespace", namespace)
    assert rest.code == 0
    assert "counters: 3; entries merged: 10, for" in rest.err
    assert [client.exact(name).value for name in names] == [20, 20, 20]
    assert [client.exact(name).entries_read for name in names] == [0, 0, 0]
