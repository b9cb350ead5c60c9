"""The ways in which an app records, each of entries of 7."""

from collections.abc import Callable

from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import CountledgerError
from countledger.ledger.ids import IdempotencyKey
from countledger.ledger.keys import namespace_of
from countledger.producers.event import Event, Receipt
from countledger.producers.recorder import Recorder

Record = Callable[[Recorder, str], list[Receipt | CountledgerError]]


def one_timed(recorder: Recorder, counter: str) -> list[Receipt | CountledgerError]:
    key = IdempotencyKey("key", to_datetime(recorder.connection.clock.now_ms()))
    return [recorder.record(Event(counter, 7, key))]


def one_batch(recorder: Recorder, counter: str) -> list[Receipt | CountledgerError]:
    return list(recorder.record_many([Event(counter, 7)] * 20))


def known(recorder: Recorder, counter: str) -> Recorder:
    """The recorder, which has met the counter's namespace already."""
    recorder.sender.namespaces.create(namespace_of(counter))
    return recorder


def deltas(outcomes: list[Receipt | CountledgerError]) -> list[int]:
    return [7] * sum(isinstance(outcome, Receipt) for outcome in outcomes)
