"""Rankings on every engine: in order, ties by name, and free where nothing is ranked."""

from collections import Counter
from decimal import Decimal

import pytest

from countledger.consumers.materializer import Materializer
from countledger.consumers.rankings import Ranked, Rankings, ranked
from countledger.consumers.total_writer import FoldedChange, and_also, rank_clauses_of, update_of
from countledger.ledger import keys
from countledger.ledger.amount import Amount
from countledger.ledger.errors import BadSetting, CorruptItem, NamespaceUnknown, NotRanked
from countledger.ledger.indexes import PARTITIONS, clauses_for, namespace_board
from countledger.ledger.limits import RANK_RULE_LIFE_MS, RANK_SETTLES_MS
from countledger.ledger.namespace import Kind
from countledger.ledger.operations import Put
from countledger.producers.event import Event
from tests.engines.clock import HandClock
from tests.engines.store import KeptRecords, Store
from tests.faults.sellers import metered, seller_of


def _rankings(store: Store) -> Rankings:
    return Rankings(store.process(HandClock()))


def _moved(store: Store, counter: str, sequence: int, delta: Amount, *, on: bool | None) -> float:
    """A materializer's update of a total; what it costs."""
    dynamo = store.dynamo()
    step = FoldedChange(sequence, sequence, delta, 1, 1)
    update = update_of(store.counters, counter, step, "s", 0)
    dynamo.update(and_also(update, clauses_for(counter, None if on is None else PARTITIONS * on)))
    return dynamo.meter.write_units


def _ledger(store: Store, namespace: str, **totals: Amount) -> None:
    store.namespaces().create(namespace)
    dynamo = store.dynamo()
    for name, total in totals.items():
        update = update_of(
            store.counters, f"{namespace}:{name}", FoldedChange(1, 1, total, 1, 1), "s", 0
        )
        dynamo.update(update)


def _top(rankings: Rankings, namespace: str, limit: int = 10) -> list[tuple[int, str, Amount]]:
    found = rankings.top(namespace, limit)
    return [(one.rank, one.counter.removeprefix(f"{namespace}:"), one.value) for one in found]


def test_totals_that_are_there_are_ranked(store: Store, namespace: str) -> None:
    """By total, fractions and negative ones too; of another namespace none."""
    _ledger(store, namespace, a=3, b=Decimal("3.5"), c=-2, d=10**30, e=0)
    _ledger(store, f"{namespace}x", a=99)
    rankings = _rankings(store)

    assert rankings.switch_on(namespace) == 5

    order = [(1, "d", 10**30), (2, "b", Decimal("3.5")), (3, "a", 3), (4, "e", 0), (5, "c", -2)]
    assert _top(rankings, namespace) == order
    assert _top(rankings, namespace, 2) == order[:2]
    assert rankings.switch_on(namespace) == 0


def test_ties_stand_in_the_order_of_names(store: Store, namespace: str) -> None:
    """Whichever partition they lie in, also where the list ends in the middle of them."""
    names = [f"n{number:02d}" for number in range(40)]
    _ledger(store, namespace, top=9, **dict.fromkeys(names, 5), low=1)
    rankings = _rankings(store)
    rankings.switch_on(namespace)

    for limit in (1, 2, 7, 41):
        expected = [(1, "top", 9), *((2, name, 5) for name in names)][:limit]
        assert _top(rankings, namespace, limit) == expected
    assert _top(rankings, namespace, 42)[-1] == (42, "low", 1)


def test_the_materializer_ranks_new_totals_and_keeps_old_ones_in_order(
    store: Store, namespace: str
) -> None:
    names = [f"{namespace}:{number}" for number in range(4)]
    store.namespaces().create(namespace)
    rankings, clock = _rankings(store), HandClock()
    rankings.switch_on(namespace)
    process = store.process(clock)
    materializer = Materializer(
        store.process(clock),
        KeptRecords(),
        rank_clauses=rank_clauses_of(process),
    )
    recorder = store.recorder()
    list(recorder.record_many(Event(name, n + 1) for n, name in enumerate(names)))
    list(recorder.record_many([Event(names[0], 10)]))

    records = store.stream_records(
        lambda record: record["dynamodb"]["Keys"]["counter"]["S"] in names, 5
    )
    for shard, batch in records.items():
        materializer.apply(batch, shard)

    assert [one.counter for one in rankings.top(namespace)] == [names[n] for n in (0, 3, 2, 1)]
    assert process.retrying.meter.read_units == 0.5


