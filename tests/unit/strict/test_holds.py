"""Holds over tables in memory: what each call stores, answers, and gives back."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countledger.ledger import keys
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import (
    BadBounds,
    BadDelta,
    BadKey,
    BadSetting,
    IdempotencyKeyReused,
    KeyExpired,
    NoSuchCounter,
    NoSuchHold,
    OpenHolds,
    Reason,
    Throttled,
    TransactionCancelled,
    Unclear,
)
from countledger.ledger.ids import IdempotencyKey
from countledger.ledger.limits import HOUR_MS, MINUTE_MS, SECOND_MS
from countledger.ledger.operations import Delete
from countledger.producers.strict.counters import StrictCounters
from countledger.producers.strict.definition import define
from countledger.producers.strict.hold import HoldState
from countledger.producers.strict.outcome import (
    Applied,
    BoundReached,
    Cancelled,
    Confirmed,
    Contended,
    Duplicate,
    ExceedsHold,
    Held,
    HoldCancelled,
    HoldConfirmed,
    HoldExpired,
    Unknown,
)
from countledger.producers.strict.release import plan_lease
from tests.unit.connections import connection_on
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import Get, MemoryClient, at, held_back, meanwhile, refuses

HALL = "tickets:hall"
TEN = timedelta(minutes=10)
BINS = pytest.mark.parametrize("bins", [1, 3])


class Shop:
    """A counter of 10 tickets, and processes that sell them."""

    def __init__(self, bins: int = 1) -> None:
        self.dynamo, self.clock = MemoryClient(), ManualClock()
        self.bins, self.strict = bins, self.process()
        self.strict.create(HALL, method="marker", lower=0, opening=10, bins=bins)

    def process(self, clock: ManualClock | None = None) -> StrictCounters:
        """Another process, which knows nothing yet."""
        return StrictCounters(connection_on(self.dynamo, clock or self.clock))

    def hold(self, amount: int | Decimal = 2, key: str = "basket-7") -> Held:
        """Place a hold that is expected to succeed."""
        outcome = self.strict.hold(HALL, amount, key=key, expires_in=TEN)
        assert isinstance(outcome, Held), outcome
        return outcome

    def state(self) -> tuple[object, object, object]:
        """Value, held and available."""
        shown = self.strict.show(HALL)
        return shown.value, shown.held, shown.available

    def check(self) -> None:
        """Each item's headroom is that of its total, its bounds and what it holds."""
        for item in self.dynamo.items("counters"):
            if "headroom_down" in item:
                free = item["total"] - item.get("held", 0)
                assert item["headroom_down"] == free - item.get("lower", 0), item
                assert item["headroom_up"] == item.get("upper", 0) - item["total"], item


@pytest.fixture(params=[1, 3], ids=["one item", "bins"])
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    """A shop, whose items fit together at the end."""
    made = Shop(request.param)
    yield made
    made.check()


def test_what_is_held_is_not_for_sale(shop: Shop) -> None:
    held = shop.hold(7)

    assert shop.state() == (10, 7, 3)
    refused = shop.strict.change(HALL, -4, key="o-1")
    assert refused == BoundReached(HALL, 10, "lower", 0, -4, 7)
    assert refused.available == 3
    assert isinstance(shop.strict.change(HALL, -3, key="o-2"), Applied)
    again = shop.strict.hold(HALL, 1, key="basket-8", expires_in=TEN)
    assert isinstance(again, BoundReached)
    assert held.id.startswith(f"{HALL}#")


def test_the_id_of_a_hold_has_the_text_of_a_name_from_an_enumeration(shop: Shop) -> None:
    class Name(str, Enum):  # noqa: UP042 - `StrEnum` formats as its text
        HALL = "tickets:hall"

    held = shop.strict.hold(Name.HALL, 4, key="basket-7", expires_in=TEN)

    assert isinstance(held, Held)
    assert shop.strict.confirm(held.id) == Confirmed(HALL, held.id, 4, 0)


