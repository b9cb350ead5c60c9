"""An app's own items: what can be written, and when it counts as done."""

from decimal import Decimal
from typing import Any

import pytest

from countledger.ledger.errors import BadItem
from countledger.ledger.operations import Assign, Drop
from countledger.producers.own_items import ItemChange, ItemDeletion, NewItem, OwnWrite, check_item

KEY: dict[str, object] = {"id": "u-1"}


@pytest.mark.parametrize(
    ("item", "why"),
    [
        ([1], "not a mapping"),
        ({"": 1}, "not a name"),
        ({7: 1}, "not a name"),
        ({"\ud800": 1}, "not a name"),
        ({"a": ["\ud800"]}, "cannot be stored"),
        ({"a": [set()]}, "a set may not be empty"),
        ({"a": 1.5}, "'a' = 1.5 cannot be stored"),
        ({"a": object}, "cannot be stored"),
        ({"a": Decimal("NaN")}, "cannot be stored"),
        ({"a": 10**39}, "cannot be stored"),
        ({"a": set()}, "cannot be stored"),
        ({"a": "x" * 410_000}, "bytes: at most"),
        ({"a": [{"b": "x" * 210_000}, b"y" * 210_000]}, "bytes: at most"),
        ({"a": 1, "tag": 1}, "'tag' is set by this call"),
    ],
    ids=lambda part: str(part)[:30],
)
def test_what_cannot_be_stored_is_refused(item: Any, why: str) -> None:  # noqa: ANN401
    with pytest.raises(BadItem, match=why):
        check_item(item, besides=["tag"])


def test_a_value_that_holds_itself_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)

    with pytest.raises(BadItem, match="cannot be stored"):
        check_item({"a": endless})


@pytest.mark.parametrize(
    "make",
    [
        lambda: NewItem("", KEY, ("id",)),
        lambda: NewItem("t", {"a": 1}, ("id",)),
        lambda: NewItem("t", KEY, ()),
        lambda: NewItem("t", {**KEY, "a": 1, "b": 2}, ("id", "a", "b")),
        lambda: NewItem("t", {"id": ""}, ("id",)),
        lambda: NewItem("t", {"id": True}, ("id",)),
        lambda: ItemChange("t", KEY, {}),
        lambda: ItemChange("t", KEY, {"id": "other"}),
        lambda: ItemChange("t", {}, {"a": 1}),
        lambda: ItemChange("t", KEY, {"a": 0.5}),
        lambda: ItemChange("t", KEY, {"a": 1}, expected={"b": 0.5}),
        lambda: ItemDeletion("t", {"id": None}),
        lambda: ItemDeletion("t", {"a": 1, "b": 2, "c": 3}),
    ],
)
def test_a_write_that_cannot_be_is_refused(make: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadItem):
        make()


@pytest.mark.parametrize(
    ("write", "found", "done"),
    [
        (NewItem("t", {**KEY, "a": 1, "b": None}, ("id",)), {**KEY, "a": 1}, True),
        (NewItem("t", {**KEY, "a": Decimal("1.50")}, ("id",)), {**KEY, "a": Decimal("1.5")}, True),
        (NewItem("t", {**KEY, "a": {"x", "y"}}, ("id",)), {**KEY, "a": {"y", "x"}}, True),
        (NewItem("t", {**KEY, "a": [{"b": {1}}]}, ("id",)), {**KEY, "a": [{"b": {1}}]}, True),
        (NewItem("t", {**KEY, "a": 1}, ("id",)), {**KEY, "a": 2}, False),
        (NewItem("t", {**KEY, "a": 1}, ("id",)), {**KEY, "a": True}, False),
        (NewItem("t", {**KEY, "a": 1}, ("id",)), {**KEY, "a": 1, "b": 2}, False),
        (NewItem("t", {**KEY, "a": 1}, ("id",)), None, False),
        (ItemChange("t", KEY, {"a": 1, "b": None}), {**KEY, "a": 1, "c": 7}, True),
        (ItemChange("t", KEY, {"a": 1, "b": None}), {**KEY, "a": 1, "b": 7}, False),
        (ItemChange("t", KEY, {"a": 1}), None, False),
        (ItemDeletion("t", KEY), None, True),
        (ItemDeletion("t", KEY), KEY, False),
    ],
)
def test_a_write_is_done_where_the_item_is_as_it_would_leave_it(
    write: OwnWrite,
    found: dict[str, object] | None,
    done: bool,  # noqa: FBT001
) -> None:
    assert write.done(found) is done


def test_an_attribute_of_none_is_removed_and_not_stored_as_null() -> None:
    write = ItemChange("t", KEY, {"a": 1, "b": None}).write()

    assert write.clauses == (Assign("a", 1), Drop("b"))