def test_a_rule_is_looked_at_again_after_a_minute(store: Store, namespace: str) -> None:
    counter = f"{namespace}:c"
    store.namespaces().create(namespace)
    rankings, clock = _rankings(store), HandClock()
    clauses = rank_clauses_of(store.process(clock))
    assert clauses(counter) == ()

    rankings.switch_on(namespace)
    assert clauses(counter) == ()
    clock.sleep_ms(RANK_RULE_LIFE_MS)
    assert clauses(counter) == clauses_for(counter, PARTITIONS)

    _moved(store, counter, 1, 1, on=True)
    assert [one.counter for one in rankings.top(namespace)] == [counter]
    rankings.switch_off(namespace)
    clock.sleep_ms(RANK_RULE_LIFE_MS)
    assert clauses(counter) == clauses_for(counter, 0)


def test_switching_off_takes_all_totals_out(store: Store, namespace: str) -> None:
    _ledger(store, namespace, a=3, b=4)
    rankings = _rankings(store)
    rankings.switch_on(namespace)
    before = store.totals().read(f"{namespace}:a")

    assert rankings.switch_off(namespace) == 2

    item = store.item(store.counters, keys.total_key(f"{namespace}:a")) or {}
    assert "ranked" not in item
    assert store.totals().read(f"{namespace}:a") == before
    with pytest.raises(NotRanked, match="namespace rank"):
        rankings.top(namespace)


def test_strict_counters_are_ranked_without_bins(store: Store, namespace: str) -> None:
    """Those that are there and those made later; their changes move them."""
    seller, rankings = seller_of(store), _rankings(store)
    seller.create(f"{namespace}:a", method="atomic", opening=5)
    seller.create(f"{namespace}:spread", method="atomic", opening=99, bins=2)
    assert rankings.switch_on(namespace) == 1
    seller.create(f"{namespace}:b", method="occ", opening=7)
    seller.create(f"{namespace}:also-spread", method="atomic", opening=99, bins=2)

    seller.change(f"{namespace}:a", 3)

    assert _top(rankings, namespace) == [(1, "a", 8), (2, "b", 7)]


def test_only_totals_that_a_materializer_writes_are_waited_for(
    store: Store, namespace: str
) -> None:
    store.namespaces().create(namespace, kind=Kind.STRICT)
    store.namespaces().create(f"{namespace}x", kind=Kind.LEDGER)
    clock = HandClock()
    rankings = Rankings(store.process(clock))

    rankings.switch_on(namespace)
    strict = list(clock.slept_ms)
    rankings.switch_on(f"{namespace}x")

    assert strict == []
    assert clock.slept_ms == [RANK_SETTLES_MS]


def test_a_caller_learns_while_it_waits_for_how_long(store: Store, namespace: str) -> None:
    store.namespaces().create(namespace, kind=Kind.LEDGER)
    clock = HandClock()
    rankings = Rankings(store.process(clock))
    heard: list[tuple[int, int]] = []

    rankings.switch_on(namespace, on_wait=lambda *times: heard.append(times))

    assert heard == [(at_ms, RANK_SETTLES_MS) for at_ms in range(0, RANK_SETTLES_MS, 1_000)]
    assert sum(clock.slept_ms) == RANK_SETTLES_MS
    rankings.switch_on(namespace, wait=False, on_wait=lambda *times: heard.append(times))
    assert len(heard) == len(clock.slept_ms)


def test_p8_what_cannot_be_ranked_is_refused(store: Store, namespace: str) -> None:
    clock = HandClock()
    rankings = Rankings(store.process(clock))
    store.namespaces().create(namespace, kind=Kind.SEQUENCE)

    with pytest.raises(NamespaceUnknown):
        rankings.switch_on(f"{namespace}-none")
    with pytest.raises(NotRanked, match="sequence"):
        rankings.switch_on(namespace)
    for limit in (0, -1, 1_001, True):
        with pytest.raises(BadSetting, match="1 to 1000"):
            rankings.top(namespace, limit)
    assert clock.slept_ms == []
    written, read = metered(rankings.connection.retrying)
    assert written == 0
    assert read <= 2  # the two namespaces


# ---- P9 ---------------------------------------------------------------------------------------


def test_p9_a_plain_total_costs_what_it_did_before(store: Store, counter: str) -> None:
    """One unit, new or not, where ranking was never on, and where it was switched off."""
    assert [_moved(store, counter, number, 1, on=None) for number in (1, 2, 3)] == [1, 1, 1]
    assert _moved(store, counter, 4, 1, on=False) == 1


