"""Counters are removed wholly, exactly, and no other with them; wherever a call is interrupted."""

from contextlib import suppress
from dataclasses import replace

import pytest

from countledger.compaction.deletion import LedgerRemover
from countledger.compaction.deletion_stage import Stage
from countledger.compaction.report import Outcome, Report
from countledger.ledger import keys
from countledger.ledger.errors import NamespaceUnknown, NoSuchCounter
from countledger.ledger.expressions import Add
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS
from countledger.ledger.operations import Update
from countledger.producers.event import Event
from tests.engines.clock import HandClock
from tests.engines.compacting import asleep_before, compactor, crash_at
from tests.engines.differences import Difference
from tests.engines.removing import COUNT, SUM, Removing, before_removal
from tests.engines.store import Store
from tests.faults.injection import Crash

_LATER_MS = 2 * DAY_MS
_NAPS = [(11 * HOUR_MS, Outcome.MERGED), (13 * HOUR_MS, Outcome.FAILED)]


def _numbers(store: Store, counter: str) -> tuple[object, object]:
    return store.exact().read(counter).sum, store.totals().read(counter, consistent=True).total


def _later(clock: HandClock, duration_ms: int = _LATER_MS) -> HandClock:
    return HandClock(clock.at_ms + duration_ms)


def test_a_counter_is_marked_emptied_and_forgotten(store: Store, namespace: str) -> None:
    """Numbers stay until nothing can arrive any more, then go at once; a day later the name."""
    counter, other = f"{namespace}:counter", f"{namespace}:counter2"
    now = Removing(store, HandClock())
    for name in (counter, other):
        now.fill(name)
    before = now.kept(other)

    marked = now.remover().remove(counter)
    waiting = Removing(store, _later(now.clock, DAY_MS)).remover().remove(counter)
    between = _numbers(store, counter)
    later = Removing(store, _later(now.clock))
    removed = later.remover().remove(counter)
    again = later.remover().remove(counter)
    empty = _numbers(store, counter)
    forgotten = Removing(store, _later(now.clock, 2 * _LATER_MS)).remover().remove(counter)

    assert (marked.stage, waiting.stage) == (Stage.MARKED, Stage.WAITING)
    assert waiting.next_at_ms is not None
    assert now.clock.at_ms + DAY_MS < waiting.next_at_ms <= now.clock.at_ms + _LATER_MS
    assert between == (SUM, SUM)
    assert (removed.stage, again.stage, empty) == (Stage.REMOVED, Stage.REMOVED, (0, 0))
    assert forgotten.stage is Stage.FORGOTTEN
    assert [one for one in now.kept(counter) if one not in before] == []
    assert now.kept(other) == before
    assert _numbers(store, other) == (SUM, SUM)
    with pytest.raises(NoSuchCounter):
        now.remover().remove(counter)


def test_what_is_made_behind_the_mark_is_never_removed(store: Store, counter: str) -> None:
    """The counter is in use: nothing goes, and the mark starts anew."""
    now = Removing(store, HandClock())
    now.fill(counter)
    now.remover().remove(counter)
    later = Removing(store, _later(now.clock))
    store.recorder(clock=later.clock).record(Event(counter, 10))

    in_use = later.remover().remove(counter)

    assert in_use.stage is Stage.IN_USE
    assert store.exact().read(counter).sum == SUM + 10
    mark = later.remover().mark(counter)
    assert mark is not None
    assert mark.at_ms >= later.clock.at_ms - MINUTE_MS


def test_an_entry_between_the_last_look_and_the_removal_counts_on(
    store: Store, counter: str
) -> None:
    """It is in the ledger and in a total of its own: the two agree."""
    now = Removing(store, HandClock())
    now.fill(counter)
    now.remover().remove(counter)
    later = Removing(store, _later(now.clock))
    remover = later.remover()
    with before_removal(remover, lambda: _record(store, later.clock, counter)):
        removal = remover.remove(counter)

    assert removal.stage is Stage.REMOVED
    for shard, records in store.records(counter, COUNT + 1).items():
        fresh = [one for one in records if one["dynamodb"]["NewImage"]["delta"]["N"] == "10"]
        store.materializer().apply(fresh, shard)
    assert _numbers(store, counter) == (10, 10)
    forgotten = Removing(store, _later(now.clock, 2 * _LATER_MS)).remover().remove(counter)
    assert forgotten.stage is Stage.FORGOTTEN
    assert _numbers(store, counter) == (10, 10)


def test_a_total_that_moves_at_the_last_moment_is_left_alone(store: Store, counter: str) -> None:
    """The transaction asks for the version that was proven."""
    now = Removing(store, HandClock())
    now.fill(counter)
    now.remover().remove(counter)
    later = Removing(store, _later(now.clock))
    remover = later.remover()

    with before_removal(remover, lambda: _move(store, counter)):
        removal = remover.remove(counter)

    assert removal.stage is Stage.LEFT
    assert _numbers(store, counter) == (SUM, SUM + 1)


