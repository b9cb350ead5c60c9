"""One engine for all tests of several regions."""

from collections.abc import Iterator

import pytest

from countledger.infra.local.engine import Engine


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """Where the engine answers."""
    with Engine() as engine:
        yield engine.url
