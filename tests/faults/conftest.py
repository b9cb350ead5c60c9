"""One store in memory and one on the embedded engine; the SDK's waits are none."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from types import SimpleNamespace
from uuid import uuid4

import pytest

from tests.engines.in_memory import memory_store
from tests.engines.running import ministack
from tests.engines.store import Store, fresh_store
from tests.faults.play import EMBEDDED, MEMORY


@pytest.fixture(scope="session")
def stores() -> Iterator[Callable[[str], Store]]:
    """The tables of a session in memory, and those on the embedded engine, made at first use."""
    with ExitStack() as stack:

        @cache
        def store_of(name: str) -> Store:
            if name == MEMORY:
                return stack.enter_context(memory_store())
            return stack.enter_context(fresh_store(stack.enter_context(ministack())))

        yield store_of


@pytest.fixture(params=[MEMORY, pytest.param(EMBEDDED, marks=pytest.mark.thorough)])
def store(request: pytest.FixtureRequest, stores: Callable[[str], Store]) -> Store:
    """Both tables: in memory, and in the thorough half on the embedded engine as well."""
    return stores(request.param)


@pytest.fixture
def counter() -> str:
    """A counter that nobody has used, in a namespace that nobody has used."""
    return f"n{uuid4().hex[:8]}:counter"


@pytest.fixture(autouse=True)
def _no_waits_in_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its retries stay as they are; only its sleep is taken out."""
    hurried = SimpleNamespace(sleep=lambda _seconds: None, time=time.time)
    for module in ("botocore.endpoint", "countledger.ledger.transport.client"):
        monkeypatch.setattr(f"{module}.time", hurried)
