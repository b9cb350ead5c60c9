"""The policies that docs/dashboard.md names are enough for each request of each page."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from starlette.testclient import TestClient

from countledger.infra.calls.access import READ_EVERYTHING
from countledger.infra.http.api import http_app
from countledger.infra.local.stack import LocalStack
from tests.e2e.world import client_of

POLICIES: Final = ("ReadPolicyArn", "OperatePolicyArn", "StatusPolicyArn")
_GUIDE: Final = Path(__file__).parents[2] / "docs" / "dashboard.md"
_SINCE: Final = datetime.now(UTC).strftime("%Y-%m-%dT%H:00:00Z")
# What each page asks for; a counter is there with a total, a namespace with windows, a strict one.
PAGES: Final = {
    "every page": ("/v1/status",),
    "Counters": ("/v1/counters?prefix=pages%3A&limit=50", "/v1/totals?counter=pages%3Aa"),
    "a counter": (
        "/v1/counters/pages%3Aa",
        "/v1/counters/pages%3Aa/entries?limit=100",
        f"/v1/counters/pages%3Aa/windows?per=hour&since={_SINCE}",
        "/v1/alerts/rules",
        "/v1/alerts/log?counter=pages%3Aa&limit=10",
    ),
    "a strict counter": (
        "/v1/counters/seats%3Ahall",
        "/v1/strict/seats%3Ahall",
        "/v1/strict/seats%3Ahall/holds",
    ),
    "Top lists": (
        "/v1/namespaces",
        "/v1/groups",
        "/v1/namespaces/pages/top?limit=20",
        "/v1/groups/front/top?limit=20",
    ),
    "Alerts": ("/v1/alerts/log?limit=50",),
    "Health": ("/v1/shards", "/v1/quarantine?limit=50", "/v1/regions"),
}


@pytest.fixture(scope="module")
def dashboard(auth_stack: LocalStack) -> Iterator[TestClient]:
    """The API with the permissions of these policies."""
    root = client_of(auth_stack)
    root.namespaces.create("pages")
    root.window_settings.enable("pages", by="hour")
    root.rankings.switch_on("pages", wait=False)
    root.record("pages:a", 1)
    root.groups.add("front", ["pages:a"])
    root.groups.switch_ranking("front", on=True)
    root.strict.create("seats:hall", method="marker", lower=0, opening=4)
    auth_stack.pump.drain()
    app = http_app(lambda: client_of(auth_stack, *POLICIES), lambda _request: READ_EVERYTHING)
    with TestClient(app) as client:
        yield client


@pytest.mark.parametrize("page", PAGES)
def test_the_named_policies_are_enough(dashboard: TestClient, page: str) -> None:
    for path in PAGES[page]:
        answer = dashboard.get(path)
        assert answer.status_code == 200, (path, answer.text)
        # The engine asks for all alarms by a name that no policy can have.
        assert set(answer.json().get("unseen", {})) <= {"alarms"}, answer.text


def test_the_guide_names_these_policies() -> None:
    named = re.findall(r"`(\w+PolicyArn)`", _GUIDE.read_text())
    assert tuple(dict.fromkeys(named)) == POLICIES
