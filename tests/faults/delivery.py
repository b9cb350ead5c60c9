"""Delivers records to the real materializer, as the event source mapping does; what that leaves."""

from collections.abc import Iterable, Sequence
from typing import Final

from countledger.consumers.materializer import Materializer
from countledger.consumers.record import ShardName, find
from countledger.ledger import amount
from countledger.producers.event import Event
from tests.engines.store import Record, Store
from tests.faults.canary import WrongNumber
from tests.faults.recording import recorder_of

# The service tries for ever; a test that needs more of it has found a record that blocks.
_DELIVERIES: Final = 8


def written(store: Store, *counters: str, each: int = 12) -> tuple[ShardName, list[Record]]:
    """Write entries of 1, 2, 4, ... to counters in turn: their records, from the real stream."""
    events = (Event(counter, 2**n) for n in range(each) for counter in counters)
    recorder = recorder_of(store)
    for event in events:
        recorder.record(event)
    found = store.stream_records(
        lambda record: record["dynamodb"]["Keys"]["counter"]["S"] in counters,
        each * len(counters),
    )
    ((shard, records),) = found.items()
    return shard, records


def deliver(materializer: Materializer, records: Sequence[Record], shard: ShardName) -> int:
    """Deliver a batch until all of it is handled, from the checkpoint each time.

    Returns:
        How many deliveries that took; after the last one that a test grants it is left alone.
    """
    rest = list(records)
    for delivery in range(1, _DELIVERIES + 1):
        outcome = materializer.apply(rest, shard)
        if outcome.retry_from is None:
            return delivery
        rest = rest[rest.index(find(rest, outcome.retry_from)) :]
    return _DELIVERIES


def expect_total(store: Store, counter: str, quarantined: Iterable[Record] = ()) -> None:
    """The total is the ledger's sum, less what lies in the quarantine.

    Raises:
        WrongNumber: it is not.
    """
    exact = store.exact().read(counter)
    total = store.totals().read(counter)
    # A record may lie in the quarantine more than once.
    aside = {
        record["dynamodb"]["SequenceNumber"]: record["dynamodb"]["NewImage"]["delta"]["N"]
        for record in quarantined
    }
    known = amount.add(total.value, amount.total_of(map(amount.from_number, aside.values())))
    if (known, total.entries + len(aside)) != (exact.value, exact.entries):
        raise WrongNumber(
            f"total of {counter}: {total.value} of {total.entries} entries and {aside} aside, "
            f"instead of {exact.value} of {exact.entries}"
        )
