"""A client whose calls on items take the fast way; all other calls are a boto3 client's.

Credentials, endpoints, connections, errors and handlers of `before-send` are those of the boto3
client. A call that only botocore can make as it is configured (see below) is made
by the boto3 client. No redirect is followed.
"""

from __future__ import annotations

import json
import os
import time
from base64 import b64encode
from dataclasses import dataclass, field
from functools import partial
from itertools import count, repeat
from random import random
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit
from zlib import crc32

import orjson
from botocore import exceptions as sdk
from botocore.awsrequest import AWSPreparedRequest, HeadersDict
from botocore.compat import HTTPHeaders
from botocore.parsers import create_parser

from countledger.ledger.attributes import encode, encode_value
from countledger.ledger.departure import judge_attempt
from countledger.ledger.entry import EntryColumns
from countledger.ledger.keys import entry_key
from countledger.ledger.service_errors import may_pass
from countledger.ledger.transport.http import Answer, Connections, Signer, is_direct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from botocore.credentials import Credentials, ReadOnlyCredentials
    from botocore.model import ServiceModel

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import CallLimits
    from countledger.ledger.attributes import Item
    from countledger.ledger.entry import PutBatch


# The JSON of requests and answers.
#
# Numbers are texts in DynamoDB's format, so no digit is lost. Binaries are base64 on the wire:
# those of a request are spelled here, those of an answer are read where items are decoded.


_CHECKSUM = "x-amz-crc32"
_SUCCESS = 200
_FIRST_ERROR = 301


def spelled(arguments: object) -> bytes:
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

    `dynamo.consumed_in` refuses such an answer. ChecksumError: its body is not the one that the
    service sent.
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


# Where a request goes and what signs it, as botocore resolves it for the same call.
#
# Region, FIPS, dual-stack, the endpoint of an account and custom endpoints are botocore's rules.
# They depend on the operation, its tables and the account only, so each answer is kept.


_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Route:
    """How the requests of one operation travel; `target` is its name in a header."""

    url: str
    target: str
    signer: Signer
    connections: Connections


class Routes:
    """The routes of a boto3 client; AttributeError if botocore lacks a part without public name."""

    __slots__ = ("_client", "_connections", "_known", "_resolve")

    def __init__(self, client: Any) -> None:  # noqa: ANN401 - a boto3 client
        # Both use parts of botocore that may be missing: it shows here, not at the first call.
        self._resolve = client._resolve_endpoint_ruleset  # noqa: SLF001 - no public way
        Connections(client, client.meta.endpoint_url)
        self._client = client
        # All operations share the connections to an endpoint.
        self._connections: dict[str, Connections] = {}
        self._known: dict[tuple[str, tuple[str, ...], str | None], Route | None] = {}

    def of(
        self, operation: str, arguments: Mapping[str, Any], account_id: str | None
    ) -> Route | None:
        """The route of a request, by its tables; None: only boto3 knows how to send it."""
        known = operation, _tables(arguments), account_id
        try:
            return self._known[known]
        except KeyError:
            route = self._known[known] = self._resolved(operation, arguments)
            return route

    def close(self) -> None:
        for connections in [*self._connections.values()]:
            connections.close()

    def _resolved(self, operation: str, arguments: Mapping[str, Any]) -> Route | None:
        client, service = self._client, self._client.meta.service_model
        config = client.meta.config
        context: dict[str, Any] = {"client_region": config.region_name, "client_config": config}
        url, headers, _ = self._resolve(service.operation_model(operation), arguments, context)
        auth = context.get("auth_type") or config.signature_version
        usual = auth == "v4" and not config.auth_scheme_preference and not headers
        if not usual or not is_direct(client, url):
            return None
        signing = context.get("signing", {})
        signer = Signer(
            host_of(url),
            signing.get("region", config.region_name),
            signing.get("signing_name", service.signing_name),
            f"application/x-amz-json-{service.metadata['jsonVersion']}",
            config.user_agent or "",
        )
        target = f"{service.metadata['targetPrefix']}.{operation}"
        if url not in self._connections:
            # One step: of two threads that make the first call, both get what came first.
            self._connections.setdefault(url, Connections(client, url))
        return Route(url.rstrip("/") + "/", target, signer, self._connections[url])


def host_of(url: str) -> str:
    """A URL's host as the header `Host` has it: with its port, unless it is the scheme's own."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    return host if parts.port in {None, _PORTS.get(parts.scheme)} else f"{host}:{parts.port}"


def _tables(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    if "TableName" in arguments:
        return (arguments["TableName"],)
    if "RequestItems" in arguments:
        return tuple(arguments["RequestItems"])
    return tuple(dict.fromkeys(_of_actions(arguments["TransactItems"])))


def _of_actions(actions: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for action in actions:
        for write in action.values():
            yield write["TableName"]


# Handlers of a boto3 client's events: which of them the fast transport has to leave to boto3.
#
# Handlers of `before-send` are called. Those of other events may change a request or an answer in
# ways that only botocore carries out; where such a one is registered, boto3 makes the call.


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

    `version` is an object that botocore replaces whenever a handler comes or goes; an operation is
    `allowed` if no handler keeps it from the fast transport.
    """

    version: object
    allowed: dict[str, bool] = field(default_factory=dict)
    before_send: dict[str, tuple[Callable[..., Any], ...]] = field(default_factory=dict)