def test_a_hold_is_confirmed_all_of_it_or_a_part(shop: Shop) -> None:
    first, second = shop.hold(4), shop.hold(3, "basket-8")

    assert shop.strict.confirm(first.id) == Confirmed(HALL, first.id, 4, 0)
    assert shop.state() == (6, 3, 3)
    assert shop.strict.confirm(second.id, 1) == Confirmed(HALL, second.id, 1, 2)
    assert shop.state() == (5, 0, 5)


def test_a_hold_is_resolved_once(shop: Shop) -> None:
    held = shop.hold(4)
    shop.strict.confirm(held.id, 3)

    assert isinstance(shop.strict.confirm(held.id), Duplicate)
    assert isinstance(shop.strict.confirm(held.id, 3), Duplicate)
    assert shop.strict.confirm(held.id, 4) == HoldConfirmed(HALL, held.id, 3)
    assert shop.strict.cancel(held.id) == HoldConfirmed(HALL, held.id, 3)
    other = shop.hold(2, "basket-8")
    assert shop.strict.cancel(other.id) == Cancelled(HALL, other.id, 2)
    assert isinstance(shop.strict.cancel(other.id), Duplicate)
    assert shop.strict.confirm(other.id) == HoldCancelled(HALL, other.id)
    assert shop.state() == (7, 0, 7)


def test_a_retried_reserve_holds_once(shop: Shop) -> None:
    held = shop.hold(4)
    again = shop.process().hold(HALL, 4, key="basket-7", expires_in=TEN)

    assert isinstance(again, Duplicate)
    assert again.hold is not None
    assert (again.hold.id, again.hold.state) == (held.id, HoldState.OPEN)
    assert shop.state() == (10, 4, 6)
    shop.strict.confirm(held.id)
    later = shop.strict.hold(HALL, 4, key="basket-7", expires_in=TEN)
    assert isinstance(later, Duplicate)
    assert later.hold is not None
    assert later.hold.state is HoldState.CONFIRMED


def test_a_key_is_of_one_hold_or_one_change(shop: Shop) -> None:
    shop.hold(4)

    with pytest.raises(IdempotencyKeyReused):
        shop.strict.hold(HALL, 3, key="basket-7", expires_in=TEN)
    with pytest.raises(IdempotencyKeyReused, match="something else"):
        shop.strict.change(HALL, -4, key="basket-7")
    shop.strict.change(HALL, -1, key="order-1")
    with pytest.raises(IdempotencyKeyReused, match="delta of -1"):
        shop.strict.hold(HALL, 1, key="order-1", expires_in=TEN)
    assert isinstance(shop.strict.withdraw(HALL, "basket-7"), Duplicate)


def test_confirming_more_than_is_held_is_refused(shop: Shop) -> None:
    held = shop.hold(4)

    assert shop.strict.confirm(held.id, 5) == ExceedsHold(HALL, held.id, 4, 5)
    assert shop.state() == (10, 4, 6)


def test_a_confirm_after_expiry_is_refused_in_words(shop: Shop) -> None:
    held = shop.hold(4)
    shop.clock.at_ms += 10 * MINUTE_MS

    expired = HoldExpired(HALL, held.id, 4, held.expires_at)
    assert shop.strict.confirm(held.id) == expired
    assert shop.state() == (10, 4, 6)  # another clock may still confirm it
    shop.clock.at_ms += MINUTE_MS + 1
    assert shop.strict.confirm(held.id) == expired
    assert shop.state() == (10, 0, 10)
    assert shop.strict.cancel(held.id) == expired


def test_an_expired_hold_is_readmitted_once_if_there_is_headroom(shop: Shop) -> None:
    held = shop.hold(4)
    shop.clock.at_ms += 12 * MINUTE_MS
    assert isinstance(shop.strict.confirm(held.id), HoldExpired)
    shop.strict.change(HALL, -7, key="o-1")

    assert isinstance(shop.strict.confirm(held.id, readmit=True), BoundReached)
    assert shop.strict.confirm(held.id, 3, readmit=True) == Confirmed(HALL, held.id, 3, 1)
    assert shop.state() == (0, 0, 0)
    assert isinstance(shop.strict.confirm(held.id, 3, readmit=True), Duplicate)


