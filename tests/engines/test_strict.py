"""P6 and P9: strict counters on every engine; what each call says, and what it costs."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from countledger import CountLedger, IdempotencyKey
from countledger.ledger import keys
from countledger.ledger.amount import Amount
from countledger.ledger.errors import (
    BadBounds,
    SumOverflow,
    WrongKind,
)
from countledger.ledger.ids import id_of_key
from countledger.ledger.operations import Assign, Update
from countledger.producers.strict.counters import StrictCounters
from countledger.producers.strict.definition import SPREADABLE, Method
from countledger.producers.strict.outcome import (
    Applied,
    BoundReached,
    Duplicate,
    SetFull,
)
from tests.engines.clock import HandClock
from tests.engines.differences import Difference
from tests.engines.store import Store
from tests.faults.sellers import metered, seller_of

REMEMBERING = [method for method in Method if method is not Method.ATOMIC]
TOKENLESS = (Method.REQUEST_TOKEN,)


@pytest.fixture
def seller(tables: Store) -> StrictCounters:
    """A process with strict counters."""
    return seller_of(tables)


def _told_tokens(tables: Store, method: Method) -> None:
    """Leave a test of what rests on tokens where the engine does not know them."""
    if method in TOKENLESS and tables.engine.has(Difference.IGNORES_TOKENS):
        pytest.skip(Difference.IGNORES_TOKENS.value)


@pytest.mark.parametrize("method", list(Method))
def test_p6_a_counter_moves_between_its_bounds_and_no_further(
    seller: StrictCounters, counter: str, method: Method
) -> None:
    """Up to the bound, not past it, and back; a refusal has the value, the bound and the asked."""
    seller.create(counter, method=method, lower=-1, upper=1)

    told = [seller.change(counter, delta) for delta in (1, 1, -1, -1, -1)]

    assert [type(one) for one in told] == [Applied, BoundReached, Applied, Applied, BoundReached]
    assert told[1] == BoundReached(counter, 1, "upper", 1, 1)
    assert told[4] == BoundReached(counter, -1, "lower", -1, -1)
    assert [one.value for one in told if isinstance(one, Applied)] == [1, 0, -1]


@pytest.mark.parametrize("method", list(Method))
def test_p6_a_side_without_bound_lets_everything_through(
    seller: StrictCounters, counter: str, method: Method
) -> None:
    """No bound was given, so none is invented."""
    seller.create(counter, method=method)

    assert isinstance(seller.change(counter, 1), Applied)
    assert isinstance(seller.change(counter, -1), Applied)
    assert isinstance(seller.change(counter, -1), Applied)


@pytest.mark.parametrize("method", [method for method in Method if method is not Method.SET])
def test_p6_decimals_are_exact(seller: StrictCounters, counter: str, method: Method) -> None:
    seller.create(counter, method=method, lower=Decimal("0.10"), opening=Decimal("10.35"))

    taken = seller.change(counter, Decimal("-10.25"))
    refused = seller.change(counter, Decimal("-0.01"))

    assert isinstance(taken, Applied)
    assert taken.value == Decimal("0.1")
    assert isinstance(refused, BoundReached)


def test_p6_an_engine_without_tokens_counts_a_retry_of_method_request_token_twice(
    tables: Store, seller: StrictCounters, counter: str
) -> None:
    """So method request_token is proved elsewhere."""
    if not tables.engine.has(Difference.IGNORES_TOKENS):
        pytest.skip("the engine knows tokens")
    seller.create(counter, method="request_token")

    told = [seller.change(counter, 1, key="order-1") for _ in range(2)]

    assert [type(one) for one in told] == [Applied, Applied]
    assert seller.show(counter).value == 2


@pytest.mark.parametrize("method", REMEMBERING)
def test_p6_keys_may_be_long(
    tables: Store, seller: StrictCounters, counter: str, method: Method
) -> None:
    _told_tokens(tables, method)
    seller.create(counter, method=method)
    timed = IdempotencyKey("k" * 1_024, datetime.now(UTC))

    assert isinstance(seller.change(counter, 1, key="k" * 1_024), Applied)
    assert isinstance(seller.change(counter, 1, key=timed), Applied)
    assert isinstance(seller.change(counter, 1, key=timed), Duplicate)


def test_p6_a_set_takes_as_many_changes_as_it_may(seller: StrictCounters, counter: str) -> None:
    """Then it says so, and still knows its duplicates."""
    seller.create(counter, method="set", max_tokens=2)

    told = [seller.change(counter, 1, key=key) for key in ("a", "b", "c", "a")]

    assert [type(one) for one in told] == [Applied, Applied, SetFull, Duplicate]
    assert told[2] == SetFull(counter, 2, 2)
    assert seller.show(counter).remembered == 2


def test_p6_a_history_forgets_the_oldest(seller: StrictCounters, counter: str) -> None:
    """What was pushed out counts again: that is the method's limit."""
    seller.create(counter, method="history", history=2)
    for key in ("a", "b", "c"):
        seller.change(counter, 1, key=key)

    assert isinstance(seller.change(counter, 1, key="b"), Duplicate)
    assert isinstance(seller.change(counter, 1, key="a"), Applied)