def test_p9_a_ranked_total_costs_two_units_more_where_it_moves(store: Store, counter: str) -> None:
    """New: one more. Moved: one to leave its old place and one to take the new. Unmoved: none."""
    assert _moved(store, counter, 1, 5, on=True) == 2
    assert _moved(store, counter, 2, 5, on=True) == 3
    assert _moved(store, counter, 3, 0, on=True) == 1
    assert _moved(store, counter, 4, 1, on=False) == 2
    assert _moved(store, counter, 5, 1, on=False) == 1


def test_p9_a_ranked_strict_counter_costs_two_units_more(store: Store, counter: str) -> None:
    seller, rankings = seller_of(store), _rankings(store)
    seller.create(counter, method="atomic")
    rankings.switch_on(keys.namespace_of(counter))
    seller.create(f"x{counter}", method="atomic")

    costs = []
    for name in (counter, f"x{counter}"):
        before = metered(seller.connection.unretried)[0]
        seller.change(name, 1)
        costs.append(metered(seller.connection.unretried)[0] - before)

    assert costs == [3, 1]


def test_p9_the_top_costs_half_a_unit_for_each_partition(store: Store, namespace: str) -> None:
    """And half of one to see that it is ranked, whatever the number of totals."""
    _ledger(store, namespace, **{f"n{number}": number for number in range(60)})
    rankings = _rankings(store)
    rankings.switch_on(namespace)
    before = metered(rankings.connection.retrying)[1]

    assert [one.value for one in rankings.top(namespace, 5)] == [59, 58, 57, 56, 55]

    assert metered(rankings.connection.retrying)[1] - before == 0.5 + PARTITIONS * 0.5


def test_equal_totals_share_a_rank() -> None:
    """And as many ranks are left out behind them."""
    found: list[tuple[str, Amount]] = [("b", 1), ("a", 1), ("c", 2), ("d", Decimal("0.5"))]

    assert ranked(found, 4) == [
        Ranked(1, "c", 2),
        Ranked(2, "a", 1),
        Ranked(2, "b", 1),
        Ranked(4, "d", Decimal("0.5")),
    ]


def test_more_partitions_lose_no_total(store: Store, namespace: str) -> None:
    """Totals stay until their next update; fewer partitions would hide some, and are refused."""
    names = {f"n{number}": number + 1 for number in range(12)}
    _ledger(store, namespace, **names)
    rankings = _rankings(store)
    rankings.switch_on(namespace)
    before = _top(rankings, namespace, 20)

    assert rankings.switch_on(namespace, partitions=32) == 0
    assert _top(rankings, namespace, 20) == before
    process = store.process()
    clauses = rank_clauses_of(process)
    moved = {clauses(f"{namespace}:{name}") for name in names}
    assert len(moved) > PARTITIONS

    with pytest.raises(BadSetting, match="has 32 already"):
        rankings.switch_on(namespace, partitions=16)
    assert rankings.switch_on(namespace) == 0
    assert rankings.switch_off(namespace) == len(names)
    rankings.switch_on(namespace)
    rule = process.retrying.get(store.counters, keys.ranking_key(namespace))
    assert rule is not None
    assert rule["partitions"] == 32


def test_more_partitions_leave_a_ledgers_totals_to_their_next_update(
    store: Store, namespace: str
) -> None:
    """Each update writes the place: the call writes none that has one."""
    _ledger(store, namespace, **{f"n{number}": number + 1 for number in range(8)})
    rankings = _rankings(store)
    rankings.switch_on(namespace, partitions=1)

    assert rankings.switch_on(namespace, partitions=32) == 0

    items = [store.item(store.counters, keys.total_key(f"{namespace}:n{n}")) for n in range(8)]
    assert len({(item or {})["ranked"] for item in items}) == 1


def test_more_partitions_move_strict_counters(store: Store, namespace: str) -> None:
    """No change of a strict counter writes its position, so the call that adds partitions does."""
    seller, rankings = seller_of(store), _rankings(store)
    names = [f"{namespace}:n{number}" for number in range(12)]
    for number, name in enumerate(names):
        seller.create(name, method="occ", opening=number)
    rankings.switch_on(namespace)
    before = _top(rankings, namespace, 20)

    rankings.switch_on(namespace, partitions=32)

    board = namespace_board(namespace, 32)
    items = [store.item(store.counters, keys.total_key(name)) or {} for name in names]
    assert [item["ranked"] for item in items] == [board.bucket_of(name) for name in names]
    assert _top(rankings, namespace, 20) == before
    seller.change(names[0], 100)
    assert _top(rankings, namespace, 1) == [(1, "n0", 100)]


