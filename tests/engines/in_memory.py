"""The tables of `countledger.testing`, as one more engine of the contract suite.

What they do not have has a name; a test that meets it is left out under that name.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import pytest

from countledger.infra.memory.faults import Missing, RefusingClient
from countledger.infra.memory.stack import MemoryConnection
from countledger.infra.memory.tables import REGION, MemoryTables
from countledger.ledger.connection import Connection
from countledger.ledger.dynamo import Meter
from countledger.ledger.settings import Settings
from tests.engines.differences import MEMORY, Engine
from tests.engines.store import Store

NAME: Final = "memory"
# Tests that need what no request shows.
LEFT_OUT: Final = {
    "test_a_table_that_is_not_there_is_named": Missing.STACK,
}


class EngineSession(RefusingClient):
    """A session whose connections lead to tables in memory."""

    def __init__(self, connection: MemoryConnection) -> None:
        """Lead to where a connection leads."""
        super().__init__(Missing.CLIENT, REGION)
        self.connection = connection


@contextmanager
def memory_store() -> Iterator[Store]:
    """Both tables in memory; connections by its session lead there."""
    memory = MemoryTables()
    connection = MemoryConnection.to(memory)
    session: Any = EngineSession(connection)
    opened = Connection.open

    def open_(settings: Settings | None = None, **given: Any) -> Connection:  # noqa: ANN401 - handed on
        found = given.get("session")
        if not isinstance(found, EngineSession):
            return opened(settings, **given)
        to = found.connection
        chosen: Any = found
        return replace(to, settings=settings or to.settings, session=chosen, meter=Meter())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "open", open_)
        connection = replace(connection, session=session)
        yield Store(Engine(NAME, session, None, MEMORY), connection, memory.ledger_stream.arn)
