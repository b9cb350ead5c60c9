"""One engine per session; the SDK's waits between its own attempts are none."""

import time
from collections.abc import Iterator
from types import SimpleNamespace
from uuid import uuid4

import pytest

from tests.engines.running import ministack
from tests.engines.store import Store, fresh_store


@pytest.fixture(scope="session")
def store() -> Iterator[Store]:
    """Both tables on the embedded engine."""
    with ministack() as engine, fresh_store(engine) as made:
        yield made


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
