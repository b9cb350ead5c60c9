"""The HTTP API in the template: closed unless it is switched on, and then to those who may call."""

import json
import re
from fnmatch import fnmatchcase
from typing import Any, Final

import pytest

from countledger.infra.calls.access import Scopes, ScopeVerb
from countledger.infra.deploy.template_limits import Surroundings, refuse_broken_rules
from countledger.infra.http.api import http_app
from countledger.infra.http.calls import READ_UNITS, WRITE_UNITS
from countledger.infra.template import load_template, resource
from countledger.ledger.errors import BadInput
from countledger.ledger.limits import SECOND_MS
from tests.http.samples import OPEN, SAMPLES, Sample
from tests.unit.infra.test_template import LEDGER, STRICT, listed, statements

TEMPLATE: Final = load_template()
RESOURCES: Final[dict[str, Any]] = TEMPLATE["Resources"]
PARTS: Final = {name: one for name, one in RESOURCES.items() if name.startswith("Http")}
ROUTES: Final = [
    one["Properties"] for one in PARTS.values() if one["Type"] == "AWS::ApiGatewayV2::Route"
]
HERE: Final = Surroundings("shop", "eu-west-1", "aws")
JWT: Final = {
    "HttpApi": "jwt",
    "HttpJwtIssuer": "https://issuer.example",
    "HttpJwtAudience": "counters",
}


def test_there_is_no_http_api_until_somebody_asks_for_one() -> None:
    assert TEMPLATE["Parameters"]["HttpApi"]["Default"] == "none"
    conditions = {name: one.get("Condition") for name, one in PARTS.items()}
    only = {
        "HttpAuthorizer": "HasHttpJwt",
        "HttpReadPolicy": "HasHttpIam",
        "HttpWritePolicy": "HasHttpIam",
    }
    assert conditions == dict.fromkeys(PARTS, "HasHttp") | only
    outputs = {n: one.get("Condition") for n, one in TEMPLATE["Outputs"].items() if "Http" in n}
    always = {"HttpApiUrl", "HttpApiArn", "HttpFunctionName", "HttpAccessLogGroupName"}
    with_iam = {"HttpReadPolicyArn", "HttpWritePolicyArn"}
    assert outputs == dict.fromkeys(always, "HasHttp") | dict.fromkeys(with_iam, "HasHttpIam")
    for name, one in RESOURCES.items():
        if name not in PARTS and "Http" in (text := json.dumps(one["Properties"])):
            assert '{"Fn::If": ["HasHttp"' in text, name


def test_no_route_is_open() -> None:
    assert ROUTES
    for route in ROUTES:
        assert route["AuthorizationType"] == {"Fn::If": ["HasHttpJwt", "JWT", "AWS_IAM"]}
        assert route["AuthorizerId"]["Fn::If"][:2] == ["HasHttpJwt", {"Ref": "HttpAuthorizer"}]


def test_the_routes_are_the_methods_of_the_api_and_not_the_preflight() -> None:
    """The gateway answers OPTIONS only where no route takes it, else its authorizer refuses it."""
    app = http_app(lambda: pytest.fail("no client"), lambda _: Scopes())
    methods = {method for path in app.openapi()["paths"].values() for method in path}

    assert {one["RouteKey"] for one in ROUTES} == {
        f"{method.upper()} /v1/{{proxy+}}" for method in methods
    }
    cors = resource("HttpGateway")["CorsConfiguration"]["Fn::If"][1]
    assert {one.lower() for one in cors["AllowMethods"]} == methods


def test_only_the_gateway_of_the_stack_invokes_the_function() -> None:
    permission = resource("HttpInvocation")

    assert permission["Principal"] == "apigateway.amazonaws.com"
    assert permission["SourceArn"]["Fn::Sub"].endswith("${AWS::AccountId}:${HttpGateway}/*")


def test_pages_of_other_origins_are_refused_unless_they_are_named() -> None:
    condition, cors, otherwise = resource("HttpGateway")["CorsConfiguration"]["Fn::If"]

    assert (condition, otherwise) == ("HasHttpCors", {"Ref": "AWS::NoValue"})
    assert TEMPLATE["Parameters"]["HttpCorsOrigins"]["Default"] == ""
    assert "AllowCredentials" not in cors
    assert {READ_UNITS.lower(), WRITE_UNITS.lower(), "etag"} <= set(cors["ExposeHeaders"])
    assert {"authorization", "idempotency-key"} <= set(cors["AllowHeaders"])


@pytest.mark.parametrize(
    ("origins", "taken"),
    [
        ("https://shop.example", True),
        ("https://shop.example,http://localhost:3000", True),
        ("*", False),
        ("https://*", False),
        ("https://*.example", False),
        ("https://shop.example/", False),
        ("https://a.example, https://b.example", False),
    ],
)
def test_an_origin_is_one_site(origins: str, *, taken: bool) -> None:
    pattern = TEMPLATE["Parameters"]["HttpCorsOrigins"]["AllowedPattern"]

    assert bool(re.search(pattern, origins)) is taken


