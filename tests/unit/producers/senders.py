"""A recorder over tables in memory."""

from collections.abc import Sequence
from random import Random

from countledger.ledger.entry import Entry
from countledger.ledger.namespace import Namespaces
from countledger.producers.recorder import Outcome, OutcomeList, Recorder, ledgers_of
from countledger.producers.sender import Sender
from tests.unit.connections import connection_on
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import MemoryClient

TABLE = "ledger"
REGION = "eu-west-1"


def sender_on(dynamo: MemoryClient, clock: ManualClock) -> Sender:
    """A sender whose namespaces have a client of their own, so that faults hit entries only."""
    namespaces = Namespaces(connection_on(MemoryClient(tables=dynamo.tables)))
    return Sender(dynamo, TABLE, namespaces, clock, Random(7))  # noqa: S311 - jitter


def recorder_on(dynamo: MemoryClient, clock: ManualClock | None = None) -> Recorder:
    """A recorder at the home region."""
    clock = clock or ManualClock()
    return Recorder(sender_on(dynamo, clock), REGION, clock)


def entries_in(dynamo: MemoryClient) -> list[object]:
    """The deltas of the entries in the table."""
    return [item["delta"] for item in dynamo.items(TABLE) if item["entry"].startswith("e#")]


def sent(sender: Sender, entries: Sequence[Entry]) -> list[Outcome]:
    """What becomes of the entries of a batch."""
    counters = [one.counter for one in entries]
    namespaces, _ = ledgers_of(counters, sender.namespaces, ())
    others = sender.send_batch(entries, namespaces)
    return [*OutcomeList(counters, [one.id for one in entries], others)]
