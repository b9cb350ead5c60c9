"""An API for each module of tests."""

import asyncio
from collections.abc import Iterator

import pytest

from countledger.infra.calls.access import EVERYTHING
from tests.http.world import Api, memory_api


@pytest.fixture(scope="module")
def _api() -> Iterator[Api]:
    with memory_api() as api:
        yield api


@pytest.fixture
def api(_api: Api) -> Api:
    """The API; its callers may do everything until a test says otherwise."""
    _api.scopes = EVERYTHING
    return _api


@pytest.fixture
def loop() -> Iterator[None]:
    """The event loop of the thread, which the adapter would make, and never close."""
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield
    asyncio.set_event_loop(None)
    made.close()
