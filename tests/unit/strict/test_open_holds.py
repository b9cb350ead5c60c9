"""What a counter holds, compared with its open holds: what is found, and what only seems wrong."""

from datetime import timedelta
from typing import Any

import pytest

from countledger.ledger.errors import BadSetting, CorruptItem
from countledger.ledger.limits import MINUTE_MS
from countledger.ledger.operations import Add, Assign, Delete, Page, Update
from countledger.producers.strict.release import (
    HeldComparison,
    OverdueHolds,
    counters_with_holds,
)
from tests.unit.connections import connection_on
from tests.unit.ledger.memory import afterwards, at, meanwhile
from tests.unit.strict.test_holds import BINS, HALL, Shop

TEN_AND_SKEW_MS = 11 * MINUTE_MS


@BINS
def test_what_is_held_is_the_sum_of_the_open_holds(bins: int) -> None:
    shop = Shop(bins)
    ended = [shop.hold(1, key) for key in "abc"]
    shop.strict.confirm(ended[0].id)
    shop.strict.cancel(ended[1].id)
    shop.hold(4, "d")

    found = shop.strict.verify_holds(HALL)

    assert found == HeldComparison(HALL, 5, 5, 2, 0, (), proven=True)


def test_a_hold_that_outlives_its_time_is_overdue_after_the_skew() -> None:
    shop = Shop()
    shop.hold(1)
    shop.clock.at_ms += TEN_AND_SKEW_MS

    assert shop.strict.verify_holds(HALL).overdue == 0
    assert OverdueHolds(connection_on(shop.dynamo, shop.clock)).oldest_ms() == 0
    shop.clock.at_ms += 1
    assert shop.strict.verify_holds(HALL).overdue == 1
    assert OverdueHolds(connection_on(shop.dynamo, shop.clock)).oldest_ms() == 1


@BINS
def test_a_hold_that_was_deleted_by_hand_is_found(bins: int) -> None:
    """What it reserved is never available again: no hold is left that could end."""
    shop = Shop(bins)
    shop.hold(2)
    place = next(iter(shop.strict.holds(HALL))).place
    shop.dynamo.delete(Delete("counters", place))

    found = shop.strict.verify_holds(HALL)

    assert (found.held, found.reserved, found.holds, found.proven) == (2, 0, 0, True)
    assert len(found.differing) == 1
    connection = connection_on(shop.dynamo, shop.clock)
    assert counters_with_holds(connection, ["tickets"]) == [HALL]
    assert counters_with_holds(connection, ["other"]) == []
    # As the runbook says.
    (item,) = found.differing
    key = {"counter": item, "part": "total" if bins == 1 else "bin"}
    clauses = Add("held", -2), Add("headroom_down", 2), Add("version", 1)
    shop.dynamo.update(Update("counters", key, clauses))
    shop.check()
    assert shop.strict.verify_holds(HALL) == HeldComparison(HALL, 0, 0, 0, 0, (), proven=True)


def test_items_that_differ_are_found_though_their_sums_agree() -> None:
    shop = Shop(3)
    shop.hold(1)
    ((bin_, _),) = next(iter(shop.strict.holds(HALL))).parts
    places = [f"{HALL}#{number:02d}" for number in range(3)]
    other = next(one for one in places if one != bin_["counter"])
    for place, held in ((bin_["counter"], -1), (other, 1)):
        key = {"counter": place, "part": "bin"}
        shop.dynamo.update(Update("counters", key, (Add("held", held),)))

    found = shop.strict.verify_holds(HALL)

    assert (found.held, found.reserved) == (1, 1)
    assert set(found.differing) == {bin_["counter"], other}
    assert found.proven


def test_a_hold_that_the_index_does_not_show_yet_is_no_difference() -> None:
    shop = Shop()
    shop.hold(2)

    def late(_kind: str, _what: object, _request: Any) -> Any:  # noqa: ANN401 - of a plan
        return Page([], None, 0)

    shop.dynamo.plans.append(at(late, "query", times=1))

    assert shop.strict.verify_holds(HALL) == HeldComparison(HALL, 2, 2, 1, 0, (), proven=True)


def test_what_changes_during_a_comparison_proves_nothing() -> None:
    shop = Shop()
    other = shop.process()
    keys = iter(range(100))

    def busy() -> None:
        other.hold(HALL, 1, key=f"busy-{next(keys)}", expires_in=timedelta(minutes=10))

    shop.dynamo.plans.append(afterwards(busy, "query", times=3))

    found = shop.strict.verify_holds(HALL)

    assert not found.proven
    assert shop.strict.verify_holds(HALL) == HeldComparison(HALL, 3, 3, 3, 0, (), proven=True)


def test_a_hold_that_ends_during_a_comparison_is_no_difference() -> None:
    shop = Shop()
    held = shop.hold(2)
    other = shop.process()
    shop.dynamo.plans.append(meanwhile(lambda: other.cancel(held.id), "query"))

    assert shop.strict.verify_holds(HALL) == HeldComparison(HALL, 0, 0, 0, 0, (), proven=True)


def test_what_cannot_be_read_is_an_error_and_other_methods_have_no_holds() -> None:
    shop = Shop()
    shop.hold(1)
    place = next(iter(shop.strict.holds(HALL))).place
    shop.dynamo.update(Update("counters", place, (Assign("hold", "two"),)))
    with pytest.raises(CorruptItem):
        shop.strict.verify_holds(HALL)

    shop.strict.create("tickets:other", method="atomic")
    with pytest.raises(BadSetting, match="has no holds"):
        shop.strict.verify_holds("tickets:other")
