"""What is made quickly cannot be told from what is made in the ordinary way."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, fields, replace
from typing import Any

import pytest

from countledger.ledger.entry import Entry, new_entry
from countledger.ledger.errors import BadCounterName
from countledger.producers.event import Event, Receipt, Status, receipt_of


class Like(Event):
    """An app's own event, with attributes of its own."""


class SlottedLike(Event):
    """The same without any."""

    __slots__ = ()


@dataclass(frozen=True)
class TaggedLike(Event):
    """The same with a field."""

    tag: str = ""


_FACTS: dict[str, Any] = {
    "counter": "a:b",
    "id": "an id",
    "delta": 5,
    "at_ms": 7,
    "origin": "here",
    "events": 3,
    "key": "key",
    "note": {"by": "me"},
    "occurred_at_ms": 9,
}


def test_a_quick_entry_is_an_entry() -> None:
    """Of every attribute, in the order of the class; only the message's id is never given."""
    quick = new_entry(*_FACTS.values())
    usual = Entry(**_FACTS)

    assert type(quick) is Entry
    assert quick == usual
    assert repr(quick) == repr(usual)
    assert [one.name for one in fields(Entry)] == [*_FACTS, "message_id"]
    with pytest.raises(FrozenInstanceError):
        quick.delta = 6  # type: ignore[misc]


def test_a_quick_entry_has_the_defaults_of_the_class() -> None:
    needed = dict(list(_FACTS.items())[:5])

    assert new_entry(*needed.values()) == Entry(**needed)


def test_a_quick_receipt_is_a_receipt() -> None:
    receipt = receipt_of("a:b", "an id")

    assert type(receipt) is Receipt
    assert receipt == Receipt("a:b", "an id", Status.RECORDED)
    assert hash(receipt) == hash(Receipt("a:b", "an id", Status.RECORDED))
    with pytest.raises(FrozenInstanceError):
        receipt.id = "another"  # type: ignore[misc]


def test_an_event_is_a_frozen_value() -> None:
    event = Event("a:b", 5, "key", note={"by": "me"}, events=2)

    assert type(event) is Event
    assert [getattr(event, one.name) for one in fields(Event)] == [
        "a:b", 5, "key", None, {"by": "me"}, 2
    ]  # fmt: skip
    assert event == copy.copy(event) == pickle.loads(pickle.dumps(event))  # noqa: S301 - our own
    assert replace(event, delta=6).delta == 6
    with pytest.raises(FrozenInstanceError):
        event.delta = 6  # type: ignore[misc]


@pytest.mark.parametrize("kind", [Like, SlottedLike, TaggedLike])
def test_an_extended_event_keeps_its_class_and_is_checked(kind: type[Event]) -> None:
    event = kind("a:b", 5, "key", note={"by": "me"}, events=2)

    assert type(event) is kind
    assert [getattr(event, one.name) for one in fields(Event)] == [
        getattr(Event("a:b", 5, "key", note={"by": "me"}, events=2), one.name)
        for one in fields(Event)
    ]
    assert type(replace(event, delta=6)) is kind
    with pytest.raises(BadCounterName):
        kind("a:#", 5)
