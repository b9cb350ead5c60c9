"""The JSON of requests and answers.

Numbers are texts in DynamoDB's format, so no digit is lost. Binaries are base64 on the wire: those
of a request are spelled here, those of an answer are read where items are decoded.
"""

from __future__ import annotations

import json
from base64 import b64encode
from itertools import repeat
from typing import TYPE_CHECKING, Any
from zlib import crc32

import orjson
from botocore import exceptions as sdk
from botocore.awsrequest import AWSPreparedRequest, HeadersDict
from botocore.compat import HTTPHeaders
from botocore.parsers import create_parser

from countledger.ledger.attributes import encode, encode_value
from countledger.ledger.entry import EntryColumns
from countledger.ledger.keys import entry_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from botocore.model import ServiceModel

    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import PutBatch
    from countledger.ledger.transport.wire import Answer

_CHECKSUM = "x-amz-crc32"
_SUCCESS = 200
_FIRST_ERROR = 301


def spelled(arguments: object) -> bytes:
    """The body of a request, or a part of it."""
    try:
        return orjson.dumps(arguments, default=_base64)
    except TypeError:
        # A text that is not valid Unicode: spelled as boto3 spells it, for the service to refuse.
        return json.dumps(arguments, default=_base64).encode()


def puts_of_json(batch: PutBatch) -> list[orjson.Fragment]:
    """The puts of a batch, each as JSON: in a third of the time of encoding item by item."""
    columns = EntryColumns.of(batch.entries)
    if columns is None:
        return [orjson.Fragment(_put_of(item)) for item in batch.items]
    times_ms, events = columns.times_ms, columns.events
    deltas = [str(one) if type(one) is int else _number(one) for one in columns.deltas]
    # Entries that were made together differ in their counters, ids and deltas only.
    heads = {at_ms: _head_of(at_ms, columns.origin) for at_ms in {*times_ms}}
    if events.count(1) == len(events):
        ends = ['"}}}}'] * len(events)
    else:
        ends = ['"}}}}' if one == 1 else f'"}},"events":{{"N":"{one}"}}}}}}}}' for one in events]
    counters = _texts(columns.counters)
    sort_keys = _texts([*map(entry_key, columns.ids, batch.spreads)])
    parts = zip(
        map(heads.__getitem__, times_ms),
        counters,
        repeat('},"entry":{"S":'),
        sort_keys,
        repeat('},"delta":{"N":"'),
        deltas,
        ends,
        strict=False,  # two of them have no end
    )
    return [*map(orjson.Fragment, map("".join, parts))]


def _texts(texts: Sequence[str]) -> list[str]:
    """The JSON of each of some texts."""
    found = spelled(texts)[1:-1].decode().split(",")
    # More parts than texts: a comma is part of one.
    return found if len(found) == len(texts) else [spelled(one).decode() for one in texts]


def _number(amount: Amount) -> str:
    return encode_value(amount)["N"]


def _put_of(item: Item) -> str:
    return spelled({"PutRequest": {"Item": encode(item)}}).decode()


def _head_of(at_ms: int, origin: str) -> str:
    """The put of a plain entry, up to its counter."""
    put = _put_of({"at": at_ms, "origin": origin})
    return f'{put[:-3]},"counter":{{"S":'


def without_json(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a batch write, as botocore takes them."""
    puts = {
        table: orjson.loads(orjson.dumps(requests, default=_base64))
        for table, requests in arguments["RequestItems"].items()
    }
    return {**arguments, "RequestItems": puts}


def read(answer: Answer) -> dict[str, Any]:
    """What an answer of success says; nothing, as by boto3, if it is not the service's.

    `dynamo.consumed_in` refuses such an answer.

    Raises:
        ChecksumError: its body is not the one that the service sent.
    """
    expected = answer.headers.get(_CHECKSUM)
    if expected is not None and expected != (actual := str(crc32(answer.body))):
        raise sdk.ChecksumError(
            checksum_type="crc32", expected_checksum=expected, actual_checksum=actual
        )
    try:
        content = orjson.loads(answer.body)
    except ValueError:
        return {}
    if answer.status != _SUCCESS or not isinstance(content, dict):
        return {}
    return {name: value for name, value in content.items() if value is not None}


def is_refusal(answer: Answer) -> bool:
    """Whether its status is that of an error or a redirect."""
    return answer.status >= _FIRST_ERROR


class Refusals:
    """Reads answers of refusal, by botocore's own parser."""

    __slots__ = ("_parser", "_service")

    def __init__(self, service: ServiceModel) -> None:
        """Those of a service.

        Args:
            service: its model.
        """
        self._service = service
        self._parser: Any = create_parser(service.resolved_protocol)

    def read(self, operation: str, answer: Answer) -> dict[str, Any]:
        """What an answer says, in the form of `ClientError.response`."""
        response = {
            "status_code": answer.status,
            "headers": HTTPHeaders.from_dict(dict(answer.headers)),
            "body": answer.body,
            "context": {"operation_name": operation},
        }
        shape = self._service.operation_model(operation).output_shape
        parsed: dict[str, Any] = self._parser.parse(response, shape)
        error_shape = self._service.shape_for_error_code(parsed["Error"]["Code"])
        if error_shape is not None:
            parsed.update(self._parser.parse(response, error_shape))
        return parsed


class LeavingRequest(AWSPreparedRequest):
    """A signed request, as handlers of `before-send` see it; its headers are parsed if read."""

    def __init__(self, url: str, request: bytes, body: bytes) -> None:
        """A request.

        Args:
            url: where it goes.
            request: all of it.
            body: the end of it.
        """
        self.method, self.url, self.body = "POST", url, body
        self.stream_output = False
        self._request = request

    @property
    def headers(self) -> HeadersDict:  # type: ignore[override]
        """Its headers; those that are added to them are not sent."""
        lines = self._request.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
        return HeadersDict([line.split(": ", 1) for line in lines])


def _base64(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return b64encode(value).decode()
    raise TypeError(f"a request holds a {type(value).__name__}")
