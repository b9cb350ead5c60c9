"""A client whose calls on items take the fast way; all other calls are a boto3 client's.

Credentials, endpoints, connections, errors and handlers of `before-send` are those of the boto3
client. A call that only botocore can make as it is configured (see `routes` and `handlers`) is made
by the boto3 client. No redirect is followed.
"""

from __future__ import annotations

import os
import time
from functools import partial
from itertools import count
from random import random
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from botocore import exceptions as sdk

from countledger.ledger.departure import judge_attempt
from countledger.ledger.service_errors import may_pass
from countledger.ledger.transport.bodies import (
    LeavingRequest,
    Refusals,
    is_refusal,
    puts_of_json,
    read,
    spelled,
    without_json,
)
from countledger.ledger.transport.handlers import Handlers
from countledger.ledger.transport.routes import Routes
from countledger.ledger.transport.wire import Answer

if TYPE_CHECKING:
    from botocore.credentials import Credentials, ReadOnlyCredentials

    from countledger.ledger.attempts import CallLimits
    from countledger.ledger.operations import PutBatch
    from countledger.ledger.transport.routes import Route

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
    """A client of DynamoDB. It belongs to one process; its threads may share it.

    Binaries in answers are texts in base64, as on the wire; `attributes.decode` reads both forms.
    """

    def __init__(self, client: Any, credentials: Credentials | None, limits: CallLimits) -> None:  # noqa: ANN401
        """Make the calls on items that a boto3 client would make.

        Args:
            client: the boto3 client; its requests are checked (`before_send.watch`).
            credentials: those of its session.
            limits: how often, and for how long, a call is made that may succeed a moment later.

        Raises:
            AttributeError: this version of botocore lacks a part that has no public name.
        """
        self._client, self._credentials, self._limits = client, credentials, limits
        self._handlers = Handlers(client)
        self._routes = Routes(client)
        self._refusals = Refusals(client.meta.service_model)
        self._traced = _IN_LAMBDA in os.environ
        for method, operation in OPERATIONS.items():
            setattr(self, method, partial(self._call, method, operation))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a client has
        """All else that the boto3 client has."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._client, name)

    def close(self) -> None:
        """Close the connections that are idle, here and in the boto3 client."""
        self._routes.close()
        self._client.close()

    def _call(self, method: str, operation: str, **arguments: Any) -> Any:  # noqa: ANN401
        """One call: one attempt, or several where they may succeed.

        Raises:
            botocore.exceptions.ClientError: the service refused it.
            botocore.exceptions.BotoCoreError: as of a boto3 client.
            CountledgerError: the check of the request, as it leaves, refused it.
        """
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
        """The puts of a batch, for `batch_write_item`."""
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
