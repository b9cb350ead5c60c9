"""P9: every operation costs what it says, in write and read units."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from random import Random
from typing import Final

import pytest

from countledger.consumers.materializer import Materializer
from countledger.consumers.progress import ShardDirectory, ShardProgress, advance_of, opening_of
from countledger.consumers.record import ShardName
from countledger.consumers.total_writer import FoldedChange, update_of
from countledger.infra.cost import BATCH_UNITS, Workload
from countledger.ledger import keys
from countledger.ledger.exact import newest_first
from countledger.producers.event import Event
from countledger.producers.strict.definition import Method
from tests.engines import in_memory
from tests.engines.differences import Difference
from tests.engines.running import ENGINES, NAMED
from tests.engines.store import Store
from tests.faults.operations import OPERATIONS
from tests.faults.play import Operation, World, fresh, told_by
from tests.faults.sellers import metered
from tests.unit.consumers.records import record
from tests.unit.ledger.clocks import ManualClock

KB_NOTE = {"note": "x" * 1_000}
LONG_KEY = "k" * 1_024


# What every operation of the matrix costs in write and read units, and the same call again; None:
# there is none. Reads of more than an item cost by their size, here up to 4 KB.
Units = tuple[float, float]
UNITS_ARE_REAL: Final = [NAMED] if NAMED in ENGINES else [in_memory.NAME, "ministack"]
OPERATION_COSTS: Final[dict[str, tuple[Units, Units | None]]] = {
    "record with a key": ((1, 0), (1, 0)),
    "record with a key and its time": ((1, 0), (1, 0)),
    "record many": ((5, 0), None),
    "record many with keys": ((2, 0), (2, 0)),
    "buffer": ((5, 0), None),
    "buffer, coalescing": ((1, 0), None),
    "send to Kinesis": ((0, 0), None),
    "ingest": ((4, 0), (4, 0)),
    "ingest with keys": ((4, 0), (4, 0)),
    "set a ledger counter": ((1, 4), (0, 1)),
    "first use of a namespace": ((3, 1), (1, 0)),
    "atomic (over)": ((1, 0), None),
    "occ": ((1, 1), (0, 1)),
    "history": ((1, 1), (0, 1)),
    "request_token": ((2, 1), (0, 3)),
    "marker": ((4, 1), (4, 1)),
    "set": ((1, 0), (1, 0)),
    "request_token with bins": ((2, 0), (0, 3)),
    "marker with bins": ((4, 0), (4, 1)),
    "create a strict counter": ((4, 0.5), (4, 0.5)),
    "create one with bins": ((10, 0.5), (10, 0.5)),
    "set bounds": ((1, 2), (1, 2)),
    "set bounds of bins": ((6, 13), (6, 13)),
    "delete a strict counter": ((8, 1), (0, 1)),
    "withdraw from marker": ((4, 0), (4, 1)),
    "withdraw from set": ((1, 0), (1, 0)),
    "transfer": ((6, 0), (6, 2)),
    "set a strict counter": ((4, 1), (4, 2)),
    "set one with bins": ((8, 6), (8, 7)),
    "withdraw several changes": ((1, 0), (1, 0)),
    "take a claim": ((1, 0), (1, 0)),
    "take with an item": ((4, 0), (4, 1)),
    "change a claim": ((4, 1), (4, 2)),
    "change with an item": ((6, 1), (6, 2)),
    "release a claim": ((1, 1), (1, 1)),
    "release with an item": ((4, 1), (4, 1)),
    "create a sequence": ((1, 1), (1, 0)),
    "draw": ((1, 0), None),
    "draw a block": ((1, 0), None),
    "draw by expectation": ((1, 1), None),
    "append": ((1, 1), None),
    "acquire (under)": ((1, 0), None),
    "acquire (over)": ((1, 0), None),
    "acquire by request_token": ((2, 1), (0, 3)),
    "acquire by marker": ((4, 1), (4, 1)),
    "reserve": ((4, 1), (4, 1)),
    "commit": ((4, 0), (4, 0)),
    "commit as reserved": ((1, 0), (1, 0)),
    "release a reservation": ((4, 0), (4, 0)),
    "create a quota": ((1, 0), (1, 0)),
    "set the limit of a quota": ((1, 1), (1, 1)),
    "set the limit of a counter": ((4, 2), (4, 3)),
    "delete a quota": ((1, 2), (0, 1)),
    "hold": ((5, 0), (4, 1)),
    "hold with bins": ((5, 0), (4, 1)),
    "confirm a hold": ((5, 1), (0, 1)),
    "confirm a hold with bins": ((5, 1), (0, 1)),
    "cancel a hold": ((5, 1), (0, 1)),
    "cancel a hold with bins": ((5, 1), (0, 1)),
    "apply records": ((2, 1), (0, 1)),
    "quarantine a record": ((4, 1), (0, 1)),
    "redrive a record": ((3, 1), (0, 1)),
    "add to a group": ((2, 2), (2, 2)),
    "add to a ranked group": ((4, 4), (3, 2)),
    "remove from a group": ((2, 3), (0, 3)),
    "remove from a ranked group": ((4, 4), (1, 4)),
    "rank a group": ((5, 6), (3, 2)),
    "rank a group no more": ((5, 8), (3, 8)),
    "delete a group": ((9, 10), (0, 1)),
    "create a namespace": ((2, 0), (1, 0)),
    "describe a namespace": ((2, 0), (2, 0)),
    "create a schedule": ((1, 2), (0, 2)),
    "change a schedule": ((1, 2), (1, 2)),
    "delete a schedule": ((1, 1), (0, 1)),
    "create an alert rule": ((4, 2), (0, 2)),
    "change an alert rule": ((4, 1), (0, 1)),
    "delete an alert rule": ((4, 1), (0, 1)),
    "retire by transaction": ((11, 10), (0, 3)),
    "retire by deletion": ((7, 10), (0, 3)),
    "archive": ((9, 12), (0, 3)),
    "mark for deletion": ((1, 2), (0, 2)),
    "empty a counter": ((13, 15), (0, 1)),
    "forget a counter": ((2, 7), (0, 4)),
}
# What of these reads is by BatchGetItem: in the call, and in the same call again.
BATCH_READS: Final[dict[str, Units]] = {
    "transfer": (0, 2),
    "set a strict counter": (0, 1),
    "set one with bins": (0, 1),
    "acquire by request_token": (1, 1),
    "acquire by marker": (1, 1),
    "reserve": (1, 1),
    "retire by transaction": (4, 0),
    "retire by deletion": (4, 0),
    "archive": (4, 0),
    "empty a counter": (3, 0),
}
# Of a change of a strict counter: the guide's table.
STRICT_COSTS: Final = {
    method: OPERATION_COSTS["atomic (over)" if method is Method.ATOMIC else str(method)][0]
    for method in Method
}


@pytest.fixture(scope="module")
def world(store: Store) -> Iterator[World]:
    """One connection for all operations."""
    made = World.begun(store)
    with made.stack:
        yield made


@pytest.mark.parametrize("store", UNITS_ARE_REAL, indirect=True)
@pytest.mark.parametrize(
    "operation", [one for one in OPERATIONS if str(one) in OPERATION_COSTS], ids=str
)
def test_p9_an_operation_costs_what_it_says(world: World, operation: Operation) -> None:
    meter = world.store.connection.meter
    blind = world.store.engine.has(Difference.NO_UNITS_FOR_BATCH_GET)
    unseen = BATCH_READS.get(str(operation), (0, 0)) if blind else (0, 0)
    spent: list[Units | None] = []
    told_by(operation.begin(world, fresh(), "none").act)  # what is made once is paid for
    play = operation.begin(world, fresh(), "none")
    call: Callable[[], object] | None = play.act

    for number in range(2):
        before, told = (meter.write_units, meter.read_units - unseen[number]), None
        if call is not None:
            told = told_by(call)
            spent.append((meter.write_units - before[0], meter.read_units - before[1]))
            call = play.again(told)
        else:
            spent.append(None)

    assert tuple(spent) == OPERATION_COSTS[str(operation)]


def _read(store: Store, units: float) -> float:
    """What the engine reports for a consistent read of so many units."""
    return 1.0 if store.engine.has(Difference.READ_UNITS_ALWAYS_ONE) else units


@pytest.mark.parametrize(
    ("key", "note", "units"),
    [(None, None, 1), ("key", None, 1), (LONG_KEY, None, 2), (LONG_KEY, KB_NOTE, 3)],
    ids=["plain", "keyed", "over 1 KB", "over 2 KB"],
)
def test_p9_an_entry_costs_one_unit_for_each_kb(
    store: Store, counter: str, key: str | None, note: dict[str, str] | None, units: int
) -> None:
    """One write, no read: one unit up to 1 KB, then one more for each KB begun."""
    recorder = store.recorder()
    recorder.sender.namespaces.create(keys.namespace_of(counter))

    recorder.record(Event(counter, 1, key, note=note))

    assert metered(recorder.sender.dynamo) == (units, 0)


def test_p9_a_known_namespace_costs_nothing(store: Store, counter: str) -> None:
    """The first use reads it (one unit); then a process knows it for good."""
    store.namespaces().create(keys.namespace_of(counter))
    recorder = store.recorder()
    dynamo = recorder.sender.namespaces.connection.retrying

    for _ in range(3):
        recorder.record(Event(counter, 1))

    assert metered(dynamo) == (0, 1)


def test_p9_a_total_with_many_watermarks_costs_one_unit(store: Store, counter: str) -> None:
    long_name = counter + "x" * (300 - len(counter))
    dynamo = store.dynamo()
    for shard in range(13):
        step = FoldedChange(1, 10**30 + shard, 10**20 + shard, 1, 1)
        dynamo.update(update_of(store.counters, long_name, step, f"shard-{shard}", 10**12))

    assert metered(dynamo) == (13, 0)


def test_p9_a_total_of_many_more_shards_costs_two(store: Store, counter: str) -> None:
    """Where the watermarks do not fit any more the price doubles; nothing breaks."""
    dynamo = store.dynamo()
    for shard in range(40):
        dynamo.update(
            update_of(store.counters, counter, FoldedChange(1, 1, 1, 1, 1), f"s{shard}", 0)
        )
    before = dynamo.meter.write_units

    dynamo.update(update_of(store.counters, counter, FoldedChange(2, 2, 1, 1, 1), "s0", 0))

    assert dynamo.meter.write_units - before == 2


def opened(store: Store, materializer: Materializer, shard: ShardName) -> Materializer:
    """The same, to which the shard is known by what it handled before; that is paid for already."""
    dynamo, now_ms = store.dynamo(), materializer.connection.clock.now_ms()
    ShardDirectory().open(dynamo, store.counters, shard, now_ms)
    dynamo.update(advance_of(store.counters, ShardProgress(str(shard), "1", 1, now_ms, 0, 0, 0)))
    return replace(materializer, shards=ShardDirectory({str(shard): now_ms}))


def test_p9_a_new_shard_costs_two_units_once(store: Store, counter: str) -> None:
    """Its progress, and its entry in the directory of shards; three more reads."""
    materializer = store.materializer(clock=ManualClock())

    materializer.apply([record(10**24, counter=counter)], ShardName("costs", f"new-{counter}"))

    assert metered(materializer.connection.retrying) == (2 + 2, 3)


def test_p9_progress_costs_one_unit(store: Store, namespace: str) -> None:
    dynamo = store.dynamo()
    store.dynamo().update(opening_of(store.counters, f"{namespace}/s", 1))
    dynamo.update(advance_of(store.counters, ShardProgress(f"{namespace}/s", "1", 1, 1, 1, 1, 2)))

    assert metered(dynamo) == (1, 0)


def test_p9_a_batch_of_records_costs_one_unit_for_each_counter(store: Store, counter: str) -> None:
    """Records of one counter are folded first; the shard's progress is one more, and says so."""
    names = [f"{counter}/{number}" for number in range(3)]
    list(store.recorder().record_many(Event(name, 1) for name in names * 4))
    records = [
        record for name in names for batch in store.records(name, 4).values() for record in batch
    ]
    records.sort(key=lambda record: int(record["dynamodb"]["SequenceNumber"]))
    shard = ShardName("costs", counter)
    materializer = opened(store, store.materializer(), shard)

    materializer.apply(records, shard)

    assert metered(materializer.connection.retrying) == (4, 1)
    (progress,) = store.totals().progress([str(shard)]).values()
    assert (progress.records, progress.updates, progress.write_units) == (12, 3, 4)