def test_a_hold_that_another_call_readmits_meanwhile_is_not_refused(shop: Shop) -> None:
    """That call has taken what is short; a cancelled transaction may tell of the headroom alone."""
    held, other = shop.hold(6), shop.process()
    shop.clock.at_ms += 12 * MINUTE_MS
    assert isinstance(shop.strict.confirm(held.id), HoldExpired)

    def readmitted() -> None:
        assert isinstance(other.confirm(held.id, readmit=True), Confirmed)

    def tell_the_last(_kind: str, _what: object, request: Callable[[], object]) -> object:
        try:
            return request()
        except TransactionCancelled as cancelled:
            first = [Reason("None") for _ in cancelled.reasons[1:]]
            raise TransactionCancelled((*first, cancelled.reasons[-1])) from None

    looks = meanwhile(readmitted, "get", where=lambda what: what.key.get("part") == keys.BIN)
    sends = meanwhile(readmitted, "transact")
    shop.dynamo.plans[:] = [at(tell_the_last, "transact"), looks if shop.bins > 1 else sends]
    assert isinstance(shop.strict.confirm(held.id, readmit=True), Duplicate)
    assert shop.state() == (4, 0, 4)


def test_an_expired_hold_that_nobody_released_is_readmitted_where_it_is(shop: Shop) -> None:
    held = shop.hold(10)
    shop.clock.at_ms += 12 * MINUTE_MS

    assert shop.strict.confirm(held.id, readmit=True) == Confirmed(HALL, held.id, 10, 0)
    assert shop.state() == (0, 0, 0)


def test_an_expired_hold_makes_no_sale_fail(shop: Shop) -> None:
    """Of a change, a hold, a transfer and a setting: all are short of what expired holds keep."""
    for number in range(4):
        shop.hold(2, f"basket-{number}")
    shop.clock.at_ms += 12 * MINUTE_MS

    assert isinstance(shop.strict.change(HALL, -9, key="o-1"), Applied)
    assert shop.state() == (1, 0, 1)
    shop.hold(1, "basket-9")
    shop.clock.at_ms += 12 * MINUTE_MS
    shop.hold(1, "basket-10")
    shop.clock.at_ms += 12 * MINUTE_MS
    assert isinstance(shop.strict.transactions.change({HALL: -1}, key="t-1"), Applied)
    shop.strict.change(HALL, 2, key="o-2")
    shop.hold(2, "basket-11")
    shop.clock.at_ms += 12 * MINUTE_MS
    assert isinstance(shop.strict.transactions.set_value(HALL, 0, key="s-1"), Applied)
    assert shop.state() == (0, 0, 0)


def test_a_refused_call_looks_once_a_second_and_only_where_something_is_held(shop: Shop) -> None:
    shop.strict.change(HALL, -11, key="o-0")
    assert "query" not in shop.dynamo.calls
    shop.hold(2)
    shop.dynamo.calls.clear()
    for number in range(3):
        shop.strict.change(HALL, -9, key=f"o-{number}")
    queries = shop.dynamo.calls.count("query")
    assert 1 <= queries <= 3
    shop.clock.at_ms += SECOND_MS - 1
    shop.strict.change(HALL, -9, key="o-9")
    assert shop.dynamo.calls.count("query") == queries
    shop.clock.at_ms += 1
    shop.strict.change(HALL, -9, key="o-10")
    assert shop.dynamo.calls.count("query") == 2 * queries
    assert "put" not in shop.dynamo.calls  # a lease is for what can be released


def test_what_expires_within_the_second_after_a_look_makes_no_sale_fail(shop: Shop) -> None:
    """The look has seen when; and what is placed later expires later, by any clock."""
    shop.hold(8)
    slow = shop.process(ManualClock(shop.clock.at_ms - MINUTE_MS))
    shop.clock.at_ms += 11 * MINUTE_MS - 400
    assert isinstance(shop.strict.change(HALL, -3, key="o-1"), BoundReached)
    placed = slow.hold(HALL, 1, key="b", expires_in=timedelta(seconds=1))
    assert isinstance(placed, Held)

    shop.clock.at_ms += 400
    assert isinstance(shop.strict.change(HALL, -3, key="o-2"), BoundReached)
    shop.clock.at_ms += 1
    assert isinstance(shop.strict.change(HALL, -3, key="o-3"), Applied)


