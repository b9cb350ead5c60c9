"""One store per engine and session; every test works in a namespace of its own."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.engines import simulated
from tests.engines.running import STARTERS
from tests.engines.store import Store, fresh_store


@pytest.fixture(scope="session", params=[*STARTERS, simulated.NAME])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Both tables on each engine in turn."""
    if request.param == simulated.NAME:
        with simulated.simulated_store() as made:
            yield made
        return
    with STARTERS[request.param]() as engine, fresh_store(engine) as made:
        yield made


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what the simulation does not have, where a test's name tells."""
    for item in items:
        call = getattr(item, "callspec", None)
        if call is None or call.params.get("store") != simulated.NAME:
            continue
        missing = simulated.missing_of(getattr(item, "originalname", item.name))
        if missing is not None:
            item.add_marker(pytest.mark.skip(reason=str(simulated.NotSimulated(missing))))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    """A test that meets what is not simulated is left out."""
    try:
        yield
    except simulated.NotSimulated as missing:
        pytest.skip(str(missing))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """A test that meets what is not simulated is left out."""
    try:
        yield
    except simulated.NotSimulated as missing:
        pytest.skip(str(missing))


@pytest.fixture
def namespace() -> str:
    """A namespace that nobody has used."""
    return f"n{uuid4().hex[:8]}"


@pytest.fixture
def counter(namespace: str) -> str:
    """A counter that nobody has used, in a namespace that nobody has used."""
    return f"{namespace}:counter"
