"""A batch of one shard, from its records to totals, quarantine and progress."""

from __future__ import annotations

from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countledger.consumers import materializer
from countledger.consumers.directory import ShardDirectory
from countledger.consumers.handler import shard_of
from countledger.consumers.materializer import Materializer
from countledger.consumers.progress import (
    ShardProgress,
    advance_of,
    decode_progress,
    opening_of,
)
from countledger.consumers.stream import ShardName, label_of
from countledger.ledger import before_send, keys
from countledger.ledger.deadline import Deadline
from countledger.ledger.errors import (
    BadPayload,
    ConditionFailed,
    CorruptItem,
    ServiceFailed,
    Throttled,
)
from countledger.ledger.limits import INVOCATION_MARGIN_MS, INVOCATION_TIME_MS
from tests.unit.consumers.records import record, with_stream
from tests.unit.consumers.world import opened
from tests.unit.ledger.clocks import NOW_MS, ManualClock
from tests.unit.ledger.memory import Fault, MemoryClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


TABLE = "counters"
SHARD = ShardName("label", "shardId-1")


class Collecting:
    """A quarantine in a list; full where told."""

    def __init__(self, *, full: bool = False) -> None:
        self.kept: list[tuple[Mapping[str, Any], str]] = []
        self.full = full

    def put(self, record: Mapping[str, Any], reason: str, shard: str) -> None:
        """Keep one."""
        assert shard == str(SHARD)
        if self.full:
            raise ServiceFailed("the queue takes nothing")
        self.kept.append((record, reason))


def _materializer(dynamo: MemoryClient, quarantine: Collecting | None = None) -> Materializer:
    shards = ShardDirectory({str(SHARD): NOW_MS})  # its entry need not be renewed
    return Materializer(dynamo, TABLE, quarantine or Collecting(), ManualClock(), shards=shards)


def _totals(dynamo: MemoryClient) -> dict[str, object]:
    return {i["counter"]: i["total"] for i in dynamo.items(TABLE) if i["part"] == "total"}


def _progress(dynamo: MemoryClient) -> ShardProgress:
    item = dynamo.get(TABLE, keys.progress_key(str(SHARD)))
    assert item is not None
    return decode_progress(item)


def test_a_batch_is_one_update_for_each_counter_and_one_for_progress() -> None:
    """Forty records of four counters: five writes, and one read."""
    dynamo = opened(SHARD)
    records = [record(100 + n, n, counter=f"a:{n % 4}") for n in range(1, 41)]

    outcome = _materializer(dynamo).apply(records, SHARD)

    assert (outcome.records, outcome.counters, outcome.updates) == (40, 4, 4)
    assert outcome.retry_from is None
    assert (dynamo.calls.count("update"), dynamo.calls.count("get")) == (5, 1)
    assert sum(int(str(total)) for total in _totals(dynamo).values()) == 820
    assert _progress(dynamo).sequence == "140"
    assert _progress(dynamo).handled_through_ms == NOW_MS


@pytest.mark.parametrize("name", ["alerts#rules", "stream#label/s", "a:", "x" * 513, "a\nb"])
def test_what_no_counter_can_be_called_gets_no_total(name: str) -> None:
    """An entry written by hand must not lie among items of ours; the others are applied."""
    dynamo, quarantine = MemoryClient(), Collecting()
    records = [record(100, 1, counter=name), record(101, 2, counter="a:x")]

    outcome = _materializer(dynamo, quarantine).apply(records, SHARD)

    assert (outcome.retry_from, outcome.quarantined) == (None, 1)
    assert quarantine.kept[0][0] is records[0]
    assert _totals(dynamo) == {"a:x": 2}


def test_the_lowest_record_that_is_not_applied_is_asked_for_again() -> None:
    """Progress stays where it was; what was applied is dropped the next time."""
    dynamo = opened(SHARD, MemoryClient(faults=[Fault(Throttled("slow"))]))
    records = [record(100, 1, counter="a:x"), record(101, 1, counter="a:x")]
    materializer = _materializer(dynamo)

    outcome = materializer.apply(records, SHARD)

    assert outcome.retry_from == 100
    assert list(outcome.failed) == ["a:x"]
    assert _totals(dynamo) == {}
    again = materializer.apply(records, SHARD)
    assert (again.updates, again.duplicates, again.retry_from) == (1, 0, None)
    assert materializer.apply(records, SHARD).duplicates == 2
    assert _totals(dynamo) == {"a:x": 2}


def test_progress_that_cannot_be_written_asks_for_the_last_record_again() -> None:
    """It is dropped as a duplicate, and progress gets another chance."""
    dynamo = opened(SHARD, MemoryClient(faults=[None, Fault(Throttled("slow"))]))
    materializer = _materializer(dynamo)

    outcome = materializer.apply([record(100), record(101)], SHARD)

    assert outcome.retry_from == 101
    assert materializer.apply([record(101)], SHARD).retry_from is None
    assert _progress(dynamo).sequence == "101"
    assert _totals(dynamo) == {"a:b": 2}


