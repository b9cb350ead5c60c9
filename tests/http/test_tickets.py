"""A ticket names a reservation; what it says besides is checked against what is stored."""

import base64
import itertools
import json

import pytest

from tests.http.world import Api

_NUMBERS = itertools.count()
_OF_TICKET = ("amount", "windows", "key", "reservation", "until")
_OF_WINDOW = ("counter", "prefix", "per", "incarnation", "window", "end")


def _reserved(api: Api, counter: str) -> str:
    made = api.post("/v1/quotas", {"prefix": "llm:", "limit": "1000", "per": "day"})
    assert made.status_code in {201, 409}
    reserve = {"amount": "1"}
    answer = api.post(f"/v1/usage/{counter}/reservations", reserve, "a-reservation")
    return str(answer.json()["ticket"])


def _used(api: Api, counter: str) -> str:
    return str(api.get(f"/v1/usage/{counter}").json()["items"][0]["used"])


@pytest.mark.parametrize(
    ("part", "value", "statuses"),
    [
        ("amount", "100", {422}),
        ("amount", "-1", {422}),
        ("window", "2026-01-01", {422}),
        ("window", "", {422}),
        ("window", "x" * 2_000, {422}),
        ("incarnation", "x" * 1_500, {422}),
        ("incarnation", "another", {422}),
        ("counter", "llm:of another", {409, 410}),
        ("counter", "other:a", {409, 410}),
        ("end", "2026", {422}),
        ("windows", "[]", {422}),
        ("windows", "[1]", {422}),
        ("windows", "[" * 9_000, {422}),
        ("key", "another", {409, 410}),
        ("key", "\ud800", {422}),
        ("reservation", "another", {409, 410}),
        ("until", 10**30, {422}),
        ("until", -(10**15), {422}),
        ("until", 0, {409, 410}),
    ],
)
def test_a_ticket_that_was_changed_moves_nothing(
    api: Api, part: str, value: object, statuses: set[int]
) -> None:
    counter = f"llm:forged-{next(_NUMBERS)}"
    ticket = _reserved(api, counter)
    parts = json.loads(base64.urlsafe_b64decode(ticket + "=" * (-len(ticket) % 4)))
    if part in _OF_WINDOW:
        (place,) = json.loads(parts[1])
        place[_OF_WINDOW.index(part)] = value
        parts[1] = json.dumps([place])
    else:
        parts[_OF_TICKET.index(part)] = value
    forged = base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")
    before = _used(api, counter)

    for path, body in (("/v1/releases", {}), ("/v1/commits", {"actual": "0"})):
        refused = api.post(path, {**body, "ticket": forged})
        assert refused.status_code in statuses, refused.text

    assert _used(api, counter) == before == "1"
    assert api.post("/v1/releases", {"ticket": ticket}).json() == {"released": True}
    assert _used(api, counter) == "0"
