"""From a schedule to merged entries, on the deployed stack: no number ever changes."""

from __future__ import annotations

import json
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from countledger import CountLedger, Kind, Retire
from countledger.ledger import keys
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS
from tests.e2e.aged import age_mark, record_aged, total_item
from tests.e2e.command import Command, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.infra.local.stack import LocalStack


@pytest.fixture
def client(stack: LocalStack) -> CountLedger:
    """Someone who may do everything."""
    return CountLedger(session=stack.session(), endpoint_url=stack.url)


@pytest.fixture
def namespace(client: CountLedger) -> Iterator[str]:
    """A namespace of this test alone; its schedule goes with it."""
    name = f"c{uuid.uuid4().hex[:8]}"
    client.namespaces.create(name)
    yield name
    client.schedules.delete(name)


def invoke(stack: LocalStack, output: str, event: object) -> Any:  # noqa: ANN401 - the function's answer
    """Call a function of the stack."""
    answer = stack.client("lambda").invoke(
        FunctionName=stack.outputs[output], Payload=json.dumps(event).encode()
    )
    text = answer["Payload"].read()
    assert "FunctionError" not in answer, text
    return json.loads(text)


def dispatch(stack: LocalStack, namespace: str) -> Any:  # noqa: ANN401 - the function's answer
    """What the schedule's tick does."""
    return invoke(stack, "DispatcherFunctionName", {"namespace": namespace})


def work(stack: LocalStack, *bodies: str) -> list[str]:
    """Hand messages to a worker as the queue's mapping does; which of them have to come again."""
    records = [{"messageId": str(n), "body": body} for n, body in enumerate(bodies)]
    answer = invoke(stack, "CompactorFunctionName", {"Records": records})
    return [one["itemIdentifier"] for one in answer["batchItemFailures"]]


def _head(client: CountLedger, counter: str) -> dict[str, Any]:
    table = client.connection.setting("ledger_table")
    return client.connection.dynamo("standard").get(table, keys.head_key(counter)) or {}


@pytest.mark.parametrize("retire", list(Retire))
def test_a_schedule_merges_what_is_due_and_no_number_changes(
    stack: LocalStack, client: CountLedger, namespace: str, retire: Retire
) -> None:
    """Schedule, dispatcher, queue, worker: old entries are merged, young ones stay."""
    counter = f"{namespace}:a"
    client.schedules.create(namespace, every_ms=15 * MINUTE_MS, min_entries=10, retire=retire)
    record_aged(client, counter, range(1, 251), 2 * DAY_MS)
    record_aged(client, counter, [7, 8, 9], HOUR_MS)
    stack.pump.drain()
    total, exact = client.total(counter), client.exact(counter)
    assert list(client.due(namespace)) == []

    age_mark(client, counter)
    answer = dispatch(stack, namespace)

    assert (answer["due"], answer["sent"]) == (1, 1)
    eventually(lambda: "due_at" not in total_item(client, counter))
    assert client.exact(counter).entries_read == 3
    merged = client.exact(counter)
    assert (merged.sum, merged.events, merged.entries) == (exact.sum, exact.events, exact.entries)
    stack.pump.drain()
    assert client.total(counter) == total
    assert total_item(client, counter)["compacted"] == 250
    assert _head(client, counter)["covers"] == {}
    assert client.audit.verify(counter).verdict == "exact"


def test_many_due_counters_are_worked_off_by_several_workers(
    stack: LocalStack, client: CountLedger, namespace: str
) -> None:
    """One tick; each counter is merged once, and every sum is what it was."""
    names = [f"{namespace}:{number}" for number in range(45)]
    client.schedules.create(namespace, every_ms=HOUR_MS, min_entries=3)
    for number, name in enumerate(names):
        record_aged(client, name, [number + 1] * 4, 2 * DAY_MS)
    stack.pump.drain()
    for name in names:
        age_mark(client, name)

    answer = dispatch(stack, namespace)

    assert (answer["due"], answer["sent"]) == (45, 45)
    eventually(lambda: not list(client.due(namespace)))
    assert [client.exact(name).sum for name in names] == [4 * (n + 1) for n in range(45)]
    assert {client.exact(name).entries_read for name in names} == {0}
    assert {_head(client, name)["generation"] for name in names} == {2}


