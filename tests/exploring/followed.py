"""Totals that follow at once: the product's own materializer, as a part of the write that it sees.

So the schedules of a world are those of its calls; how late a stream is, the simulation explores.
The record of a write gets the number after the one that the stored progress names: what follows
from a state depends on that state alone. The streams API shows the actors a shard without records,
because all of them are handled.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from countledger.consumers.materializer import Materializer
from countledger.consumers.record import ShardName, label_of
from countledger.infra.memory.client import TableClient
from countledger.infra.memory.functions import lambda_record, passes_ledger
from countledger.infra.memory.stream import Record
from countledger.infra.memory.tables import COUNTERS, LEDGER, REGION, MemoryTables
from countledger.ledger import keys
from tests.unit.connections import connection_on

if TYPE_CHECKING:
    from collections.abc import Mapping

    from countledger.infra.memory.tables import Change, Table, Transactions
from tests.exploring.world import World, in_region

_T = TypeVar("_T")
STREAM: Final = MemoryTables().ledger_stream
SHARD: Final = ShardName(label_of(STREAM.arn), next(iter(STREAM.shards)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectClient(TableClient):
    """Carries each request out at once: it is a part of the step that caused it."""

    world: World
    region: str = REGION

    def table(self, name: str) -> Table:
        """A table of the world."""
        return self.world.tables[in_region(name, self.region)]

    def transactions(self) -> Transactions:
        """Those of the world."""
        return self.world.transactions_in(self.region)

    @property
    def page_items(self) -> int:
        """The most items of one page."""
        return 1_000

    def read(self, what: str, request: Callable[[], _T]) -> _T:  # noqa: ARG002 - of `TableClient`
        """Carry it out."""
        return request()

    def written(self, what: str, request: Callable[[], _T]) -> _T:  # noqa: ARG002 - of `TableClient`
        """Carry it out."""
        return request()


@dataclass(frozen=True, slots=True)
class StateClock:
    """The time of the state that is looked at."""

    world: World

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self.world.now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        """Nothing of a step waits."""
        raise AssertionError(f"the materializer waits for {duration_ms} ms")


class NoQuarantine:
    """Every record of these worlds can be applied."""

    def put(self, record: Mapping[str, Any], reason: str, shard: str) -> None:
        """Refuse it."""
        raise AssertionError(f"{reason}: {record!r} of {shard}")


def let_totals_follow(world: World, region: str = REGION) -> None:
    """Apply each change of a region's ledger to its totals, in the step that makes it.

    No transaction of these worlds writes both entries and a total.
    """
    counters = world.tables[in_region(COUNTERS, region)]

    def apply(change: Change) -> None:
        place = keys.progress_key(str(SHARD))
        progress = counters.items.get((place["counter"], place["part"]), {})
        record = Record(
            sequence=int(progress.get("sequence", "0")) + 1,
            made_ms=world.now_ms,
            visible_ms=world.now_ms,
            key=change.key,
            before=change.before,
            after=change.after,
            sort=change.table.sort,
        )
        delivered = lambda_record(record, STREAM.arn)
        if not passes_ledger(delivered):
            return
        clock = StateClock(world)
        connection = connection_on(
            DirectClient(world=world, region=region, clock=clock), clock, counters_table=COUNTERS
        )
        following = Materializer(connection, NoQuarantine())
        outcome = Context().run(following.apply, [delivered], SHARD)
        if outcome.failed:
            raise AssertionError(outcome.failed)

    world.tables[in_region(LEDGER, region)].watchers.append(apply)
