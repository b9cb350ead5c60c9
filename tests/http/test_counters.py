"""Recording and reading over HTTP: the same numbers, exact, and a retry never counts twice."""

import asyncio
import json
from typing import Any
from urllib.parse import quote, unquote

import pytest

from countledger.infra.calls.shapes import from_path, to_path
from tests.http.world import Api, names_of

_ENTRIES = "/v1/counters/likes:{}/entries"


def test_a_retry_over_http_is_a_duplicate_and_counts_once(api: Api) -> None:
    path = _ENTRIES.format("retry")
    first, again = (api.post(path, {"delta": "0.25"}, "click-1") for _ in range(2))
    api.materialize()

    assert (first.status_code, first.json()["status"]) == (201, "recorded")
    assert (again.status_code, again.json()["status"]) == (200, "duplicate")
    assert api.get("/v1/counters/likes:retry").json()["value"] == "0.25"


def test_a_key_with_another_delta_is_a_problem_of_its_own(api: Api) -> None:
    path = _ENTRIES.format("reused")
    api.post(path, {"delta": "1"}, "click-1")
    refused = api.post(path, {"delta": "2"}, "click-1")

    assert refused.status_code == 422
    assert refused.headers["content-type"] == "application/problem+json"
    assert names_of(refused.json()) == "idempotency-key-reused"


def test_a_write_without_a_key_is_refused(api: Api) -> None:
    refused = api.post(_ENTRIES.format("keyless"), {"delta": "1"})

    assert (refused.status_code, names_of(refused.json())) == (422, "key-missing")


@pytest.mark.parametrize("delta", ["1", "1.50", "-0.000000001", "9" * 20])
def test_an_amount_goes_in_and_comes_out_exactly(api: Api, delta: str) -> None:
    name = f"exact{delta}"
    assert api.post(_ENTRIES.format(name), {"delta": delta}, "k").status_code == 201
    api.materialize()

    shown = api.get(f"/v1/counters/likes:{name}").json()["value"]
    assert shown == (delta.rstrip("0") if "." in delta else delta)


@pytest.mark.parametrize(
    "body",
    [
        '{"delta": 1}',
        '{"delta": 1.5}',
        '{"delta": 1e400}',
        '{"delta": NaN}',
        '{"delta": true}',
        '{"delta": "1e5"}',
        '{"delta": "0"}',
        '{"delta": " 1"}',
        '{"delta": "' + "9" * 21 + '"}',
        '{"delta": "1", "more": 1}',
        '{"delta": "1", "occurred_at": "2026-01-01T00:00:00"}',
        '{"delta": "1", "occurred_at": 1767225600}',
        '{"delta": "1", "note": {"a": 1}}',
        "[" * 100_000,
        '{"delta": ' + "9" * 10_000 + "}",
        b'{"delta": "\xff"}',
        "",
        "null",
    ],
)
def test_what_is_no_event_is_refused_and_changes_nothing(api: Api, body: str | bytes) -> None:
    headers = {"Content-Type": "application/json", "Idempotency-Key": "k"}
    refused = api.http.post(_ENTRIES.format("refused"), content=body, headers=headers)

    assert refused.status_code == 422
    assert refused.headers["content-type"] == "application/problem+json"
    assert api.store.entry_items("likes:refused") == []


def test_a_client_that_has_the_total_gets_no_body(api: Api) -> None:
    path = "/v1/counters/likes:tagged"
    tag = api.get(path).headers["etag"]
    same = api.get(path, **{"If-None-Match": f'W/{tag}, "other"'})
    api.post(f"{path}/entries", {"delta": "1"}, "k")
    api.materialize()
    changed = api.get(path, **{"If-None-Match": tag})

    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    assert (changed.status_code, changed.json()["value"]) == (200, "1")


def test_a_name_with_a_slash_or_a_tilde_is_escaped_in_a_path(api: Api) -> None:
    api.post("/v1/counters/pages:a~1b~0c~2d/entries", {"delta": "3"}, "k")
    api.materialize()

    name = "pages:a/b~c?d"
    assert len(api.store.entry_items(name)) == 1
    assert api.get("/v1/counters/pages:a~1b~0c~2d").json()["counter"] == name
    assert api.get(f"/v1/counters/{quote(to_path(name))}").json()["counter"] == name
    assert api.get("/v1/counters/pages:a~4~02~3").json()["counter"] == "pages:a~4~2%"
    assert from_path(to_path("pages:~3%")) == "pages:~3%"


