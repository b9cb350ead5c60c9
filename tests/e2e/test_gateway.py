"""The HTTP API as it is deployed: through the gateway, its authorizer, and under its own role.

The engine checks signatures, who may call which path, tokens with their keys and audience, the
preflight, and the policy of the function; it throttles nothing and writes no access log.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

import boto3
import pytest
from botocore.exceptions import ClientError

from countledger import CountLedger
from countledger.infra.calls.access import ScopeVerb
from countledger.infra.local.engine import REGION, ROOT_SECRET
from countledger.infra.local.following import SECRET_HEADER
from countledger.infra.local.stack import ROOT, LocalStack
from countledger.ledger import keys
from tests.e2e.command import Command, Finished
from tests.e2e.gateway import ORIGIN, Gateway, HttpAnswer
from tests.e2e.world import bundle_of, user_with
from tests.http.samples import OPEN, SAMPLES, Sample

_INVOKE: Final = "execute-api:Invoke"
# What a stack has, which tables alone have not.
_IN_A_STACK: Final = {"create_rule": 201, "show_rule": 200}


@pytest.fixture(scope="module")
def gateway(auth_stack: LocalStack) -> Gateway:
    return Gateway.of(auth_stack.url, auth_stack.outputs)


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _send(send: Callable[..., HttpAnswer], sample: Sample, kept: dict[str, str]) -> HttpAnswer:
    """Send a sample, with what earlier answers gave."""
    request, body = sample.request, json.loads(json.dumps(sample.body))
    for name, value in kept.items():
        request = request.replace(f"{{{name}}}", quote(value, safe=""))
    if isinstance(body, dict) and "ticket" in body:
        body["ticket"] = kept[body["ticket"].strip("{}")]
    answer = send(request, body, {"Idempotency-Key": sample.key} if sample.key else {})
    if sample.keeps is not None:
        name, field = sample.keeps
        kept[name] = answer.json[field]
    return answer


def test_the_function_does_every_operation_under_its_own_role(
    auth_stack: LocalStack, gateway: Gateway
) -> None:
    resource = f"{auth_stack.outputs['HttpApiArn']}/*"
    caller = user_with(auth_stack, "caller", {"Action": _INVOKE, "Resource": resource})
    kept: dict[str, str] = {}

    def send(request: str, body: object, headers: dict[str, str]) -> HttpAnswer:
        return gateway(request, body, signed_by=caller, headers=headers)

    for sample in (*SAMPLES, *OPEN):
        if sample.operation != "status":
            answer = _send(send, sample, kept)
            expected = _IN_A_STACK.get(sample.operation, sample.status)
            assert answer.status == expected, (sample, answer.body)
            assert float(answer.headers["countledger-write-units"]) >= 0


def test_the_function_sees_how_the_stack_is(gateway: Gateway) -> None:
    answer = gateway("GET /v1/status", signed_by=ROOT)

    assert answer.status == 200
    # This engine knows no resource but `*` for DescribeAlarms; the service knows alarms.
    assert set(answer.json["unseen"]) <= {"alarms"}
    assert len(answer.json["mappings"]) == 3


def test_status_and_doctor_show_the_address(auth_stack: LocalStack) -> None:
    command = Command(auth_stack.environment())
    url = auth_stack.outputs["HttpApiUrl"]
    # Without a region the stack of this machine would be meant, which is another one.
    status = command("status", "--region", REGION)
    document = command("status", "--region", REGION, "--json").json

    assert url in status.out
    assert document["stack"]["http_url"] == url
    assert url in command("doctor").out


def test_who_does_not_sign_gets_nothing(gateway: Gateway) -> None:
    assert gateway("GET /v1/namespaces").status == 403
    # This engine lets the second one through; the function refuses what no authorizer has checked.
    assert gateway("GET /v1/namespaces", headers=_bearer("x")).status in {401, 403}


@pytest.mark.parametrize(
    ("policy", "verbs"),
    [
        ("HttpReadPolicyArn", {ScopeVerb.READ}),
        ("HttpWritePolicyArn", {ScopeVerb.READ, ScopeVerb.WRITE}),
    ],
)
def test_a_policy_refuses_the_other_verbs(
    auth_stack: LocalStack, gateway: Gateway, policy: str, verbs: set[ScopeVerb]
) -> None:
    """The gateway refuses before the function is invoked: what is allowed is tried elsewhere."""
    caller = auth_stack.credentials_for(policy)

    for sample in SAMPLES:
        if ScopeVerb(sample.scope.split()[0].rpartition(":")[2]) not in verbs:
            request = sample.request.replace("{", "").replace("}", "")
            refused = gateway(request, sample.body, signed_by=caller)
            assert (refused.status, b"execute-api:Invoke" in refused.body) == (403, True), sample
    assert gateway("GET /v1/counters/likes:a", signed_by=caller).status == 200


def test_a_path_in_a_policy_is_a_namespace(auth_stack: LocalStack, gateway: Gateway) -> None:
    """The policy of the documents: one namespace, one counter at a time."""
    resource = f"{auth_stack.outputs['HttpApiArn']}/POST/v1/counters/likes:*/entries"
    caller = user_with(auth_stack, "likes-only", {"Action": _INVOKE, "Resource": resource})

    def record(counter: str) -> int:
        request = f"POST /v1/counters/{counter}/entries"
        sent = gateway(
            request, {"delta": "1"}, signed_by=caller, headers={"Idempotency-Key": "only"}
        )
        return sent.status

    assert record("likes:only") in {200, 201}
    assert record("views:only") == 403
    batch = {"events": [{"counter": "views:only", "delta": "1"}]}
    refused = gateway(
        "POST /v1/entries", batch, signed_by=caller, headers={"Idempotency-Key": "only"}
    )
    assert refused.status == 403


def test_a_retry_through_the_gateway_counts_once(gateway: Gateway, root: CountLedger) -> None:
    statuses = [
        gateway(
            "POST /v1/counters/likes:caf%C3%A9/entries",
            {"delta": "5"},
            signed_by=ROOT,
            headers={"Idempotency-Key": "once"},
        ).status
        for _ in range(2)
    ]

    assert statuses == [201, 200]
    assert root.exact("likes:café").value == 5


def test_a_page_of_a_named_origin_may_call_and_no_other(gateway: Gateway) -> None:
    asks = {"Access-Control-Request-Method": "POST"}
    allowed = gateway("OPTIONS /v1/entries", headers=asks | {"Origin": ORIGIN})
    elsewhere = {"Origin": "https://elsewhere.example"}
    refused = gateway("OPTIONS /v1/entries", headers=asks | elsewhere)

    assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (204, ORIGIN)
    assert "idempotency-key" in allowed.headers["access-control-allow-headers"]
    assert refused.status == 403
    assert "access-control-allow-origin" not in refused.headers


def test_the_role_of_the_function_reaches_nothing_else(auth_stack: LocalStack) -> None:
    """Its credentials, tried on what the stack has besides."""
    function = auth_stack.client("lambda").get_function_configuration(
        FunctionName=auth_stack.outputs["HttpFunctionName"]
    )
    taken = auth_stack.client("sts").assume_role(RoleArn=function["Role"], RoleSessionName="test")
    given = taken["Credentials"]
    outputs = auth_stack.outputs

    credentials = (given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"])

    def client(service: str) -> Any:  # noqa: ANN401 - boto3's
        made: Any = boto3.Session(*credentials, region_name=REGION)
        return made.client(service, endpoint_url=auth_stack.url)

    entry = {"counter": {"S": "likes:a"}, "entry": {"S": "e"}}
    queue = {"QueueUrl": outputs["QuarantineQueueUrl"]}
    calls: tuple[Callable[[], object], ...] = (
        lambda: client("dynamodb").delete_item(TableName=outputs["LedgerTableName"], Key=entry),
        lambda: client("dynamodb").update_item(TableName=outputs["LedgerTableName"], Key=entry),
        lambda: client("dynamodb").scan(TableName=outputs["LedgerTableName"]),
        lambda: client("sqs").receive_message(**queue),
        lambda: client("sqs").send_message(**queue, MessageBody="x"),
        lambda: client("lambda").invoke(FunctionName=outputs["MaterializerFunctionName"]),
        lambda: client("events").put_events(Entries=[{"Source": "x", "DetailType": "x"}]),
        lambda: client("iam").list_roles(),
    )
    assert client("dynamodb").get_item(
        TableName=outputs["CountersTableName"],
        Key={name: {"S": value} for name, value in keys.total_key("likes:a").items()},
    )
    for call in calls:
        with pytest.raises(ClientError, match="AccessDenied"):
            call()


@dataclass(frozen=True)
class Tokens:
    """A user pool of Cognito, whose tokens are signed."""

    stack: LocalStack
    pool: str

    @classmethod
    def make(cls, stack: LocalStack, scopes: Sequence[str]) -> Tokens:
        """A pool with a resource server of the name `counters`."""
        cognito = stack.client("cognito-idp")
        pool = cognito.create_user_pool(PoolName="callers")["UserPool"]["Id"]
        cognito.create_resource_server(
            UserPoolId=pool,
            Identifier="counters",
            Name="counters",
            Scopes=[{"ScopeName": one, "ScopeDescription": one} for one in scopes],
        )
        return cls(stack, pool)

    @property
    def issuer(self) -> str:
        """As in the tokens."""
        return f"https://cognito-idp.{REGION}.amazonaws.com/{self.pool}"

    def app(self, *scopes: str) -> tuple[str, str]:
        """The id of a new app with these scopes, and a token of it."""
        made = self.stack.client("cognito-idp").create_user_pool_client(
            UserPoolId=self.pool,
            ClientName="app",
            GenerateSecret=True,
            AllowedOAuthFlows=["client_credentials"],
            AllowedOAuthFlowsUserPoolClient=True,
            AllowedOAuthScopes=[f"counters/{one}" for one in scopes],
        )["UserPoolClient"]
        basic = b64encode(f"{made['ClientId']}:{made['ClientSecret']}".encode()).decode()
        form = "application/x-www-form-urlencoded"
        request = Request(  # noqa: S310 - the engine of the test
            f"{self.stack.url}/oauth2/token",
            urlencode({"grant_type": "client_credentials"}).encode(),
            {"Authorization": f"Basic {basic}", "Content-Type": form, SECRET_HEADER: ROOT_SECRET},
        )
        with urlopen(request, timeout=10) as answer:  # noqa: S310 - as above
            return made["ClientId"], json.load(answer)["access_token"]


def test_with_tokens_the_scopes_decide_until_the_api_is_removed(
    auth_stack: LocalStack, name: str, tmp_path: Path
) -> None:
    tokens = Tokens.make(auth_stack, ["likes:read", "likes:write"])
    reader_id, reader = tokens.app("likes:read")
    writer_id, writer = tokens.app("likes:write")
    _, stranger = tokens.app("likes:write")
    (tmp_path / "bundle.zip").write_bytes(bundle_of())

    def deploy(*parameters: str) -> Finished:
        given = [part for one in parameters for part in ("--parameter", one)]
        common = ("deploy", "--stack-name", name, "--bundle", str(tmp_path / "bundle.zip"))
        command = Command(auth_stack.environment())
        return command(*common, *given, "--yes", "--allow-replace", "--json")

    jwt = ("HttpApi=jwt", f"HttpJwtAudience={reader_id},{writer_id}")
    refused = deploy(*jwt)
    made = deploy(*jwt, f"HttpJwtIssuer={tokens.issuer}", "HttpJwtScopePrefix=counters/")
    assert made.code == 0, made.err
    gateway = Gateway.of(auth_stack.url, made.json["outputs"])

    def record(token: str) -> int:
        request = "POST /v1/counters/likes:a/entries"
        headers = _bearer(token) | {"Idempotency-Key": "k"}
        return gateway(request, {"delta": "1"}, headers=headers).status

    assert (refused.code, "needs HttpJwtIssuer" in refused.err) == (2, True)
    assert [record(one) for one in (writer, writer, reader)] == [201, 200, 403]
    # Of another app, with another signature, and none.
    assert [record(one) for one in (stranger, f"{writer[:-8]}AAAAAAAA", "")] == [401] * 3
    read = gateway("GET /v1/counters/likes:a", headers=_bearer(reader))
    assert read.status == 200
    preflight = gateway("OPTIONS /v1/entries", headers={"Origin": ORIGIN})
    assert "access-control-allow-origin" not in preflight.headers

    removed = deploy("HttpApi=none")
    assert removed.code == 0, removed.err
    assert not [one for one in removed.json["outputs"] if one.startswith("Http")]
    assert gateway("GET /v1/counters/likes:a", headers=_bearer(reader)).status == 404