def test_a_malformed_record_goes_to_the_quarantine_and_the_batch_goes_on() -> None:
    """Progress passes it."""
    dynamo = MemoryClient()
    quarantine = Collecting()
    malformed = with_stream(record(101), NewImage={})

    outcome = _materializer(dynamo, quarantine).apply([record(100), malformed, record(102)], SHARD)

    assert outcome.quarantined == 1
    assert [kept for kept, _ in quarantine.kept] == [malformed]
    assert _totals(dynamo) == {"a:b": 2}
    assert _progress(dynamo).sequence == "102"


def test_nothing_is_applied_while_the_quarantine_takes_nothing() -> None:
    """A watermark that passed the malformed would have dropped it silently."""
    dynamo = MemoryClient()
    records = [with_stream(record(100), NewImage={}), record(101)]

    with pytest.raises(ServiceFailed):
        _materializer(dynamo, Collecting(full=True)).apply(records, SHARD)

    assert _totals(dynamo) == {}
    assert _progress(dynamo).position == 0


def test_a_window_that_closes_without_records_changes_nothing() -> None:
    """Its invocation may be empty."""
    dynamo = MemoryClient()

    outcome = _materializer(dynamo).apply([], SHARD)

    assert (outcome.records, outcome.retry_from, outcome.lag_ms) == (0, None, None)
    assert dynamo.calls == []


def test_lag_is_how_far_the_last_record_lies_behind() -> None:
    """Never below zero, for clocks differ."""
    dynamo = MemoryClient()

    assert _materializer(dynamo).apply([record(100, age_ms=7_000)], SHARD).lag_ms == 7_000
    assert _materializer(dynamo).apply([record(101, age_ms=-7_000)], SHARD).lag_ms == 0


@settings(max_examples=40, deadline=None)
@given(
    deltas=st.lists(st.integers(-5, 5).filter(bool), min_size=1, max_size=12),
    counters=st.integers(1, 3),
    faults=st.lists(st.sampled_from(["none", "lost", "applied"]), max_size=12),
)
def test_totals_are_exact_through_any_faults(
    deltas: list[int], counters: int, faults: list[str]
) -> None:
    """As the mapping does: deliver from the record asked for, until nothing is asked for."""
    kinds = {
        "none": None,
        "lost": Fault(Throttled("slow")),
        "applied": Fault(Throttled("slow"), applied=True),
    }
    dynamo = opened(SHARD, MemoryClient(faults=[kinds[name] for name in faults]))
    materializer = _materializer(dynamo)
    records = [record(100 + n, d, counter=f"a:{n % counters}") for n, d in enumerate(deltas)]
    retry_from: int | None = 100
    deliveries = 0

    while retry_from is not None:
        retry_from = materializer.apply(records[retry_from - 100 :], SHARD).retry_from
        deliveries += 1
        assert deliveries <= len(faults) + 1
    assert _totals(dynamo) == {
        f"a:{c}": sum(deltas[c::counters]) for c in range(min(counters, len(deltas)))
    }
    assert _progress(dynamo).sequence == str(99 + len(deltas))


def _at(sequence: str, records: int = 1) -> ShardProgress:
    return ShardProgress("label/s", sequence, NOW_MS, NOW_MS + 5, records, 1, 2.0)


@pytest.mark.parametrize(("earlier", "later"), [("9", "10"), ("99", "100"), ("0099", "100")])
def test_progress_moves_on_by_number_and_never_back(earlier: str, later: str) -> None:
    """As texts, 9 would come behind 10."""
    dynamo = MemoryClient()
    dynamo.update(opening_of(TABLE, "label/s", NOW_MS))
    dynamo.update(advance_of(TABLE, _at(earlier)))
    dynamo.update(advance_of(TABLE, _at(later)))

    for passed in (earlier, later):
        with pytest.raises(ConditionFailed):
            dynamo.update(advance_of(TABLE, _at(passed)))
    found = decode_progress(dynamo.items(TABLE)[0])
    assert (found.sequence, found.records, found.updates, found.write_units) == (later, 2, 2, 4)


def test_progress_is_forgotten_long_after_its_shard() -> None:
    """`expires_at` is in seconds, as the service wants it; a shard lives for a day or two."""
    dynamo = MemoryClient()
    dynamo.update(opening_of(TABLE, "label/s", NOW_MS))
    dynamo.update(advance_of(TABLE, _at("5")))

    expires_at_s = dynamo.items(TABLE)[0]["expires_at"]
    assert expires_at_s * 1000 - NOW_MS > 2 * 24 * 3_600_000


def test_malformed_progress_is_called_so() -> None:
    """Edited by hand."""
    dynamo = MemoryClient()
    dynamo.update(opening_of(TABLE, "label/s", NOW_MS))
    dynamo.update(advance_of(TABLE, _at("5")))
    item = {**dynamo.items(TABLE)[0], "sequence": 5}

    with pytest.raises(CorruptItem, match="sequence"):
        decode_progress(item)