@pytest.mark.parametrize("method", list(Method))
def test_p6_bounds_move_while_the_counter_is_in_use(
    seller: StrictCounters, counter: str, method: Method
) -> None:
    """Raised, lowered, taken away, set where none was: each holds from then on."""
    seller.create(counter, method=method, upper=1, opening=1)

    assert isinstance(seller.change(counter, 1), BoundReached)
    seller.set_bounds(counter, upper=2)
    assert isinstance(seller.change(counter, 1), Applied)
    assert isinstance(seller.change(counter, 1), BoundReached)
    seller.set_bounds(counter, lower=1, upper=None)
    assert isinstance(seller.change(counter, 1), Applied)
    for expected in (Applied, Applied, BoundReached):
        assert isinstance(seller.change(counter, -1), expected)
    shown = seller.show(counter)
    assert (shown.value, shown.lower, shown.upper) == (1, 1, None)


@pytest.mark.parametrize("method", list(Method))
def test_p6_a_bound_that_the_value_has_passed_needs_force(
    seller: StrictCounters, counter: str, method: Method
) -> None:
    """Forced, it refuses changes towards it until the value has come back."""
    seller.create(counter, method=method, opening=3)

    with pytest.raises(BadBounds, match=r"above the upper bound 2: `force`.* --force"):
        seller.set_bounds(counter, upper=2)
    seller.set_bounds(counter, upper=2, force=True)

    told = [seller.change(counter, delta) for delta in (1, -1, 1, -1, 1, 1)]
    kinds = [Applied if isinstance(one, Applied) else BoundReached for one in told]
    assert kinds == [BoundReached, Applied, BoundReached, Applied, Applied, BoundReached]


@pytest.mark.parametrize("bins", [1, 3])
def test_p6_one_made_again_begins_above_its_old_version(
    tables: Store, seller: StrictCounters, counter: str, bins: int
) -> None:
    """So that no record of the old one is taken for a later one."""
    seller.create(counter, method="atomic", bins=bins)
    seller.change(counter, 1)
    version = seller.show(counter).version
    other = seller_of(tables)
    other.connection.clock.sleep_ms(1_000)
    other.delete(counter)

    other.create(counter, method="atomic", bins=bins)

    assert other.show(counter).version > version


@pytest.mark.parametrize("method", SPREADABLE)
def test_p6_bins_are_one_counter(
    tables: Store, seller: StrictCounters, counter: str, method: Method
) -> None:
    """Amounts larger than any bin are split; the last is sold; then it is refused."""
    seller.create(counter, method=method, lower=0, upper=20, opening=10, bins=4)

    told = [seller.change(counter, delta) for delta in (-7, -3, -1, 20, 1)]

    assert [type(one) for one in told] == [Applied, Applied, BoundReached, Applied, BoundReached]
    assert told[2] == BoundReached(counter, 0, "lower", 0, -1)
    assert told[4] == BoundReached(counter, 20, "upper", 20, 1)
    total = tables.totals().read(counter)
    assert (total.value, total.method, total.bins) == (20, method, 4)
    assert tables.totals().read_many([counter])[counter] == total