def test_p9_a_thousand_events_of_64_counters_cost_1065_units(store: Store, namespace: str) -> None:
    """One for each entry, one for each total, one for the progress: 1.065 for each event."""
    recorder = store.recorder()
    recorder.sender.namespaces.create(namespace)
    names = [f"{namespace}:{number % 64}" for number in range(1_000)]
    shard = ShardName("costs", namespace)
    materializer = opened(store, store.materializer(clock=ManualClock()), shard)

    list(recorder.record_many(Event(name, 1) for name in names))
    materializer.apply(
        [record(10**24 + number, counter=name) for number, name in enumerate(names)],
        shard,
    )

    assert metered(recorder.sender.dynamo) == (1_000, 0)
    assert metered(materializer.connection.retrying) == (BATCH_UNITS, 1) == (65, 1)


@pytest.mark.parametrize("store", UNITS_ARE_REAL, indirect=True)
@pytest.mark.parametrize(
    ("rate", "counters", "window_s"),
    [(2.0, None, 1.0), (20.0, 40, 1.0), (20.0, 16, 1.0), (20.0, 40, 10.0)],
    ids=["few", "usual", "few counters", "a longer window"],
)
def test_p9_the_estimate_of_a_month_is_what_a_run_takes(
    store: Store, namespace: str, rate: float, counters: int | None, window_s: float
) -> None:
    """Entries at chance over four shards, in the batches that the window gathers.

    A counter is in one shard of the ledger, and in another one of the totals.
    """
    load = Workload(events_per_day=rate * 86_400, counters=counters, batching_s=window_s)
    arrivals = _arrivals(namespace, rate, counters, 2_000 if window_s > 1 else 500)
    batches = _gathered(arrivals, window_s)
    materializer, shards = _of_four_shards(store, namespace)
    sequences = count(10**24)

    for _, shard, names in batches:
        records = [record(next(sequences), counter=name) for name in names]
        materializer.apply(records, shards[shard])

    changes = [
        (at, int(one.rpartition("/")[2]) // 4 % 4, one)
        for at, _, names in batches
        for one in {*names}
    ]
    found = (*metered(materializer.connection.retrying), len(_gathered(changes, window_s)))
    updates, each = load.batches
    assert found == pytest.approx(
        tuple(len(arrivals) * one for one in (updates + each, each, load.evaluations)), rel=0.1
    )


def _of_four_shards(store: Store, name: str) -> tuple[Materializer, list[ShardName]]:
    shards = [ShardName("costs", f"{name}-{number}") for number in range(4)]
    made = store.materializer(clock=ManualClock())
    for shard in shards:
        opened(store, made, shard)
    now_ms = made.connection.clock.now_ms()
    return replace(made, shards=ShardDirectory({str(one): now_ms for one in shards})), shards


def _arrivals(
    name: str, rate: float, counters: int | None, entries: int
) -> list[tuple[float, int, str]]:
    """When an entry comes, in which shard, of which counter."""
    random, at, found = Random(f"{rate} {counters}"), 0.0, list[tuple[float, int, str]]()  # noqa: S311
    for number in range(entries):
        at += random.expovariate(rate)
        which = random.randrange(counters or 16)
        which += 0 if counters else number * 16
        found.append((at, which % 4, f"{name}/{which}"))
    return found


def _gathered(
    arrivals: list[tuple[float, int, str]], window_s: float
) -> list[tuple[float, int, list[str]]]:
    """Batches as a mapping makes them: each begins with a record and ends a window later."""
    open_, done = dict[int, tuple[float, int, list[str]]](), list[tuple[float, int, list[str]]]()
    for at, shard, counter in sorted(arrivals):
        if shard in open_ and at <= open_[shard][0]:
            open_[shard][2].append(counter)
        else:
            done += [open_[shard]] if shard in open_ else []
            open_[shard] = (at + window_s, shard, [counter])
    return sorted([*done, *open_.values()])


def test_p9_a_total_costs_half_a_read_unit(store: Store, counter: str) -> None:
    """Half, one if consistent, and the same where there is none."""
    store.dynamo().update(update_of(store.counters, counter, FoldedChange(1, 1, 1, 1, 1), "s", 0))
    for name in (counter, f"{counter}/none"):
        reader = store.totals()
        reader.read(name)
        assert metered(reader.connection.retrying) == (0, 0.5)
        reader.read(name, consistent=True)
        assert metered(reader.connection.retrying) == (0, 0.5 + 1)


def test_p9_many_totals_cost_half_a_unit_each(store: Store, counter: str) -> None:
    """A hundred in one call cost what they cost one by one."""
    names = [f"{counter}/{number}" for number in range(10)]
    for name in names:
        store.dynamo().update(update_of(store.counters, name, FoldedChange(1, 1, 1, 1, 1), "s", 0))
    reader = store.totals()

    reader.read_many(names)

    blind = store.engine.has(Difference.NO_UNITS_FOR_BATCH_GET)
    assert metered(reader.connection.retrying) == (0, 0 if blind else 5)


def test_p9_an_exact_sum_costs_two_units_and_one_for_each_4_kb(store: Store, counter: str) -> None:
    """Each head one, the entries by their size, and the sum says what it cost."""
    list(store.recorder().record_many(Event(counter, 1) for _ in range(100)))
    reader = store.exact()

    exact = reader.read(counter)

    # An entry of this test: names and values, and a number's bytes.
    sizes = sum(_size(item) for item in store.entry_items(counter))
    entries = _read(store, -(-sizes // 4_096))
    assert exact.read_units == 2 + entries
    assert metered(reader.connection.retrying) == (0, exact.read_units)


def _size(item: dict[str, object]) -> int:
    """The service's size of a plain entry: names, texts, and numbers at two digits a byte."""
    texts = sum(len(value.encode()) for value in item.values() if isinstance(value, str))
    numbers = sum(
        -(-len(str(value).strip("0")) // 2) + 1 for value in item.values() if isinstance(value, int)
    )
    return sum(map(len, item)) + texts + numbers


def test_p9_the_newest_entry_costs_two_small_queries(store: Store, counter: str) -> None:
    list(store.recorder().record_many(Event(counter, 1) for _ in range(100)))
    for spread, queries in ((1, 2), (16, 32)):
        dynamo = store.dynamo()
        list(newest_first(dynamo, store.ledger, counter, spread, 1))
        assert metered(dynamo) == (0, queries * 0.5)


def test_p9_the_list_of_namespaces_costs_half_a_unit(store: Store, namespace: str) -> None:
    """It is read from the sparse index, not by a scan of the ledger."""
    store.namespaces().create(namespace)
    list(store.recorder().record_many(Event(f"{namespace}:c", 1) for _ in range(100)))
    namespaces = store.namespaces()

    count = len(list(namespaces.list()))

    assert namespaces.connection.retrying.meter.read_units <= max(0.5, count * 0.1)
