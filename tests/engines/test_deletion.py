"""Counters are deleted wholly, exactly, and no other with them; wherever a call is interrupted."""

import pytest

from countledger.compaction.deletion import DeletionStage
from countledger.ledger.errors import NamespaceUnknown, NoSuchCounter
from countledger.ledger.limits import DAY_MS
from countledger.producers.event import Event
from tests.engines.clock import HandClock
from tests.engines.deleting import COUNT, SUM, Deleting, before_deletion
from tests.engines.store import Store

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