@pytest.mark.parametrize("way", ["change", "hold", "changes", "set", "bounds", "delete"])
def test_a_call_goes_on_until_no_expired_hold_is_in_its_way(shop: Shop, way: str) -> None:
    """25 at a time; two that are still valid stay."""
    shop.strict.change(HALL, 60, key="more")
    for number in range(60):
        shop.hold(1, f"basket-{number}")
    shop.clock.at_ms += 12 * MINUTE_MS
    if way != "delete":
        shop.hold(2, "valid")
    strict, each = shop.strict, "transactions"

    match way:
        case "change":
            assert isinstance(strict.change(HALL, -68, key="o"), Applied)
        case "hold":
            assert isinstance(strict.hold(HALL, 68, key="o", expires_in=TEN), Held)
        case "changes":
            assert isinstance(getattr(strict, each).change({HALL: -68}, key="o"), Applied)
        case "set":
            assert isinstance(getattr(strict, each).set_value(HALL, 2, key="o"), Applied)
        case "bounds":
            strict.set_bounds(HALL, lower=68)
        case "delete":
            strict.delete(HALL)
            return
    expected = {"hold": (70, 70, 0), "bounds": (70, 2, 68)}
    assert shop.state() == expected.get(way, (2, 2, 0))


def test_no_more_than_25_are_released_before_the_call_is_tried_again(shop: Shop) -> None:
    shop.strict.change(HALL, 30, key="more")
    for number in range(30):
        shop.hold(1, f"basket-{number}")
    shop.clock.at_ms += 12 * MINUTE_MS

    assert isinstance(shop.strict.change(HALL, -11, key="o-1"), Applied)
    _, held, _ = shop.state()
    assert held == 5


@pytest.mark.parametrize("ends", [True, False], ids=["it ends", "it died"])
def test_a_call_waits_for_the_process_that_releases_holds(shop: Shop, *, ends: bool) -> None:
    shop.hold(8)
    shop.clock.at_ms += 12 * MINUTE_MS
    other = shop.process()

    def release(_now_ms: int) -> None:
        shop.clock.on_sleep = None
        if ends:
            assert isinstance(other.change(HALL, -1, key="o-0"), Applied | BoundReached)

    connection = connection_on(shop.dynamo, shop.clock)
    shop.dynamo.put(plan_lease(connection, define(HALL, "made", "marker"), "another process"))
    shop.clock.on_sleep = release
    assert isinstance(shop.strict.change(HALL, -9, key="o-1"), Applied)
    assert sum(shop.clock.slept_ms) <= 3 * SECOND_MS


def test_a_call_waits_for_another_thread_that_looks(shop: Shop) -> None:
    shop.hold(8)
    shop.clock.at_ms += 12 * MINUTE_MS
    found: list[object] = []

    def meet() -> None:
        found.append(shop.strict.change(HALL, -3, key="o-2"))

    shop.dynamo.plans.append(meanwhile(meet, "query"))
    found.append(shop.strict.change(HALL, -3, key="o-1"))
    assert [type(one) for one in found] == [Applied, Applied]


def test_a_call_that_cannot_look_is_contended_and_not_refused(shop: Shop) -> None:
    held = shop.hold(8)
    shop.dynamo.plans.append(refuses(Throttled("slow down"), "query", times=1_000))

    assert isinstance(shop.strict.change(HALL, -3, key="o-1"), Contended)
    assert isinstance(shop.strict.transactions.change({HALL: -3}, key="o-2"), Contended)
    assert isinstance(shop.strict.transactions.set_value(HALL, 1, key="o-3"), Contended)
    with pytest.raises(Throttled, match="could not be released yet"):
        shop.strict.set_bounds(HALL, lower=7)
    shop.strict.cancel(held.id)
    assert isinstance(shop.strict.change(HALL, -3, key="o-1"), Applied)