def test_a_tick_of_a_schedule_at_rest_sends_nothing(stack: LocalStack, namespace: str) -> None:
    """Nothing due, or a trigger whose schedule is gone: no error."""
    assert dispatch(stack, namespace)["detail"] == "it has no schedule"
    CountLedger(session=stack.session(), endpoint_url=stack.url).schedules.create(
        namespace, every_ms=HOUR_MS
    )
    assert dispatch(stack, namespace)["sent"] == 0


def test_a_counter_that_had_enough_before_its_schedule_is_swept_in(
    stack: LocalStack, client: CountLedger, namespace: str
) -> None:
    """It is never written again, and found all the same."""
    counter = f"{namespace}:quiet"
    record_aged(client, counter, [1] * 20, 2 * DAY_MS)
    stack.pump.drain()
    client.schedules.create(namespace, every_ms=HOUR_MS, min_entries=10)
    assert "due_at" not in total_item(client, counter)
    assert not dispatch(stack, namespace)["swept"], "materializers may not know of it yet"

    stack.client("dynamodb").update_item(
        TableName=stack.outputs["CountersTableName"],
        Key={"counter": {"S": f"namespace#{namespace}"}, "part": {"S": "schedule"}},
        UpdateExpression="ADD unswept_since :past",
        ExpressionAttributeValues={":past": {"N": str(-HOUR_MS)}},
    )
    assert dispatch(stack, namespace)["swept"]

    eventually(lambda: "due_at" in total_item(client, counter))
    assert not dispatch(stack, namespace)["swept"], "once is enough"


def test_messages_fail_one_by_one(stack: LocalStack, client: CountLedger, namespace: str) -> None:
    """Nonsense and a counter that cannot be compacted come again; their neighbours are done."""
    good, bad = f"{namespace}:good", f"{namespace}:bad"
    client.schedules.create(namespace, every_ms=HOUR_MS, min_entries=2)
    for counter in (good, bad):
        record_aged(client, counter, [1] * 5, 2 * DAY_MS)
    stack.pump.drain()
    for counter in (good, bad):
        age_mark(client, counter)
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
    assert (done.code, done.json["findings"], len(done.json["reports"])) == (1, 1, 2)
    assert (plan.code, plan.json["findings"], len(plan.json["plans"])) == (1, 1, 2)
    assert client.exact(good).entries_read == 0
    assert len(before) == 6
    assert after == before, "nothing of it was touched"
    assert client.total(bad).total == 5


def _stored(stack: LocalStack, counter: str) -> list[dict[str, Any]]:
    """All that the ledger holds of a counter."""
    answer = stack.client("dynamodb").query(
        TableName=stack.outputs["LedgerTableName"],
        KeyConditionExpression="#c = :c",
        ExpressionAttributeNames={"#c": "counter"},
        ExpressionAttributeValues={":c": {"S": counter}},
    )
    return list(answer["Items"])


def test_a_message_of_a_counter_that_is_done_costs_nothing_more(
    stack: LocalStack, client: CountLedger, namespace: str
) -> None:
    """The queue may deliver twice, and two ticks may have sent it."""
    counter = f"{namespace}:twice"
    client.schedules.create(namespace, every_ms=HOUR_MS, min_entries=2)
    record_aged(client, counter, [1] * 5, 2 * DAY_MS)
    stack.pump.drain()
    age_mark(client, counter)
    body = json.dumps({"counter": counter})

    assert work(stack, body) == []
    generation = _head(client, counter)["generation"]
    assert work(stack, body, body) == []

    assert _head(client, counter)["generation"] == generation


