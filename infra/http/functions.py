"""The Lambda function of the HTTP API, behind an API Gateway HTTP API with an authorizer.

The gateway has checked who calls before it invokes the function; here is read what it has found:

    JWT    the claim `scope` of the token, or `scp`, a text or a list, without the prefix that
           COUNTLEDGER_HTTP_SCOPE_PREFIX names
    IAM    every scope: what a caller may do is in its policy, by method and path of `execute-api`

A request without either is refused: the function never trusts that a gateway is in front of it.
"""

from __future__ import annotations

import os
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from mangum import Mangum

from countledger import CountLedger
from countledger.infra.calls.access import EVERYTHING, NotAuthenticated, Scopes
from countledger.infra.http.api import NamedOrigins, http_app, named_origins
from countledger.infra.http.counters import BUFFERED, EVENT_STREAM
from countledger.infra.http.problems import MEDIA_TYPE
from countledger.ledger.errors import BadInput, BadPayload
from countledger.ledger.foreign_events import described, object_in
from countledger.ledger.settings import PREFIX

if TYPE_CHECKING:
    from fastapi import Request
    from mangum.types import ASGI, LambdaContext

_CLAIMS = ("scope", "scp")


def authorize(request: Request, scope_prefix: str = "") -> Scopes:
    """What the gateway's authorizer has found; a path that may mean two names is refused."""
    event = request.scope.get("aws.event")
    context = event.get("requestContext") if isinstance(event, dict) else None
    found = context.get("authorizer") if isinstance(context, dict) else None
    scopes = scopes_of(found, scope_prefix)
    # Reports differ in whether the gateway decodes these three characters.
    if "%25" in request.scope["path"]:
        raise BadInput("the path has %25 once it is decoded: write ~3 for a percent sign in a name")
    return scopes


def scopes_of(authorizer: object, prefix: str = "") -> Scopes:
    """The scopes in what an authorizer has found; those without the prefix are of other systems."""
    match authorizer:
        case {"jwt": {"claims": dict() as claims}}:
            ours = [text for text in _scope_texts(claims) if text.startswith(prefix)]
            return Scopes.parse(text.removeprefix(prefix) for text in ours)
        case {"iam": {"userArn": str() as arn}} if arn:
            return EVERYTHING
    raise NotAuthenticated(
        "no authorizer has checked this request: give the route of the gateway one, IAM or JWT"
    )


def _scope_texts(claims: dict[str, Any]) -> list[str]:
    claim = next((claims[name] for name in _CLAIMS if claims.get(name)), "")
    if isinstance(claim, list):
        return [one for one in claim if isinstance(one, str)]
    # The gateway writes a list as a text in brackets.
    return claim.strip("[]").split() if isinstance(claim, str) else []


def path_of(scope: dict[str, Any]) -> str:
    """The path of a request, decoded once.

    An HTTP API sends it decoded, and the adapter decodes it again: `%41` of a name would be `A`,
    the name of another counter. The address of a function sends it as it was written.
    """
    event, path = scope["aws.event"], str(scope["path"])
    context = event.get("requestContext", {})
    if ".lambda-url." in str(context.get("domainName")):
        return path
    return str(context.get("http", {}).get("path", path))


def adapter_of(app: ASGI) -> Mangum:
    """What makes a request of an event, and an answer for the gateway of the application's."""

    async def with_path(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's
        await app({**scope, "path": path_of(scope)}, receive, send)

    kinds = ["application/json", MEDIA_TYPE, EVENT_STREAM]
    return Mangum(with_path, lifespan="off", text_mime_types=kinds)


@cache
def _adapter() -> Mangum:
    """Built at the first invocation: one request at a time, so one client."""
    prefix = os.environ.get(f"{PREFIX}HTTP_SCOPE_PREFIX", "")
    caller = partial(authorize, scope_prefix=prefix)
    app = http_app(CountLedger, caller, clients=1, live=BUFFERED)
    return adapter_of(NamedOrigins(app, named_origins()))


def handle(event: object, context: LambdaContext) -> dict[str, Any]:
    """Answer a request of an API Gateway HTTP API, in format 2.0."""
    expected = "a request of an API Gateway HTTP API, in format 2.0"
    request = object_in(event, expected)
    if not isinstance(request.get("requestContext"), dict):
        raise BadPayload(f"the event is {described(event)}; expected is {expected}")
    return dict(_adapter()(request, context))
