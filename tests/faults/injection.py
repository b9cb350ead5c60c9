"""Faults between the product and a service: what becomes of single attempts of a request.

A `Fault` says whether an attempt reaches the service, and what its sender hears. Faults are put in
by `faults(client, ...)` and nowhere else; `_met` alone knows how the attempts of clients are met:
by the events of boto3, which the clients of the stores in memory have as well.
(Not for moto in this process: its own handler answers whatever ours does.)
"""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from threading import Lock
from typing import Any, Final

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import (
    BotoCoreError,
    ConnectionClosedError,
    EndpointConnectionError,
    ReadTimeoutError,
)
from botocore.httpsession import URLLib3Session

from tests.engines.in_memory import MemoryRequest
from tests.transport.proof import refused_connection

Request = AWSPreparedRequest | MemoryRequest


class Kind(Enum):
    """What comes back instead of the engine's answer."""

    SERVER_ERROR = "error"
    UNAVAILABLE = "503"
    GATEWAY = "502 of a gateway"
    GARBLED = "200 cut short"
    TIMEOUT = "time-out"
    RESET = "reset"
    THROTTLE = "throttle"
    CONFLICT = "conflict"
    REJECT = "rejected"
    UNREACHABLE = "unreachable"
    CRASH = "crash"


@dataclass(frozen=True)
class Fault:
    """What becomes of one attempt.

    Attributes:
        kind: what comes back.
        applied: whether the engine carries the request out before its answer is lost.
    """

    kind: Kind
    applied: bool = False

    def __str__(self) -> str:
        """For the ids of tests."""
        if self.kind in _REFUSALS:
            return str(self.kind.value)
        return f"{self.kind.value}, {'applied' if self.applied else 'not applied'}"


# What is answered so was not applied.
_REFUSALS: Final = (Kind.THROTTLE, Kind.CONFLICT, Kind.REJECT, Kind.UNREACHABLE)
_UNCLEAR: Final = (Kind.SERVER_ERROR, Kind.UNAVAILABLE, Kind.GATEWAY, Kind.TIMEOUT, Kind.RESET)
# What may happen to an attempt, and its sender has to find out what it was.
FAULTS: Final = (
    *(Fault(kind, applied) for kind in _UNCLEAR for applied in (False, True)),
    Fault(Kind.THROTTLE),
)
# What the SDK takes for a success, and an empty answer.
GARBLED: Final = (Fault(Kind.GARBLED), Fault(Kind.GARBLED, applied=True))


class Crash(BaseException):
    """The process dies here; no handler of errors may catch it."""


def _error(code: str) -> bytes:
    body = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "injected"}
    return json.dumps(body).encode()


_ANSWERS: Final = {
    Kind.SERVER_ERROR: (500, _error("InternalServerError")),
    Kind.UNAVAILABLE: (503, _error("ServiceUnavailable")),
    Kind.GATEWAY: (502, b"<html><body>Bad gateway</body></html>"),
    Kind.GARBLED: (200, b'{"ConsumedCapacity": {"Capac'),
    Kind.THROTTLE: (400, _error("ProvisionedThroughputExceededException")),
    Kind.REJECT: (400, _error("ValidationException")),
}


def _conflict_of(request: Request) -> bytes:
    """A single write conflicts as a whole, a transaction by the first of its items."""
    if isinstance(request, MemoryRequest):
        items = request.items
    else:
        sent = request.body if isinstance(request.body, bytes | str) else b"{}"
        items = len(json.loads(sent).get("TransactItems", []))
    if not items:
        return _error("TransactionConflictException")
    reasons = [{"Code": "TransactionConflict", "Message": "injected"}]
    reasons += [{"Code": "None"}] * (items - 1)
    cancelled = {"Message": "injected", "CancellationReasons": reasons}
    return json.dumps(
        {"__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException", **cancelled}
    ).encode()


_ERRORS: Final[dict[Kind, type[BotoCoreError]]] = {
    Kind.TIMEOUT: ReadTimeoutError,
    Kind.RESET: ConnectionClosedError,
    Kind.UNREACHABLE: EndpointConnectionError,
}


def _always(_: Request) -> bool:
    return True


def _nothing() -> None:
    pass


@dataclass
class Attempts:
    """The HTTP attempts that were made, and what becomes of the next ones.

    Attributes:
        made: per attempt its fault, or None where it went through.
    """

    made: list[Fault | None] = field(default_factory=list)
    _plan: Iterator[Fault | None] = field(default_factory=lambda: iter(()))
    _only: Callable[[Request], bool] = _always
    _then: Callable[[], None] = _nothing
    _lock: Lock = field(default_factory=Lock)

    def __len__(self) -> int:
        """How many attempts were made."""
        return len(self.made)

    def __call__(self, request: Request, **_: object) -> AWSResponse | None:
        """Decide one attempt (botocore calls it before it sends)."""
        if not self._only(request):
            return None
        with self._lock:
            fault = next(self._plan, None)
            self.made.append(fault)
        if fault is None:
            return None
        if fault.applied:
            _carry_out(request)
        self._then()
        if fault.kind is Kind.CRASH:
            raise Crash
        if fault.kind in _ERRORS:
            proof = refused_connection() if fault.kind is Kind.UNREACHABLE else "injected"
            raise _ERRORS[fault.kind](endpoint_url=request.url, error=proof)
        if fault.kind is Kind.CONFLICT:
            return _answer(request, 400, _conflict_of(request))
        return _answer(request, *_ANSWERS[fault.kind])


