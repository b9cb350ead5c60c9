"""Drafts become objects that nobody can tell from those made in the ordinary way."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from countledger.ledger.drafts import draft_of
from countledger.ledger.entry import Entry, new_entry
from countledger.ledger.namespace import Namespace
from countledger.producers.event import Receipt, Status, recorded

FACTS = {"counter": "a:b", "id": "an id", "delta": 5, "at_ms": 7, "origin": "here"}


def test_a_quick_entry_is_an_entry() -> None:
    """Of every attribute, in the order of the class."""
    quick = new_entry("a:b", "an id", 5, 7, "here", 3, "key", {"by": "me"}, 9)
    usual = Entry(**FACTS, events=3, key="key", note={"by": "me"}, occurred_at_ms=9)  # type: ignore[arg-type]

    assert type(quick) is Entry
    assert quick == usual
    assert repr(quick) == repr(usual)
    assert new_entry("a:b", "an id", 5, 7, "here") == Entry(**FACTS)  # type: ignore[arg-type]
    with pytest.raises(FrozenInstanceError):
        quick.delta = 6  # type: ignore[misc]


def test_a_quick_receipt_is_a_receipt() -> None:
    receipt = recorded(new_entry("a:b", "an id", 5, 7, "here"))

    assert receipt == Receipt("a:b", "an id", Status.RECORDED)
    assert hash(receipt) == hash(Receipt("a:b", "an id", Status.RECORDED))


def test_what_checks_its_values_has_no_drafts() -> None:
    """A draft would leave the check out."""
    with pytest.raises(TypeError, match="Namespace checks its values"):
        draft_of(Namespace)
