"""A request goes where boto3 would send it, signed for the same region."""

import re
from collections.abc import Mapping
from typing import Any, Final

import boto3
import botocore.session
import pytest
from botocore import UNSIGNED
from botocore.config import Config

from countledger.ledger.connection import Connection
from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.operations import Absent, Put
from countledger.ledger.settings import Settings

_NAMES: Final = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_REGION")
_ACCOUNT: Final = "123456789012"
_ARN: Final = "arn:aws:dynamodb:us-east-1:210987654321:table/t"


class _Left(BaseException):
    """A request left; nothing answers it."""


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _NAMES:
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")


def _dynamo(transport: str, region: str, *, config: Config | None = None) -> DynamoClient:
    core: Any = botocore.session.Session()
    core.set_default_client_config(config)
    session = boto3.Session(region_name=region, botocore_session=core)
    return Connection(Settings(transport=transport), session).dynamo("none")


def _leaving(dynamo: DynamoClient, table: str) -> tuple[str, str, bool]:
    """Where a put goes, the scope of its signature, and whether boto3 makes it."""
    found: list[Any] = []

    def look(request: Any, **_: object) -> None:  # noqa: ANN401 - botocore's own
        found.append(request)
        raise _Left

    dynamo.client.meta.events.register("before-send.dynamodb", look)
    with pytest.raises(_Left):
        dynamo.put(Put(table, {"counter": "c"}, Absent("counter")))
    (request,) = found
    headers = {name.lower(): value for name, value in request.headers.items()}
    authorization = headers.get("authorization", "")
    if isinstance(authorization, bytes):
        authorization = authorization.decode()
    scope = re.findall(r"/\d{8}/(.*), Signed", authorization)
    return request.url, *(scope or [""]), "amz-sdk-invocation-id" in headers


@pytest.mark.parametrize("table", ["t", _ARN], ids=["by name", "by ARN"])
@pytest.mark.parametrize(
    ("region", "environment", "expected"),
    [
        ("eu-west-1", {}, None),
        ("eu-west-1", {"AWS_USE_FIPS_ENDPOINT": "true"}, None),
        ("us-east-1", {"AWS_USE_FIPS_ENDPOINT": "true"}, "fips"),
        ("us-east-1", {"AWS_USE_DUALSTACK_ENDPOINT": "true"}, "api.aws"),
        (
            "us-east-1",
            {"AWS_USE_FIPS_ENDPOINT": "true", "AWS_USE_DUALSTACK_ENDPOINT": "true"},
            "fips",
        ),
        ("us-east-1", {"AWS_ACCOUNT_ID": _ACCOUNT}, ".ddb."),
        (
            "us-east-1",
            {"AWS_ACCOUNT_ID": _ACCOUNT, "AWS_ACCOUNT_ID_ENDPOINT_MODE": "disabled"},
            "//dynamodb.",
        ),
        ("us-gov-west-1", {}, "us-gov-west-1"),
        ("cn-north-1", {}, ".com.cn"),
        ("local", {}, "localhost:8000"),
        ("eu-west-1", {"AWS_ENDPOINT_URL": "http://127.0.0.1:4566"}, "127.0.0.1:4566"),
        ("eu-west-1", {"AWS_ENDPOINT_URL_DYNAMODB": "https://proxy.example:443"}, "proxy.example"),
        ("eu-west-1", {"AWS_ENDPOINT_URL_DYNAMODB": "http://[::1]:8000"}, "[::1]:8000"),
    ],
)
def test_the_endpoint_is_the_one_of_boto3(
    region: str,
    environment: Mapping[str, str],
    expected: str | None,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With FIPS, dual-stack, an account's own endpoint, and custom ones."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    boto3s, ours = (_leaving(_dynamo(one, region), table) for one in ("boto3", "fast"))

    assert ours[:2] == boto3s[:2]
    assert (boto3s[2], ours[2]) == (True, False)
    assert (expected or region) in ours[0]


@pytest.mark.parametrize(
    ("environment", "config"),
    [
        ({"AWS_ENDPOINT_URL": "https://gateway.example/dynamodb"}, None),
        ({"AWS_ENDPOINT_URL": "https://user:word@gateway.example"}, None),
        ({"AWS_ENDPOINT_URL": "http://service.example", "HTTP_PROXY": "http://p.example"}, None),
        ({"HTTPS_PROXY": "https://p.example"}, None),
        ({}, Config(signature_version=UNSIGNED)),
        ({"AWS_AUTH_SCHEME_PREFERENCE": "sigv4a"}, None),
    ],
)
def test_what_only_botocore_can_send_is_sent_by_boto3(
    environment: Mapping[str, str], config: Config | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path, a proxy that forwards or speaks TLS, another way to sign, and the like."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert _leaving(_dynamo("fast", "us-east-1", config=config), "t")[2]


def test_endpoints_that_the_service_names_are_boto3s_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It asks for them before the call."""
    monkeypatch.setenv("AWS_ENDPOINT_DISCOVERY_ENABLED", "true")
    client: Any = _dynamo("fast", "us-east-1").client

    assert not client._handlers.allow("PutItem")


def test_a_tunnel_carries_the_fast_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS through a proxy is as it is without."""
    monkeypatch.setenv("HTTPS_PROXY", "http://p.example:3128")

    assert not _leaving(_dynamo("fast", "us-east-1"), "t")[2]
