"""Clients of a stack, and items that a test writes by hand: old entries, altered totals."""

import io
import json
import threading
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from countledger import CountLedger, Event, Settings
from countledger.compaction.schedule import revision_of
from countledger.infra.deploy.deployment import Deployment, deploy
from countledger.infra.local.stack import Credentials, LocalStack, RegionStack
from countledger.ledger.attributes import Item, Key, decode
from countledger.ledger.clock import SystemClock
from countledger.ledger.indexes import bucket_of
from countledger.ledger.keys import schedule_key, total_key
from countledger.ledger.operations import Add, Assign, Update
from countledger.producers.recorder import Recorder


def client_of(stack: LocalStack, *policies: str, **settings: Any) -> CountLedger:  # noqa: ANN401
    """A client under these policies of the stack; without any it may do everything."""
    session = stack.session(stack.credentials_for(*policies)) if policies else stack.session()
    known = Settings(stack_name=stack.name, **settings)
    return CountLedger(known, session=session, endpoint_url=stack.url)


def record_all(client: CountLedger, counters: Iterable[str], delta: int = 1) -> None:
    """Record an event of each counter; none may fail."""
    for outcome in client.record_many(Event(counter, delta) for counter in counters):
        assert not isinstance(outcome, Exception), outcome


@dataclass(frozen=True)
class PastClock:
    """The machine's clock, `behind_ms` late."""

    behind_ms: int

    def now_ms(self) -> int:
        """The time of then."""
        return SystemClock().now_ms() - self.behind_ms

    def sleep_ms(self, duration_ms: float) -> None:
        """Wait, now."""
        SystemClock().sleep_ms(duration_ms)


def record_aged(client: CountLedger, counter: str, deltas: Iterable[int], age_ms: int) -> None:
    """Record events as a process did that ran `age_ms` ago."""
    recorder = Recorder(replace(client.connection, clock=PastClock(age_ms)))
    for outcome in recorder.record_many(Event(counter, delta) for delta in deltas):
        assert not isinstance(outcome, Exception), outcome


def total_item(client: CountLedger, counter: str) -> Item:
    """What is stored as a counter's total."""
    table = client.connection.setting("counters_table")
    return (
        client.connection.dynamo("standard").get(table, total_key(counter), consistent=True) or {}
    )


def alter_total(stack: LocalStack, counter: str, amount: int) -> None:
    """Add to a total, as no code of the product does."""
    added = Update(stack.outputs["CountersTableName"], total_key(counter), (Add("total", amount),))
    client_of(stack).connection.dynamo("standard").update(added)


def edit(client: CountLedger, table: str, key: Key, **attributes: object) -> None:
    """Set attributes of an item by hand, in the table that a setting names."""
    clauses = tuple(Assign(name, value) for name, value in attributes.items())
    connection = client.connection
    connection.dynamo("standard").update(Update(connection.setting(table), key, clauses))


def age_mark(stack: LocalStack, counter: str) -> None:
    """Make a counter due now, as if its time had passed.

    A function that read the namespace before its schedule was created sets no mark for a minute.
    """
    due = {"due_bucket": bucket_of(counter), "due_at": SystemClock().now_ms() - 1}
    edit(client_of(stack), "counters_table", total_key(counter), **due)


def tick(stack: LocalStack | RegionStack, namespace: str) -> Any:  # noqa: ANN401 - of `invoke`
    """What a tick of the trigger of a schedule does; without a schedule, that of an earlier one."""
    found = stack.client("dynamodb").get_item(
        TableName=stack.outputs["CountersTableName"],
        Key={name: {"S": value} for name, value in schedule_key(namespace).items()},
    )
    revision = revision_of(decode(found["Item"])) if "Item" in found else None
    event = {"namespace": namespace, "revision": revision or "none"}
    return invoke(stack, stack.outputs["DispatcherFunctionName"], event)


def invoke(stack: LocalStack | RegionStack, function: str, event: object) -> Any:  # noqa: ANN401 - its answer
    """Call a function of a stack, which must not fail."""
    payload = json.dumps(event).encode()
    answer = stack.client("lambda").invoke(FunctionName=function, Payload=payload)
    text = answer["Payload"].read()
    assert "FunctionError" not in answer, text
    return json.loads(text)


def logged(stack: LocalStack, *groups: str) -> list[dict[str, Any]]:
    """The lines of JSON in the logs whose groups have one of these texts in their names."""
    logs = stack.client("logs")
    names = [one["logGroupName"] for one in logs.describe_log_groups()["logGroups"]]
    messages = [
        event["message"].strip()
        for name in names
        if any(group in name for group in groups)
        for event in logs.filter_log_events(logGroupName=name)["events"]
    ]
    return [json.loads(message) for message in messages if message.startswith("{")]


def make_table(stack: LocalStack, name: str, **keys: Any) -> str:  # noqa: ANN401 - S or N
    """Make a table of an app's own, with these keys and their types: its ARN."""
    made = stack.client("dynamodb").create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            {"AttributeName": key, "AttributeType": kind} for key, kind in keys.items()
        ],
        KeySchema=[
            {"AttributeName": key, "KeyType": role}
            for key, role in zip(keys, ("HASH", "RANGE"), strict=False)
        ],
    )
    return str(made["TableDescription"]["TableArn"])


def user_with(stack: LocalStack, name: str, *allowed: Mapping[str, object]) -> Credentials:
    """The keys of a new user who may do what these statements allow, and nothing else."""
    iam = stack.client("iam")
    iam.create_user(UserName=name)
    statements = [{"Effect": "Allow", **one} for one in allowed]
    document = {"Version": "2012-10-17", "Statement": statements}
    iam.put_user_policy(UserName=name, PolicyName="only", PolicyDocument=json.dumps(document))
    return keys_of(stack, name)


def keys_of(stack: LocalStack, user: str) -> Credentials:
    """New keys of a user."""
    key = stack.client("iam").create_access_key(UserName=user)["AccessKey"]
    return Credentials(key["AccessKeyId"], key["SecretAccessKey"])


def release(deployment: Deployment, template: str, protected: str = "false") -> dict[str, str]:
    """Deploy the template of another release; the outputs of the stack."""
    return deploy(
        deployment,
        bucket=deployment.stack.name,
        bundle=bundle_of(),
        parameters={"DeletionProtection": protected},
        template=template,
    )


def bundle_of(text: str = "{}") -> bytes:
    """A bundle with nothing of ours in it: the engine finds the installed package."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        # A time of its own: on a busy machine the clock moves on between two equal bundles.
        archive.writestr(zipfile.ZipInfo("bundle.json"), text)
    return buffer.getvalue()


@contextmanager
def following(stack: LocalStack) -> Iterator[None]:
    """What a local stack does in the background: replicate to regions that join, not to others."""
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(0.1):
            stack.follow_replicas()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def stacks_of(stack: LocalStack) -> dict[str, dict[str, Any]]:
    """The stacks of the engine by name."""
    described = stack.client("cloudformation").describe_stacks()["Stacks"]
    return {one["StackName"]: one for one in described}
