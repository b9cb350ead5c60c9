"""Namespaces: valid at birth, made once, seen by all."""

from typing import Any

import pytest

from countledger.ledger.errors import (
    BadSetting,
    ConditionFailed,
    CorruptItem,
    NamespaceConflict,
    NamespaceUnknown,
    NewerFormat,
)
from countledger.ledger.limits import HORIZON_DEFAULT_MS, HORIZON_MAX_MS, HORIZON_MIN_MS, HOUR_MS
from countledger.ledger.namespace import (
    Kind,
    Namespace,
    Namespaces,
    decode_namespace,
    encode_namespace,
)
from tests.unit.connections import connection_on
from tests.unit.ledger.memory import Fault, MemoryClient

TABLE = "ledger"
HOME = "eu-west-1"


def _namespaces(dynamo: MemoryClient, region: str = HOME) -> Namespaces:
    return Namespaces(connection_on(dynamo, region=region))


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"spread": 16},
        {"spread": 256},
        {"kind": Kind.STRICT},
        {"horizon_ms": HORIZON_MIN_MS},
        {"horizon_ms": HORIZON_MAX_MS},
        {"description": "x" * 1024},
        {"description": ""},
    ],
)
def test_a_namespace_is_stored_and_read_as_it_is(arguments: dict[str, Any]) -> None:
    namespace = Namespace("likes", **arguments)
    dynamo = MemoryClient()
    item = {name: v for name, v in encode_namespace(namespace).items() if v is not None}
    dynamo.put_batch(TABLE, [item])

    assert decode_namespace(dynamo.items(TABLE)[0]) == namespace


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"name": ""}, "namespace ''"),
        ({"name": "a:b"}, "namespace 'a:b'"),
        ({"name": "x" * 511}, "511 bytes"),
        ({"name": 5}, "namespace 5"),
        (
            {"kind": "counter"},
            "kind 'counter' is invalid: give one of ledger, strict, strict-regions, sequence",
        ),
        ({"spread": 0}, r"spread 0 is invalid: give one of \(1, 16, 256\)"),
        ({"spread": 2}, "spread 2 is invalid"),
        ({"spread": 16.0}, "spread 16.0 is invalid"),
        ({"spread": True}, "spread True is invalid"),
        ({"spread": "16"}, "spread '16' is invalid"),
        ({"horizon_ms": HORIZON_MIN_MS - 1}, "a horizon of 59999 ms is not between 1 min and"),
        ({"horizon_ms": HORIZON_MAX_MS + 1}, "is not between 1 min and 366 d"),
        ({"horizon_ms": 1.5 * HOUR_MS}, "horizon 5400000.0 is no whole number of milliseconds"),
        ({"horizon_ms": "24h"}, "horizon '24h' is no whole number"),
        ({"description": "x" * 1025}, "1024 bytes"),
        ({"description": "\ud800"}, "no valid Unicode"),
        ({"description": 5}, "description 5 is a int"),
    ],
)
def test_any_other_namespace_never_comes_into_being(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadSetting, match=reason):
        Namespace(**{"name": "likes", **arguments})


def test_the_first_creation_decides() -> None:
    dynamo = MemoryClient()
    dynamo.faults.append(Fault(ConditionFailed(encode_namespace(Namespace("likes", spread=16)))))
    slow = _namespaces(dynamo)

    assert slow.for_use("likes:x", Kind.LEDGER).spread == 16
    assert slow.get("likes").spread == 16


@pytest.mark.parametrize(
    "other", [{"spread": 256}, {"kind": Kind.STRICT}, {"horizon_ms": HORIZON_DEFAULT_MS + 1}]
)
def test_what_is_fixed_cannot_be_changed(other: dict[str, Any]) -> None:
    namespaces = _namespaces(MemoryClient())
    namespaces.create("likes", spread=16, description="first")

    assert namespaces.create("likes", spread=16).description == "first"
    with pytest.raises(NamespaceConflict, match=r"spread 16, horizon 24 h.*the call gives kind"):
        namespaces.create("likes", **{"spread": 16, **other})


def test_namespaces_are_made_in_the_home_region_alone() -> None:
    dynamo = MemoryClient()
    elsewhere = _namespaces(dynamo, "us-east-1")

    refusal = r"home region eu-west-1 only.*us-east-1"
    with pytest.raises(NamespaceUnknown, match=refusal):
        elsewhere.create("likes")
    with pytest.raises(NamespaceUnknown, match=refusal):
        elsewhere.for_use("likes:x", Kind.LEDGER)
    with pytest.raises(NamespaceUnknown, match=refusal):
        elsewhere.describe("likes", "x")
    assert dynamo.items(TABLE) == []

    _namespaces(dynamo).create("likes")
    assert elsewhere.for_use("likes:x", Kind.LEDGER).name == "likes"


@pytest.mark.parametrize(("replicas", "made"), [((), True), ((HOME,), True), ((HOME, "x"), False)])
def test_where_the_home_is_not_named_a_table_without_replicas_is_at_home(
    replicas: tuple[str, ...], *, made: bool
) -> None:
    """Beside replicas two regions could make one namespace with two settings."""
    dynamo = MemoryClient(description={"Replicas": [{"RegionName": one} for one in replicas]})
    namespaces = Namespaces(connection_on(dynamo, home_region=None))

    if made:
        assert namespaces.for_use("likes:x", Kind.LEDGER).name == "likes"
    else:
        with pytest.raises(NamespaceUnknown, match="set COUNTLEDGER_HOME_REGION"):
            namespaces.for_use("likes:x", Kind.LEDGER)
    assert bool(dynamo.items(TABLE)) is made


def test_a_namespace_nobody_made_is_unknown() -> None:
    """The message says how to make it; asking did not."""
    dynamo = MemoryClient()

    with pytest.raises(NamespaceUnknown, match="countledger namespace create likes` makes"):
        _namespaces(dynamo).get("likes")
    with pytest.raises(NamespaceUnknown, match="create likes --kind sequence` makes"):
        _namespaces(dynamo).expect("likes:a", Kind.SEQUENCE)
    assert dynamo.items(TABLE) == []


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"kind": "new"}, CorruptItem),
        ({"kind": 5}, CorruptItem),
        ({"spread": 3}, CorruptItem),
        ({"spread": None}, CorruptItem),
        ({"horizon_ms": 1}, CorruptItem),
        ({"v": 2}, NewerFormat),
    ],
)
def test_stored_settings_that_cannot_be_are_called_so(
    changed: dict[str, object], error: type[CorruptItem]
) -> None:
    item = {**encode_namespace(Namespace("likes")), **changed}

    with pytest.raises(error, match="likes"):
        decode_namespace({name: value for name, value in item.items() if value is not None})
