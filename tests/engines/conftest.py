"""One store per engine and session; every test works in a namespace of its own."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.engines.running import STARTERS
from tests.engines.store import Store, fresh_store


@pytest.fixture(scope="session", params=list(STARTERS))
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Both tables on each engine in turn."""
    with STARTERS[request.param]() as engine, fresh_store(engine) as made:
        yield made


@pytest.fixture
def namespace() -> str:
    """A namespace that nobody has used."""
    return f"n{uuid4().hex[:8]}"


@pytest.fixture
def counter(namespace: str) -> str:
    """A counter that nobody has used, in a namespace that nobody has used."""
    return f"{namespace}:counter"
