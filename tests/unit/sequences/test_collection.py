"""How numbers are written as keys, and what cannot be a collection."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.ledger.errors import BadInput, BadItem, BadSequence, SequenceExhausted
from countledger.ledger.operations import Put
from countledger.producers.sequences.sequence import (
    DIGITS_MAX,
    Collection,
    check_number,
    check_size,
)
from countledger.producers.sequences.sequences import Appending, Numbered, PendingAppend
from tests.unit.connections import connection_on
from tests.unit.ledger.memory import MemoryClient, meanwhile

PLACE: dict[str, Any] = {"table": "posts", "partition": ("counter", "p-1"), "sort": "part"}


@given(st.integers(1, DIGITS_MAX), st.text(max_size=8), st.data())
def test_keys_are_in_the_order_of_their_numbers(
    digits: int, prefix: str, data: st.DataObject
) -> None:
    """So the highest key is that of the highest number, and is read back as it."""
    collection = Collection(**PLACE, prefix=prefix, digits=digits)
    numbers = data.draw(st.lists(st.integers(1, collection.last), min_size=2, max_size=9))
    written = {n: str(collection.key(n)["part"]).encode() for n in numbers}

    assert sorted(numbers) == sorted(numbers, key=lambda n: written[n])
    for n in numbers:
        assert collection.number_of({"part": collection.key(n)["part"]}) == n


@pytest.mark.parametrize("written", ["c#12", "c#00012x", "c#0001#reply", "d#00001", 17, None])
def test_a_key_that_is_no_number_is_refused(written: object) -> None:
    """A number that was guessed out of it could be one that exists."""
    with pytest.raises(BadSequence, match="is none"):
        Collection(**PLACE, prefix="c#", digits=5).number_of({"part": written})


@pytest.mark.parametrize(
    "wrong",
    [
        {"table": ""},
        {"table": "t" * 256},
        {"partition": ("id",)},
        {"partition": ("", "a")},
        {"partition": ("id", "")},
        {"partition": ("id", 1.5)},
        {"partition": ("id", True)},
        {"partition": ("id", "x" * 2_049)},
        {"sort": "counter"},
        {"tag": "part"},
        {"prefix": "x" * 1_020},
        {"prefix": 7},
        {"prefix": "\ud800"},
        {"digits": 0},
        {"digits": 19},
        {"digits": True},
    ],
    ids=str,
)
def test_what_is_no_collection_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((BadSequence, BadItem)):
        Collection(**{**PLACE, **wrong})


def test_a_full_collection_says_so() -> None:
    """After its last digit the order would end."""
    collection = Collection(**PLACE, prefix="c#", digits=1)
    dynamo = MemoryClient()
    dynamo.put(Put("posts", {"counter": "p-1", "part": "c#9"}))

    with pytest.raises(SequenceExhausted, match="last number is 9"):
        Appending.begin(connection_on(dynamo), PendingAppend(collection, {}, "tag")).carry_out()


def test_other_items_of_the_partition_do_not_count() -> None:
    """Before and behind the numbers; the order of keys keeps them apart."""
    collection = Collection(**PLACE, prefix="c#", digits=3)
    dynamo = MemoryClient()
    for other in ("a", "c!", "c#", "c#a", "d#999", "zzz"):
        dynamo.put(Put("posts", {"counter": "p-1", "part": other}))

    told = [
        Appending.begin(
            connection_on(dynamo), PendingAppend(collection, {"n": n}, f"tag {n}")
        ).carry_out()
        for n in range(3)
    ]

    assert [one.number for one in told] == [1, 2, 3]
    assert told[0].item["part"] == "c#001"


def test_a_number_that_another_writer_takes_meanwhile_keeps_its_item() -> None:
    """Both have read the same highest number; the second one goes on to the next."""
    collection = Collection(**PLACE, prefix="c#", digits=3)

    def append(tag: str) -> Numbered:
        return Appending.begin(
            connection_on(dynamo), PendingAppend(collection, {}, tag)
        ).carry_out()

    dynamo = MemoryClient(plans=[meanwhile(lambda: append("other"))])

    assert append("mine").number == 2
    assert [item[collection.tag] for item in dynamo.items("posts")] == ["other", "mine"]


@pytest.mark.parametrize("size", [0, -1, 1_000_001, 1.0, "5", None, True, 10**400])
def test_a_block_has_a_size(size: object) -> None:
    with pytest.raises(BadInput, match="not a whole number from 1 to 1,000,000"):
        check_size(size)


def test_a_number_is_no_truth_value() -> None:
    """Python takes True for 1; nobody means that."""
    assert check_number("n", 1, 0, 1) == 1
    with pytest.raises(BadSequence):
        check_number("n", True, 0, 1)


def test_a_page_without_items_is_not_the_end_of_a_collection() -> None:
    """The service may answer with one although more follow: the highest number is behind it."""
    connection, collection = connection_on(MemoryClient(hesitant=True)), Collection(**PLACE)

    put = [
        Appending.begin(connection, PendingAppend(collection, {}, f"tag-{n}")).carry_out()
        for n in (1, 2)
    ]

    assert [one.number for one in put] == [1, 2]
