"""The tables of `countledger.testing`, as one more engine of the contract suite.

What they do not have has a name; a test that meets it is left out under that name.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from countledger.infra.memory.connection import MemoryConnection
from countledger.infra.memory.refusal import Missing
from countledger.infra.memory.tables import MemoryTables
from countledger.ledger.replacement import replaced_by
from tests.engines.differences import MEMORY, Engine
from tests.engines.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME: Final = "memory"
# Tests that need what no request shows.
LEFT_OUT: Final = {
    "test_a_table_that_is_not_there_is_named": Missing.STACK,
}


@contextmanager
def memory_store() -> Iterator[Store]:
    """Both tables in memory; while they are used, every connection leads there."""
    memory = MemoryTables()
    connection = MemoryConnection.to(memory)
    session: Any = connection.session
    with replaced_by(connection):
        yield Store(Engine(NAME, session, None, MEMORY), connection, memory.ledger_stream.arn)
