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


class Kind(Enum):
    """What comes back instead of the engine's answer."""

    SERVER_ERROR = "500"
    UNAVAILABLE = "503"
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


_UNCLEAR: Final = (Kind.SERVER_ERROR, Kind.UNAVAILABLE, Kind.TIMEOUT, Kind.RESET)
# What may happen to an attempt, and its sender has to find out what it was.
FAULTS: Final = (
    *(Fault(kind, applied) for kind in _UNCLEAR for applied in (False, True)),
    Fault(Kind.THROTTLE),
)
LOST_ANSWERS: Final = tuple(fault for fault in FAULTS if fault.applied)


class Crash(BaseException):
    """The process dies here; no handler of errors may catch it."""


_ANSWERS: Final = {
    Kind.SERVER_ERROR: (500, "InternalServerError"),
    Kind.UNAVAILABLE: (503, "ServiceUnavailable"),
    Kind.THROTTLE: (400, "ProvisionedThroughputExceededException"),
    Kind.REJECT: (400, "ValidationException"),
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
            raise _ERRORS[fault.kind](endpoint_url=request.url, error="injected")
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
def unprocessed(client: Any, counts: Iterable[int]) -> Iterator[list[int]]:  # noqa: ANN401
    """Let the service leave items of the next batch writes unprocessed.

    They are taken out of the request and put into its answer. Works on every engine.

    Args:
        client: a boto3 client of DynamoDB.
        counts: per call how many of its last items are left.

    Yields:
        Per call how many items it was asked to write.
    """
    plan, asked, left_out = iter(counts), list[int](), dict[str, list[Any]]()

    def take_out(params: dict[str, Any], **_: object) -> dict[str, Any]:
        ((table, requests),) = params["RequestItems"].items()
        asked.append(len(requests))
        left = next(plan, 0)
        if left >= len(requests):
            raise AssertionError("a batch of which nothing is taken is an error at the service")
        keep = len(requests) - left
        left_out.clear()
        if left:
            left_out[table] = requests[keep:]
        return {**params, "RequestItems": {table: requests[:keep]}}

    def put_back(parsed: dict[str, Any], **_: object) -> None:
        parsed["UnprocessedItems"] = dict(left_out)

    before, after = "provide-client-params.*.BatchWriteItem", "after-call.*.BatchWriteItem"
    client.meta.events.register(before, take_out)
    client.meta.events.register(after, put_back)
    try:
        yield asked
    finally:
        client.meta.events.unregister(before, take_out)
        client.meta.events.unregister(after, put_back)


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


def _answer(request: AWSPreparedRequest, status: int, code: str) -> AWSResponse:
    body = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "injected"}
    headers = HTTPHeaders.from_dict({"Content-Type": "application/x-amz-json-1.0"})
    return AWSResponse(request.url, status, headers, _Body(json.dumps(body).encode()))
