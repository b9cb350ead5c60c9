"""A namespace is made once, by whoever comes first, and never changes but for its description."""

import pytest

from countledger.ledger import keys
from countledger.ledger.errors import (
    CorruptItem,
    NamespaceConflict,
    NamespaceUnknown,
    NewerFormat,
    WrongKind,
)
from countledger.ledger.limits import HORIZON_DEFAULT_MS, HOUR_MS
from countledger.ledger.namespace import Kind, Namespace, encode_namespace
from countledger.ledger.operations import Put
from countledger.producers.event import Event
from tests.engines.store import Store
from tests.faults.injection import before_call


def test_the_first_use_makes_it_with_defaults(store: Store, namespace: str) -> None:
    """Nobody has to make a namespace: the first record does, in the home region."""
    with pytest.raises(NamespaceUnknown):
        store.namespaces().get(namespace)

    store.recorder().record(Event(f"{namespace}:a", 1))

    made = store.namespaces().get(namespace)
    assert made == Namespace(namespace, Kind.LEDGER, 1, HORIZON_DEFAULT_MS)


def test_a_plain_name_belongs_to_the_default_namespace(store: Store, namespace: str) -> None:
    """No colon: namespace `default`."""
    store.recorder().record(Event(f"plain-{namespace}", 1))

    assert store.namespaces().get(keys.DEFAULT_NAMESPACE).kind is Kind.LEDGER


def test_what_was_made_is_read_back_and_listed(store: Store, namespace: str) -> None:
    """All settings survive; the list shows it once."""
    made = store.namespaces().create(
        namespace, spread=256, horizon_ms=2 * HOUR_MS, description="clicks, and likes"
    )

    assert made == Namespace(namespace, Kind.LEDGER, 256, 2 * HOUR_MS, "clicks, and likes")
    assert store.namespaces().get(namespace) == made
    assert [one for one in store.namespaces().list() if one.name == namespace] == [made]


def test_making_it_again_is_no_error_but_other_settings_are(store: Store, namespace: str) -> None:
    """Kind, spread and horizon are fixed; what is there stays."""
    first = store.namespaces().create(namespace, spread=16)

    assert store.namespaces().create(namespace, spread=16) == first
    for other in (
        {"spread": 1},
        {"spread": 16, "horizon_ms": HOUR_MS},
        {"spread": 16, "kind": Kind.STRICT},
    ):
        with pytest.raises(NamespaceConflict, match="spread 16, horizon 24 h"):
            store.namespaces().create(namespace, **other)

    assert store.namespaces().get(namespace) == first


@pytest.mark.parametrize("spread", [1, 16])
def test_of_two_that_race_the_first_one_decides(store: Store, namespace: str, spread: int) -> None:
    """One saw no namespace; before it writes, another makes it. Both then use the same one."""
    counter = f"{namespace}:counter"
    late = store.recorder()

    def another_makes_it() -> None:
        store.namespaces().create(namespace, spread=spread)

    with before_call(late.sender.namespaces.dynamo.client, "PutItem", another_makes_it):
        late.record(Event(counter, 1, "key"))

    (item,) = store.entry_items(counter)
    receipt = store.recorder().record(Event(counter, 1, "key"))
    assert receipt.status == "duplicate"
    assert item["entry"] == keys.entry_key(receipt.id, spread)


def test_of_two_creators_that_race_one_is_told(store: Store, namespace: str) -> None:
    """The one that comes second with other settings gets the conflict, not a silent change."""
    late = store.namespaces()

    def another_makes_it() -> None:
        store.namespaces().create(namespace, spread=16)

    with (
        before_call(late.dynamo.client, "PutItem", another_makes_it),
        pytest.raises(NamespaceConflict, match="exists with kind ledger, spread 16"),
    ):
        late.create(namespace, spread=256)

    assert store.namespaces().get(namespace).spread == 16


def test_elsewhere_it_is_used_but_never_made(store: Store, namespace: str) -> None:
    """Another region refuses until the namespace has come to it; then it counts there."""
    counter = f"{namespace}:counter"
    abroad = store.namespaces(region="eu-far-1")
    recorder = store.recorder(region="eu-far-1", namespaces=abroad)
    with pytest.raises(NamespaceUnknown, match="in the home region"):
        recorder.record(Event(counter, 1))
    with pytest.raises(NamespaceUnknown, match="in the home region"):
        abroad.create(namespace)
    assert store.entry_items(counter) == []

    store.namespaces().create(namespace)
    recorder.record(Event(counter, 1))

    (item,) = store.entry_items(counter)
    assert item["origin"] == "eu-far-1"


def test_its_description_alone_can_change(store: Store, namespace: str) -> None:
    """`describe` keeps the rest, and makes nothing that is not there."""
    with pytest.raises(NamespaceUnknown):
        store.namespaces().describe(namespace, "nothing")
    made = store.namespaces().create(namespace, spread=16)

    store.namespaces().describe(namespace, "for people")

    described = store.namespaces().get(namespace)
    assert described == Namespace(namespace, made.kind, made.spread, made.horizon_ms, "for people")


def test_a_counter_of_another_kind_is_refused(store: Store, namespace: str) -> None:
    """The ledger's calls are for counters of kind ledger."""
    store.namespaces().create(namespace, kind=Kind.STRICT)

    with pytest.raises(WrongKind, match="of kind strict"):
        store.recorder().record(Event(f"{namespace}:a", 1))

    assert store.entry_items(f"{namespace}:a") == []


@pytest.mark.parametrize(
    ("corrupt", "error"),
    [
        ({"v": 2}, NewerFormat),
        ({"spread": 7}, CorruptItem),
        ({"kind": "other"}, CorruptItem),
        ({"horizon_ms": "long"}, CorruptItem),
        ({"spread": None}, CorruptItem),
    ],
    ids=str,
)
def test_settings_that_cannot_be_read_stop_the_producer(
    store: Store, namespace: str, corrupt: dict[str, object], error: type[Exception]
) -> None:
    """A later release's or a corrupt item is refused, and nothing is recorded under a guess."""
    item = encode_namespace(Namespace(namespace)) | corrupt
    store.dynamo().put(Put(store.ledger, item))

    with pytest.raises(error):
        store.recorder().record(Event(f"{namespace}:a", 1))

    assert store.entry_items(f"{namespace}:a") == []


@pytest.mark.parametrize("kind", list(Kind))
def test_the_line_that_says_how_to_make_it_makes_one_of_the_kind(
    store: Store, namespace: str, kind: Kind
) -> None:
    """A namespace of another kind would be in the way for good."""
    option = "" if kind is Kind.LEDGER else f" --kind {kind}"

    with pytest.raises(NamespaceUnknown, match=f"namespace create {namespace}{option}`"):
        store.namespaces().expect(f"{namespace}:a", kind)
