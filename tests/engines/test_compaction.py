"""P4 and P5 on the engines: merged, interrupted anywhere, taken up again; never another number."""

import pytest

from countledger.compaction.report import CompactionStep, Retire, RunOutcome, Verb
from countledger.ledger import keys
from countledger.ledger.attributes import Item
from countledger.ledger.errors import CorruptItem, NewerFormat
from countledger.ledger.exact import decode_head
from countledger.ledger.limits import SECOND_MS
from countledger.ledger.operations import Put
from countledger.producers.event import Event
from tests.engines.clock import HandClock
from tests.engines.compacting import compactor, fill, two_days_later
from tests.engines.store import Store

COUNT = 12
SUM = COUNT * (COUNT + 1) // 2


def _numbers(tables: Store, counter: str) -> tuple[object, int, int]:
    exact = tables.exact().read(counter)
    return exact.value, exact.events, exact.entries


def _head(tables: Store, counter: str) -> Item:
    return tables.item(tables.ledger, keys.head_key(counter)) or {}


def _corrupt_an_entry(tables: Store, counter: str, number: int = 0) -> None:
    tables.dynamo().put(Put(tables.ledger, {**tables.entry_items(counter)[number], "delta": 1_000}))


@pytest.mark.parametrize("retire", Retire)
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("spread", [1, 16])
def test_p5_old_entries_are_merged_into_the_head(
    tables: Store, namespace: str, retire: Retire, workers: int, spread: int
) -> None:
    """In as many generations as it takes, and a closing one; the entries are gone."""
    tables.namespaces().create(namespace, spread=spread)
    counter = f"{namespace}:counter"
    fill(tables, counter, COUNT)

    report = compactor(tables, retire=retire, workers=workers).compact(counter)

    assert (report.outcome, report.merged, report.compacted) == (
        RunOutcome.MERGED,
        COUNT,
        COUNT,
    )
    assert report.generations == 4
    assert tables.entry_items(counter) == []
    assert decode_head(_head(tables, counter)).covers == {}
    assert _numbers(tables, counter) == (SUM, COUNT, COUNT)


def test_p5_young_entries_stay(tables: Store, counter: str) -> None:
    """What a producer may still send again is not touched, and counts beside the head."""
    old = HandClock()
    tables.recorder(clock=old).record(Event(counter, 5))
    young = two_days_later()
    tables.recorder(clock=young).record(Event(counter, 7))
    tables.recorder(clock=young).record(Event(counter, 8, "a key"))

    report = compactor(tables, clock=young).compact(counter)

    assert (report.outcome, report.merged) == (RunOutcome.MERGED, 1)
    assert [item["delta"] for item in tables.entry_items(counter)] == [7, 8]
    assert _numbers(tables, counter) == (20, 3, 3)


@pytest.mark.parametrize("retire", Retire)
def test_a_tampered_entry_stops_its_counter(tables: Store, counter: str, retire: Retire) -> None:
    """Changed between the sum and its deletion: reported, and it stays as it is."""
    fill(tables, counter, COUNT)

    def corrupt(step: CompactionStep) -> None:
        if step.verb is Verb.RETIRE and step.generation == 1:
            _corrupt_an_entry(tables, counter, 2)

    report = compactor(tables, retire=retire).compact(counter, on_step=corrupt)

    assert report.outcome is RunOutcome.TAMPERED
    assert "1000" in report.detail
    assert counter in report.detail
    assert 1_000 in [item["delta"] for item in tables.entry_items(counter)]
    assert _numbers(tables, counter) == (SUM, COUNT, COUNT)


@pytest.mark.parametrize(
    ("counter", "reason"),
    [("never-made:x", "never-made"), ("bad#name", "#"), ("", "empty")],
)
def test_a_counter_that_cannot_be_compacted_is_reported(
    tables: Store, counter: str, reason: str
) -> None:
    """A report and no exception: one counter's failure is no other's."""
    report = compactor(tables).compact(counter)

    assert report.outcome is RunOutcome.FAILED
    assert reason in report.detail


def test_a_run_stops_at_its_deadline(tables: Store, counter: str) -> None:
    fill(tables, counter, COUNT)
    clock = two_days_later()
    deadline_ms = clock.now_ms() + SECOND_MS

    def slowly(step: CompactionStep) -> None:
        if step.verb is Verb.WAIT_UNTIL_DELETED:
            clock.move_ms(SECOND_MS)

    stopped = compactor(tables, clock=clock)
    report = stopped.compact(counter, deadline_ms=deadline_ms, on_step=slowly)

    assert (report.outcome, report.merged, report.generations) == (RunOutcome.STOPPED, 5, 2)
    assert decode_head(_head(tables, counter)).covers == {}
    assert len(tables.entry_items(counter)) == COUNT - 5
    rest = stopped.compact(counter)
    assert (rest.outcome, rest.merged) == (RunOutcome.MERGED, COUNT - 5)
    assert _numbers(tables, counter) == (SUM, COUNT, COUNT)