def test_a_schedule_is_one_of_the_services_own(
    stack: LocalStack, client: CountLedger, namespace: str
) -> None:
    """In the stack's group, with the dispatcher as its target; changed and deleted with it."""
    scheduler = stack.client("scheduler")
    group = stack.outputs["ScheduleGroupName"]

    def ours() -> list[dict[str, Any]]:
        listed = scheduler.list_schedules(GroupName=group)["Schedules"]
        found = [scheduler.get_schedule(GroupName=group, Name=one["Name"]) for one in listed]
        return [
            one for one in found if json.loads(one["Target"]["Input"]) == {"namespace": namespace}
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


def test_a_crash_between_item_and_trigger_is_healed_by_the_same_call(
    stack: LocalStack, client: CountLedger, namespace: str
) -> None:
    """The item is there, the service knows nothing: making it again makes it run."""
    made = client.schedules.create(namespace, every_ms=HOUR_MS)
    client.schedules.triggers.delete(namespace)
    assert client.schedules.state(namespace) == "missing"

    assert client.schedules.create(namespace, every_ms=HOUR_MS) == made

    assert client.schedules.state(namespace) == "enabled"
    assert stack.outputs["ScheduleGroupName"] == client.schedules.triggers.group


@pytest.mark.long
def test_the_schedule_runs_by_itself(
    stack: LocalStack, client: CountLedger, namespace: str
) -> None:
    """A minute after it was made EventBridge Scheduler starts it; nobody else does."""
    counter = f"{namespace}:alone"
    client.schedules.create(namespace, every_ms=MINUTE_MS, min_entries=2)
    record_aged(client, counter, [1] * 5, 2 * DAY_MS)
    stack.pump.drain()
    age_mark(client, counter)
    deadline_s = time.monotonic() + 180

    while client.exact(counter).entries_read:
        assert time.monotonic() < deadline_s, "it was never started"
        time.sleep(1)

    assert client.exact(counter).sum == 5


def test_the_command_line_plans_and_compacts(
    stack: LocalStack, client: CountLedger, namespace: str
) -> None:
    """By name, by namespace and by what is due; a dry run writes nothing."""
    command = Command(stack.environment())
    names = [f"{namespace}:{letter}" for letter in "abc"]
    client.schedules.create(namespace, every_ms=HOUR_MS, min_entries=5)
    for name in names:
        record_aged(client, name, [2] * 10, 2 * DAY_MS)
    stack.pump.drain()

    plan = command("compact", names[0], "--dry-run", "--json")
    assert plan.code == 0
    (planned,) = plan.json["plans"]
    assert (planned["counter"], planned["entries"]) == (names[0], 10)
    assert planned["oldest_at"] <= planned["newest_at"]
    assert client.exact(names[0]).entries_read == 10

    done = command("compact", names[0], "--json")
    assert done.code == 0
    (report,) = done.json["reports"]
    assert (report["outcome"], report["merged"]) == ("merged", 10)
    assert report["write_units"] == planned["write_units"]

    age_mark(client, names[1])
    due = command("compact", "--due", "--namespace", namespace, "--json")
    assert [one["counter"] for one in due.json["reports"]] == [names[1]]

    rest = command("compact", "--namespace", namespace)
    assert rest.code == 0
    assert "3 counters: 10 entries merged" in rest.err
    assert [client.exact(name).sum for name in names] == [20, 20, 20]
    assert [client.exact(name).entries_read for name in names] == [0, 0, 0]


def test_the_command_line_keeps_schedules(stack: LocalStack, namespace: str) -> None:
    """Create, again, otherwise, set, show, list, delete."""
    command = Command(stack.environment())
    made = command("schedule", "create", namespace, "--every", "15m", "--json")
    wanted = {
        "namespace": namespace,
        "expression": "rate(15 minutes)",
        "region": "us-east-1",
        "min_entries": 100,
        "min_age_ms": None,
        "retire": "transaction",
        "archive": None,
    }
    again = command("schedule", "create", namespace, "--every", "15m", "--json")
    other = command("schedule", "create", namespace, "--every", "1h")
    changed = command(
        "schedule", "set", namespace, "--min-age", "30d", "--retire", "delete", "--json"
    )
    shown = command("schedule", "show", namespace, "--json")
    listed = command("schedule", "list", "--json")
    reset = command("schedule", "set", namespace, "--min-age", "none", "--json")
    gone = command("schedule", "delete", namespace, "--json")
    missing = command("schedule", "show", namespace)

    assert made.json == again.json == wanted
    assert [made.code, again.code, other.code, missing.code] == [0, 0, 2, 2]
    assert "rate(15 minutes)" in other.err
    expected = {**wanted, "min_age_ms": 30 * DAY_MS, "retire": "delete"}
    assert changed.json == expected
    assert shown.json == {**expected, "state": "enabled"}
    assert expected in listed.json
    assert reset.json == {**expected, "min_age_ms": None}
    assert gone.json == {"namespace": namespace, "deleted": True}
    assert f"countledger schedule create {namespace}" in missing.err


def test_a_settings_file_is_applied(
    stack: LocalStack,
    client: CountLedger,
    namespace: str,
    tmp_path: Any,  # noqa: ANN401 - a Path
) -> None:
    """TOML and YAML say the same; again nothing changes; a bad line changes nothing at all."""
    command = Command(stack.environment())
    toml, yaml_file = tmp_path / "countledger.toml", tmp_path / "countledger.yaml"
    toml.write_text(
        f'[schedules.{namespace}]\nevery = "15m"\nmin_entries = 500\nretire = "delete"\n'
    )
    yaml_file.write_text(
        f"schedules:\n  {namespace}:\n    every: 15m\n    min_entries: 500\n    retire: delete\n"
    )

    first = command("schedule", "apply", str(toml), "--json")
    again = command("schedule", "apply", str(yaml_file), "--json")
    toml.write_text(f'[schedules.{namespace}]\nevery = "1h"\n[schedules.no-such]\nevery = "1h"\n')
    refused = command("schedule", "apply", str(toml))

    assert [one["change"] for one in first.json] == ["created"]
    assert [one["change"] for one in again.json] == ["unchanged"]
    assert refused.code == 2
    assert "no-such" in refused.err
    assert client.schedules.get(namespace).expression == "rate(15 minutes)"


def test_bad_input_is_refused_with_its_reason(
    stack: LocalStack, client: CountLedger, namespace: str
) -> None:
    """Unknown namespace, another kind, a minimum age below the limit: exit 2, nothing made."""
    command = Command(stack.environment())
    strict = f"s{uuid.uuid4().hex[:8]}"
    client.namespaces.create(strict, kind=Kind.STRICT)
    refused = {
        "does not exist": command("schedule", "create", "no-such", "--every", "1h"),
        "kind strict": command("schedule", "create", strict, "--every", "1h"),
        "horizon 24 h + replication bound 15 min + clock skew 1 min": command(
            "schedule", "create", namespace, "--every", "1h", "--min-age", "24h"
        ),
        "has no schedule": command("schedule", "set", namespace, "--every", "1h"),
        "namespace 'no-such'": command("compact", "no-such:x"),
        "of kind strict": command("compact", "--namespace", strict),
        "namespace 'none-such'": command("compact", "--namespace", "none-such", "--due"),
        "home region us-east-1": command(
            "schedule",
            "create",
            namespace,
            "--every",
            "1h",
            "--region",
            "eu-west-1",
            env={"COUNTLEDGER_HOME_REGION": "us-east-1", **_names(stack)},
        ),
        "merged in the home region": command(
            "compact",
            f"{namespace}:x",
            "--region",
            "eu-west-1",
            env={"COUNTLEDGER_HOME_REGION": "us-east-1", **_names(stack)},
        ),
    }

    for reason, finished in refused.items():
        assert finished.code == 2, (reason, finished)
        assert finished.out == ""
        assert finished.err.count("\n") == 1
        assert reason in finished.err
    assert client.schedules.find(namespace) is None


def _names(stack: LocalStack) -> dict[str, str]:
    """What a process would else ask the stack of its own region for."""
    return {
        "COUNTLEDGER_LEDGER_TABLE": stack.outputs["LedgerTableName"],
        "COUNTLEDGER_COUNTERS_TABLE": stack.outputs["CountersTableName"],
        "COUNTLEDGER_SCHEDULE_GROUP": stack.outputs["ScheduleGroupName"],
        "COUNTLEDGER_DISPATCHER_ARN": stack.outputs["DispatcherFunctionArn"],
        "COUNTLEDGER_SCHEDULER_ROLE_ARN": stack.outputs["SchedulerRoleArn"],
    }
