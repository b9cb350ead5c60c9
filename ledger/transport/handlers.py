"""Handlers of a boto3 client's events: which of them the fast transport has to leave to boto3.

Handlers of `before-send` are called. Those of other events may change a request or an answer in
ways that only botocore carries out; where such a one is registered, boto3 makes the call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# The last one adds its name to the user agent of every client, as the functions load it.
_OWN: Final = ("botocore.", "boto3.", "countledger.", "aws_lambda_powertools.shared.user_agent.")
# Registered only on request: endpoints that the service names itself, reports of each call to an
# agent on this machine, and answers that a test gives.
_ON_REQUEST: Final = ("botocore.discovery", "botocore.monitoring", "botocore.stub")
_SKIPPED: Final = (
    "provide-client-params",
    "before-parameter-build",
    "before-endpoint-resolution",
    "before-call",
    "request-created",
    "choose-signer",
    "before-sign",
    "response-received",
    "before-parse",
    "needs-retry",
    "after-call",
)


@dataclass(frozen=True, slots=True)
class _Found:
    """What was found of a client's handlers, by operation.

    Attributes:
        version: an object that botocore replaces whenever a handler comes or goes.
        allowed: whether no handler keeps the operation from the fast transport.
        before_send: what is called with each request.
    """

    version: object
    allowed: dict[str, bool] = field(default_factory=dict)
    before_send: dict[str, tuple[Callable[..., Any], ...]] = field(default_factory=dict)


class Handlers:
    """The handlers of one client. A handler may be registered at any time."""

    __slots__ = ("_emitter", "_found")

    def __init__(self, client: Any) -> None:  # noqa: ANN401 - a boto3 client
        """The handlers of a client.

        Args:
            client: the boto3 client.

        Raises:
            AttributeError: this version of botocore keeps its handlers in another way.
        """
        self._emitter = client.meta.events._emitter  # noqa: SLF001 - no public way
        self._found = _Found(self._emitter._lookup_cache)  # noqa: SLF001

    def allow(self, operation: str) -> bool:
        """Whether none but botocore and this library handle what the fast transport skips."""
        known = self._known().allowed
        allowed = known.get(operation)
        if allowed is None:
            allowed = known[operation] = not any(
                _is_foreign(handler) for event in _SKIPPED for handler in self._of(event, operation)
            )
        return allowed

    def before_send(self, operation: str) -> tuple[Callable[..., Any], ...]:
        """What is called with each request that leaves, in this order."""
        known = self._known().before_send
        handlers = known.get(operation)
        if handlers is None:
            event = "before-send"
            handlers = known[operation] = tuple(
                partial(handler, event_name=_name(event, operation))
                for handler in self._of(event, operation)
            )
        return handlers

    def _known(self) -> _Found:
        """What was found since a handler came or went last.

        What a thread has found while another handler came is noted where nobody looks any more.
        """
        version = self._emitter._lookup_cache  # noqa: SLF001
        found = self._found
        if found.version is not version:
            found = self._found = _Found(version)
        return found

    def _of(self, event: str, operation: str) -> Iterable[Callable[..., Any]]:
        found: Iterable[Callable[..., Any]] = self._emitter._handlers.prefix_search(  # noqa: SLF001
            _name(event, operation)
        )
        return found


def _name(event: str, operation: str) -> str:
    return f"{event}.dynamodb.{operation}"


def _is_foreign(handler: Any) -> bool:  # noqa: ANN401 - anything that can be called
    while isinstance(handler, partial):
        handler = handler.func
    owner = getattr(handler, "__self__", None)
    if type(owner).__module__ in _ON_REQUEST:
        return True
    module = getattr(handler, "__module__", None) or type(owner or handler).__module__
    return not f"{module}.".startswith(_OWN)
