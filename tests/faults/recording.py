"""The recorder as the public API builds it, the ways of recording, and what that leaves."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from countledger.ledger import amount
from countledger.ledger.amount import Amount
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import CountledgerError
from countledger.ledger.ids import IdempotencyKey
from countledger.ledger.keys import namespace_of
from countledger.producers.event import Event, Receipt
from countledger.producers.recorder import Recorder
from tests.engines.clock import HandClock
from tests.engines.store import Store
from tests.faults.canary import WrongNumber
from tests.unit.connections import through

# Each of entries of 7.
Record = Callable[[Recorder, str], list[Receipt | CountledgerError]]


def recorder_of(store: Store, clock: HandClock | None = None) -> Recorder:
    """The recorder of a new process: its own clients, no namespace known, and all the time."""
    own = store.app().connection
    writes = replace(own.unretried, limits=None)
    return Recorder(through(own, writes, own.retrying, clock or HandClock()))


def writer_of(recorder: Recorder) -> Any:  # noqa: ANN401 - a boto3 client
    """The client that its entries go through."""
    return recorder.sender.dynamo.client


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


def expect_sum(store: Store, counter: str, deltas: Iterable[Amount]) -> None:
    """The ledger holds exactly these deltas: nothing acknowledged is lost or there twice.

    Raises:
        WrongNumber: it does not.
    """
    expected = list(deltas)
    exact = store.exact().read(counter)
    found = exact.value, exact.entries
    if found != (amount.total_of(expected), len(expected)):
        raise WrongNumber(f"ledger of {counter}: {found} instead of {expected}")
