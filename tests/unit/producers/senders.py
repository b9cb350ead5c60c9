"""A recorder over tables in memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from countledger.ledger.attempts import DynamoPerformer, Steps, run
from countledger.ledger.clock import Clock
from countledger.ledger.connection import Retries
from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.entry import Entry
from countledger.ledger.ids import Ids
from countledger.producers.recorder import Recorder
from countledger.producers.sender import Outcome, OutcomeList, Sender, ledgers_of
from tests.unit.connections import UnitConnection, connection_on
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import MemoryClient

TABLE = "ledger"
REGION = "eu-west-1"

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class EntriesConnection(UnitConnection):
    """A process whose reads and namespaces have a client of their own: faults hit entries only.

    Attributes:
        before_client: called before a client for entries is made.
    """

    before_client: Callable[[], object] = lambda: None

    def dynamo(self, retries: Retries, *, region: str | None = None) -> DynamoClient:
        """The client of the test."""
        if retries == "none":
            self.before_client()
        return super().dynamo(retries, region=region)

    def run(self, steps: Steps[_T]) -> _T:
        """As a namespace is written."""
        return run(steps, DynamoPerformer(self.retrying, self.retrying, self.clock))


def process_on(
    dynamo: MemoryClient,
    clock: Clock | None = None,
    *,
    reads: MemoryClient | None = None,
    before_client: Callable[[], object] = lambda: None,
    **settings: Any,  # noqa: ANN401 - as of `connection_on`
) -> EntriesConnection:
    """A process that makes ids as the product does.

    Args:
        dynamo: writes its entries.
        clock: of the process.
        reads: reads, and makes namespaces; None: one without faults.
        before_client: called before a client for entries is made.
        **settings: as of `connection_on`.
    """
    reads = reads or MemoryClient(tables=dynamo.tables)
    return of_entries(connection_on(dynamo, clock, retrying=reads, **settings), before_client)


def of_entries(
    process: UnitConnection, before_client: Callable[[], object] = lambda: None
) -> EntriesConnection:
    """The same process, whose namespaces are written by the client that reads."""
    own = {one.name: getattr(process, one.name) for one in fields(UnitConnection)}
    return EntriesConnection(**{**own, "ids": Ids()}, before_client=before_client)


def sender_on(dynamo: MemoryClient, clock: ManualClock) -> Sender:
    """A sender at the home region."""
    return Sender(process_on(dynamo, clock))


def recorder_on(dynamo: MemoryClient, clock: ManualClock | None = None) -> Recorder:
    """A recorder at the home region."""
    return Recorder(process_on(dynamo, clock))


def entries_in(dynamo: MemoryClient) -> list[object]:
    """The deltas of the entries in the table."""
    return [item["delta"] for item in dynamo.items(TABLE) if item["entry"].startswith("e#")]


def sent(sender: Sender, entries: Sequence[Entry]) -> list[Outcome]:
    """What becomes of the entries of a batch."""
    counters = [one.counter for one in entries]
    namespaces, _ = ledgers_of(counters, sender.namespaces, ())
    others = sender.send_batch(entries, namespaces)
    return [*OutcomeList(counters, [one.id for one in entries], others)]