def test_a_question_mark_in_a_path_is_refused_because_gateways_cut_there(api: Api) -> None:
    """`DELETE .../pages:a%3Fb` would delete `pages:a` behind a gateway that decodes first."""
    api.post("/v1/counters/pages:a/entries", {"delta": "3"}, "k")
    api.materialize()

    refused = api.get("/v1/counters/pages:a%3Fb")

    assert refused.status_code == 422
    assert "write ~2" in refused.text


@pytest.mark.parametrize("segment", ["caf%FF", "%C3", "%ED%A0%80"])
def test_bytes_that_are_no_text_name_no_counter(api: Api, segment: str) -> None:
    """Each would be replaced by the same character, and so two names be one."""
    headers = [(b"idempotency-key", b"k"), (b"content-type", b"application/json")]
    refused = asyncio.run(
        _asgi(api, "POST", f"/v1/counters/likes:{segment}/entries", headers, b'{"delta": "1"}')
    )

    assert (refused["status"], names_of(refused["body"])) == (400, "malformed-request")


@pytest.mark.parametrize("segment", ["caf%FF", "%C3", "%ED%A0%80"])
@pytest.mark.parametrize("query", ["prefix={}", "prefix=a&{}=1"])
def test_bytes_that_are_no_text_are_in_no_query(api: Api, segment: str, query: str) -> None:
    """Each would be replaced by the same character, and the answer be one to another question."""
    path = f"/v1/counters?{query.format(segment)}"
    refused = asyncio.run(_asgi(api, "GET", path, [], b""))

    assert (refused["status"], names_of(refused["body"])) == (400, "malformed-request")


async def _asgi(
    api: Api, method: str, target: str, headers: list[tuple[bytes, bytes]], body: bytes
) -> dict[str, Any]:
    """Call the application with a path as a server hands it over."""
    sent: list[Any] = []

    async def receive() -> Any:  # noqa: ANN401 - ASGI's
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:  # noqa: ANN401 - ASGI's
        sent.append(message)

    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": headers,
    }
    await api.app(scope, receive, send)
    start, *parts = sent
    return {
        "status": start["status"],
        "body": json.loads(b"".join(one.get("body", b"") for one in parts)),
    }


_JSON = ("Content-Type", "application/json")


@pytest.mark.parametrize(
    ("headers", "body", "name", "says"),
    [
        # As curl sends it by default.
        pytest.param(
            [("Idempotency-Key", "k"), ("Content-Type", "application/x-www-form-urlencoded")],
            '{"delta": "1"}',
            "bad-request",
            "Content-Type: application/json",
            id="another content type",
        ),
        # Parsers differ in which of them they take, so a proxy may have checked the other.
        pytest.param(
            [("Idempotency-Key", "k"), _JSON],
            '{"delta": "1", "delta": "1000"}',
            "bad-request",
            "two members of one name",
            id="two members of one name",
        ),
        pytest.param(
            [("Idempotency-Key", "a"), ("Idempotency-Key", "b"), _JSON],
            '{"delta": "1"}',
            "bad-key",
            "",
            id="two keys",
        ),
    ],
)
def test_an_ambiguous_request_is_refused_and_says_so(
    api: Api, headers: list[tuple[str, str]], body: str, name: str, says: str
) -> None:
    refused = api.http.post(_ENTRIES.format("twice"), content=body, headers=headers)

    assert (refused.status_code, names_of(refused.json())) == (422, name)
    assert says in refused.json()["detail"]
    assert api.store.entry_items("likes:twice") == []


def test_each_of_several_errors_has_its_type(api: Api) -> None:
    events = [
        {"counter": "likes:timed", "delta": "1", "key_at": "2026-01-01T00:00:00Z"},
        {"counter": "likes:timed", "delta": "0"},
    ]
    refused = api.post("/v1/entries", {"events": events}, '"k"; at="9829-11-31T00:58:37Z"')

    assert (refused.status_code, names_of(refused.json())) == (422, "bad-request")
    names = {one["at"]: names_of(one) for one in refused.json()["errors"]}
    assert names == {
        "header/Idempotency-Key": "bad-time",
        "body/events/0": "bad-key",
        "body/events/1/delta": "bad-delta",
    }


@pytest.mark.parametrize("method", ["history", "marker", "occ", "request_token", "set", "atomic"])
def test_a_strict_change_requires_a_key_where_its_method_remembers_keys(
    api: Api, method: str
) -> None:
    name = f"stock:{method}"
    api.post("/v1/strict", {"counter": name, "method": method, "opening": "5"})
    changed = api.post(f"/v1/strict/{name}/changes", {"delta": "-1"})
    value = api.get(f"/v1/strict/{name}").json()["value"]

    if method == "atomic":
        assert (changed.status_code, value) == (200, "4")
    else:
        assert (changed.status_code, names_of(changed.json()), value) == (422, "key-missing", "5")
