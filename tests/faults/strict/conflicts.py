"""Conflicts of transactions, which no local engine makes by itself."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders

_NAMESPACE: Final = "com.amazonaws.dynamodb.v20120810#"


class _Body:
    """What botocore reads an answer's body from."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self, *_: object, **__: object) -> Iterator[bytes]:
        yield self._content


def _body_of(request: AWSPreparedRequest) -> dict[str, Any]:
    """A single write conflicts as a whole, a transaction by the first of its writes."""
    sent = request.body if isinstance(request.body, bytes | str) else b"{}"
    actions = json.loads(sent).get("TransactItems")
    if actions is None:
        return {"__type": f"{_NAMESPACE}TransactionConflictException", "message": "injected"}
    reasons = [{"Code": "TransactionConflict", "Message": "injected"}]
    reasons += [{"Code": "None"}] * (len(actions) - 1)
    return {
        "__type": f"{_NAMESPACE}TransactionCanceledException",
        "Message": "injected",
        "CancellationReasons": reasons,
    }


@contextmanager
def conflicts(
    client: Any,  # noqa: ANN401 - a boto3 client
    operation: str,
    times: int = 1,
    *,
    then: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Refuse a client's next attempts at an operation for a conflict.

    Args:
        client: a boto3 client of DynamoDB.
        operation: as `UpdateItem`.
        times: how many attempts.
        then: what else happens before the sender hears of it.
    """
    left = times

    def refuse(request: AWSPreparedRequest, **_: object) -> AWSResponse | None:
        nonlocal left
        if left == 0:
            return None
        left -= 1
        then()
        headers = HTTPHeaders.from_dict({"Content-Type": "application/x-amz-json-1.0"})
        return AWSResponse(request.url, 400, headers, _Body(json.dumps(_body_of(request)).encode()))

    event = f"before-send.*.{operation}"
    client.meta.events.register_first(event, refuse)
    try:
        yield
    finally:
        client.meta.events.unregister(event, refuse)


@contextmanager
def first_reason_kept_back(client: Any, times: int = 1) -> Iterator[list[str]]:  # noqa: ANN401 - a boto3 client
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
