"""The header of idempotency keys: the key of the library, exactly, with and without its time."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger import IdempotencyKey
from countledger.infra.http.calls import key_of_part, parse_key
from countledger.ledger.errors import BadKey, BadTime
from countledger.ledger.ids import id_of_key
from tests.http.world import Api, names_of

_AT = datetime(2026, 1, 31, 12, 0, 0, 250_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("click-1", "click-1"),
        ('"click 1"', "click 1"),
        (r'"a\"b\\c"', r"a\b\c".replace(r"a\b", 'a"b')),
        ('%"caf%c3%a9"', "café"),
        ('"k"; at="2026-01-31T12:00:00.250Z"', IdempotencyKey("k", _AT)),
        ('k;at="2026-01-31T13:00:00.250+01:00"', IdempotencyKey("k", _AT)),
        ('k;at="2026-01-31t12:00:00.250999999z"', IdempotencyKey("k", _AT)),
        ('k;at="2026-01-31 13:00:00,25+0100"', IdempotencyKey("k", _AT)),
        ('k;at="1769860800250"', IdempotencyKey("k", _AT)),
    ],
)
def test_a_header_is_a_key(text: str, key: str | IdempotencyKey) -> None:
    assert parse_key(text) == key


@pytest.mark.parametrize(
    "text",
    [
        "",
        '""',
        '"a',
        "a b",
        "a,b",
        "a;b",
        '"a"; at=1',
        '%"%zz"',
        '%"%ff"',
        '"a"x',
        "é",
        '"' + "a" * 1_025 + '"',
    ],
)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(BadKey):
        parse_key(text)


@pytest.mark.parametrize("at", ["", "yesterday", "2026-01-31T12:00:00", "2026-13-01T00:00:00Z"])
def test_a_time_in_another_form_is_refused(at: str) -> None:
    with pytest.raises(BadKey):
        parse_key(f'"k"; at="{at}"')


@pytest.mark.parametrize("at", ["1969-12-31T00:00:00Z", "2026-02-30T00:00:00Z"])
def test_a_time_that_no_key_has_is_refused(at: str) -> None:
    with pytest.raises(BadTime):
        parse_key(f'"k"; at="{at}"')


@given(
    st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1).filter(
        lambda key: key == key.strip()
    )
)
def test_every_key_of_ascii_can_be_written(key: str) -> None:
    escaped = key.replace("\\", r"\\").replace('"', r"\"")

    assert parse_key(f'"{escaped}"') == key


def test_a_key_counts_once_over_http_and_over_the_library(api: Api) -> None:
    """The identity of an entry is the same, so that an app may change from one to the other."""
    api.post("/v1/counters/likes:one/entries", {"delta": "1"}, '"click 1"')
    items = api.store.entry_items("likes:one")

    assert [item["entry"] for item in items] == ["e#" + id_of_key("click 1")]


def test_a_key_whose_time_is_over_is_refused_and_not_counted(api: Api) -> None:
    old = datetime.now(UTC) - timedelta(hours=25)
    header = f'"click"; at="{old.isoformat()}"'
    refused = api.post("/v1/counters/likes:old/entries", {"delta": "1"}, header)

    assert (refused.status_code, names_of(refused.json())) == (422, "key-expired")
    assert api.store.entry_items("likes:old") == []


def test_a_batch_that_is_sent_again_counts_nothing_twice(api: Api) -> None:
    events = [
        {"counter": "likes:batch", "delta": "1"},
        {"counter": "likes:batch", "delta": "2", "key": "own", "events": 2},
        {"counter": "likes:batch", "delta": "3"},
    ]
    first, again = (
        [one["status"] for one in api.post("/v1/entries", {"events": events}, "b").json()["items"]]
        for _ in range(2)
    )

    assert (first, again) == (["recorded"] * 3, ["duplicate"] * 3)
    assert sum(item["delta"] for item in api.store.entry_items("likes:batch")) == 6


def test_an_event_of_a_batch_that_fails_is_a_problem_of_its_own(api: Api) -> None:
    api.post("/v1/counters/likes:fails/entries", {"delta": "1"}, "used")
    events = [
        {"counter": "likes:fails", "delta": "2", "key": "used"},
        {"counter": "likes:fails", "delta": "2"},
    ]
    failed, recorded = api.post("/v1/entries", {"events": events}, "c").json()["items"]

    assert failed["status"] == "failed"
    assert names_of(failed["problem"]) == "idempotency-key-reused"
    assert recorded["status"] == "recorded"


def test_the_key_of_a_part_keeps_the_time_of_the_key() -> None:
    assert key_of_part(IdempotencyKey("k", _AT), 3) == IdempotencyKey("k#3", _AT)


@pytest.mark.parametrize(
    ("request_line", "body"),
    [
        ("POST /v1/sequences/orders:x/numbers", {}),
        ("POST /v1/sequences", {"sequence": "orders:x"}),
        ("POST /v1/quotas", {"prefix": "keyed:", "limit": "1", "per": "day"}),
        ("DELETE /v1/sequences/orders:x", None),
        ("GET /v1/counters/likes:a", None),
    ],
)
def test_a_key_is_refused_where_it_has_no_effect(api: Api, request_line: str, body: object) -> None:
    method, path = request_line.split()
    refused = api.http.request(method, path, json=body, headers={"Idempotency-Key": "k"})

    assert (refused.status_code, names_of(refused.json())) == (422, "bad-key")
    assert "makes no use of Idempotency-Key" in refused.json()["detail"]
    assert api.get("/v1/sequences/orders:x").status_code == 404