@pytest.mark.parametrize("retire", Retire)
def test_an_entry_created_again_is_not_deleted_by_a_run_that_lags(
    tables: Store, counter: str, retire: Retire
) -> None:
    tables.recorder(clock=HandClock()).record(Event(counter, 5, "daily"))
    later = two_days_later()

    def use_it_anew(step: CompactionStep) -> None:
        if step.verb is Verb.RETIRE and step.merged:
            (item,) = tables.entry_items(counter)
            tables.dynamo().put(Put(tables.ledger, {**item, "at": later.now_ms()}))

    report = compactor(tables, clock=later, retire=retire).compact(counter, on_step=use_it_anew)

    assert report.outcome is RunOutcome.MERGED
    assert _numbers(tables, counter) == (10, 2, 2)


def test_a_plan_tells_what_a_run_would_do(tables: Store, counter: str) -> None:
    """How many entries, how old, what it costs; nothing is written."""
    clock = HandClock()
    for _ in range(7):
        clock.move_ms(SECOND_MS)
        tables.recorder(clock=clock).record(Event(counter, 1))
    made = compactor(tables)

    plan = made.plan(counter)

    assert (plan.entries, plan.newest_at_ms) == (7, clock.now_ms())
    assert plan.oldest_at_ms == clock.now_ms() - 6 * SECOND_MS
    assert plan.write_units == 7 * 2 + 3
    assert _head(tables, counter) == {}
    empty = compactor(tables, clock=HandClock()).plan(counter)
    assert (empty.entries, empty.oldest_at_ms, empty.write_units) == (0, None, 0)
    namespace = tables.namespaces().get(keys.namespace_of(counter))
    assert empty.age_ms == made.limit(namespace).age_ms


@pytest.mark.parametrize(
    ("corrupt", "error"),
    [
        ({"generation": "1"}, CorruptItem),
        ({"sum": None}, CorruptItem),
        ({"covers": {"e#x": "1"}}, CorruptItem),
        ({"covers": {"e#x": [1]}}, CorruptItem),
        ({"archive": {"key": 1}}, CorruptItem),
        ({"v": 2}, NewerFormat),
    ],
    ids=str,
)
def test_a_head_that_cannot_be_read_is_left_alone(
    tables: Store, counter: str, corrupt: dict[str, object], error: type[Exception]
) -> None:
    """That counter stops and is reported; nothing is touched; others go on."""
    fill(tables, counter, 3)
    compactor(tables).compact(counter)
    fill(tables, counter, 3)
    before = {**_head(tables, counter), **corrupt}
    tables.dynamo().put(Put(tables.ledger, before))
    before = _head(tables, counter)

    report = compactor(tables).compact(counter)

    assert report.outcome is RunOutcome.FAILED
    assert isinstance(report.error, error)
    assert counter in report.detail
    assert (report.write_units, _head(tables, counter)) == (0, before)
    assert len(tables.entry_items(counter)) == 3


def test_an_entry_that_cannot_be_read_stops_its_counter(tables: Store, counter: str) -> None:
    """A head without it would be a wrong sum."""
    fill(tables, counter, 3)
    tables.dynamo().put(Put(tables.ledger, {**tables.entry_items(counter)[1], "delta": "two"}))

    report = compactor(tables).compact(counter)

    assert report.outcome is RunOutcome.FAILED
    assert _head(tables, counter) == {}


@pytest.mark.parametrize("late_at", [Verb.AWAIT, Verb.RETIRE, Verb.SELECT, Verb.PUBLISH])
def test_a_run_stops_at_its_deadline_in_every_step(
    tables: Store, counter: str, late_at: Verb
) -> None:
    """Whatever it was about, the next run goes on."""
    fill(tables, counter, COUNT)
    clock = two_days_later()
    deadline_ms = clock.now_ms() + SECOND_MS

    def slowly(step: CompactionStep) -> None:
        if step.verb is late_at:
            clock.move_ms(SECOND_MS)

    first = compactor(tables, clock=clock)
    report = first.compact(counter, deadline_ms=deadline_ms, on_step=slowly)

    assert report.outcome is RunOutcome.STOPPED
    assert _numbers(tables, counter) == (SUM, COUNT, COUNT)
    assert first.compact(counter).outcome is RunOutcome.MERGED
    assert _numbers(tables, counter) == (SUM, COUNT, COUNT)