def test_an_index_that_is_late_costs_reads_and_nothing_else(shop: Shop) -> None:
    """It still lists holds that have ended: each is read once, and the sale is refused."""
    for number in range(3):
        shop.hold(3, f"basket-{number}")
    shop.clock.at_ms += 12 * MINUTE_MS
    stale: dict[str, Any] = {}

    def late(_kind: str, what: Any, request: Any) -> Any:  # noqa: ANN401 - of a plan
        bucket = str(what.condition.conditions[0])
        return stale[bucket] if bucket in stale else stale.setdefault(bucket, request())

    shop.dynamo.plans.append(at(late, "query"))
    assert isinstance(shop.strict.change(HALL, -9, key="o-1"), Applied)
    shop.hold(1, "valid")
    assert isinstance(shop.strict.change(HALL, -9, key="o-2"), BoundReached)
    assert shop.state() == (1, 1, 0)


@pytest.mark.parametrize("released_by", ["confirm", "sale"])
def test_the_balance_is_right_at_once_after_expiry(shop: Shop, released_by: str) -> None:
    """For every process, also one that has seen the counter; and nothing can be taken twice."""
    held, other = shop.hold(4), shop.process()
    assert other.show(HALL).available == 6
    shop.clock.at_ms += 11 * MINUTE_MS + 1

    if released_by == "confirm":
        assert isinstance(shop.strict.confirm(held.id), HoldExpired)
    else:
        assert isinstance(shop.strict.change(HALL, -7, key="o-1"), Applied)
        shop.strict.change(HALL, 7, key="o-2")
    for strict in (shop.strict, other):
        shown = strict.show(HALL)
        assert (shown.value, shown.held, shown.available) == (10, 0, 10)
        assert list(strict.holds(HALL)) == []
    assert isinstance(other.change(HALL, -10, key="o-3"), Applied)
    assert isinstance(shop.strict.confirm(held.id, readmit=True), BoundReached)


def test_expired_is_not_said_while_a_request_may_be_late(shop: Shop) -> None:
    """Its confirmation got no answer, and then its time was over: only what is stored is said."""
    held = shop.hold(4)
    shop.clock.at_ms += 10 * MINUTE_MS - 1
    shop.dynamo.plans[:] = [refuses(Unclear("lost"), "transact")]

    assert isinstance(shop.strict.confirm(held.id), Unknown)
    shop.clock.at_ms += 2 * MINUTE_MS
    assert isinstance(shop.strict.confirm(held.id), HoldExpired)
    assert shop.state() == (10, 0, 10)


def test_a_late_confirmation_finds_its_hold_released(shop: Shop) -> None:
    held = shop.hold(4)
    shop.clock.at_ms += 9 * MINUTE_MS
    late: list[Any] = []

    shop.dynamo.plans.append(held_back(late, "transact"))
    slow = shop.process()
    shop.clock.at_ms += MINUTE_MS - 1
    assert isinstance(slow.confirm(held.id), Unknown)
    shop.clock.at_ms += 2 * MINUTE_MS
    assert isinstance(shop.strict.confirm(held.id), HoldExpired)
    with pytest.raises(Exception, match="cancelled"):
        late[0]()
    assert shop.state() == (10, 0, 10)


def test_a_counter_with_open_holds_is_not_deleted(shop: Shop) -> None:
    held = shop.hold(4)

    with pytest.raises(OpenHolds, match="cancel them"):
        shop.strict.delete(HALL)
    shop.strict.cancel(held.id)
    shop.strict.delete(HALL)
    shop.strict.create(HALL, method="marker", lower=0, opening=10)
    with pytest.raises(NoSuchHold):
        shop.strict.confirm(held.id)
    assert isinstance(shop.strict.hold(HALL, 1, key="basket-7", expires_in=TEN), Held)


