"""The items of the alert log: what is written of a firing, and what is read of it."""

import pytest

from countledger.consumers.alerts.delivery import decode_log, plan_log
from countledger.consumers.alerts.message import Firing
from countledger.consumers.alerts.rule import Bus, Crossing, Direction
from countledger.ledger.errors import CorruptItem
from tests.unit.alerts.evaluating import START_MS

FIRING = Firing(
    rule="big",
    revision="r1",
    target=Bus(),
    counter="files:a",
    direction=Direction.RISING,
    crossings=(Crossing(10, None, 1), Crossing(20, None, 1)),
    old=5,
    new=25,
    version=3,
    region="eu-central-1",
    at_ms=START_MS,
)


@pytest.mark.parametrize("dead", [{}, {1: "denied"}], ids=["all published", "one dead"])
def test_both_items_of_a_firing_say_which_alerts_are_dead_letters(dead: dict[int, str]) -> None:
    for put in plan_log("counters", FIRING, START_MS + 1, dead):
        logged = decode_log(put.item)

        assert [one.alert for one in logged] == list(FIRING.alerts)
        assert [one.reason for one in logged] == [dead.get(0), dead.get(1)]
        assert {one.published_at_ms for one in logged} == {START_MS + 1}


def test_no_attribute_is_written_for_dead_letters_where_there_are_none() -> None:
    """`None` is not stored: an empty map would cost its name in each of two items."""
    assert {put.item["dead"] for put in plan_log("counters", FIRING, START_MS, {})} == {None}


def test_an_item_without_time_of_publication_is_corrupt() -> None:
    put, _ = plan_log("counters", FIRING, START_MS, {})

    with pytest.raises(CorruptItem, match="has no 'published_at'"):
        decode_log({**put.item, "published_at": None})