@pytest.mark.parametrize("when", ["before-call", "after-call"])
def test_a_removal_may_crash_anywhere_and_goes_on(store: Store, namespace: str, when: str) -> None:
    """At every call of the service: the numbers agree at every moment, and the end is the same."""
    number, crashed = 0, True
    while crashed:
        counter = f"{namespace}:c{number}"
        now = Removing(store, HandClock())
        now.fill(counter)
        now.remover().remove(counter)
        later = Removing(store, _later(now.clock))
        remover = later.remover()
        with crash_at(remover, number, when) as calls, suppress(Crash):
            remover.remove(counter)
        crashed = len(calls) > number
        assert _numbers(store, counter) in [(SUM, SUM), (0, 0)]
        assert later.remover().remove(counter).stage is Stage.REMOVED
        assert _numbers(store, counter) == (0, 0)
        end = Removing(store, _later(now.clock, 2 * _LATER_MS))
        last = end.remover()
        with crash_at(last, number, when), suppress(Crash):
            last.remove(counter)
        with suppress(NoSuchCounter):
            assert end.remover().remove(counter).stage is Stage.FORGOTTEN
        assert [one for one in now.kept(counter) if one["counter"]["S"] == counter] == []
        number += 3
    assert number > 12


@pytest.mark.parametrize(("asleep_ms", "outcome"), _NAPS)
def test_a_run_that_slept_for_half_a_day_publishes_nothing(
    store: Store, counter: str, asleep_ms: int, outcome: Outcome
) -> None:
    """An empty head keeps its place for a day: a run that is older must not take it after that."""
    now = Removing(store, HandClock())
    now.fill(counter)
    clock = _later(now.clock)
    made = compactor(store, clock=clock)

    with asleep_before(made.regions.home.client, "PutItem", lambda: clock.move_ms(asleep_ms)):
        report = made.compact(counter)

    assert report.outcome is outcome
    assert (report.generations > 0) is (outcome is Outcome.MERGED)
    assert store.exact().read(counter).sum == SUM


def test_a_name_may_be_used_again(store: Store, counter: str) -> None:
    """Also before the empty head is forgotten; what is new stays."""
    now = Removing(store, HandClock())
    now.fill(counter)
    now.remover().remove(counter)
    later = Removing(store, _later(now.clock))
    later.remover().remove(counter)

    receipt = store.recorder(clock=later.clock).record(Event(counter, 7))
    end = Removing(store, _later(now.clock, 2 * _LATER_MS)).remover().remove(counter)

    assert receipt.status == "recorded"
    assert end.stage is Stage.FORGOTTEN
    assert store.exact().read(counter).sum == 7


def test_a_mark_is_taken_off(store: Store, counter: str) -> None:
    """As long as nothing was removed; later there is nothing to take off."""
    now = Removing(store, HandClock())
    now.fill(counter)
    now.remover().remove(counter)
    assert now.remover().cancel(counter)
    assert not now.remover().cancel(counter)
    assert Removing(store, _later(now.clock)).remover().remove(counter).stage is Stage.MARKED
    assert _numbers(store, counter) == (SUM, SUM)


def test_only_what_exists_is_marked(store: Store, namespace: str) -> None:
    """A name that was mistyped leaves nothing behind."""
    remover = Removing(store, HandClock()).remover()
    with pytest.raises(NamespaceUnknown):
        remover.remove(f"{namespace}:counter")
    store.namespaces().create(namespace)
    with pytest.raises(NoSuchCounter):
        remover.remove(f"{namespace}:counter")
    assert remover.mark(f"{namespace}:counter") is None


def test_p9_what_a_removal_costs(store: Store, counter: str) -> None:
    """To mark one unit, to forget two; to empty six and one, and compaction, and what is tidied.

    Here that is a state, a log of two items, and a membership of two units.
    """
    if store.engine.has(Difference.UNITS_ARE_INVENTED):
        pytest.skip(Difference.UNITS_ARE_INVENTED.value)
    now = Removing(store, HandClock())
    now.fill(counter)
    spent = []
    for after_ms in (0, _LATER_MS, 2 * _LATER_MS):
        reports: list[Report] = []
        remover = Removing(store, _later(now.clock, after_ms)).remover()
        before = remover.dynamo.meter.write_units
        _noting(remover, reports).remove(counter)
        compaction = sum(report.write_units for report in reports)
        spent.append(remover.dynamo.meter.write_units - before - compaction)

    assert spent == [1, 7 + 5, 2]


def _noting(remover: LedgerRemover, reports: list[Report]) -> LedgerRemover:
    def compact(counter: str) -> Report:
        reports.append(remover.compact(counter))
        return reports[-1]

    return replace(remover, compact=compact)


def _record(store: Store, clock: HandClock, counter: str) -> None:
    store.recorder(clock=clock).record(Event(counter, 10))


def _move(store: Store, counter: str) -> None:
    moved = (Add("total", 1), Add("version", 1))
    store.dynamo().update(Update(store.counters, keys.total_key(counter), moved))