@pytest.mark.parametrize("method", SPREADABLE)
def test_p6_a_bound_of_bins_is_not_forced_past_the_value(
    seller: StrictCounters, counter: str, method: Method
) -> None:
    """What one bin gives back would be given out again while the others are over their share."""
    seller.create(counter, method=method, lower=0, upper=20, opening=10, bins=2)

    for bounds in ({"upper": 8}, {"lower": 12}):
        with pytest.raises(BadBounds, match=r"with bins not even with `force`"):
            seller.set_bounds(counter, **bounds, force=True)
    seller.set_bounds(counter, upper=11, force=True)

    for _ in range(3):
        seller.change(counter, -3)
        told = [seller.change(counter, 1) for _ in range(9)]
        assert isinstance(told[-1], BoundReached)
        assert seller.show(counter).value == 11


@pytest.mark.parametrize("method", [Method.ATOMIC, Method.MARKER])
def test_a_counter_with_bins_shows_when_it_was_changed_last(
    tables: Store, method: Method, counter: str
) -> None:
    """Whichever bin took it; alone and in the list."""
    clock = HandClock()
    seller = seller_of(tables, clock=clock)
    made = seller.create(counter, method=method, opening=10, bins=3).updated_at
    clock.sleep_ms(5_000)

    seller.change(counter, -1)

    shown = seller.show(counter)
    assert made is not None
    assert shown.updated_at == made + timedelta(seconds=5)
    assert next(seller.list(keys.namespace_of(counter))) == shown


@pytest.mark.parametrize("method", SPREADABLE)
def test_p6_a_change_may_be_split_over_all_bins_there_can_be(
    tables: Store, seller: StrictCounters, counter: str, method: Method
) -> None:
    """One transaction of all of them, and of the marker where there is one."""
    if tables.engine.has(Difference.QUERIES_TAKE_LONG):
        pytest.skip("a transaction of a hundred takes seconds on this engine")
    seller.create(counter, method=method, lower=0, opening=98, bins=98)

    assert isinstance(seller.change(counter, -98, key=_key(method)), Applied)
    assert seller.show(counter).value == 0


def _key(method: Method) -> str | None:
    return None if method is Method.ATOMIC else "order-1"


def test_p6_a_marker_tells_who_what_and_until_when(
    tables: Store, seller: StrictCounters, counter: str
) -> None:
    """For the window, what clocks may differ, and the life of a request; then it expires."""
    seller.create(counter, method="marker", window_ms=3_600_000)
    seller.change(counter, 2, key="order-1", note={"buyer": "ann"})

    key = keys.marker_key(counter, 1, id_of_key("order-1"))
    marker = tables.item(tables.counters, key) or {}

    assert (marker["delta"], marker["key"], marker["note"]) == (2, "order-1", {"buyer": "ann"})
    assert marker["at"] == seller.connection.clock.now_ms()
    assert marker["expires_at"] - marker["at"] // 1_000 in {4_560, 4_561}


@pytest.mark.parametrize("method", list(Method))
def test_p6_a_total_is_read_as_of_any_counter(
    tables: Store, seller: StrictCounters, counter: str, method: Method
) -> None:
    """One read path for all."""
    seller.create(counter, method=method, opening=4)
    seller.change(counter, 1)

    total = tables.totals().read(counter)

    assert (total.counter, total.value, total.method) == (counter, 5, method)


def test_p6_counters_are_listed_by_name(seller: StrictCounters, counter: str) -> None:
    """Those of one namespace, as they stand, without those deleted."""
    namespace = counter.partition(":")[0]
    for name, bins in (("b", 1), ("a", 3), ("c", 1)):
        seller.create(f"{namespace}:{name}", method="atomic", opening=5, bins=bins)
    seller.delete(f"{namespace}:c")

    listed = list(seller.list(namespace))

    assert [(one.counter, one.value) for one in listed] == [
        (f"{namespace}:a", 5),
        (f"{namespace}:b", 5),
    ]


