"""The dispatcher: from a schedule's tick to work for many workers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from countledger.compaction.last_run import LastRunStore
from countledger.compaction.schedule import decode_schedule, unswept_since_ms
from countledger.compaction.sweep import SETTLED_MS, segments_of
from countledger.compaction.work import CompactCounter
from countledger.compaction.work_queue import batches
from countledger.ledger import keys
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import ConditionFailed, ServiceFailed, WrongRegion
from countledger.ledger.expressions import Compare, Drop
from countledger.ledger.operations import Update

if TYPE_CHECKING:
    from countledger.compaction.due import DueIndex
    from countledger.compaction.work_queue import WorkQueue
    from countledger.ledger.attributes import Item

_SENDERS: Final = 16
# So many calls are prepared at a time: memory stays bounded whatever is due.
_WINDOW: Final = 256
# Beyond this the workers are behind: what is due stays in the index, and is not queued again.
BACKLOG_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatched:
    """What a tick of a schedule did.

    Attributes:
        namespace: whose counters.
        due: how many due counters were found.
        sent: how many of them the queue took; the others stay due.
        backlog: about how many messages waited before.
        swept: whether a sweep was sent as well.
        detail: one line for people, where it did nothing; else empty.
    """

    namespace: str
    due: int = 0
    sent: int = 0
    backlog: int = 0
    swept: bool = False
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """Sends the due counters of a namespace to the workers.

    Attributes:
        index: the due index.
        queue: where the workers take their work from.
        region: where this process works.
        home_region: where counters are compacted.
        clock: tells the time.
        backlog_max: from how many waiting messages on nothing is sent.
    """

    index: DueIndex
    queue: WorkQueue
    region: str
    home_region: str
    clock: Clock = field(default_factory=SystemClock)
    backlog_max: int = BACKLOG_MAX

    def dispatch(self, namespace: str, *, deadline_ms: int | None = None) -> Dispatched:
        """Send every due counter of a namespace to the workers.

        What finding them costs (see `DueIndex.due`), one read unit, one call for each ten, and two
        write units for the run book.

        Raises:
            WrongRegion: the schedule, or this process, is not of the home region.
            CorruptItem: the schedule cannot be read.
            ServiceFailed: the index or the queue failed; what is due stays due.
        """
        key = keys.schedule_key(keys.check_namespace(namespace))
        item = self.index.dynamo.get(self.index.table, key, consistent=True)
        if item is None:
            # Deleted a moment ago, or a crash left its trigger behind.
            return Dispatched(namespace=namespace, detail="it has no schedule")
        self._refuse_elsewhere(decode_schedule(item).region, namespace)
        book = LastRunStore(self.index.dynamo, self.index.table, self.clock)
        # Before any work is sent: what workers note belongs to this tick.
        ticked_at_ms = book.begin(namespace)
        done = self._dispatch(item, namespace, deadline_ms)
        book.end(namespace, ticked_at_ms, done.due, done.sent)
        return done

    def _dispatch(self, item: Item, namespace: str, deadline_ms: int | None) -> Dispatched:
        swept = self._sweep(item, namespace)
        backlog = self.queue.backlog()
        if backlog > self.backlog_max:
            return Dispatched(
                namespace=namespace,
                backlog=backlog,
                swept=swept,
                detail="the workers are behind: what is due stays due",
            )
        due, sent = self._send(namespace, deadline_ms)
        return Dispatched(namespace=namespace, due=due, sent=sent, backlog=backlog, swept=swept)

    def _send(self, namespace: str, deadline_ms: int | None) -> tuple[int, int]:
        due = sent = 0
        feed = batches(map(CompactCounter, self.index.due(namespace)))
        with ThreadPoolExecutor(_SENDERS, "countledger-dispatch") as pool:
            while window := list(islice(feed, _WINDOW)):
                due += sum(map(len, window))
                sent += sum(pool.map(self.queue.send, window))
                if deadline_ms is not None and self.clock.now_ms() >= deadline_ms:
                    break
        return due, sent

    def _sweep(self, item: Item, namespace: str) -> bool:
        """Send a sweep where one is owed, then note that it is not owed any more."""
        since_ms = unswept_since_ms(item)
        if since_ms is None or self.clock.now_ms() - since_ms < SETTLED_MS:
            return False
        work = segments_of(namespace)
        if self.queue.send(work) < len(work):
            raise ServiceFailed(f"the sweep of namespace {namespace!r} could not be queued")
        same = Compare("unswept_since", "=", since_ms)
        clauses = (Drop("unswept_since"),)
        with suppress(ConditionFailed):  # changed again meanwhile: another sweep is owed for that
            self.index.dynamo.update(
                Update(self.index.table, keys.schedule_key(namespace), clauses, same)
            )
        return True

    def _refuse_elsewhere(self, region: str, namespace: str) -> None:
        if not self.region == self.home_region == region:
            raise WrongRegion(
                f"the schedule of namespace {namespace!r} is for {region}; this is {self.region}, "
                f"and the home region is {self.home_region}"
            )
