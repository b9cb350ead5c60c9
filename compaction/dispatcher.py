"""The dispatcher: from a schedule's tick to messages for many workers, through a queue."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from countledger.compaction.due import SWEEP_AFTER_MS, DueIndex, SweepSegment, segments_of
from countledger.compaction.report import LastRunStore
from countledger.compaction.schedule import (
    MISSING,
    Triggers,
    decode_schedule,
    revision_of,
    unswept_since_ms,
)
from countledger.ledger import keys
from countledger.ledger.attempts import Again, Done, Pause, Send, attempt, run
from countledger.ledger.clock import Backoff
from countledger.ledger.errors import (
    BadPayload,
    ConditionFailed,
    CountledgerError,
    ServiceFailed,
    WrongRegion,
)
from countledger.ledger.limits import CALL_MESSAGES
from countledger.ledger.operations import Drop, Update
from countledger.ledger.records import is_same
from countledger.ledger.service_errors import translated
from countledger.ledger.tombstones import present

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from countledger.ledger.attempts import Answer, Reply, Step, Verdict
    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection

_KEY_NAMES: Final = frozenset({"counter", "part"})
_SENDERS: Final = 16
# So many calls are prepared at a time: memory stays bounded whatever is due.
_WINDOW: Final = 256
# With more messages than that the workers are late: due counters stay in the index, unqueued.
BACKLOG_MAX: Final = 10_000
_BACKOFF: Final = Backoff(attempts=5)


@dataclass(frozen=True, slots=True)
class CompactCounter:
    """Compact a counter, if it is still due."""

    counter: str


Work: TypeAlias = CompactCounter | SweepSegment


def encode_work(work: Work) -> str:
    if isinstance(work, CompactCounter):
        return json.dumps({"counter": work.counter}, ensure_ascii=False)
    sweep = {"namespace": work.namespace, "segment": work.segment, "segments": work.segments}
    return json.dumps({"sweep": {**sweep, "after": work.after}}, ensure_ascii=False)


def parse_work(body: str) -> Work:
    """The work in a message; BadPayload if it has another form."""
    try:
        message: Any = json.loads(body)
        if message.keys() == {"counter"}:
            return CompactCounter(keys.check_counter(message["counter"]))
        sweep = message["sweep"]
        work = SweepSegment(
            keys.check_namespace(sweep["namespace"]),
            int(sweep["segment"]),
            int(sweep["segments"]),
            sweep["after"],
        )
        if 0 <= work.segment < work.segments and _is_key(work.after):
            return work
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadPayload(f"message {body[:200]!r} is no work for a compactor ({error})") from error
    raise BadPayload(f"message {body[:200]!r} is no work for a compactor")


def _is_key(after: object) -> bool:
    return after is None or (isinstance(after, dict) and after.keys() == _KEY_NAMES)


class _Refused(ServiceFailed):
    """The queue did not take these messages."""

    def __init__(self, entries: list[Any]) -> None:
        super().__init__(f"the queue did not take {len(entries)} messages")
        self.entries = entries


def _left_of(reply: Reply[list[Any]]) -> Verdict[list[Any], CountledgerError | None]:
    """All were taken: done. Some were not: send them again. The call failed: raise its error."""
    if isinstance(reply.answer, CountledgerError):
        raise reply.answer
    refused = {one["Id"] for one in reply.answer.get("Failed", [])}
    left = [one for one in reply.state if one["Id"] in refused]
    return Again(left, _Refused(left)) if left else Done(None)


class WorkQueue:
    """The SQS queue between the dispatcher and the workers; WrongRegion outside of the home."""

    def __init__(self, connection: Connection, backoff: Backoff = _BACKOFF) -> None:
        self.connection, self.backoff = connection, backoff
        self.client, self.url = connection.queues(), connection.setting("compaction_queue_url")

    def send(self, batch: Sequence[Work]) -> int:
        """Send up to ten messages; how many the queue took in the end, by one call or more."""
        entries: list[Any] = [
            {"Id": str(number), "MessageBody": encode_work(work)}
            for number, work in enumerate(batch)
        ]
        attempts = self.connection.attempts(policy=self.backoff)
        steps = attempt(entries, Send, _left_of, lambda exhausted: exhausted.error, attempts)
        refused = run(steps, self._perform)
        return len(batch) - (len(refused.entries) if isinstance(refused, _Refused) else 0)

    def _perform(self, step: Step) -> Answer:
        if isinstance(step, Pause):
            return self.connection.clock.sleep_ms(step.wait_ms)
        with translated("SendMessageBatch to the compaction queue"):
            return self.client.send_message_batch(QueueUrl=self.url, Entries=step.operation)

    def backlog(self) -> int:
        """About how many messages wait. One call."""
        name: Final = "ApproximateNumberOfMessages"
        with translated("GetQueueAttributes of the compaction queue"):
            answer = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=[name])
        return int(answer["Attributes"][name])


def batches(work: Iterable[Work]) -> Iterator[list[Work]]:
    feed = iter(work)
    while batch := list(islice(feed, CALL_MESSAGES)):
        yield batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatched:
    """What a tick of a schedule did.

    Attributes:
        sent: how many of them the queue took; the others stay due.
        swept: whether a sweep was sent as well.
        detail: one line for people if it did nothing; else empty.
    """

    namespace: str
    due: int = 0
    sent: int = 0
    backlog: int = 0
    swept: bool = False
    detail: str = ""


class Dispatcher:
    """Sends the due counters of a namespace to the workers, unless too many messages wait."""

    def __init__(
        self,
        connection: Connection,
        queue: WorkQueue | None = None,
        *,
        backlog_max: int = BACKLOG_MAX,
    ) -> None:
        self.connection, self.index = connection, DueIndex(connection)
        self.queue, self.triggers = queue or WorkQueue(connection), Triggers(connection)
        self.backlog_max = backlog_max

    def dispatch(
        self, namespace: str, revision: str, *, deadline_ms: int | None = None
    ) -> Dispatched:
        """Send every due counter of a namespace to the workers.

        What finding them costs (see `DueIndex.due`), one read unit, one call for each ten, and two
        write units for the record of the last run. After an error of the index or the queue
        counters stay due.

        If the schedule was deleted or changed since the revision whose trigger ticked, nothing is
        sent, and that trigger is deleted. It serves a changed schedule for as long as that one has
        no trigger: a change is under way, or ended early.
        """
        namespace = keys.check_namespace(namespace)
        key = keys.schedule_key(namespace)
        item = present(self.index.dynamo.get(self.index.table, key, consistent=True))
        if item is not None:
            self._refuse_elsewhere(decode_schedule(item).region, namespace)
        left_over = self._left_over(item, namespace, revision)
        if item is None or left_over:
            # No revision comes back: this trigger will never have anything to do.
            self.triggers.delete(namespace, revision)
            return Dispatched(namespace=namespace, detail=left_over)
        last_runs = LastRunStore(self.connection)
        # Before any work is sent: what workers note belongs to this tick.
        ticked_at_ms = last_runs.begin(namespace)
        done = self._dispatch(item, namespace, deadline_ms)
        last_runs.end(namespace, ticked_at_ms, done.due, done.sent)
        return done

    def _left_over(self, item: Item | None, namespace: str, revision: str) -> str:
        """Why a trigger has nothing to do any more; empty: it has."""
        if item is None:
            return "it has no schedule"
        now = revision_of(item)
        # None only if somebody edited the item.
        if now in {revision, None} or self.triggers.state(namespace, str(now)) == MISSING:
            return ""
        return "its schedule was changed since: another trigger serves it"

    def _dispatch(self, item: Item, namespace: str, deadline_ms: int | None) -> Dispatched:
        swept = self._sweep(item, namespace)
        backlog = self.queue.backlog()
        if backlog > self.backlog_max:
            return Dispatched(
                namespace=namespace,
                backlog=backlog,
                swept=swept,
                detail="the workers are late: due counters stay due",
            )
        due, sent = self._send(namespace, deadline_ms)
        return Dispatched(namespace=namespace, due=due, sent=sent, backlog=backlog, swept=swept)

    def _send(self, namespace: str, deadline_ms: int | None) -> tuple[int, int]:
        due = sent = 0
        feed = batches(map(CompactCounter, self.index.due(namespace)))
        with self.index.dynamo.workers(_SENDERS, "countledger-dispatch") as pool:
            while window := list(islice(feed, _WINDOW)):
                due += sum(map(len, window))
                sent += sum(pool.map(self.queue.send, window))
                if deadline_ms is not None and self.connection.clock.now_ms() >= deadline_ms:
                    break
        return due, sent

    def _sweep(self, item: Item, namespace: str) -> bool:
        """Send a sweep if the schedule needs one, then note that it needs none any more."""
        since_ms = unswept_since_ms(item)
        if since_ms is None or self.connection.clock.now_ms() - since_ms < SWEEP_AFTER_MS:
            return False
        work = segments_of(namespace)
        if self.queue.send(work) < len(work):
            raise ServiceFailed(f"the sweep of namespace {namespace!r} could not be queued")
        same = is_same(item)
        clauses = (Drop("unswept_since"),)
        with suppress(ConditionFailed):  # changed since: the next tick sweeps again
            self.index.dynamo.update(
                Update(self.index.table, keys.schedule_key(namespace), clauses, same)
            )
        return True

    def _refuse_elsewhere(self, region: str, namespace: str) -> None:
        here, home = self.connection.region, self.connection.home_region
        if not here == home == region:
            raise WrongRegion(
                f"the schedule of namespace {namespace!r} is for {region}; this is {here}, "
                f"and the home region is {home}"
            )
