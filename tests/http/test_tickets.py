"""A ticket names a reservation; what it says besides is checked against what is stored."""

import base64
import itertools
import json

import pytest

from tests.http.world import Api

_NUMBERS = itertools.count()


def _reserved(api: Api, counter: str) -> str:
    made = api.post("/v1/quotas", {"prefix": "llm:", "limit": "1000", "per": "day"})
    assert made.status_code in {201, 409}
    reserve = {"amount": "1"}
    answer = api.post(f"/v1/usage/{counter}/reservations", reserve, "a-reservation")
    return str(answer.json()["ticket"])


def _used(api: Api, counter: str) -> str:
    return str(api.get(f"/v1/usage/{counter}").json()["used"])


@pytest.mark.parametrize(
    ("part", "value", "statuses"),
    [
        (1, "100", {422}),
        (1, "-1", {422}),
        (3, "2026-01-01", {422}),
        (3, "", {422}),
        (3, "x" * 2_000, {422}),
        (2, "x" * 1_500, {422}),
        (2, "another", {409, 410}),
        (4, "another", {409, 410}),
        (4, "\ud800", {422}),
        (5, "another", {409, 410}),
        (6, 10**30, {422}),
        (6, -(10**15), {422}),
        (6, 0, {409, 410}),
    ],
)
def test_a_ticket_that_was_changed_moves_nothing(
    api: Api, part: int, value: object, statuses: set[int]
) -> None:
    counter = f"llm:forged-{next(_NUMBERS)}"
    ticket = _reserved(api, counter)
    parts = json.loads(base64.urlsafe_b64decode(ticket + "=" * (-len(ticket) % 4)))
    parts[part] = value
    forged = base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")
    before = _used(api, counter)

    for path, body in (("/v1/releases", {}), ("/v1/commits", {"actual": "0"})):
        refused = api.post(path, {**body, "ticket": forged})
        assert refused.status_code in statuses, refused.text

    assert _used(api, counter) == before == "1"
    assert api.post("/v1/releases", {"ticket": ticket}).json() == {"released": True}
    assert _used(api, counter) == "0"
