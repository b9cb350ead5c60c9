"""Faults between the product and the engine, put in by botocore's own events.

A `Fault` says what becomes of one HTTP attempt: whether it reaches the engine, and what comes back.
The SDK's retries see the same as ours would see of a broken network or service. (Not for moto in
this process: its own handler answers whatever ours does.)
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

from tests.transport.proof import refused_connection


class Kind(Enum):
    """What comes back instead of the engine's answer."""

    SERVER_ERROR = "500"
    UNAVAILABLE = "503"
    GATEWAY = "502 of a gateway"
    GARBLED = "200 cut short"
    TIMEOUT = "time-out"
    RESET = "reset"
    THROTTLE = "throttle"
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
        return f"{self.kind.value}, {'applied' if self.applied else 'not applied'}"


_UNCLEAR: Final = (Kind.SERVER_ERROR, Kind.UNAVAILABLE, Kind.GATEWAY, Kind.TIMEOUT, Kind.RESET)
# What may happen to an attempt, and its sender has to find out what it was.
FAULTS: Final = (
    *(Fault(kind, applied) for kind in _UNCLEAR for applied in (False, True)),
    Fault(Kind.THROTTLE),
)
LOST_ANSWERS: Final = tuple(fault for fault in FAULTS if fault.applied)
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
_ERRORS: Final[dict[Kind, type[BotoCoreError]]] = {
    Kind.TIMEOUT: ReadTimeoutError,
    Kind.RESET: ConnectionClosedError,
    Kind.UNREACHABLE: EndpointConnectionError,
}


def _always(_: AWSPreparedRequest) -> bool:
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
    _only: Callable[[AWSPreparedRequest], bool] = _always
    _then: Callable[[], None] = _nothing
    _lock: Lock = field(default_factory=Lock)

    def __len__(self) -> int:
        """How many attempts were made."""
        return len(self.made)

    def __call__(self, request: AWSPreparedRequest, **_: object) -> AWSResponse | None:
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
        return _answer(request, *_ANSWERS[fault.kind])


@contextmanager
def faults(
    *clients: Any,  # noqa: ANN401 - clients of any service
    at: str | None = None,
    plan: Iterable[Fault | None] = (),
    only: Callable[[AWSPreparedRequest], bool] = _always,
    then: Callable[[], None] = _nothing,
) -> Iterator[Attempts]:
    """Let faults happen to the next HTTP attempts of some clients.

    Args:
        clients: boto3 clients; only their attempts are touched.
        at: the operation, as `PutItem`; None for all.
        plan: per attempt its fault, or None to let it through; afterwards all go through.
        only: which requests count as attempts.
        then: what else happens behind a fault, before its sender hears of it.

    Yields:
        The attempts as they are made.
    """
    attempts = Attempts(_plan=iter(plan), _only=only, _then=then)
    event = f"before-send.*.{at}" if at else "before-send"
    for client in clients:
        client.meta.events.register_first(event, attempts)
    try:
        yield attempts
    finally:
        for client in clients:
            client.meta.events.unregister(event, attempts)


@contextmanager
def before_call(client: Any, operation: str, act: Callable[[], None]) -> Iterator[None]:  # noqa: ANN401
    """Let something happen once, right before a client's next call of an operation."""
    waiting = [act]

    def once(**_: object) -> None:
        if waiting:
            waiting.pop()()

    event = f"before-call.*.{operation}"
    client.meta.events.register(event, once)
    try:
        yield
    finally:
        client.meta.events.unregister(event, once)


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


def _carry_out(request: AWSPreparedRequest) -> None:
    """Send the request for real; nobody hears the answer."""
    session = URLLib3Session(proxies={})
    try:
        session.send(request)
    finally:
        session.close()


def _answer(request: AWSPreparedRequest, status: int, body: bytes) -> AWSResponse:
    headers = HTTPHeaders.from_dict({"Content-Type": "application/x-amz-json-1.0"})
    return AWSResponse(request.url, status, headers, _Body(body))
