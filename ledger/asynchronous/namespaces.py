"""The namespaces of a stack, for event loops: each method as in its synchronous class."""

from __future__ import annotations

from countledger.ledger.asynchronous.forms import AsyncForm, awaited
from countledger.ledger.namespace import Namespaces


class AsyncNamespaces(AsyncForm[Namespaces]):
    """The namespaces of a stack; see `Namespaces`."""

    create = awaited(Namespaces.create)
    describe = awaited(Namespaces.describe)
    get = awaited(Namespaces.get)
    find = awaited(Namespaces.find)
    list = awaited(Namespaces.list)