@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
def test_a_call_at_the_same_time_does_not_lower_the_number_of_partitions(
    store: Store, namespace: str, monkeypatch: pytest.MonkeyPatch, *, on: bool
) -> None:
    store.namespaces().create(namespace, kind=Kind.STRICT)
    rankings, other = _rankings(store), _rankings(store)
    rankings.switch_on(namespace)
    write, calls = rankings.connection.retrying.put, [1]

    def put(operation: Put) -> None:
        if calls:
            calls.clear()
            other.switch_on(namespace, partitions=32)
        write(operation)

    monkeypatch.setattr(
        type(rankings.connection.retrying), "put", lambda _self, operation: put(operation)
    )
    if on:
        rankings.switch_on(namespace)
    else:
        rankings.switch_off(namespace)

    rule = rankings.connection.retrying.get(store.counters, keys.ranking_key(namespace)) or {}
    assert (rule["on"], rule["partitions"]) == (on, 32)


@pytest.mark.parametrize("partitions", [4, 16, 48, 100])
def test_partitions_get_about_as_many_counters_each(partitions: int) -> None:
    """And four of them those that they always had."""
    board = namespace_board("likes", partitions)
    places = Counter(board.bucket_of(f"likes:post-{number}") for number in range(20_000))

    assert set(places) == set(board.buckets)
    assert max(places.values()) < 1.2 * 20_000 / partitions
    four = [
        namespace_board("likes", 4).bucket_of(f"likes:post-{number}")[-1] for number in range(9)
    ]
    assert "".join(four) == "313301001"


@pytest.mark.parametrize("corrupt", [0, 101, "many"], ids=str)
def test_a_corrupt_number_of_partitions_is_written_again(
    store: Store, namespace: str, corrupt: int | str
) -> None:
    """With a number given. Totals in partitions above it are moved, so that none is lost."""
    _ledger(store, namespace, **{f"n{number}": number + 1 for number in range(8)})
    rankings = _rankings(store)
    rankings.switch_on(namespace, partitions=32)
    expected = _top(rankings, namespace)
    rule = {**keys.ranking_key(namespace), "on": True, "partitions": corrupt, "revision": "r"}
    rankings.connection.retrying.put(Put(store.counters, rule))

    for call in (rankings.switch_on, rankings.switch_off, rankings.top):
        with pytest.raises(CorruptItem, match="namespace rank --partitions"):
            call(namespace)
    rankings.switch_on(namespace, partitions=4)

    assert _top(rankings, namespace) == expected


def test_a_corrupt_rule_stops_no_creation_of_a_strict_counter(store: Store, namespace: str) -> None:
    """It gets its place with the others, when the ranking is switched on again."""
    seller, rankings = seller_of(store), _rankings(store)
    seller.create(f"{namespace}:a", method="atomic", opening=5)
    rule = {**keys.ranking_key(namespace), "on": True, "partitions": "many", "revision": "r"}
    rankings.connection.retrying.put(Put(store.counters, rule))

    seller.create(f"{namespace}:b", method="atomic", opening=7)

    rankings.switch_on(namespace, partitions=4)
    assert _top(rankings, namespace) == [(1, "b", 7), (2, "a", 5)]


@pytest.mark.parametrize("on", [True, False], ids=["ranked", "not ranked any more"])
def test_a_materializer_that_knows_the_old_number_of_partitions_hides_no_total(
    store: Store, namespace: str, *, on: bool
) -> None:
    """For a minute it writes the old places. They are in the new board, and leave it with it."""
    rankings, dynamo = _rankings(store), store.dynamo()
    store.namespaces().create(namespace)
    rankings.switch_on(namespace)
    names = [f"{namespace}:n{number}" for number in range(12)]

    def write(sequence: int, partitions: int) -> None:
        for number, name in enumerate(names):
            step = FoldedChange(sequence, sequence, number + 1, 1, 1)
            update = update_of(store.counters, name, step, "s", 0)
            dynamo.update(and_also(update, clauses_for(name, partitions)))

    rankings.switch_on(namespace, partitions=48)
    write(1, PARTITIONS)
    write(2, 48)
    write(3, PARTITIONS)

    if on:
        assert [one.counter for one in rankings.top(namespace, 12)] == names[::-1]
    else:
        assert rankings.switch_off(namespace) == len(names)
        assert rankings.switch_on(namespace) == len(names)
