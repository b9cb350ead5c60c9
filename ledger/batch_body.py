"""The body of a batch write, spelled at once.

botocore walks the service's model for every value of every item: a quarter of what an entry costs
in a batch of 25. What the client hands it has the service's form already, and the body is its JSON.
So botocore is shown a batch without items, and the body is put in where it lets others look at a
request that it has made; signature, retries and all else remain its own.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any, Final

_PUT_ASIDE: Final = "countledger-batch"


def put_aside(params: dict[str, Any], context: dict[str, Any], **_: object) -> None:
    """Keep the batch, after all hooks that may change it, and leave its tables without items."""
    context[_PUT_ASIDE] = dict(params)
    params["RequestItems"] = {table: [] for table in params["RequestItems"]}


def put_in(params: dict[str, Any], context: dict[str, Any], **_: object) -> None:
    """Make the batch that was kept the body of the request."""
    params["body"] = json.dumps(context.pop(_PUT_ASIDE), default=_base64).encode()


def spell(client: Any) -> None:  # noqa: ANN401 - a client of DynamoDB
    """Let a client's batch writes have their body from here."""
    events = client.meta.events
    events.register_last("before-parameter-build.dynamodb.BatchWriteItem", put_aside)
    events.register_first("before-call.dynamodb.BatchWriteItem", put_in)


def _base64(value: bytes) -> str:
    return b64encode(value).decode()