# Decides one attempt before it is sent: None sends it.
Hook = Callable[..., AWSResponse | None]


@contextmanager
def _met(clients: Iterable[Any], at: str | None, hook: Callable[..., Any]) -> Iterator[None]:
    """Let a hook decide each attempt of some clients at an operation."""
    event = f"before-send.*.{at}" if at else "before-send"
    # The clients of an event loop that are of one kind are one.
    met = {id(client.meta.events): client.meta.events for client in clients}.values()
    for events in met:
        events.register_first(event, hook)
    try:
        yield
    finally:
        for events in met:
            events.unregister(event, hook)


@contextmanager
def faults(
    *clients: Any,  # noqa: ANN401 - clients of any service
    at: str | None = None,
    plan: Iterable[Fault | None] = (),
    only: Callable[[Request], bool] = _always,
    then: Callable[[], None] = _nothing,
) -> Iterator[Attempts]:
    """Let faults happen to the next HTTP attempts of some clients.

    Args:
        clients: only their attempts are touched.
        at: the operation, as `PutItem`; None for all.
        plan: per attempt its fault, or None to let it through; afterwards all go through.
        only: which requests count as attempts.
        then: what else happens after a fault, before its sender hears of it.

    Yields:
        The attempts as they are made.
    """
    attempts = Attempts(_plan=iter(plan), _only=only, _then=then)
    with _met(clients, at, attempts):
        yield attempts


@dataclass
class Late:
    """A request that was sent and is still in the network; its sender heard nothing.

    Attributes:
        landings: the status of each landing; a request may land more than once.
    """

    landings: list[int] = field(default_factory=list)
    _request: Request | None = None
    _held: int = 0

    def __call__(self, request: Request, **_: object) -> None:
        """Hold the first request back, and no other."""
        self._held += 1
        if self._held == 1:
            self._request = request
            raise ReadTimeoutError(endpoint_url=request.url)

    def land(self) -> None:
        """Now it arrives."""
        if self._request is None:
            raise AssertionError("nothing was sent")
        self.landings.append(_carry_out(self._request))


@contextmanager
def held_back(*clients: Any, at: str) -> Iterator[Late]:  # noqa: ANN401 - boto3 clients
    """Let the next request of an operation be late, whichever of the clients sends it."""
    late = Late()
    with _met(clients, at, late):
        yield late


@contextmanager
def before_call(
    client: Any,  # noqa: ANN401
    operation: str,
    act: Callable[[], object],
    number: int = 1,
) -> Iterator[None]:
    """Let something happen once, right before a client's n-th next call of an operation."""
    made = 0

    def count(**_: object) -> None:
        nonlocal made
        made += 1
        if made == number:
            act()

    event = f"before-call.*.{operation}"
    client.meta.events.register(event, count)
    try:
        yield
    finally:
        client.meta.events.unregister(event, count)


@contextmanager
def first_reason_kept_back(client: Any, times: int = 1) -> Iterator[list[str]]:  # noqa: ANN401
    """Let a client's next cancelled transactions name no reason for their first write.

    Yields:
        What was kept back, of each transaction.
    """
    kept: list[str] = []

    def keep_back(parsed: dict[str, Any], **_: object) -> None:
        reasons = parsed.get("CancellationReasons", [])
        if reasons and len(kept) < times:
            kept.append(reasons[0]["Code"])
            reasons[0] = {"Code": "None"}

    event = "after-call.*.TransactWriteItems"
    client.meta.events.register(event, keep_back)
    try:
        yield kept
    finally:
        client.meta.events.unregister(event, keep_back)


@contextmanager
def calls(client: Any) -> Iterator[list[str]]:  # noqa: ANN401
    """Note the operations that a client calls."""
    made: list[str] = []

    def note(model: Any, **_: object) -> None:  # noqa: ANN401 - botocore's operation
        made.append(model.name)

    client.meta.events.register("before-call.*", note)
    try:
        yield made
    finally:
        client.meta.events.unregister("before-call.*", note)


class _Body:
    """What botocore reads an answer's body from."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self, *_: object, **__: object) -> Iterator[bytes]:
        yield self._content


def _carry_out(request: Request) -> int:
    """Send the request for real; nobody hears the answer, whose status is returned."""
    if isinstance(request, MemoryRequest):
        return request.land()
    session = URLLib3Session(proxies={})
    try:
        return session.send(request).status_code
    finally:
        session.close()


def _answer(request: Request, status: int, body: bytes) -> AWSResponse:
    headers = HTTPHeaders.from_dict({"Content-Type": "application/x-amz-json-1.0"})
    return AWSResponse(request.url, status, headers, _Body(body))
