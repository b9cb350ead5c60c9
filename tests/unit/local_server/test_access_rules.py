"""Who may use the local server."""

from collections.abc import Mapping

import pytest

from countledger.infra.http.server import (
    Accepted,
    AccessRules,
    Refusal,
    RequestHead,
)
from countledger.infra.local.front import new_token

TOKEN = new_token()
RULES = AccessRules(8123, TOKEN)
HOST = {"host": "127.0.0.1:8123"}
BEARER = {"authorization": f"Bearer {TOKEN}"}


def _decide(
    headers: Mapping[str, str],
    path: str = "/v1/totals",
    query: str = "",
    method: str = "GET",
    rules: AccessRules = RULES,
) -> object:
    decided = rules.decide(RequestHead(method, path, query, {**HOST, **headers}))
    return decided.slug if isinstance(decided, Refusal) else type(decided)


@pytest.mark.parametrize("proof", [BEARER, {"authorization": f"bearer  {TOKEN} "}])
def test_the_token_is_accepted_in_its_header(proof: dict[str, str]) -> None:
    assert _decide(proof) is Accepted


@pytest.mark.parametrize(
    "proof",
    [
        {},
        {"authorization": "Bearer "},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": f"Bearer {TOKEN[:-1]}"},
        {"authorization": "Bearer \u00ff"},
        {"cookie": f"countledger-8123={TOKEN}"},
    ],
)
def test_without_the_token_nothing_is_accepted(proof: dict[str, str]) -> None:
    assert _decide(proof) == "no-token"
    assert _decide(proof, "/v1") == "no-token"


def test_the_token_in_an_address_opens_nothing_and_the_files_of_the_page_need_none() -> None:
    assert _decide({}, "/v1/totals", f"token={TOKEN}") == "no-token"
    for path in ("/", "/app.js", "/v1x"):
        assert _decide({}, path) is Accepted


@pytest.mark.parametrize(
    "host", ["", "evil.example:8123", "127.0.0.1", "127.0.0.1:80", "127.0.0.1.evil.example:8123"]
)
def test_a_foreign_name_of_the_host_is_refused_also_with_the_token(host: str) -> None:
    """A page whose name was made to resolve to loopback would be of the same origin."""
    assert _decide({"host": host, **BEARER}) == "wrong-host"


def test_localhost_is_a_name_of_this_machine() -> None:
    assert (
        _decide({"host": "LOCALHOST:8123", "origin": "http://localhost:8123", **BEARER}) is Accepted
    )


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "https://127.0.0.1:8123", "http://127.0.0.1:8124", ""],
)
def test_a_page_of_another_origin_is_refused_also_with_the_token(origin: str) -> None:
    assert _decide({"origin": origin, **BEARER}) == "wrong-origin"


@pytest.mark.parametrize(
    ("site", "path", "expected"),
    [
        ("same-origin", "/v1/totals", Accepted),
        ("none", "/v1/totals", Accepted),
        ("same-site", "/v1/totals", "wrong-origin"),
        ("cross-site", "/app.js", "wrong-origin"),
        ("cross-site", "/", Accepted),
    ],
)
def test_what_a_browser_says_of_the_sender_is_heeded(
    site: str, path: str, expected: object
) -> None:
    """A page on another port of this machine is of the same site."""
    assert _decide({"sec-fetch-site": site, **BEARER}, path) == expected


def test_a_server_only_reads_unless_asked() -> None:
    writing = AccessRules(8123, TOKEN, allow_writes=True)

    assert _decide(BEARER, method="HEAD") is Accepted
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
        assert _decide(BEARER, method=method) == "read-only"
        assert _decide(BEARER, method=method, rules=writing) is Accepted
        assert _decide({}, method=method, rules=writing) == "no-token"


def test_the_address_has_the_token() -> None:
    assert RULES.url == f"http://127.0.0.1:8123/?token={TOKEN}"


def test_tokens_are_long_and_differ() -> None:
    tokens = {new_token() for _ in range(100)}

    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 43
