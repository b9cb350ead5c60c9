"""The Lambda function, called with events as API Gateway sends them."""

import base64
import json
from collections.abc import Iterator

import pytest
from mangum import Mangum

from countledger.infra.calls.access import EVERYTHING, NotAuthenticated, Scopes
from countledger.infra.http import functions
from countledger.infra.http.api import CORS_VARIABLE
from countledger.infra.http.functions import adapter_of, authorize, scopes_of
from tests.http.events import IAM, JWT, event_of
from tests.http.world import Api, names_of


@pytest.fixture
def invoke(api: Api, loop: None) -> Iterator[Mangum]:  # noqa: ARG001 - the adapter finds it
    """The application behind the adapter, with the function's own authorization."""
    before = api.app.state.authorize
    api.app.state.authorize = authorize
    yield adapter_of(api.app)
    api.app.state.authorize = before


_PATH = "/v1/counters/likes:lambda/entries"


@pytest.mark.parametrize("authorizer", [JWT, IAM])
def test_a_request_that_an_authorizer_has_checked_is_answered(
    invoke: Mangum, authorizer: object
) -> None:
    event = event_of("POST", _PATH, {"delta": "1"}, authorizer, **{"idempotency-key": "k"})
    answers = [invoke(event, object()) for _ in range(2)]  # type: ignore[arg-type]  # not read

    assert json.loads(answers[1]["body"])["status"] == "duplicate"
    assert answers[1]["statusCode"] == 200
    assert answers[1]["headers"]["countledger-write-units"] is not None


@pytest.mark.parametrize("authorizer", [None, {}, {"lambda": {}}, {"iam": {"userArn": ""}}])
def test_a_request_that_nobody_has_checked_is_refused(invoke: Mangum, authorizer: object) -> None:
    """Also one that reaches the function in another way than through its gateway."""
    event = event_of("POST", _PATH, {"delta": "1"}, authorizer, **{"idempotency-key": "other"})
    refused = invoke(event, object())  # type: ignore[arg-type]  # not read

    assert refused["statusCode"] == 401
    assert names_of(json.loads(refused["body"])) == "not-authenticated"


def test_a_stream_of_totals_is_one_event_as_text(invoke: Mangum) -> None:
    """The gateway sends nothing before the function has ended."""
    event = event_of("GET", "/v1/totals/live", None, IAM)
    event["rawQueryString"] = "counter=likes:stream"
    answer = invoke(event, object())  # type: ignore[arg-type]  # not read
    retry, totals, rest = answer["body"].split("\n\n")

    assert (answer["statusCode"], answer["isBase64Encoded"], rest) == (200, False, "")
    assert retry == "retry: 5000"
    assert totals.startswith('event: totals\ndata: {"items":[{"counter":"likes:stream"')


@pytest.mark.parametrize(
    ("domain", "sent", "counter"),
    [
        ("a1b2c3.execute-api.us-east-1.amazonaws.com", "likes:50%", "likes:50%"),
        ("a1b2c3.execute-api.us-east-1.amazonaws.com", "likes:a b", "likes:a b"),
        ("counts.example", "likes:%41", "likes:%41"),
        ("a1b2c3.lambda-url.us-east-1.on.aws", "likes:%2541", "likes:%41"),
    ],
)
def test_a_path_is_decoded_once(invoke: Mangum, domain: str, sent: str, counter: str) -> None:
    """An HTTP API sends it decoded, the address of a function as it was."""
    event = event_of("GET", f"/v1/counters/{sent}", None, IAM)
    event["requestContext"]["domainName"] = domain
    answer = invoke(event, object())  # type: ignore[arg-type]  # not read

    assert json.loads(answer["body"])["counter"] == counter


def test_a_token_without_the_scope_is_refused(invoke: Mangum) -> None:
    event = event_of("GET", "/v1/counters/likes:lambda", None, JWT)
    refused = invoke(event, object())  # type: ignore[arg-type]  # not read

    assert refused["statusCode"] == 403


def test_a_body_in_base64_is_read(invoke: Mangum) -> None:
    """As the gateway sends what is not text to it."""
    event = event_of("POST", _PATH, None, JWT, **{"idempotency-key": "b64"})
    event |= {"body": base64.b64encode(b'{"delta": "2"}').decode(), "isBase64Encoded": True}

    assert invoke(event, object())["statusCode"] == 201  # type: ignore[arg-type]  # not read


def test_the_function_answers_the_preflight_request_of_a_named_origin(
    monkeypatch: pytest.MonkeyPatch,
    loop: None,  # noqa: ARG001 - the adapter finds it
) -> None:
    """It has no token, so its route of the gateway has no authorizer."""
    asked = {"access-control-request-method": "POST", "origin": "https://app.example"}
    event = event_of("OPTIONS", "/v1/entries", None, None, **asked)
    monkeypatch.setenv(CORS_VARIABLE, "https://app.example")
    functions._adapter.cache_clear()
    try:
        answer = functions.handle(event, object())  # type: ignore[arg-type]  # not read
    finally:
        functions._adapter.cache_clear()

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


@pytest.mark.parametrize(
    "claims", [{"scope": "counters/likes:read"}, {"scp": ["counters/likes:read"]}]
)
def test_a_prefix_of_scopes_is_no_part_of_the_namespace(claims: dict[str, object]) -> None:
    """The scopes of a resource server of Cognito begin with its name."""
    scopes = {"jwt": {"claims": claims}}

    assert scopes_of(scopes, "counters/") == Scopes.parse(["likes:read"])
    assert scopes_of(scopes, "other/") == Scopes()
    assert scopes_of(JWT, "counters/") == Scopes()


@pytest.mark.parametrize("path", ["/v1/counters/likes:a%2541", "/v1/counters/likes:100%25"])
def test_a_path_that_may_mean_two_names_is_refused(invoke: Mangum, path: str) -> None:
    """`100%25` is that name, or `100%` where the gateway leaves these three characters."""
    refused = invoke(event_of("GET", path, None, IAM), object())  # type: ignore[arg-type]  # not read

    assert refused["statusCode"] == 422
    assert "~3" in json.loads(refused["body"])["detail"]


def test_a_name_with_signs_of_an_address_has_other_ones_in_the_path(invoke: Mangum) -> None:
    event = event_of("GET", "/v1/counters/likes:100~3~2~1~0", None, IAM)
    found = invoke(event, object())  # type: ignore[arg-type]  # not read

    assert json.loads(found["body"])["counter"] == "likes:100%?/~"


def test_the_policy_of_a_caller_with_iam_decides_what_it_may_do() -> None:
    assert scopes_of(IAM) == EVERYTHING
    with pytest.raises(NotAuthenticated):
        scopes_of("iam")
