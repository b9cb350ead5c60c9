"""P8: bad input gets an error that names the value and the rule, and nothing is written."""

from datetime import UTC, datetime
from typing import Any

import pytest

from countledger.ledger.errors import (
    BadSetting,
    BadTime,
)
from countledger.ledger.ids import IdempotencyKey
from tests.engines.store import Store
from tests.faults.injection import calls

NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001 - that is what is wrong with it


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
