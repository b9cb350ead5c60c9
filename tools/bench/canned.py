"""A server with canned answers: what is measured against it is the client alone.

It speaks as much HTTP as the SDKs need and answers as the service would, with consumed units, a
checksum and a request id, after so many milliseconds as it is told. It keeps nothing, so it says
nothing of whether a client is right: the engines' suites do.
"""

from __future__ import annotations

import asyncio
import json
import sys
import zlib
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from tools.bench.processor import SERVER, stay_on

_NAMESPACE: Final = {
    "entry": {"S": "settings"},
    "kind": {"S": "ledger"},
    "spread": {"N": "1"},
    "horizon_ms": {"N": "86400000"},
}
# A counter of a ledger, as a reader gets it.
_TOTAL: Final = {
    "total": {"N": "123456"},
    "events": {"N": "23456"},
    "entries": {"N": "3456"},
    "version": {"N": "456"},
    "updated_at": {"N": "1800000000000"},
    "wAAAAAAAAAAAA": {"B": "AAAAAAAAAAAAAAAAAAAAAAAAAAAA"},
}
# Counters of this namespace are strict.
STRICT_NAMESPACE: Final = "bench-strict"
_STRICT: Final = {
    "incarnation": {"S": "01a202f0-08c6-7333-b73b-6c98c0f0236b"},
    "method": {"S": "atomic"},
    "version": {"N": "1795345615052"},
    "total": {"N": "5"},
    "lower": {"N": "0"},
    "headroom_up": {"N": "-5"},
    "headroom_down": {"N": "5"},
    "updated_at": {"N": "1795345615052"},
}
# Of a stream shard: near its beginning, so that every batch is new.
_PROGRESS: Final = {
    "sequence": {"S": "1"},
    "position": {"S": "1".zfill(40)},
    **{
        name: {"N": "0"}
        for name in ("handled_through", "handled_at", "records", "updates", "write_units")
    },
}
_COUNTED: Final = ("updated_at", "total", "events", "entries", "version")
_HEAD: Final = (
    "HTTP/1.1 200 OK\r\n"
    "Server: Server\r\n"
    "Date: Sat, 21 Nov 2026 12:00:00 GMT\r\n"
    "Content-Type: application/x-amz-json-1.0\r\n"
    "Connection: keep-alive\r\n"
    "x-amzn-RequestId: 6Q5E7J3KD2L7O8QN0PPLHMVSR3VV4KQNSO5AEMVJF66Q9ASUAAJG\r\n"
    "x-amz-crc32: {checksum}\r\n"
    "Content-Length: {length}\r\n"
    "\r\n"
)
_GO_ON: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


def _units(table: str, units: float) -> dict[str, Any]:
    return {"TableName": table, "CapacityUnits": units}


def _get_item(request: dict[str, Any]) -> dict[str, Any]:
    answer = {"ConsumedCapacity": _units(request["TableName"], 0.5)}
    key = request["Key"]
    name = key["counter"]["S"]
    if key.get("entry") == _NAMESPACE["entry"]:
        kind = "strict" if name.endswith(STRICT_NAMESPACE) else "ledger"
        answer["Item"] = {**_NAMESPACE, "counter": key["counter"], "kind": {"S": kind}}
    elif key.get("part") == {"S": "progress"}:
        answer["Item"] = {**key, **_PROGRESS}
    elif {"S": "total"} in (key.get("part"), key.get("entry")):
        is_strict = name.startswith(f"{STRICT_NAMESPACE}:")
        answer["Item"] = {**key, **(_STRICT if is_strict else _TOTAL)}
    return answer


def _update_item(request: dict[str, Any]) -> dict[str, Any]:
    """As of a total: all that was set or added is what the item holds."""
    answer = {"ConsumedCapacity": _units(request["TableName"], 1.0)}
    if request.get("ReturnValues") == "ALL_NEW":
        if request["Key"]["counter"]["S"].startswith(f"{STRICT_NAMESPACE}:"):
            answer["Attributes"] = {**request["Key"], **_STRICT}
            return answer
        values = request["ExpressionAttributeValues"].values()
        numbers = [value for value in values if "N" in value]
        mark = next((value for value in values if "B" in value), {"B": ""})
        held = dict(zip(_COUNTED, numbers, strict=False))
        answer["Attributes"] = {**request["Key"], **held, "wAAAAAAAAAAAA": mark}
    return answer