def test_a_shard_is_known_together_with_its_stream() -> None:
    """A re-created stream numbers anew; its label tells it apart."""
    arn = "arn:aws:dynamodb:eu-west-1:1:table/t/stream/2030-01-31T12:00:00.000"

    assert label_of(arn) == "2030-01-31T12:00:00.000"
    shard = shard_of({"shardId": "shardId-7", "eventSourceARN": arn})
    assert str(shard) == "2030-01-31T12:00:00.000/shardId-7"


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"Records": []},
        {"shardId": "s"},
        {"eventSourceARN": "arn"},
        {"shardId": None, "eventSourceARN": "arn"},
        {"shardId": 7, "eventSourceARN": "arn"},
    ],
)
def test_an_event_that_names_no_shard_is_refused(event: dict[str, Any]) -> None:
    """Without it nothing can be applied exactly once; the message says what to set."""
    with pytest.raises(BadPayload, match="TumblingWindowInSeconds"):
        shard_of(event)


class _Broken(BaseException):
    """No error of the service's: this process is at its end."""


def test_nothing_is_on_its_way_any_more_when_a_batch_breaks_off() -> None:
    """Else a batch that comes again would meet updates of the one before, still to land."""
    broken = Event()

    def broken_at_one(_kind: str, write: Any, request: Callable[[], Any]) -> Any:  # noqa: ANN401
        if write.key["counter"] == "a:0":
            broken.set()
            raise _Broken
        if not write.key["counter"].startswith("stream#"):
            assert broken.wait(10)
        return request()

    dynamo = MemoryClient(plan=broken_at_one)

    with pytest.raises(_Broken):
        _materializer(dynamo).apply([record(100 + n, counter=f"a:{n}") for n in range(40)], SHARD)

    assert len(_totals(dynamo)) == 39


def _slow(takes_ms: int) -> tuple[MemoryClient, list[str], Materializer]:
    """A client whose writes of totals take a while, which counters it wrote, and its user."""
    clock, written = ManualClock(), list[str]()

    def slow(_kind: str, write: Any, request: Callable[[], Any]) -> Any:  # noqa: ANN401
        if write.key["part"] == SHARD.id:
            return None
        clock.at_ms += takes_ms
        before_send.leave()
        written.append(str(write.key["counter"]))
        return request()

    opened(SHARD, dynamo := MemoryClient())
    dynamo = replace(dynamo, plan=slow)
    return dynamo, written, Materializer(dynamo, TABLE, Collecting(), clock)


@pytest.fixture
def _one_writer(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """So that the order of writes can be told."""
    monkeypatch.setattr(materializer, "_WRITERS", 1)
    materializer._writers.cache_clear()
    yield
    materializer._writers.cache_clear()


@pytest.mark.usefixtures("_one_writer")
def test_a_deadline_moves_the_part_that_is_applied() -> None:
    """Writes begin in the order of first records; what is left is reported, and progress moves."""
    dynamo, written, slow = _slow(10_000)
    names = [f"a:{n:02}" for n in range(40)]
    records = [record(100 + n, 1, counter=name) for n, name in enumerate(names)]

    deadline = Deadline(slow.clock, NOW_MS + 95_000, NOW_MS + 115_000)
    outcome = slow.apply(records, SHARD, deadline)

    totals = [name for name in written if name in names]
    assert totals == names[:9]
    assert outcome.retry_from == 109
    assert outcome.late == len(outcome.failed) == 31
    assert (_progress(dynamo).sequence, _progress(dynamo).records) == ("108", 9)


@pytest.mark.usefixtures("_one_writer")
def test_no_update_leaves_after_the_deadline() -> None:
    """Not even one that was begun before it: its watermark may be gone when it lands."""
    _, written, slow = _slow(50)

    outcome = slow.apply([record(100)], SHARD, Deadline(slow.clock, NOW_MS + 50, NOW_MS + 50))

    assert (outcome.retry_from, outcome.late, written) == (100, 1, [])


@pytest.mark.usefixtures("_one_writer")
def test_the_deadline_is_that_of_the_function_if_none_is_given() -> None:
    """So nobody who forgets it writes for ever."""
    _, written, slow = _slow(INVOCATION_TIME_MS - INVOCATION_MARGIN_MS)

    assert slow.apply([record(100)], SHARD).retry_from == 100
    assert written == []


def test_a_partial_failure_moves_progress_as_far_as_all_is_applied() -> None:
    """A hot shard is never handled to its end, and what was applied is known all the same."""
    dynamo = opened(SHARD, MemoryClient(faults=[None, Fault(Throttled("slow"))]))
    records = [record(100 + n, 1, counter=f"a:{n // 2}") for n in range(6)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(materializer, "_WRITERS", 1)
        materializer._writers.cache_clear()
        outcome = _materializer(dynamo).apply(records, SHARD)
        materializer._writers.cache_clear()

    assert outcome.retry_from == 102
    assert (_progress(dynamo).sequence, _progress(dynamo).records) == ("101", 2)
