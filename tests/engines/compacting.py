"""A compactor on an engine, some time after the entries were made."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any

from countledger.compaction.archive import Archive
from countledger.compaction.compactor import Compactor
from countledger.compaction.ledger_deletion import LedgerDeleter
from countledger.compaction.plan import limits_by
from countledger.compaction.regions import Regions
from countledger.compaction.retire import Retire
from countledger.ledger.limits import DAY_MS
from countledger.producers.event import Event
from tests.engines.clock import HandClock
from tests.engines.store import Store
from tests.faults.injection import Crash

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


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
    clock = clock or two_days_later()
    return Compactor(
        Regions.of(store.connection, clock),
        store.namespaces(),
        limits_by(store.connection.settings),
        retire,
        archive,
        clock=clock,
        random=Random(7),  # noqa: S311 - jitter
        covers_max=covers_max,
        workers=workers,
    )


@contextmanager
def crash_at(made: Compactor | LedgerDeleter, number: int, when: str) -> Iterator[list[str]]:
    """The process dies at a call of the service.

    Args:
        made: whose calls.
        number: which call, from 0.
        when: `before-call`: it is never sent; `after-call`: nobody hears the answer.

    Yields:
        The calls that were made.
    """
    with at_call(made, number, when, _crash) as calls:
        yield calls


def _crash() -> None:
    raise Crash


@contextmanager
def at_call(
    made: Compactor | LedgerDeleter, number: int, when: str, act: Callable[[], None]
) -> Iterator[list[str]]:
    """Let something happen at a call of the service."""
    calls: list[str] = []

    def note(model: Any, **_: object) -> None:  # noqa: ANN401 - botocore's operation
        calls.append(model.name)
        if len(calls) == number + 1:
            act()

    events, event = made.regions.home.client.meta.events, f"{when}.dynamodb"
    events.register(event, note)
    try:
        yield calls
    finally:
        events.unregister(event, note)


@contextmanager
def asleep_before(
    client: "DynamoDBClient", operation: str, act: Callable[[], None]
) -> Iterator[None]:
    """The process stands still before the next such request is signed, and goes on after that."""
    events, event = client.meta.events, f"before-call.dynamodb.{operation}"
    left = [act]

    def sleep(**_: object) -> None:
        if left:
            left.pop()()

    events.register(event, sleep)
    try:
        yield
    finally:
        events.unregister(event, sleep)
