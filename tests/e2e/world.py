"""Clients of a stack, and items that a test writes by hand: old entries, altered totals."""

import io
import threading
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from countledger import CountLedger, Event, Settings
from countledger.infra.local.stack import LocalStack
from countledger.ledger.attributes import Item
from countledger.ledger.clock import SystemClock
from countledger.ledger.due import bucket_of
from countledger.ledger.keys import total_key
from countledger.producers.recorder import Recorder
from countledger.producers.sender import Sender


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
    clock = PastClock(age_ms)
    connection = client.connection
    sender = Sender(
        connection.dynamo("none"),
        connection.setting("ledger_table"),
        client.namespaces,
        clock=clock,
    )
    recorder = Recorder(sender, connection.region, clock)
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
    _update(stack, counter, "ADD #v :v", "total", {"N": str(amount)})


def age_mark(stack: LocalStack, counter: str) -> None:
    """Make a counter due now, as if its time had passed.

    A function that read the namespace before its schedule was created sets no mark for a minute.
    """
    _update(stack, counter, "SET #v = :v", "due_bucket", {"S": bucket_of(counter)})
    _update(stack, counter, "SET #v = :v", "due_at", {"N": str(SystemClock().now_ms() - 1)})


def _update(stack: LocalStack, counter: str, text: str, name: str, value: Any) -> None:  # noqa: ANN401 - as stored
    stack.client("dynamodb").update_item(
        TableName=stack.outputs["CountersTableName"],
        Key={"counter": {"S": counter}, "part": {"S": "total"}},
        UpdateExpression=text,
        ExpressionAttributeNames={"#v": name},
        ExpressionAttributeValues={":v": value},
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
