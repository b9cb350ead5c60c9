"""What deletes counters on an engine, at a time of the test's choosing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from countledger.compaction.deletion import RegionalTotals
from countledger.compaction.deletions import LedgerDeleter
from countledger.consumers.groups import Groups
from countledger.consumers.leftovers import Leftovers
from countledger.consumers.totals import TotalsReader
from countledger.ledger import keys
from countledger.ledger.attributes import Item
from countledger.ledger.operations import Put, Scan
from countledger.producers.event import Event
from tests.engines.clock import HandClock
from tests.engines.compacting import compactor
from tests.engines.store import Store

COUNT = 3
SUM = COUNT * (COUNT + 1) // 2


@dataclass
class Deleting:
    """A deleter on a store, to which every total counts as proven.

    Attributes:
        store: the store.
        clock: the deleter's, and its compactor's.
    """

    store: Store
    clock: HandClock

    @property
    def groups(self) -> Groups:
        """The groups of the store."""
        return Groups(self.store.process(self.clock))

    def deleter(self) -> LedgerDeleter:
        """A process of its own."""
        made = compactor(self.store, clock=self.clock)
        totals = TotalsReader(made.connection, of_ledgers=True)
        return LedgerDeleter(
            made.connection,
            lambda _: RegionalTotals(
                totals.item,
                lambda _: None,
                lambda _: None,
                Leftovers(self.store.process(self.clock)).delete,
            ),
            made,
        )

    def fill(self, counter: str) -> None:
        """Three entries and their total, an alert's state and log, a membership."""
        events = [Event(counter, number) for number in range(1, COUNT + 1)]
        for outcome in self.store.recorder(clock=self.clock).record_many(events):
            assert getattr(outcome, "status", outcome) == "recorded"
        at_ms = self.clock.now_ms()
        state: Item = {**keys.alert_state_key(counter, "rule"), "at": at_ms, "told": True}
        log: list[Item] = [
            {**key, "rule": "rule"} for key in keys.alert_log_keys(counter, "rule", 1, at_ms)
        ]
        total = {"total": SUM, "events": COUNT, "entries": COUNT, "version": 1, "updated_at": at_ms}
        for item in ({**keys.total_key(counter), **total}, state, *log):
            self.store.dynamo().put(Put(self.store.counters, item))
        self.groups.add(f"{keys.namespace_of(counter)}-group", [counter])

    def kept(self, counter: str) -> list[Item]:
        """All that any table holds of a counter, but tombstones: the time to live deletes them."""
        found = []
        for table in (self.store.ledger, self.store.counters):
            for page in self.store.dynamo().pages(Scan(table)):
                items = [item for item in page if "removed" not in item]
                found += [item for item in items if _tells_of(item, counter)]
        return found


@contextmanager
def before_deletion(deleter: LedgerDeleter, act: Callable[[], object]) -> Iterator[None]:
    """Let something happen just before the transaction that empties the counter is sent."""

    def note(params: Any, **_: object) -> None:  # noqa: ANN401 - botocore's request
        if b"deletion#" in params["body"]:
            act()

    client, event = deleter.marks.dynamo.client, "before-call.dynamodb.TransactWriteItems"
    events = client.meta.events
    events.register(event, note)
    try:
        yield
    finally:
        events.unregister(event, note)


def _tells_of(item: Item, counter: str) -> bool:
    sort_key = str(item.get("part") or item["entry"])
    return item["counter"] == counter or counter in sort_key
