"""What comes in is bounded, what goes out has its headers, and no client waits for ever."""

import asyncio
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest
from fastapi import Request
from starlette.testclient import TestClient

from countledger import CountLedger
from countledger.infra.calls.access import EVERYTHING, NotAuthenticated, Scopes
from countledger.infra.http.api import (
    BODY_MAX_BYTES,
    SECURITY_HEADERS,
    TARGET_MAX_BYTES,
    Edge,
    http_app,
)
from countledger.infra.http.calls import Clients
from countledger.ledger.errors import Throttled
from tests.http.world import Api, names_of

_PATH = "/v1/counters/likes:bounds/entries"
_JSON = {"Content-Type": "application/json", "Idempotency-Key": "k"}


def _parts(size: int) -> Iterator[bytes]:
    for _ in range(size // 65_536 + 1):
        yield b" " * 65_536


@pytest.mark.parametrize("streamed", [False, True])
def test_a_body_beyond_the_bound_is_refused(api: Api, *, streamed: bool) -> None:
    """Also one that does not say its size."""
    size = BODY_MAX_BYTES + 1
    content: Any = _parts(size) if streamed else b" " * size
    refused = api.http.post(_PATH, content=content, headers=_JSON)

    assert (refused.status_code, names_of(refused.json())) == (413, "content-too-large")


def test_a_path_beyond_the_bound_is_refused(api: Api) -> None:
    refused = api.get("/v1/counters/" + "a" * TARGET_MAX_BYTES)

    assert refused.status_code == 414


def test_every_answer_has_the_security_headers(api: Api) -> None:
    for answer in (api.get("/v1/counters/a"), api.get("/nothing"), api.get("/v1/counters/a%23")):
        assert {*map(str.lower, SECURITY_HEADERS)} <= {*answer.headers}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v2/counters/a", 404),
        ("GET", "/v1/counters/a/", 404),
        ("GET", "/docs", 404),
        ("PUT", "/v1/counters/a", 405),
        ("TRACE", "/v1/counters/a", 405),
    ],
)
def test_what_is_no_resource_is_a_problem(api: Api, method: str, path: str, status: int) -> None:
    refused = api.http.request(method, path)

    assert refused.status_code == status
    assert refused.headers["content-type"] == "application/problem+json"
    assert ("allow" in refused.headers) is (status == 405)


def test_who_is_not_known_gets_nothing(api: Api) -> None:
    def refuse(_request: Request) -> Scopes:
        raise NotAuthenticated("no token")

    def no_client() -> CountLedger:
        raise AssertionError("nothing is opened for an unknown caller")

    http = TestClient(http_app(no_client, refuse))
    refused = http.post(_PATH, json={"delta": "1"}, headers={"Idempotency-Key": "k"})

    assert (refused.status_code, names_of(refused.json())) == (401, "not-authenticated")
    assert refused.headers["www-authenticate"] == "Bearer"
    assert api.store.entry_items("likes:bounds") == []


def test_a_request_that_takes_too_long_is_unclear_and_its_retry_counts_nothing_twice(
    api: Api,
) -> None:
    """What it has begun cannot be stopped: the entry is written after the answer."""
    may_open = Event()

    def slow() -> CountLedger:
        assert may_open.wait(10)
        return api.clients[0]

    api.get("/v1/counters/likes:late")
    app = http_app(slow, lambda _: EVERYTHING, answer_timeout_s=0.2)
    with TestClient(app) as http:
        headers = {"Idempotency-Key": "k"}
        path = "/v1/counters/likes:late/entries"
        late = http.post(path, json={"delta": "1"}, headers=headers)
        assert api.store.entry_items("likes:late") == []
        may_open.set()
        again = http.post(path, json={"delta": "1"}, headers=headers)

    assert (late.status_code, names_of(late.json())) == (504, "unclear")
    assert late.headers["retry-after"] == "1"
    assert "same Idempotency-Key" in late.json()["detail"]
    assert again.json()["status"] in {"recorded", "duplicate"}
    assert len(api.store.entry_items("likes:late")) == 1


def test_an_answer_after_its_time_is_dropped() -> None:
    """The problem is the one answer of the request: a second one would be another request's."""
    sent: list[str] = []

    async def slow(_scope: Any, _receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's
        await asyncio.sleep(0.05)
        await send({"type": "http.response.start", "status": 201, "headers": []})

    async def send(message: Any) -> None:  # noqa: ANN401 - ASGI's
        sent.append(message.get("status", message["type"]))

    async def ask() -> None:
        scope = {"type": "http", "path": "/v1/x", "headers": [], "method": "GET"}
        await Edge(slow, answer_timeout_s=0.01)(scope, None, send)  # type: ignore[arg-type]  # not read
        await asyncio.sleep(0.1)

    asyncio.run(ask())
    assert sent == [504, "http.response.body"]


def test_an_unexpected_error_says_nothing_of_its_cause() -> None:
    def broken() -> CountLedger:
        raise RuntimeError("secret")

    http = TestClient(http_app(broken, lambda _: EVERYTHING), raise_server_exceptions=False)
    failed = http.get("/v1/counters/a")

    assert failed.status_code == 500
    assert "secret" not in failed.text
    assert names_of(failed.json()) == "internal-error"


def test_a_client_is_lent_to_one_request_at_a_time() -> None:
    clients = Clients(object, most=1, patience_s=0.01)  # type: ignore[arg-type]  # any will do

    async def lend() -> None:
        async with clients.lent() as first:
            with pytest.raises(Throttled, match="under way"):
                await clients.take()
        async with clients.lent() as again:
            assert again is first

    asyncio.run(lend())


def test_a_client_that_could_not_be_opened_counts_for_nothing() -> None:
    def fail() -> CountLedger:
        raise RuntimeError

    clients = Clients(fail, most=1, patience_s=0.01)
    for _ in range(3):
        with pytest.raises(RuntimeError):
            asyncio.run(clients.take())


@pytest.mark.parametrize("body", [b"1.5", b"-9007199254740992.0", b"1e3", b"7", b"[]", b'"x"'])
def test_a_body_that_is_no_object_is_refused_where_every_field_has_a_default(
    api: Api, body: bytes
) -> None:
    headers = {"content-type": "application/json"}

    refused = api.http.post("/v1/sequences/bills:a/numbers", content=body, headers=headers)

    assert (refused.status_code, names_of(refused.json())) == (422, "bad-request")
    assert api.get("/v1/sequences/bills:a").status_code == 404


@pytest.mark.parametrize(
    "at", ["2016-12-31T23:59:60Z", "0000-01-01T00:00:00Z", "2026-01-31", "2026-01-31T12:00:00"]
)
def test_a_time_that_cannot_be_kept_is_refused_by_name(api: Api, at: str) -> None:
    """The first two are times of RFC 3339, so the request is not called malformed."""
    event = {"counter": "likes:bounds", "delta": "1", "key": "k", "key_at": at}
    answer = api.post("/v1/entries", {"events": [event]}, "all")

    assert answer.status_code == 422
    assert answer.json()["type"].endswith(":bad-time")
    assert at in answer.json()["detail"]


def test_a_time_is_read_in_either_case_of_its_letters(api: Api) -> None:
    """As in RFC 3339, 5.6."""
    event = {"counter": "likes:bounds", "delta": "1", "occurred_at": "2026-01-31t12:00:00z"}

    assert api.post("/v1/entries", {"events": [event]}, "all").status_code == 200
