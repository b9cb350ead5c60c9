"""One engine for all tests of several regions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from countledger.infra.local.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """Where the engine answers."""
    with Engine() as engine:
        yield engine.url
