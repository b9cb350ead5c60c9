"""A namespace is made once, by whoever comes first, and never changes but for its description."""

import pytest

from countledger.ledger.errors import (
    NamespaceUnknown,
)
from countledger.ledger.limits import HORIZON_DEFAULT_MS, HOUR_MS
from countledger.ledger.namespace import Kind, Namespace
from countledger.producers.event import Event
from tests.engines.store import Store


def test_the_first_use_makes_it_with_defaults(store: Store, namespace: str) -> None:
    """Nobody has to make a namespace: the first record does, in the home region."""
    with pytest.raises(NamespaceUnknown):
        store.namespaces().get(namespace)

    store.recorder().record(Event(f"{namespace}:a", 1))

    made = store.namespaces().get(namespace)
    assert made == Namespace(namespace, Kind.LEDGER, 1, HORIZON_DEFAULT_MS)


def test_what_was_made_is_read_back_and_listed(store: Store, namespace: str) -> None:
    """All settings survive; the list shows it once."""
    made = store.namespaces().create(
        namespace, spread=256, horizon_ms=2 * HOUR_MS, description="clicks, and likes"
    )

    assert made == Namespace(namespace, Kind.LEDGER, 256, 2 * HOUR_MS, "clicks, and likes")
    assert store.namespaces().get(namespace) == made
    assert [one for one in store.namespaces().list() if one.name == namespace] == [made]


def test_its_description_alone_can_change(store: Store, namespace: str) -> None:
    with pytest.raises(NamespaceUnknown):
        store.namespaces().describe(namespace, "nothing")
    made = store.namespaces().create(namespace, spread=16)

    store.namespaces().describe(namespace, "for people")

    described = store.namespaces().get(namespace)
    assert described == Namespace(namespace, made.kind, made.spread, made.horizon_ms, "for people")