def test_a_counter_that_another_call_deletes_while_holds_are_released_is_deleted(
    shop: Shop,
) -> None:
    """Nobody hears of the definition that is out of date."""
    held, other = shop.hold(4), shop.process()
    shop.clock.at_ms += 12 * MINUTE_MS

    def delete() -> None:
        assert isinstance(other.confirm(held.id), HoldExpired)
        other.delete(HALL)

    def releases(writes: Any) -> bool:  # noqa: ANN401 - of a transaction
        return not any(isinstance(one, Delete) for one in writes)

    shop.dynamo.plans.append(meanwhile(delete, "transact", where=releases))
    shop.strict.delete(HALL)

    with pytest.raises(NoSuchCounter):
        shop.strict.show(HALL)


def test_bounds_and_values_respect_what_is_held(shop: Shop) -> None:
    held = shop.hold(4)

    with pytest.raises(BadBounds, match="less the 4 that are held"):
        shop.strict.set_bounds(HALL, lower=7)
    shop.strict.set_bounds(HALL, lower=6)
    assert isinstance(shop.strict.change(HALL, -1, key="o-1"), BoundReached)
    shop.strict.set_bounds(HALL, lower=0, upper=12)
    below = shop.strict.transactions.set_value(HALL, 3, key="s-1")
    assert below == BoundReached(HALL, 10, "lower", 0, -7, 4)
    assert isinstance(shop.strict.transactions.set_value(HALL, 5, key="s-2"), Applied)
    assert shop.state() == (5, 4, 1)
    shop.check()
    assert isinstance(shop.strict.confirm(held.id), Confirmed)
    assert shop.state() == (1, 0, 1)


def test_open_holds_are_listed_by_their_time(shop: Shop) -> None:
    later = shop.strict.hold(HALL, 1, key="b", expires_in=timedelta(hours=1), note={"who": "ann"})
    sooner, ended = shop.hold(2), shop.hold(3, "basket-8")
    shop.strict.cancel(ended.id)

    found = list(shop.strict.holds(HALL))
    assert isinstance(later, Held)
    assert [one.id for one in found] == [sooner.id, later.id]
    assert (found[1].amount, found[1].key, found[1].note) == (1, "b", {"who": "ann"})


@pytest.mark.parametrize("method", ["atomic", "occ", "history", "request_token", "set"])
def test_other_methods_have_no_holds(method: str) -> None:
    shop = Shop()
    shop.strict.create("tickets:other", method=method, lower=0, opening=10)

    with pytest.raises(BadSetting, match=f"of method {method}, which has no holds"):
        shop.strict.hold("tickets:other", 1, key="k", expires_in=TEN)
    with pytest.raises(BadSetting, match="has no holds"):
        shop.strict.confirm("tickets:other#k1")


def test_bad_input_is_refused_with_the_reason() -> None:
    shop = Shop()

    with pytest.raises(BadDelta, match="below zero"):
        shop.strict.hold(HALL, -1, expires_in=TEN)
    with pytest.raises(BadSetting, match="timedelta"):
        shop.strict.hold(HALL, 1, expires_in=600)  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match="between 1 s and 366 d"):
        shop.strict.hold(HALL, 1, expires_in=timedelta(0))
    for text in ("basket-7", "", f"{HALL}#", "#k1", 5):
        with pytest.raises(BadKey, match="no id of a hold"):
            shop.strict.cancel(text)  # type: ignore[arg-type]
    with pytest.raises(NoSuchHold, match="never placed"):
        shop.strict.cancel(f"{HALL}#k1")


def test_decimals_are_held_exactly(shop: Shop) -> None:
    held = shop.hold(Decimal("0.40"))

    assert shop.state() == (10, Decimal("0.4"), Decimal("9.6"))
    assert shop.strict.confirm(held.id, Decimal("0.27")) == Confirmed(
        HALL, held.id, Decimal("0.27"), Decimal("0.13")
    )
    assert shop.state() == (Decimal("9.73"), 0, Decimal("9.73"))


