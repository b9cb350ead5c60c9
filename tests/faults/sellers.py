"""Strict counters as the public API builds them, one process each, and faults of theirs."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from countledger.ledger.amount import Amount
from countledger.ledger.clock import Clock
from countledger.ledger.connection import Retries
from countledger.ledger.dynamo import DynamoClient
from countledger.producers.strict.counters import StrictCounters
from countledger.producers.strict.definition import Method
from countledger.producers.strict.outcome import Applied
from tests.engines.numbering import at_once, process_of
from tests.engines.store import Store

TRANSACTIONAL: Final = (Method.REQUEST_TOKEN, Method.MARKER)


def seller_of(
    store: Store, *, retries: Retries = "none", clock: Clock | None = None
) -> StrictCounters:
    """The strict counters of a new process: its own client, nothing known, no waits of its own.

    Args:
        store: where the tables are.
        retries: of the SDK; the product's own choice is none.
        clock: its clock; one that stands still unless given.
    """
    return StrictCounters(process_of(store, retries, clock))


def client_of(seller: StrictCounters) -> Any:  # noqa: ANN401 - a boto3 client
    """The client that its writes go through."""
    return seller.connection.unretried.client


def write_of(method: Method) -> str:
    """The operation by which a method writes."""
    return "TransactWriteItems" if method in TRANSACTIONAL else "UpdateItem"


def others_change(sellers: Sequence[StrictCounters], counter: str, delta: Amount = 1) -> None:
    """Other writers change a counter, all at once, and all of them succeed."""
    outcomes = at_once([partial(seller.change, counter, delta) for seller in sellers])
    failed = [outcome for outcome in outcomes if not isinstance(outcome, Applied)]
    if failed:
        raise AssertionError(f"the others were to succeed: {failed}")


def metered(dynamo: DynamoClient) -> tuple[float, float]:
    """The write and read units that a client has consumed."""
    return dynamo.meter.write_units, dynamo.meter.read_units
