"""CORS is off; a named origin may call, and no other one is answered with a header of it."""

from collections.abc import Mapping
from typing import Any, Final

import pytest
from starlette.testclient import TestClient

from countledger.infra.http.api import CORS_VARIABLE, NamedOrigins, named_origins
from countledger.ledger.errors import BadSetting
from tests.http.world import Api, names_of
from tests.unit.local_server.server import running

_APP: Final = "https://app.example"
_OTHERS: Final = ("https://app.example.evil", "http://app.example", "null", "https://other.example")
_PREFLIGHT: Final = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,idempotency-key",
}


def _of_cors(headers: Mapping[str, str]) -> list[str]:
    return [name for name in headers if name.lower().startswith("access-control-")]


@pytest.fixture
def http(api: Api) -> TestClient:
    return TestClient(NamedOrigins(api.app, frozenset({_APP})))


def test_without_a_named_origin_there_is_no_header(api: Api) -> None:
    closed = TestClient(NamedOrigins(api.app, named_origins()))
    for origin in (_APP, *_OTHERS):
        assert _of_cors(closed.get("/v1/counters/a", headers={"Origin": origin}).headers) == []
        asked = closed.options("/v1/entries", headers={"Origin": origin, **_PREFLIGHT})
        assert (asked.status_code, _of_cors(asked.headers)) == (405, [])


@pytest.mark.parametrize("origin", _OTHERS)
def test_another_origin_gets_no_header(http: TestClient, origin: str) -> None:
    assert _of_cors(http.get("/v1/counters/a", headers={"Origin": origin}).headers) == []
    asked = http.options("/v1/entries", headers={"Origin": origin, **_PREFLIGHT})
    assert _of_cors(asked.headers) == []


def test_a_named_origin_is_answered_with_what_it_needs_and_without_credentials(
    http: TestClient,
) -> None:
    asked = http.options("/v1/entries", headers={"Origin": _APP, **_PREFLIGHT})
    assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (200, _APP)
    assert "Idempotency-Key" in asked.headers["access-control-allow-headers"]

    found = http.get("/v1/counters/a", headers={"Origin": _APP})
    refused = http.get("/v1/counters/a%23", headers={"Origin": _APP})
    for answer in (found, refused):
        assert answer.headers["access-control-allow-origin"] == _APP
        assert "Origin" in answer.headers["vary"]
        assert "Countledger-Read-Units" in answer.headers["access-control-expose-headers"]
    for answer in (asked, found, refused):
        assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize(
    "origin", ["*", "https://*.example", "app.example", "https://a.example/", "null", "HTTPS://A"]
)
def test_what_is_no_exact_origin_is_refused(origin: str) -> None:
    with pytest.raises(BadSetting, match="is no origin"):
        named_origins([origin])


def test_origins_are_named_in_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CORS_VARIABLE, f"{_APP}, http://localhost:3000,")

    assert named_origins(["http://[::1]:8080"]) == {
        _APP,
        "http://localhost:3000",
        "http://[::1]:8080",
    }


def test_a_page_of_a_named_origin_uses_the_local_server_with_the_token_only() -> None:
    """Its preflight request has no token, and its answers without one can be read."""
    site: Any = {"Sec_Fetch_Site": "cross-site"}
    preflight: Any = {name.replace("-", "_"): value for name, value in _PREFLIGHT.items()}
    with running(origins=frozenset({_APP}), allow_writes=True) as server:
        asked = server.ask("/v1/x", "OPTIONS", Origin=_APP, Authorization="", **preflight)
        sent = server.ask("/v1/x", "POST", b"{}", Origin=_APP, **site)
        unknown = server.ask("/v1/x", Origin=_APP, Authorization="", **site)
        other = server.ask("/v1/x", Origin="https://other.example", **site)

    assert (asked.status, asked.headers["access-control-allow-origin"]) == (200, _APP)
    assert (sent.status, sent.headers["access-control-allow-origin"]) == (200, _APP)
    assert (unknown.status, unknown.headers["access-control-allow-origin"]) == (401, _APP)
    assert (other.status, names_of(other.document)) == (403, "wrong-origin")
    assert _of_cors(other.headers) == []