def test_p8_a_namespace_has_one_kind(tables: Store, seller: StrictCounters, counter: str) -> None:
    engine = tables.engine
    settings = replace(tables.connection.settings, ledger_stream_arn=tables.stream_arn)
    client = CountLedger(settings, session=engine.session, endpoint_url=engine.endpoint_url)
    seller.create(counter, method="atomic")
    client.record(f"l{counter}", 1)

    with pytest.raises(WrongKind, match="strict"):
        client.exact(counter)
    with pytest.raises(WrongKind, match="strict"):
        client.entries(counter)
    with pytest.raises(WrongKind, match="strict"):
        client.record(counter, 1)
    with pytest.raises(WrongKind, match="strict"):
        client.audit.verify(counter)
    with pytest.raises(WrongKind, match="ledger"):
        client.strict.create(f"l{counter}", method="atomic")
    with pytest.raises(WrongKind, match="ledger"):
        client.strict.change(f"l{counter}", 1)


# ---- P9 ---------------------------------------------------------------------------------------


def test_p9_a_refusal_by_method_marker_looks_for_the_marker_once(
    seller: StrictCounters, counter: str
) -> None:
    """One read unit beside what a change costs."""
    seller.create(counter, method="marker", upper=1, opening=1)
    seller.change(counter, -1)
    seller.change(counter, 1)

    before = metered(seller.connection.unretried)
    refused = seller.change(counter, 1)
    after = metered(seller.connection.unretried)

    assert isinstance(refused, BoundReached)
    assert (after[0] - before[0], after[1] - before[1]) == (4, 1)


@pytest.mark.parametrize("method", ["occ", "history"])
def test_p9_who_holds_the_state_reads_nothing(
    seller: StrictCounters, counter: str, method: str
) -> None:
    seller.create(counter, method=method)
    first = seller.change(counter, 1)
    assert isinstance(first, Applied)

    before = metered(seller.connection.unretried)
    second = seller.change(counter, 1, known=first.known)
    after = metered(seller.connection.unretried)

    assert isinstance(second, Applied)
    assert second.value == 2
    assert (after[0] - before[0], after[1] - before[1]) == (1, 0)


def test_p9_an_old_state_costs_a_write_and_refuses_nothing(
    tables: Store, seller: StrictCounters, counter: str
) -> None:
    """A refusal by a state that is out of date is looked at again."""
    seller.create(counter, method="occ", upper=1)
    first = seller.change(counter, 1)
    assert isinstance(first, Applied)
    seller_of(tables).change(counter, -1)

    assert isinstance(seller.change(counter, 1, known=first.known), Applied)


def test_p9_a_set_costs_more_as_it_grows(seller: StrictCounters, counter: str) -> None:
    """One unit for each KB of the item, and the counter says how much that is now."""
    seller.create(counter, method="set", max_tokens=60)
    dynamo = seller.connection.unretried
    for number in range(50):
        seller.change(counter, 1, key=f"order-{number}")

    before = metered(dynamo)
    seller.change(counter, 1)
    spent = metered(dynamo)[0] - before[0]

    assert spent == 2 == seller.show(counter).write_units


@pytest.mark.parametrize("method", ["occ", "history"])
@pytest.mark.parametrize("delta", [2, Decimal("0.1")], ids=str)
def test_p8_a_value_past_38_digits_is_refused_by_the_methods_that_write_it_whole(
    store: Store, counter: str, method: str, delta: Amount
) -> None:
    """What they would write is no number of the service: an error of ours, and nothing changes."""
    seller = seller_of(store)
    seller.create(counter, method=method)
    whole = Update(store.counters, keys.total_key(counter), (Assign("total", 10**38 - 1),), None)
    store.dynamo().update(whole)

    with pytest.raises(SumOverflow, match="38 digits"):
        seller.change(counter, delta)

    assert seller.show(counter).value == 10**38 - 1
