"""A last look before a request leaves, when it is signed already.

A process may stand still anywhere, for hours: also between a check and the request that follows it.
The service takes a signed request for a quarter of an hour. So what must not be sent later than
some moment is looked at *behind* the signature: whatever stands still after that look arrives too
late for the service itself.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LOOK: ContextVar[Callable[[], None] | None] = ContextVar("look", default=None)


@contextmanager
def looking(look: Callable[[], None]) -> Iterator[None]:
    """Have every request of this thread looked at as it leaves, for as long as the block runs.

    Args:
        look: raises where the request must not leave.
    """
    before = _LOOK.set(look)
    try:
        yield
    finally:
        _LOOK.reset(before)


def leave(**_: object) -> None:
    """A request leaves now; botocore calls this behind the signature.

    Raises:
        CountledgerError: whatever the look refuses it with.
    """
    look = _LOOK.get()
    if look is not None:
        look()


def watch(client: Any) -> None:  # noqa: ANN401 - a client of any service
    """Let a client's requests be looked at, before anything else sees them leave."""
    client.meta.events.register_first("before-send", leave, unique_id="countledger-departure")
