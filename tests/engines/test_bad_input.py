"""P8: bad input gets an error that names the value and the rule, and nothing is written."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from countledger.ledger.errors import (
    BadCounterName,
    BadDelta,
    BadInput,
    BadKey,
    BadNote,
    BadSetting,
    BadTime,
)
from countledger.ledger.ids import IdempotencyKey
from countledger.producers.event import Event
from tests.engines.store import Store
from tests.faults.injection import calls

NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001 - that is what is wrong with it
EVENTS: list[tuple[dict[str, Any], type[BadInput], str]] = [
    ({"counter": ""}, BadCounterName, "empty"),
    ({"counter": 5}, BadCounterName, "is a int, not a str"),
    ({"counter": "a#b"}, BadCounterName, "'#', which is reserved"),
    ({"counter": "namespace#x"}, BadCounterName, "reserved"),
    ({"counter": ":rest"}, BadCounterName, "both sides of its first colon"),
    ({"counter": "ns:"}, BadCounterName, "both sides of its first colon"),
    ({"counter": "a\nb"}, BadCounterName, "control characters"),
    ({"counter": "a\udc80"}, BadCounterName, "control characters"),
    ({"delta": 0}, BadDelta, "changes nothing"),
    ({"delta": Decimal("0.00")}, BadDelta, "changes nothing"),
    ({"delta": 1.5}, BadDelta, "is a float"),
    ({"delta": True}, BadDelta, "is a bool"),
    ({"delta": "1"}, BadDelta, "is a str"),
    ({"delta": Decimal("NaN")}, BadDelta, "not a finite number"),
    ({"delta": Decimal("-Infinity")}, BadDelta, "not a finite number"),
    ({"delta": 10**20}, BadDelta, "more than 20 digits"),
    ({"delta": Decimal("1E-10")}, BadDelta, "more than 20 digits"),
    ({"delta": Decimal("1E+999999999")}, BadDelta, "more than 20 digits"),
    ({"key": ""}, BadKey, "is empty"),
    ({"key": 7}, BadKey, "is a int, not a str"),
    ({"key": "a\x00"}, BadKey, "control characters"),
    ({"occurred_at": NAIVE}, BadTime, "has no offset"),
    ({"note": {"a": 1}}, BadNote, "must be str"),
    ({"note": {"": "x"}}, BadNote, "has no name"),
]


@pytest.mark.parametrize(
    ("given", "error", "rule"), EVENTS, ids=[f"{given}" for given, _, _ in EVENTS]
)
def test_p8_a_bad_event_is_refused_at_birth(
    store: Store, counter: str, given: dict[str, Any], error: type[BadInput], rule: str
) -> None:
    """No call is made, and the good call after it is not harmed."""
    recorder = store.recorder()
    with calls(recorder.sender.dynamo.client) as made:
        with pytest.raises(error, match=rule):
            recorder.record(Event(**{"counter": counter, "delta": 1, **given}))
        assert made == []
    recorder.record(Event(counter, 1))

    assert store.exact().read(counter).sum == 1


def test_p8_a_key_without_a_point_in_time_is_refused() -> None:
    """A key's time must be one, and not before 1970."""
    with pytest.raises(BadTime, match="has no offset"):
        IdempotencyKey("key", NAIVE)
    with pytest.raises(BadTime, match="before 1970"):
        IdempotencyKey("key", datetime(1969, 12, 31, tzinfo=UTC))


@pytest.mark.parametrize(
    "given",
    [{"spread": 2}, {"horizon_ms": 1}, {"name": "a:b"}, {"name": ""}, {"description": "x" * 2000}],
    ids=str,
)
def test_p8_a_bad_namespace_is_never_made(
    store: Store, namespace: str, given: dict[str, Any]
) -> None:
    """Nothing is written for it."""
    namespaces = store.namespaces()
    with calls(namespaces.dynamo.client) as made, pytest.raises(BadSetting):
        namespaces.create(**{"name": namespace, **given})

    assert made == []
