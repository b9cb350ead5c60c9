"""The functions of a stack in memory: the product's own code, run in the caller's thread.

    materializer  applies the records of the stream of `ledger` to totals and windows
    evaluator     compares the records of the stream of `counters` with the rules
    releaser      releases expired holds

A batch that fails stays where it is, and is delivered again with the next delivery, as Lambda does.
"""

from __future__ import annotations

import json
from base64 import b64encode
from contextvars import Context
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from countledger.consumers.alerts.evaluator import Evaluator
from countledger.consumers.alerts.rule_index import RuleCache
from countledger.consumers.alerts.rules import Rules
from countledger.consumers.alerts.service import ConnectedServices
from countledger.consumers.materializer import Materializer
from countledger.consumers.progress import PassedShards
from countledger.consumers.quarantine import StoredQuarantine
from countledger.consumers.record import ShardName, label_of
from countledger.consumers.total_writer import due_rule_of, rank_clauses_of, windows_of
from countledger.ledger import keys
from countledger.ledger.errors import CountledgerError
from countledger.ledger.limits import HOUR_MS
from countledger.ledger.message_queue import MessageQueue
from countledger.ledger.quarantine import QuarantineSource, QuarantineStore
from countledger.producers.strict.release import OverdueHolds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from countledger.infra.memory.stack import MemoryConnection
    from countledger.infra.memory.stream import Record, Stream

_BATCH: Final = 1_000


class DeliveryFailed(CountledgerError):
    """A function could not apply a record, which is delivered again with the next delivery."""


@dataclass
class StreamDelivery:
    """Delivers one stream to one function, in order, from where it was before.

    `function` returns the sequence number of the first record to deliver again, or None.
    """

    stream: Stream
    passes: Callable[[Mapping[str, Any]], bool]
    function: Callable[[Sequence[Mapping[str, Any]], ShardName], int | None]
    _handled: dict[str, int] = field(default_factory=dict)
    _batches: list[tuple[str, list[dict[str, Any]]]] = field(default_factory=list)

    def step(self) -> bool:
        """Deliver one batch of each shard; whether there was any."""
        delivered = [self._deliver_shard(shard) for shard in list(self.stream.shards)]
        return any(delivered)

    def again(self, batches: int) -> int:
        """How many records were delivered again."""
        last = self._batches[-batches:]
        for shard, records in last:
            self.function(records, self._name(shard))
        return sum(len(records) for _, records in last)

    def _deliver_shard(self, shard: str) -> bool:
        found, last, _ = self.stream.page(shard, self._handled.get(shard, 0), _BATCH)
        if not found:
            return False
        delivered = (lambda_record(one, self.stream.arn) for one in found)
        records = [one for one in delivered if self.passes(one)]
        retry_from = self.function(records, self._name(shard)) if records else None
        if retry_from is not None:
            self._handled[shard] = retry_from - 1
            raise DeliveryFailed(
                f"record {retry_from} of {self.stream.arn} could not be applied: it is delivered "
                "again with the next delivery"
            )
        self._handled[shard] = last
        if records:
            self._batches.append((shard, records))
        return True

    def _name(self, shard: str) -> ShardName:
        return ShardName(label_of(self.stream.arn), shard)


@dataclass(eq=False)
class StackFunctions:
    """The functions of one stack.

    Attributes:
        connection: with clients that meet no planned faults and cause no delivery.
    """

    connection: MemoryConnection
    failures: list[CountledgerError] = field(default_factory=list)
    _delivering: Lock = field(default_factory=Lock)

    def deliver(self) -> None:
        """Deliver until nothing is left; what a failed function did not handle comes again."""
        with self._delivering:
            # A request of an app may be guarded by a deadline of its own.
            Context().run(self._deliver_all)

    def deliver_quietly(self) -> None:
        """As `deliver`; an error is kept, because the write before it has succeeded."""
        try:
            self.deliver()
        except CountledgerError as error:
            self.failures.append(error)

    def redeliver(self, batches: int) -> int:
        """How many records of both streams were delivered again."""
        with self._delivering:
            ran: int = Context().run(
                lambda: self.ledger.again(batches) + self.counters.again(batches)
            )
        self.deliver()
        return ran

    def release_holds(self) -> int:
        """How many expired holds were released."""
        report = Context().run(
            lambda: self._holds.release(self.connection.clock.now_ms() + HOUR_MS)
        )
        return report.released

    def _deliver_all(self) -> None:
        while self.ledger.step() or self.counters.step():
            pass

    @cached_property
    def ledger(self) -> StreamDelivery:
        """From the stream of `ledger` to the materializer."""
        stream = self.connection.memory.ledger_stream
        return StreamDelivery(stream, passes_ledger, self._materialize)

    @cached_property
    def counters(self) -> StreamDelivery:
        """From the stream of `counters` to the evaluator."""
        stream = self.connection.memory.counters_stream
        return StreamDelivery(stream, passes_counters, self._evaluate)

    def _materialize(self, records: Sequence[Mapping[str, Any]], shard: ShardName) -> int | None:
        return self._materializer.apply(records, shard).retry_from

    def _evaluate(self, records: Sequence[Mapping[str, Any]], shard: ShardName) -> int | None:
        return self._evaluator.apply(records, shard.stream).retry_from

    @cached_property
    def _materializer(self) -> Materializer:
        to = self.connection
        return Materializer(
            to,
            self._quarantine(QuarantineSource.LEDGER),
            due_rule_of(to),
            rank_clauses_of(to),
            passed=PassedShards(to.late_write_ms),
            windows=windows_of(to, on_corrupt=self.failures.append),
        )

    @cached_property
    def _evaluator(self) -> Evaluator:
        to, services = self.connection, ConnectedServices(self.connection)
        return Evaluator(
            to,
            RuleCache(Rules(to)),
            services.publisher,
            services.dead_letters,
            self._quarantine(QuarantineSource.COUNTERS),
            windows_of(to),
        )

    @cached_property
    def _holds(self) -> OverdueHolds:
        return OverdueHolds(self.connection)

    def _quarantine(self, source: QuarantineSource) -> StoredQuarantine:
        to = self.connection
        url = to.setting("quarantine_queue_url")
        return StoredQuarantine(
            QuarantineStore(to), MessageQueue(to.queues(), url, "the quarantine"), source
        )


def passes_ledger(record: Mapping[str, Any]) -> bool:
    """The filter of the materializer's mapping: new and changed entries."""
    key: str = record["dynamodb"]["Keys"]["entry"]["S"]
    return record["eventName"] != "REMOVE" and key.startswith(keys.ENTRY_PREFIX)


def passes_counters(record: Mapping[str, Any]) -> bool:
    """The filter of the evaluator's mapping: new and changed totals and windows."""
    key: str = record["dynamodb"]["Keys"]["part"]["S"]
    watched = key == keys.TOTAL or key.startswith(keys.WINDOW_PREFIX)
    return record["eventName"] != "REMOVE" and watched


def lambda_record(record: Record, arn: str) -> dict[str, Any]:
    """A record as Lambda delivers it: times as numbers, binaries as base64."""
    delivered = {**record.made(), "eventSourceARN": arn}
    plain: dict[str, Any] = json.loads(json.dumps(delivered, default=_plain))
    return plain


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return int(value.timestamp())
    if isinstance(value, bytes):
        return b64encode(value).decode()
    raise TypeError(f"a stream record contains {value!r}, which has no JSON form")
