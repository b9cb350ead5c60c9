"""A total that includes what was recorded: the wait, its proof, its end and its cost."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest

from countledger.consumers.proof import CatchingUp
from countledger.consumers.record import ShardName
from countledger.consumers.totals import TotalsReader
from countledger.ledger import keys
from countledger.ledger.errors import NamespaceUnknown, TotalBehind, WrongKind
from countledger.ledger.namespace import Kind, Namespaces
from countledger.ledger.operations import Delete
from countledger.ledger.total import Total
from countledger.producers.event import Event
from tests.engines.clock import HandClock
from tests.engines.store import Store


@dataclass
class ConsumingClock(HandClock):
    """A clock during whose sleeps something happens elsewhere, one thing in each.

    Attributes:
        steps: what happens.
    """

    steps: Iterator[Callable[[], object]] = field(default_factory=lambda: iter(()))

    def sleep_ms(self, duration_ms: float) -> None:
        """The next thing happens."""
        HandClock.sleep_ms(self, duration_ms)
        next(self.steps, lambda: None)()


def _catching_up(store: Store, *steps: Callable[[], object]) -> CatchingUp:
    clock = ConsumingClock(steps=iter(steps))
    return CatchingUp(store.process(clock))


def _record(store: Store, counter: str, *deltas: int) -> None:
    recorder = store.recorder()
    for delta in deltas:
        recorder.record(Event(counter, delta))


def _consumer(
    store: Store, counter: str, count: int, *, of_own_shards: bool = False
) -> list[Callable[[], object]]:
    """What applies so many records of a counter, each by itself, in the order of their entries."""
    found = [
        (shard, record)
        for shard, records in store.records(counter, count).items()
        for record in records
    ]
    found.sort(key=lambda one: int(one[1]["dynamodb"]["NewImage"]["delta"]["N"]))
    if of_own_shards:
        found = [(ShardName(counter, f"shardId-{n}"), one) for n, (_, one) in enumerate(found)]
    return [partial(store.materializer().apply, [record], shard) for shard, record in found]


def test_the_total_of_the_wait_includes_every_acknowledged_entry(
    store: Store, counter: str
) -> None:
    """It is read again until the consumer has applied as many entries as the ledger had."""
    _record(store, counter, 3, 5, 7)

    waiting = _catching_up(store, *_consumer(store, counter, 3))

    assert store.totals().read(counter).value == 0
    assert waiting.read(counter, timeout_s=10).value == 15


def test_an_entry_recorded_during_the_wait_is_not_waited_for(store: Store, counter: str) -> None:
    """Other writers do not keep a counter without spread from an answer."""
    _record(store, counter, 3)
    first = _consumer(store, counter, 1)

    waiting = _catching_up(store, lambda: _record(store, counter, 100), *first)

    assert waiting.read(counter, timeout_s=10).value == 3


def test_as_many_entries_of_a_spread_counter_are_not_the_same_entries(
    store: Store, counter: str, namespace: str
) -> None:
    """The ledger had one entry, and the total counts one; but a later one, of another shard."""
    store.namespaces().create(namespace, spread=16)
    _record(store, counter, 3)
    steps: list[Callable[[], object]] = []

    def another_is_recorded_and_applied_first() -> None:
        _record(store, counter, 100)
        steps.extend(_consumer(store, counter, 2, of_own_shards=True))
        steps.pop()()

    def the_first_is_applied() -> None:
        steps.pop()()

    waiting = _catching_up(store, another_is_recorded_and_applied_first, the_first_is_applied)

    answer = waiting.read(counter, timeout_s=10)

    assert answer.value == 103


def test_a_late_consumer_ends_the_wait_with_the_number_of_missing_entries(
    store: Store, counter: str
) -> None:
    _record(store, counter, 3, 5)
    waiting = _catching_up(store, *_consumer(store, counter, 2)[:1])

    with pytest.raises(TotalBehind, match=r"lacks 1 of 2 recorded entries after 2 s"):
        waiting.read(counter, timeout_s=2)

    assert isinstance(waiting.connection.clock, ConsumingClock)
    assert sum(waiting.connection.clock.slept_ms) == pytest.approx(2_000, abs=5)


def test_a_total_that_counts_more_than_its_ledger_proves_nothing(
    store: Store, counter: str
) -> None:
    """An entry was deleted by hand: the number of entries is that of other entries."""
    _record(store, counter, 3, 5)
    for step in _consumer(store, counter, 2):
        step()
    item, *_ = store.entry_items(counter)
    store.dynamo().delete(Delete(store.ledger, {"counter": counter, "entry": item["entry"]}))

    with pytest.raises(TotalBehind, match="counts 2 entries and its ledger has 1"):
        _catching_up(store).read(counter, timeout_s=10)


@pytest.mark.parametrize("deltas", [(300, 500), (300,)], ids=["as many entries", "fewer"])
def test_the_total_of_a_deleted_counter_is_not_that_of_the_next_one(
    store: Store, counter: str, monkeypatch: pytest.MonkeyPatch, deltas: tuple[int, ...]
) -> None:
    """An eventually consistent read shows it a moment longer, and both count as many entries."""
    _record(store, counter, 100, 200)
    for step in _consumer(store, counter, 2):
        step()
    deleted = store.totals().identified(counter)
    for item in store.entry_items(counter):
        key = {"counter": counter, "entry": item["entry"]}
        store.dynamo().delete(Delete(store.ledger, key))
    store.dynamo().delete(Delete(store.counters, keys.total_key(counter)))
    _record(store, counter, *deltas)
    for step in _consumer(store, counter, 2 + len(deltas))[-len(deltas) :]:
        step()
    current, shown = TotalsReader.identified, [deleted]

    def late(
        self: TotalsReader, counter: str, *, consistent: bool = False
    ) -> tuple[Total, str | None]:
        return shown.pop() if shown else current(self, counter, consistent=consistent)

    monkeypatch.setattr(TotalsReader, "identified", late)

    assert _catching_up(store).read(counter, timeout_s=10).value == sum(deltas)


def test_p9_the_units_of_an_answer_without_a_wait(store: Store, counter: str) -> None:
    """Half a unit for the total, an exact read, and a unit for the last look at the total."""
    _record(store, counter, 3)
    for step in _consumer(store, counter, 1):
        step()
    waiting = _catching_up(store)
    Namespaces(waiting.connection).expect(counter, Kind.LEDGER)
    meter = waiting.connection.retrying.meter
    before = meter.read_units

    assert waiting.read(counter, timeout_s=10).value == 3
    assert meter.read_units - before == store.exact().read(counter).read_units + 1.5


def test_only_a_ledger_is_waited_for(store: Store, counter: str, namespace: str) -> None:
    with pytest.raises(NamespaceUnknown):
        _catching_up(store).read(counter, timeout_s=10)
    store.namespaces().create(namespace, kind=Kind.STRICT)
    with pytest.raises(WrongKind):
        _catching_up(store).read(counter, timeout_s=10)
