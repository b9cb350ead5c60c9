"""Parts of the kernel put together, from a connection to a stack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countledger.ledger.namespace import Namespaces

if TYPE_CHECKING:
    from countledger.ledger.connection import Connection


def namespaces_of(connection: Connection) -> Namespaces:
    """The namespaces of a stack; none is known yet."""
    return Namespaces(
        connection.dynamo("standard"),
        connection.setting("ledger_table"),
        region=connection.region,
        home_region=connection.setting("home_region"),
    )