def _batch_write_item(request: dict[str, Any]) -> dict[str, Any]:
    consumed = [_units(table, float(len(puts))) for table, puts in request["RequestItems"].items()]
    return {"UnprocessedItems": {}, "ConsumedCapacity": consumed}


def _put_records(request: dict[str, Any]) -> dict[str, Any]:
    taken = [
        {"SequenceNumber": str(10**55 + number), "ShardId": "shardId-000000000000"}
        for number in range(len(request["Records"]))
    ]
    return {"FailedRecordCount": 0, "Records": taken}


def _batch_get_item(request: dict[str, Any]) -> dict[str, Any]:
    """None of the items exists."""
    consumed = [
        _units(table, 0.5 * len(of["Keys"])) for table, of in request["RequestItems"].items()
    ]
    responses: dict[str, Any] = {table: [] for table in request["RequestItems"]}
    return {"Responses": responses, "UnprocessedKeys": {}, "ConsumedCapacity": consumed}


def _describe_stream(request: dict[str, Any]) -> dict[str, Any]:
    return {"StreamDescription": {**request, "StreamStatus": "ENABLED", "Shards": []}}


def _transact_write_items(request: dict[str, Any]) -> dict[str, Any]:
    actions = [*(one for of in request["TransactItems"] for one in of.values())]
    return {"ConsumedCapacity": [_units(actions[0]["TableName"], 2.0 * len(actions))]}


def _describe_table(request: dict[str, Any]) -> dict[str, Any]:
    """As pynamodb reads it."""
    names = ("counter", "entry")
    kinds = ("HASH", "RANGE")
    pairs = zip(names, kinds, strict=True)
    table = {
        "TableName": request["TableName"],
        "TableStatus": "ACTIVE",
        "KeySchema": [{"AttributeName": name, "KeyType": kind} for name, kind in pairs],
        "AttributeDefinitions": [{"AttributeName": n, "AttributeType": "S"} for n in names],
    }
    return {"Table": table}


_ANSWERS: Final = {
    "DescribeTable": _describe_table,
    "TransactWriteItems": _transact_write_items,
    "BatchGetItem": _batch_get_item,
    "DescribeStream": _describe_stream,
    "GetItem": _get_item,
    "UpdateItem": _update_item,
    "BatchWriteItem": _batch_write_item,
    "PutRecords": _put_records,
}


def answer_to(operation: str, request: dict[str, Any]) -> dict[str, Any]:
    """What the service would say to a call that succeeds."""
    if operation in _ANSWERS:
        return _ANSWERS[operation](request)
    return {"ConsumedCapacity": _units(request.get("TableName", ""), 1.0)}


Answers: TypeAlias = Callable[[str, dict[str, Any]], dict[str, Any]]


class _Connection(asyncio.Protocol):
    """One client's connection: requests in, answers out."""

    def __init__(self, delay_s: float, answer_to: Answers) -> None:
        self._delay_s, self._answer_to = delay_s, answer_to
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to answer."""
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        """Answer every request that is complete."""
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, rest = self._received.partition(b"\r\n\r\n")
            headers = _headers(head)
            length = int(headers.get("content-length", 0))
            if len(rest) < length:
                if "expect" in headers and not rest:
                    self._transport.write(_GO_ON)
                return
            self._received = rest[length:]
            self._answer(headers.get("x-amz-target", "").rpartition(".")[2], rest[:length])

    def _answer(self, operation: str, body: bytes) -> None:
        told = json.dumps(self._answer_to(operation, json.loads(body))).encode()
        answer = _HEAD.format(checksum=zlib.crc32(told), length=len(told)).encode() + told
        if self._delay_s:
            asyncio.get_running_loop().call_later(self._delay_s, self._transport.write, answer)
        else:
            self._transport.write(answer)


def _headers(head: bytes) -> dict[str, str]:
    lines = (line.partition(": ") for line in head.decode("latin-1").split("\r\n")[1:])
    return {name.lower(): value for name, _, value in lines}


async def serve(delay_s: float, answers: Answers = answer_to) -> None:
    """Print the port, and answer until the process is ended."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(delay_s, answers), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - to its parent
    await server.serve_forever()


if __name__ == "__main__":
    stay_on(SERVER)
    asyncio.run(serve(float(sys.argv[1]) / 1_000))
