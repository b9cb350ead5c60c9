"""The signature is the one that botocore makes of the same request."""

import time
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials, ReadOnlyCredentials
from hypothesis import example, given, settings
from hypothesis import strategies as st

from countledger.ledger.transport.client import host_of
from countledger.ledger.transport.http import Signer

_KIND = "application/x-amz-json-1.0"
_PRINTABLE = st.characters(min_codepoint=33, max_codepoint=126)
_SECRETS = st.text(_PRINTABLE, min_size=1, max_size=40)
_URLS = st.sampled_from(
    [
        "https://dynamodb.eu-west-1.amazonaws.com",
        "https://123456789012.ddb.us-east-1.amazonaws.com",
        "https://dynamodb-fips.us-gov-west-1.amazonaws.com:443",
        "http://LOCALHOST:8000",
        "http://[::1]:4566",
        "http://127.0.0.1:80",
    ]
)


def _headers(request: bytes) -> dict[str, str]:
    head = request.partition(b"\r\n\r\n")[0].decode()
    return dict(line.split(": ", 1) for line in head.split("\r\n")[1:])


def _botocores(
    url: str, credentials: Credentials, region: str, headers: dict[str, str], body: bytes
) -> str:
    """What botocore writes as `Authorization`, at the time that our request names."""
    signed = {name: headers[name] for name in ("Content-Type", "X-Amz-Target")}
    request: Any = AWSRequest("POST", url + "/", headers=signed, data=body)
    auth: Any = SigV4Auth(credentials, "dynamodb", region)
    request.context["timestamp"] = headers["X-Amz-Date"]
    auth._modify_request_before_signing(request)
    text = auth.string_to_sign(request, auth.canonical_request(request))
    auth._inject_signature_to_request(request, auth.signature(text, request))
    return str(request.headers["Authorization"])


@settings(max_examples=500)
@given(
    _URLS,
    st.text(st.characters(categories=["Ll", "Nd"], max_codepoint=122), min_size=1),
    _SECRETS,
    _SECRETS,
    st.none() | _SECRETS,
    st.sampled_from(["eu-west-1", "us-gov-west-1"]),
    st.binary(max_size=2_000),
)
@example("http://[::1]:4566", "id", "secret", "key", "to ken", "eu-west-1", b"")
def test_it_is_the_one_that_botocore_makes(  # noqa: PLR0917 - drawn
    url: str,
    operation: str,
    access_key: str,
    secret: str,
    token: str | None,
    region: str,
    body: bytes,
) -> None:
    """For any credentials, with and without a session token, any host and body."""
    credentials = Credentials(access_key, secret, token)
    signer = Signer(host_of(url), region, "dynamodb", _KIND, "countledger")
    frozen = credentials.get_frozen_credentials()
    request = signer.request(frozen, f"DynamoDB_20120810.{operation}", body)
    headers = _headers(request)

    assert request.endswith(b"\r\n\r\n" + body)
    assert headers["Content-Length"] == str(len(body))
    assert headers.get("X-Amz-Security-Token") == token
    assert headers["Authorization"] == _botocores(url, credentials, region, headers, body)


def _signed(signer: Signer, credentials: ReadOnlyCredentials) -> dict[str, str]:
    return _headers(signer.request(credentials, "DynamoDB_20120810.GetItem", b"{}"))


def test_the_key_follows_the_day_and_the_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is derived once for each; a new day or other credentials have a key of their own."""
    url = "https://dynamodb.eu-west-1.amazonaws.com"
    signer = Signer(host_of(url), "eu-west-1", "dynamodb", _KIND, "countledger")
    sets = [Credentials("a", "s1"), Credentials("a", "s2", "t1"), Credentials("a", "s2", "t2")]
    for second in (86_399, 86_400, 1_800_000_000):
        monkeypatch.setattr(time, "time", lambda now=second: float(now))
        for one in (*sets, *sets):
            headers = _signed(signer, one.get_frozen_credentials())
            moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))

            assert headers["X-Amz-Date"] == moment
            assert headers["Authorization"] == _botocores(url, one, "eu-west-1", headers, b"{}")


@pytest.mark.parametrize("name", ["access_key", "token"])
def test_credentials_cannot_add_a_header(name: str) -> None:
    """A line break in them is a space."""
    parts = {"access_key": "a", "secret_key": "s", "token": "t"} | {name: "x\r\nInjected: yes"}
    signer = Signer("h", "eu-west-1", "dynamodb", _KIND, "countledger")
    request = signer.request(ReadOnlyCredentials(**parts), "DynamoDB_20120810.GetItem", b"{}")

    assert b"\nInjected" not in request


def test_the_key_is_in_no_representation() -> None:
    """Nor is the token: a representation may end in a log."""
    signer = Signer("h", "eu-west-1", "dynamodb", _KIND, "countledger")
    _signed(signer, ReadOnlyCredentials("id", "the-secret", "the-token"))

    assert "the-secret" not in repr(signer._key)
    assert "the-token" not in repr(signer._key)
