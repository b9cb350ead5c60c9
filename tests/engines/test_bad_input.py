"""P8: bad input gets an error that names the value and the rule, and nothing is written."""

from typing import Any

import pytest

from countledger.ledger.errors import BadSetting
from tests.engines.store import Store
from tests.faults.injection import calls


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
