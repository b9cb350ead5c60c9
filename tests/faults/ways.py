"""The ways in which an app records, each of entries of 7."""

from collections.abc import Callable

import pytest

from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import CountledgerError
from countledger.ledger.ids import IdempotencyKey
from countledger.ledger.keys import namespace_of
from countledger.producers.event import Event, Receipt
from countledger.producers.recorder import Recorder

Record = Callable[[Recorder, str], list[Receipt | CountledgerError]]


def one(recorder: Recorder, counter: str) -> list[Receipt | CountledgerError]:
    return [recorder.record(Event(counter, 7))]


def one_keyed(recorder: Recorder, counter: str) -> list[Receipt | CountledgerError]:
    return [recorder.record(Event(counter, 7, "key"))]


def one_timed(recorder: Recorder, counter: str) -> list[Receipt | CountledgerError]:
    key = IdempotencyKey("key", to_datetime(recorder.clock.now_ms()))
    return [recorder.record(Event(counter, 7, key))]


def many(recorder: Recorder, counter: str) -> list[Receipt | CountledgerError]:
    return list(recorder.record_many([Event(counter, 7)] * 30))


def one_batch(recorder: Recorder, counter: str) -> list[Receipt | CountledgerError]:
    return list(recorder.record_many([Event(counter, 7)] * 20))


def many_keyed(recorder: Recorder, counter: str) -> list[Receipt | CountledgerError]:
    return list(recorder.record_many(Event(counter, 7, f"key {n}") for n in range(4)))


WAYS = pytest.mark.parametrize(
    ("record", "operation"),
    [
        (one, "PutItem"),
        (one_keyed, "PutItem"),
        (one_timed, "PutItem"),
        (many, "BatchWriteItem"),
        (many_keyed, "PutItem"),
    ],
    ids=["plain", "keyed", "timed", "many", "many keyed"],
)


def known(recorder: Recorder, counter: str) -> Recorder:
    """The recorder, which has met the counter's namespace already."""
    recorder.sender.namespaces.create(namespace_of(counter))
    return recorder


def deltas(outcomes: list[Receipt | CountledgerError]) -> list[int]:
    return [7] * sum(isinstance(outcome, Receipt) for outcome in outcomes)
