"""Counters are deleted wholly, exactly, and no other with them; wherever a call is interrupted."""

import pytest

from countledger.compaction.deletion import DeletionStage
from countledger.compaction.lease import LeaseTerms
from countledger.compaction.report import RunOutcome
from countledger.ledger import keys
from countledger.ledger.errors import NamespaceUnknown, NoSuchCounter
from countledger.ledger.expressions import Add
from countledger.ledger.limits import DAY_MS, HOUR_MS
from countledger.ledger.operations import Update
from countledger.producers.event import Event
from tests.engines.clock import HandClock
from tests.engines.compacting import compactor
from tests.engines.deleting import COUNT, SUM, Deleting, before_deletion
from tests.engines.store import Store
from tests.faults.injection import before_call

_LATER_MS = 2 * DAY_MS


def _numbers(store: Store, counter: str) -> tuple[object, object]:
    return store.exact().read(counter).value, store.totals().read(counter, consistent=True).value


def _later(clock: HandClock, duration_ms: int = _LATER_MS) -> HandClock:
    return HandClock(clock.at_ms + duration_ms)


def test_a_counter_is_marked_emptied_and_forgotten(store: Store, namespace: str) -> None:
    """Numbers stay until nothing can arrive any more, then go at once; a day later the name."""
    counter, other = f"{namespace}:counter", f"{namespace}:counter2"
    now = Deleting(store, HandClock())
    for name in (counter, other):
        now.fill(name)
    before = now.kept(other)

    marked = now.deleter().delete(counter)
    waiting = Deleting(store, _later(now.clock, DAY_MS)).deleter().delete(counter)
    between = _numbers(store, counter)
    later = Deleting(store, _later(now.clock))
    deleted = later.deleter().delete(counter)
    again = later.deleter().delete(counter)
    empty = _numbers(store, counter)
    forgotten = Deleting(store, _later(now.clock, 2 * _LATER_MS)).deleter().delete(counter)

    assert (marked.stage, waiting.stage) == (DeletionStage.MARKED, DeletionStage.WAITING)
    assert waiting.next_at_ms is not None
    assert now.clock.at_ms + DAY_MS < waiting.next_at_ms <= now.clock.at_ms + _LATER_MS
    assert between == (SUM, SUM)
    assert (deleted.stage, again.stage, empty) == (
        DeletionStage.DELETED,
        DeletionStage.DELETED,
        (0, 0),
    )
    assert forgotten.stage is DeletionStage.FORGOTTEN
    assert [one for one in now.kept(counter) if one not in before] == []
    assert now.kept(other) == before
    assert _numbers(store, other) == (SUM, SUM)
    with pytest.raises(NoSuchCounter):
        now.deleter().delete(counter)


def test_an_entry_between_the_last_look_and_the_deletion_counts_on(
    store: Store, counter: str
) -> None:
    """It is in the ledger and in a total of its own: the two agree."""
    now = Deleting(store, HandClock())
    now.fill(counter)
    now.deleter().delete(counter)
    later = Deleting(store, _later(now.clock))
    deleter = later.deleter()
    with before_deletion(deleter, lambda: _record(store, later.clock, counter)):
        deletion = deleter.delete(counter)

    assert deletion.stage is DeletionStage.DELETED
    for shard, records in store.records(counter, COUNT + 1).items():
        fresh = [one for one in records if one["dynamodb"]["NewImage"]["delta"]["N"] == "10"]
        store.materializer().apply(fresh, shard)
    assert _numbers(store, counter) == (10, 10)
    forgotten = Deleting(store, _later(now.clock, 2 * _LATER_MS)).deleter().delete(counter)
    assert forgotten.stage is DeletionStage.FORGOTTEN
    assert _numbers(store, counter) == (10, 10)


def test_a_total_that_moves_at_the_last_moment_is_left_alone(store: Store, counter: str) -> None:
    """The transaction asks for the version that was proven."""
    now = Deleting(store, HandClock())
    now.fill(counter)
    now.deleter().delete(counter)
    later = Deleting(store, _later(now.clock))
    deleter = later.deleter()

    with before_deletion(deleter, lambda: _move(store, counter)):
        deletion = deleter.delete(counter)

    assert deletion.stage is DeletionStage.SKIPPED
    assert _numbers(store, counter) == (SUM, SUM + 1)


def test_a_name_may_be_used_again(store: Store, counter: str) -> None:
    """Also before the empty head is forgotten; what is new stays."""
    now = Deleting(store, HandClock())
    now.fill(counter)
    now.deleter().delete(counter)
    later = Deleting(store, _later(now.clock))
    later.deleter().delete(counter)

    receipt = store.recorder(clock=later.clock).record(Event(counter, 7))
    end = Deleting(store, _later(now.clock, 2 * _LATER_MS)).deleter().delete(counter)

    assert receipt.status == "recorded"
    assert end.stage is DeletionStage.FORGOTTEN
    assert store.exact().read(counter).value == 7


def test_a_mark_is_taken_off(store: Store, counter: str) -> None:
    """As long as nothing was deleted; later there is nothing to take off."""
    now = Deleting(store, HandClock())
    now.fill(counter)
    now.deleter().delete(counter)
    assert now.deleter().cancel(counter)
    assert not now.deleter().cancel(counter)
    assert (
        Deleting(store, _later(now.clock)).deleter().delete(counter).stage is DeletionStage.MARKED
    )
    assert _numbers(store, counter) == (SUM, SUM)


def test_only_what_exists_is_marked(store: Store, namespace: str) -> None:
    deleter = Deleting(store, HandClock()).deleter()
    with pytest.raises(NamespaceUnknown):
        deleter.delete(f"{namespace}:counter")
    store.namespaces().create(namespace)
    with pytest.raises(NoSuchCounter):
        deleter.delete(f"{namespace}:counter")
    assert deleter.mark(f"{namespace}:counter") is None


def _record(store: Store, clock: HandClock, counter: str) -> None:
    store.recorder(clock=clock).record(Event(counter, 10))


def _move(store: Store, counter: str) -> None:
    moved = (Add("total", 1), Add("version", 1))
    store.dynamo().update(Update(store.counters, keys.total_key(counter), moved))


_NAPS = [(11 * HOUR_MS, RunOutcome.MERGED), (13 * HOUR_MS, RunOutcome.FAILED)]


@pytest.mark.parametrize(("asleep_ms", "outcome"), _NAPS)
def test_a_run_that_slept_for_half_a_day_publishes_nothing(
    store: Store, counter: str, asleep_ms: int, outcome: RunOutcome
) -> None:
    """An empty head keeps its place for a day: a run that is older must not take it after that."""
    now = Deleting(store, HandClock())
    now.fill(counter)
    clock = _later(now.clock)
    made = compactor(store, clock=clock)
    # Its right to merge would end it long before.
    made.regions.terms = LeaseTerms(lease_ms=DAY_MS)

    with before_call(made.regions.home.client, "PutItem", lambda: clock.move_ms(asleep_ms)):
        report = made.compact(counter)

    assert report.outcome is outcome
    assert (report.generations > 0) is (outcome is RunOutcome.MERGED)
    assert store.exact().read(counter).value == SUM
