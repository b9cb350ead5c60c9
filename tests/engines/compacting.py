"""A compactor on an engine, some time after the entries were made."""

from dataclasses import replace
from random import Random

from countledger.compaction.archive import Archive
from countledger.compaction.compactor import Compactor
from countledger.compaction.report import Retire
from countledger.ledger.limits import DAY_MS
from countledger.producers.event import Event
from tests.engines.clock import HandClock
from tests.engines.store import Store


def fill(store: Store, counter: str, count: int, *, keyed: bool = False) -> None:
    """Record entries 1, 2, ... `count`."""
    events = [
        Event(counter, number, f"key {number}" if keyed else None) for number in range(1, count + 1)
    ]
    outcomes = list(store.recorder().record_many(events))
    assert [getattr(one, "status", one) for one in outcomes] == ["recorded"] * count


def two_days_later() -> HandClock:
    """A clock at which the entries made now are old enough."""
    clock = HandClock()
    clock.move_ms(2 * DAY_MS)
    return clock


def compactor(
    store: Store,
    *,
    clock: HandClock | None = None,
    retire: Retire = Retire.TRANSACTION,
    archive: Archive | None = None,
    covers_max: int = 5,
    workers: int = 1,
) -> Compactor:
    """A compactor of a process of its own."""
    jitter = Random(7)  # noqa: S311 - jitter
    clock = clock or two_days_later()
    connection = replace(store.connection, clock=clock, random=jitter, _shared={})
    return Compactor(connection, retire, archive, covers_max=covers_max, workers=workers)
