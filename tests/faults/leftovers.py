"""Batches that the service carries out in part: it hands the rest back.

What is left is taken out of the request and put into its answer, so it is truly left. This works on
every engine, moto in this process as well. A table that was asked for by its ARN is answered under
its name: the service does not say which of the two it takes.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def unprocessed(client: Any, counts: Iterable[int]) -> Iterator[list[int]]:  # noqa: ANN401
    """Let the service leave items of the next batch writes unprocessed, one batch at a time.

    Args:
        client: a boto3 client of DynamoDB.
        counts: per call how many of its last items are left.

    Yields:
        Per call how many items it was asked to write.
    """

    def split(requests: list[Any], keep: int) -> tuple[list[Any], list[Any]]:
        return requests[:keep], requests[keep:]

    with _left_over(
        client, "BatchWriteItem", "UnprocessedItems", counts, size=len, split=split
    ) as asked:
        yield asked


@contextmanager
def unanswered(client: Any, counts: Iterable[int]) -> Iterator[list[int]]:  # noqa: ANN401
    """Let the service leave keys of the next batch reads unanswered.

    Args:
        client: a boto3 client of DynamoDB.
        counts: per call how many of its last keys are left.

    Yields:
        Per call how many keys it was asked for.
    """

    def size(request: dict[str, Any]) -> int:
        return len(request["Keys"])

    def split(request: dict[str, Any], keep: int) -> tuple[dict[str, Any], dict[str, Any]]:
        keys = request["Keys"]
        return {**request, "Keys": keys[:keep]}, {**request, "Keys": keys[keep:]}

    with _left_over(
        client, "BatchGetItem", "UnprocessedKeys", counts, size=size, split=split
    ) as asked:
        yield asked


@contextmanager
def _left_over(
    client: Any,  # noqa: ANN401
    operation: str,
    answered_as: str,
    counts: Iterable[int],
    *,
    size: Callable[[Any], int],
    split: Callable[[Any, int], tuple[Any, Any]],
) -> Iterator[list[int]]:
    plan, asked, left_out = iter(counts), list[int](), dict[str, Any]()

    def take_out(params: dict[str, Any], **_: object) -> dict[str, Any]:
        ((table, request),) = params["RequestItems"].items()
        left = next(plan, 0)
        asked.append(size(request))
        left_out.clear()
        if not left:
            return params
        if left >= size(request):
            raise AssertionError("a batch of which nothing is taken is an error at the service")
        kept, left_out[_name_of(table)] = split(request, size(request) - left)
        return {**params, "RequestItems": {table: kept}}

    def put_back(parsed: dict[str, Any], **_: object) -> None:
        parsed[answered_as] = dict(left_out)
        if "Responses" in parsed:
            parsed["Responses"] = {_name_of(t): found for t, found in parsed["Responses"].items()}

    events = client.meta.events
    before, after = f"provide-client-params.*.{operation}", f"after-call.*.{operation}"
    events.register(before, take_out)
    events.register(after, put_back)
    try:
        yield asked
    finally:
        events.unregister(before, take_out)
        events.unregister(after, put_back)


def _name_of(table: str) -> str:
    """The name in a table's ARN, or the name that it is."""
    return table.rpartition("/")[2]