class Handlers:
    """The handlers of one client. A handler may be registered at any time.

    AttributeError: this version of botocore keeps its handlers in another way.
    """

    __slots__ = ("_emitter", "_found")

    def __init__(self, client: Any) -> None:  # noqa: ANN401 - a boto3 client
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


# The calls on items, by their names at a client. None of their answers holds a time.
OPERATIONS: Final = {
    "batch_get_item": "BatchGetItem",
    "batch_write_item": "BatchWriteItem",
    "delete_item": "DeleteItem",
    "get_item": "GetItem",
    "put_item": "PutItem",
    "query": "Query",
    "scan": "Scan",
    "transact_get_items": "TransactGetItems",
    "transact_write_items": "TransactWriteItems",
    "update_item": "UpdateItem",
}
# The longest wait before an attempt, as in botocore's standard mode: 1 s before the second one,
# twice that before each further one.
_WAIT_S: Final = 1.0
_WAIT_MAX_S: Final = 20.0
_IN_LAMBDA: Final = "AWS_LAMBDA_FUNCTION_NAME"
_TRACE: Final = "_X_AMZN_TRACE_ID"


class FastClient:
    """A client of DynamoDB: the calls on items as its boto3 client would make them.

    It belongs to one process; its threads may share it. The requests of the boto3 client are
    checked (`departure.watch`). AttributeError: botocore lacks a part that has no public name.

    Binaries in answers are texts in base64, as on the wire; `attributes.decode` reads both forms.
    """

    def __init__(self, client: Any, credentials: Credentials | None, limits: CallLimits) -> None:  # noqa: ANN401
        self._client, self._credentials, self._limits = client, credentials, limits
        self._handlers = Handlers(client)
        self._routes = Routes(client)
        self._refusals = Refusals(client.meta.service_model)
        self._traced = _IN_LAMBDA in os.environ
        for method, operation in OPERATIONS.items():
            setattr(self, method, partial(self._call, method, operation))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a client has
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._client, name)

    def close(self) -> None:
        self._routes.close()
        self._client.close()

    def _call(self, method: str, operation: str, **arguments: Any) -> Any:  # noqa: ANN401
        """One call: one attempt, or several where they may succeed."""
        if not self._handlers.allow(operation):
            return self._by_boto3(method, arguments)
        if self._credentials is None:
            raise sdk.NoCredentialsError
        for made in count(1):
            credentials = self._credentials.get_frozen_credentials()
            route = self._routes.of(operation, arguments, credentials.account_id)
            if route is None:
                return self._by_boto3(method, arguments)
            try:
                return self._attempt(route, operation, credentials, arguments)
            except (sdk.ClientError, sdk.ConnectionError, sdk.HTTPClientError) as error:
                if made == self._limits.attempts or not may_pass(error):
                    raise
                judge_attempt(self._limits.timeout_ms, error)
            longest_s = min(_WAIT_S * 2 ** (made - 1), _WAIT_MAX_S)
            time.sleep(random() * longest_s)  # noqa: S311 - jitter
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _by_boto3(self, method: str, arguments: dict[str, Any]) -> Any:  # noqa: ANN401
        if method == "batch_write_item":
            arguments = without_json(arguments)
        return getattr(self._client, method)(**arguments)

    @staticmethod
    def puts_of_json(batch: PutBatch) -> object:
        return puts_of_json(batch)

    def _attempt(
        self,
        route: Route,
        operation: str,
        credentials: ReadOnlyCredentials,
        arguments: dict[str, Any],
    ) -> dict[str, Any]:
        body = spelled(arguments)
        request = route.signer.request(credentials, route.target, body, self._trace())
        # The check of the time is one of the handlers. Another one may answer in the service's
        # place, as a mock does.
        leaving = LeavingRequest(route.url, request, body)
        replies = [handle(request=leaving) for handle in self._handlers.before_send(operation)]
        mocked = next((reply for reply in replies if reply is not None), None)
        if mocked is None:
            answer = route.connections.exchange(request)
        else:
            headers = {name.lower(): value for name, value in mocked.headers.items()}
            answer = Answer(mocked.status_code, headers, mocked.content, reusable=False)
        if is_refusal(answer):
            response = self._refusals.read(operation, answer)
            kind = self._client.exceptions.from_code(response["Error"]["Code"])
            raise kind(response, operation)
        return read(answer)

    def _trace(self) -> str:
        """The header by which a function of Lambda passes on the trace of its invocation."""
        trace = os.environ.get(_TRACE) if self._traced else None
        if not trace:
            return ""
        text = quote(trace, safe="-=;:+&[]{}\"',")
        return f"X-Amzn-Trace-Id: {text}\r\n"