@pytest.mark.parametrize("left_out", ["HttpJwtIssuer", "HttpJwtAudience"])
def test_tokens_need_an_issuer_and_an_audience(left_out: str) -> None:
    """Without an audience the token of any app of the issuer would be accepted."""
    refuse_broken_rules(TEMPLATE, JWT, HERE)

    with pytest.raises(BadInput, match=f"HttpApi=jwt needs {left_out}"):
        refuse_broken_rules(TEMPLATE, JWT | {left_out: ""}, HERE)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"BackupCopyVaultArn": "arn:aws:backup:x"}, "needs a BackupSchedule"),
        ({"ReplicaRegions": "us-east-1,eu-west-1"}, "not the stack's own"),
        ({"HomeRegion": "us-east-1"}, "HomeRegion must be the region"),
    ],
)
def test_every_rule_is_checked_before_anything_is_uploaded(
    given: dict[str, str], says: str
) -> None:
    with pytest.raises(BadInput, match=says):
        refuse_broken_rules(TEMPLATE, given, HERE)


def test_a_request_ends_before_the_gateway_gives_up() -> None:
    """Two calls in turn, each with the request that is under way at its end, fit."""
    function = resource("HttpFunction")
    variables = function["Environment"]["Variables"]
    call_ms = sum(
        int(variables[f"COUNTLEDGER_{one}_TIMEOUT_MS"]) for one in ("CALL", "CONNECT", "READ")
    )

    assert 2 * call_ms < function["Timeout"] * SECOND_MS
    assert function["Timeout"] * SECOND_MS < resource("HttpIntegration")["TimeoutInMillis"]
    assert resource("HttpIntegration")["TimeoutInMillis"] == 30_000  # as much as there can be


def test_the_access_log_has_no_header_body_or_query() -> None:
    """A token is a header, a key too; an amount is in the body."""
    settings = resource("HttpStage")["AccessLogSettings"]

    assert set(re.findall(r"\$[a-zA-Z.]+", settings["Format"])) == {
        "$context.authorizer.claims.sub",
        "$context.authorizer.error",
        "$context.error.messageString",
        "$context.httpMethod",
        "$context.identity.sourceIp",
        "$context.identity.userArn",
        "$context.integrationErrorMessage",
        "$context.integrationLatency",
        "$context.path",
        "$context.requestId",
        "$context.requestTimeEpoch",
        "$context.responseLatency",
        "$context.status",
    }
    assert "\n" not in settings["Format"]


def test_a_line_of_the_access_log_is_json_also_if_the_gateway_answers_an_error() -> None:
    """API Gateway puts `error.messageString` in quotes itself, and nothing else."""
    line = resource("HttpStage")["AccessLogSettings"]["Format"]
    line = line.replace("$context.error.messageString", '"Unauthorized"')
    fields = json.loads(re.sub(r"\$[a-zA-Z.]+", "-", line))

    assert fields.pop("error") == "Unauthorized"
    assert set(fields.values()) == {"-"}


def test_the_function_may_add_entries_and_never_change_or_delete_one() -> None:
    at_the_ledger = {
        action
        for where, one in statements()
        if where == "HttpRole" and LEDGER in listed(one["Resource"])
        for action in listed(one["Action"])
    }

    assert at_the_ledger == {
        "dynamodb:BatchGetItem",
        "dynamodb:BatchWriteItem",
        "dynamodb:DescribeTable",
        "dynamodb:GetItem",
        "dynamodb:PutItem",
        "dynamodb:Query",
    }
    assert STRICT in [
        found["Fn::If"][1]["Fn::If"][1]
        for where, one in statements()
        if (where, one["Sid"]) == ("HttpRole", "ChangeCountersAndSettings")
        for found in listed(one["Resource"])
        if "Fn::If" in found
    ]


def _allowed_by(policy: str) -> list[str]:
    return [
        one["Fn::Sub"].partition("/$default/")[2]
        for where, statement in statements()
        if where == policy
        for one in listed(statement["Resource"])
    ]


def _verb(sample: Sample) -> ScopeVerb:
    return ScopeVerb((sample.scope or "*:read").split()[0].rpartition(":")[2])


@pytest.mark.parametrize("sample", [*SAMPLES, *OPEN], ids=lambda one: one.operation)
@pytest.mark.parametrize(
    ("policy", "verbs"),
    [
        ("HttpReadPolicy", {ScopeVerb.READ}),
        ("HttpWritePolicy", {ScopeVerb.READ, ScopeVerb.WRITE}),
    ],
)
def test_a_policy_allows_the_operations_of_its_verbs(
    policy: str, verbs: set[ScopeVerb], sample: Sample
) -> None:
    method, target = sample.request.split()
    called = f"{method}{target.partition('?')[0]}"

    assert any(fnmatchcase(called, one) for one in _allowed_by(policy)) is (_verb(sample) in verbs)
