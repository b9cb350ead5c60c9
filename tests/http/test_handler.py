"""The Lambda function, called with events as API Gateway sends them."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from countledger.infra.http import handler
from countledger.infra.http.access import EVERYTHING, NotAuthenticated, Scopes
from countledger.infra.http.cors import CORS_VARIABLE
from countledger.infra.http.handler import adapter_of, authorize, scopes_of
from tests.http.world import names_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mangum import Mangum

    from tests.http.world import Api

_JWT = {"jwt": {"claims": {"scope": "openid likes:write", "iss": "x"}, "scopes": None}}
_IAM = {"iam": {"userArn": "arn:aws:iam::111122223333:user/ann", "accountId": "111122223333"}}


def _event(
    method: str, path: str, body: object = None, authorizer: object = None, **headers: str
) -> dict[str, Any]:
    """In format 2.0, with the fields that the gateway sends."""
    http = {
        "method": method,
        "path": path,
        "protocol": "HTTP/1.1",
        "sourceIp": "192.0.2.1",
        "userAgent": "curl/8",
    }
    context: dict[str, Any] = {
        "accountId": "111122223333",
        "apiId": "a1b2c3",
        "domainName": "a1b2c3.execute-api.us-east-1.amazonaws.com",
        "domainPrefix": "a1b2c3",
        "http": http,
        "requestId": "r1",
        "routeKey": "ANY /v1/{proxy+}",
        "stage": "$default",
        "time": "23/Nov/2026:05:00:00 +0000",
        "timeEpoch": 1_795_410_000_000,
    }
    if authorizer is not None:
        context["authorizer"] = authorizer
    return {
        "version": "2.0",
        "routeKey": "ANY /v1/{proxy+}",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {"content-type": "application/json", "host": "a1b2c3", **headers},
        "requestContext": context,
        "pathParameters": {"proxy": path.removeprefix("/v1/")},
        **({} if body is None else {"body": json.dumps(body)}),
        "isBase64Encoded": False,
    }


@pytest.fixture
def loop() -> Iterator[None]:
    """The event loop of the thread, which the adapter would make, and never close."""
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield
    asyncio.set_event_loop(None)
    made.close()


@pytest.fixture
def invoke(api: Api, loop: None) -> Iterator[Mangum]:  # noqa: ARG001 - the adapter finds it
    """The application behind the adapter, with the function's own authorization."""
    before = api.app.state.authorize
    api.app.state.authorize = authorize
    yield adapter_of(api.app)
    api.app.state.authorize = before


_PATH = "/v1/counters/likes:lambda/entries"


@pytest.mark.parametrize("authorizer", [_JWT, _IAM])
def test_a_request_that_an_authorizer_has_checked_is_answered(
    invoke: Mangum, authorizer: object
) -> None:
    event = _event("POST", _PATH, {"delta": "1"}, authorizer, **{"idempotency-key": "k"})
    answers = [invoke(event, object()) for _ in range(2)]  # type: ignore[arg-type]  # not read

    assert json.loads(answers[1]["body"])["status"] == "duplicate"
    assert answers[1]["statusCode"] == 200
    assert answers[1]["headers"]["countledger-write-units"] is not None


@pytest.mark.parametrize("authorizer", [None, {}, {"lambda": {}}, {"iam": {"userArn": ""}}])
def test_a_request_that_nobody_has_checked_is_refused(invoke: Mangum, authorizer: object) -> None:
    """Also one that reaches the function in another way than through its gateway."""
    event = _event("POST", _PATH, {"delta": "1"}, authorizer, **{"idempotency-key": "other"})
    refused = invoke(event, object())  # type: ignore[arg-type]  # not read

    assert refused["statusCode"] == 401
    assert names_of(json.loads(refused["body"])) == "not-authenticated"