@BINS
def test_the_key_of_a_hold_is_remembered_until_it_has_ended_whatever_its_time(bins: int) -> None:
    """It is `Duplicate` while the hold is open, and for the counter's window after its end."""
    shop = Shop(bins)
    key = IdempotencyKey("basket-7", to_datetime(shop.clock.now_ms()))
    month = timedelta(days=30)
    placed = shop.strict.hold(HALL, 2, key=key, expires_in=month)
    assert isinstance(placed, Held)
    shop.clock.at_ms += 25 * HOUR_MS

    again = shop.process().hold(HALL, 2, key=key, expires_in=month)
    assert isinstance(again, Duplicate)
    assert again.hold is not None
    assert (again.hold.id, again.hold.state) == (placed.id, HoldState.OPEN)
    assert isinstance(shop.strict.withdraw(HALL, key), Duplicate)
    with pytest.raises(IdempotencyKeyReused):
        shop.strict.hold(HALL, 3, key=key, expires_in=month)

    assert isinstance(shop.strict.cancel(placed.id), Cancelled)
    ended = shop.strict.hold(HALL, 2, key=key, expires_in=month)
    assert isinstance(ended, Duplicate)
    assert shop.state() == (10, 0, 10)


@settings(max_examples=40, deadline=None)
@given(
    bins=st.sampled_from([1, 3]),
    steps=st.lists(
        st.tuples(st.integers(1, 60 * 24), st.sampled_from(["repeat", "confirm", "cancel"])),
        max_size=5,
    ),
)
def test_no_key_of_a_hold_holds_twice_however_long_it_is_open(
    bins: int, steps: list[tuple[int, str]]
) -> None:
    """Each repeat is `Duplicate` until a day after the end; then its key may have expired."""
    shop, year = Shop(bins), timedelta(days=366)
    key = IdempotencyKey("basket-7", to_datetime(shop.clock.now_ms()))
    placed = shop.strict.hold(HALL, 2, key=key, expires_in=year)
    assert isinstance(placed, Held)
    end, ended_ms = "", shop.clock.now_ms()
    for hours, step in steps:
        shop.clock.at_ms += hours * HOUR_MS
        if not end and step == "confirm":
            assert isinstance(shop.strict.confirm(placed.id), Confirmed)
        elif not end and step == "cancel":
            assert isinstance(shop.strict.cancel(placed.id), Cancelled)
        if not end and step != "repeat":
            end, ended_ms = step, shop.clock.now_ms()
        try:
            again: object = shop.process().hold(HALL, 2, key=key, expires_in=year)
        except KeyExpired as error:
            again = error
        kept = not end or shop.clock.now_ms() - ended_ms < 24 * HOUR_MS
        assert isinstance(again, Duplicate if kept else Duplicate | KeyExpired)

    assert shop.state() == {"": (10, 2, 8), "confirm": (8, 0, 8), "cancel": (10, 0, 10)}[end]


def test_a_key_with_its_time_under_which_no_hold_is_stored_expires() -> None:
    """A marker of a change has expired, even if it is still there."""
    shop = Shop()
    shop.hold(key="another")
    now = to_datetime(shop.clock.now_ms())
    change, unused = IdempotencyKey("change", now), IdempotencyKey("unused", now)
    shop.strict.change(HALL, -1, key=change)
    shop.clock.at_ms += 25 * HOUR_MS

    for key in (change, unused):
        with pytest.raises(KeyExpired):
            shop.strict.hold(HALL, 1, key=key, expires_in=TEN)
        with pytest.raises(KeyExpired):
            shop.strict.withdraw(HALL, key)


def test_a_look_for_a_hold_that_fails_leaves_it_unknown() -> None:
    shop = Shop()
    key = IdempotencyKey("basket-7", to_datetime(shop.clock.now_ms()))
    shop.strict.hold(HALL, 2, key=key, expires_in=timedelta(days=30))
    shop.clock.at_ms += 25 * HOUR_MS

    for call in (
        lambda: shop.strict.hold(HALL, 2, key=key, expires_in=TEN),
        lambda: shop.strict.withdraw(HALL, key),
    ):
        shop.dynamo.plans[:] = [refuses(Throttled("busy"), "get", where=_is_marker)]
        assert isinstance(call(), Unknown)


def _is_marker(what: Get) -> bool:
    return str(what.key["part"]).startswith(keys.MARKER_PREFIX)
