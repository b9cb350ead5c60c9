"""The connection that every new connection of this process becomes while a test runs.

It is set by `countledger.testing`, for code that makes its own `CountLedger()` from the
environment. It is one for the whole process: the threads of such code must find it as well.
"""

from __future__ import annotations

from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Final

from countledger.ledger.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.ledger.connection import Connection

_CHANGING: Final = Lock()
_INSTALLED: Final[list[Connection]] = []


def replacement() -> Connection | None:
    """The installed connection, or None: connections lead to AWS."""
    return _INSTALLED[0] if _INSTALLED else None


@contextmanager
def replaced_by(connection: Connection) -> Iterator[None]:
    """Install a connection while the block runs.

    Raises:
        SetupError: one is installed already, also by another thread.
    """
    with _CHANGING:
        if _INSTALLED:
            raise SetupError(
                "a stack in memory is installed already in this process: leave its block first, "
                "or use one stack for both"
            )
        _INSTALLED.append(connection)
    try:
        yield
    finally:
        with _CHANGING:
            _INSTALLED.clear()