def test_a_stream_of_totals_is_one_event_as_text(invoke: Mangum) -> None:
    """The gateway sends nothing before the function has ended."""
    event = _event("GET", "/v1/totals/live", None, _IAM)
    event["rawQueryString"] = "counter=likes:stream"
    answer = invoke(event, object())  # type: ignore[arg-type]  # not read
    retry, totals, rest = answer["body"].split("\n\n")

    assert (answer["statusCode"], answer["isBase64Encoded"], rest) == (200, False, "")
    assert retry == "retry: 5000"
    assert totals.startswith('event: totals\ndata: {"totals":[{"counter":"likes:stream"')


@pytest.mark.parametrize(
    ("domain", "sent", "counter"),
    [
        ("a1b2c3.execute-api.us-east-1.amazonaws.com", "likes:50%25", "likes:50%25"),
        ("a1b2c3.execute-api.us-east-1.amazonaws.com", "likes:a b", "likes:a b"),
        ("counts.example", "likes:%41", "likes:%41"),
        ("a1b2c3.lambda-url.us-east-1.on.aws", "likes:%2541", "likes:%41"),
    ],
)
def test_a_path_is_decoded_once(invoke: Mangum, domain: str, sent: str, counter: str) -> None:
    """An HTTP API sends it decoded, the address of a function as it was."""
    event = _event("GET", f"/v1/counters/{sent}", None, _IAM)
    event["requestContext"]["domainName"] = domain
    answer = invoke(event, object())  # type: ignore[arg-type]  # not read

    assert json.loads(answer["body"])["counter"] == counter


def test_a_token_without_the_scope_is_refused(invoke: Mangum) -> None:
    event = _event("GET", "/v1/counters/likes:lambda", None, _JWT)
    refused = invoke(event, object())  # type: ignore[arg-type]  # not read

    assert refused["statusCode"] == 403


def test_a_body_in_base64_is_read(invoke: Mangum) -> None:
    """As the gateway sends what is not text to it."""
    event = _event("POST", _PATH, None, _JWT, **{"idempotency-key": "b64"})
    event |= {"body": base64.b64encode(b'{"delta": "2"}').decode(), "isBase64Encoded": True}

    assert invoke(event, object())["statusCode"] == 201  # type: ignore[arg-type]  # not read


def test_the_function_answers_the_preflight_request_of_a_named_origin(
    monkeypatch: pytest.MonkeyPatch,
    loop: None,  # noqa: ARG001 - the adapter finds it
) -> None:
    """It has no token, so its route of the gateway has no authorizer."""
    asked = {"access-control-request-method": "POST", "origin": "https://app.example"}
    event = _event("OPTIONS", "/v1/entries", None, None, **asked)
    monkeypatch.setenv(CORS_VARIABLE, "https://app.example")
    handler._adapter.cache_clear()
    try:
        answer = handler.handle(event, object())  # type: ignore[arg-type]  # not read
    finally:
        handler._adapter.cache_clear()

    assert answer["statusCode"] == 200
    assert answer["headers"]["access-control-allow-origin"] == "https://app.example"


@pytest.mark.parametrize(
    ("claims", "granted"),
    [
        ({"scope": "likes:read *:write"}, ["likes:read", "*:write"]),
        ({"scp": ["likes:read", 1]}, ["likes:read"]),
        ({"scope": "[likes:read views:read]"}, ["likes:read", "views:read"]),
        ({"scope": "caf%C3%A9:read"}, ["café:read"]),
        ({"scope": "%2A:read %2a:admin"}, []),
        ({"scope": "openid profile likes read:likes :read likes:"}, []),
        ({}, []),
        ({"scope": 7}, []),
    ],
)
def test_the_scopes_of_a_token_are_those_of_its_claim(
    claims: dict[str, object], granted: list[str]
) -> None:
    assert scopes_of({"jwt": {"claims": claims}}) == Scopes.parse(granted)


def test_the_policy_of_a_caller_with_iam_decides_what_it_may_do() -> None:
    assert scopes_of(_IAM) == EVERYTHING
    with pytest.raises(NotAuthenticated):
        scopes_of("iam")
