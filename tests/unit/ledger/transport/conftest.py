"""The server that the tests of a client talk to."""

from collections.abc import Iterator

import pytest

from tests.unit.ledger.transport.scripted import ScriptedServer, scripted_server


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """A server of this test's own."""
    with scripted_server() as running:
        yield running
