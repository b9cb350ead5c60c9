"""A request of each operation, in an order in which each has what it needs."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote


@dataclass(frozen=True)
class Sample:
    """One request.

    Attributes:
        operation: as the document names it.
        request: method and path; `{name}` is a value of an earlier answer.
        scope: the one that it requires.
        body: of JSON.
        key: the idempotency key.
        status: of the answer.
        keeps: a value of the answer for later requests: its name here, and in the answer.
    """

    operation: str
    request: str
    scope: str
    body: Any = None
    key: str | None = None
    status: int = 200
    keeps: tuple[str, str] | None = None

    def request_with(self, kept: Mapping[str, str]) -> tuple[str, str, dict[str, str], Any]:
        """Method, path, headers and body, with the values that earlier answers had."""
        method, path = self.request.split()
        for name, value in kept.items():
            path = path.replace(f"{{{name}}}", quote(value, safe=""))
        body = copy.deepcopy(self.body)
        if isinstance(body, dict) and "ticket" in body:
            body["ticket"] = kept.get(body["ticket"].strip("{}"), "")
        headers = {} if self.key is None else {"Idempotency-Key": self.key}
        return method, path, headers, body


_EVENTS: Final = [{"counter": "likes:a", "delta": "1"}, {"counter": "likes:b", "delta": "2"}]
_STRICT: Final = {"counter": "stock:bolts", "method": "marker", "lower": "0", "opening": "10"}
_QUOTA: Final = {"prefix": "llm:", "limit": "100", "per": "day"}
_LIMIT: Final = {"limit": "50", "per": "month"}
_SEVERAL: Final = {"amount": "4", "also": ["llm:bob", "llm:cid"]}
_CLAIM: Final = {"value": ["ann@example.org"], "owner": "u1"}
_RULE: Final = {"name": "low", "prefix": "stock:", "threshold": "5", "direction": "falling"}
_HOLD: Final = {"amount": "1", "expires_in_ms": 60_000}
SAMPLES: Final = (
    Sample("record", "POST /v1/counters/likes:a/entries", "likes:write", {"delta": "5"}, "k1", 201),
    Sample("record_many", "POST /v1/entries", "likes:write", {"events": _EVENTS}, "k2"),
    Sample("total", "GET /v1/counters/likes:a", "likes:read"),
    Sample("totals", "GET /v1/totals?counter=likes:a&counter=likes:b", "likes:read"),
    Sample("live_totals", "GET /v1/totals/live?counter=likes:a", "likes:read"),
    Sample("snapshot", "GET /v1/snapshot?counter=likes:a", "likes:read"),
    Sample("set_value", "PUT /v1/counters/likes:a/value", "likes:admin", {"value": "7"}, "k3"),
    Sample("find_counters", "GET /v1/counters?prefix=likes:", "likes:read"),
    Sample("entries", "GET /v1/counters/likes:a/entries", "likes:read"),
    Sample("head", "GET /v1/counters/likes:a/head", "likes:read"),
    Sample(
        "windows",
        "GET /v1/counters/likes:a/windows?per=day&since=2026-01-01T00:00:00Z",
        "likes:read",
        status=404,
    ),
    Sample("create_strict", "POST /v1/strict", "stock:admin", _STRICT, status=201),
    Sample("show_strict", "GET /v1/strict/stock:bolts", "stock:read"),
    Sample(
        "change_strict",
        "POST /v1/strict/stock:bolts/changes",
        "stock:write",
        {"delta": "-1"},
        "s1",
    ),
    Sample("withdraw", "POST /v1/strict/stock:bolts/withdrawals", "stock:write", key="w"),
    Sample("set_strict", "PUT /v1/strict/stock:bolts/value", "stock:admin", {"value": "20"}, "k4"),
    Sample("set_bounds", "PATCH /v1/strict/stock:bolts/bounds", "stock:admin", {"upper": "50"}),
    Sample(
        "change_together",
        "POST /v1/strict-changes",
        "stock:write",
        {"changes": [{"counter": "stock:bolts", "delta": "-2"}]},
        "k5",
    ),
    Sample(
        "place_hold",
        "POST /v1/strict/stock:bolts/holds",
        "stock:write",
        _HOLD,
        "h1",
        keeps=("first", "id"),
    ),
    Sample("list_holds", "GET /v1/strict/stock:bolts/holds", "stock:read"),
    Sample("confirm_hold", "POST /v1/holds/{first}/confirmation", "stock:write", {}),
    Sample(
        "place_hold",
        "POST /v1/strict/stock:bolts/holds",
        "stock:write",
        _HOLD,
        "h2",
        keeps=("second", "id"),
    ),
    Sample("cancel_hold", "POST /v1/holds/{second}/cancellation", "stock:write"),
    Sample("delete_strict", "DELETE /v1/strict/stock:bolts", "stock:admin", status=204),
    Sample("create_quota", "POST /v1/quotas", "llm:admin", _QUOTA, status=201),
    Sample("create_quota", "POST /v1/quotas", "llm:admin", {**_QUOTA, "per": "month"}, status=201),
    Sample("list_quotas", "GET /v1/quotas", "*:read"),
    Sample("set_limit", "PUT /v1/quotas/llm:/limit", "llm:admin", _LIMIT, status=204),
    Sample("show_usage", "GET /v1/usage/llm:ann", "llm:read"),
    Sample("override_limit", "PUT /v1/usage/llm:a/limit", "llm:admin", _LIMIT, status=204),
    Sample("acquire", "POST /v1/usage/llm:ann/acquisitions", "llm:write", {"amount": "3"}, "q1"),
    Sample(
        "reserve",
        "POST /v1/usage/llm:ann/reservations",
        "llm:write",
        _SEVERAL,
        "q2",
        keeps=("ticket", "ticket"),
    ),
    Sample("list_usage", "GET /v1/quotas/llm:/usage?per=month", "llm:read"),
    Sample("commit", "POST /v1/commits", "llm:write", {"ticket": "{ticket}", "actual": "2"}),
    Sample(
        "reserve",
        "POST /v1/usage/llm:ann/reservations",
        "llm:write",
        {"amount": "4"},
        "q3",
        keeps=("other", "ticket"),
    ),
    Sample("release", "POST /v1/releases", "llm:write", {"ticket": "{other}"}),
    Sample("delete_quota", "DELETE /v1/quotas/llm:?per=month", "llm:admin", status=204),
    Sample("delete_quota", "DELETE /v1/quotas/llm:", "llm:admin", status=204),
    Sample("create_sequence", "POST /v1/sequences", "no:admin", {"sequence": "no:a"}, status=201),
    Sample("draw", "POST /v1/sequences/no:a/numbers", "no:write", {"size": 3}),
    Sample("show_sequence", "GET /v1/sequences/no:a", "no:read"),
    Sample("delete_sequence", "DELETE /v1/sequences/no:a", "no:admin", status=204),
    Sample("take_claim", "POST /v1/claims/user-email", "user-email:write", _CLAIM),
    Sample("find_claim", "GET /v1/claims/user-email?value=ann@example.org", "user-email:read"),
    Sample(
        "change_claim",
        "POST /v1/claims/user-email/changes",
        "user-email:write",
        {**_CLAIM, "to": ["ann@example.com"]},
    ),
    Sample(
        "release_claim",
        "POST /v1/claims/user-email/releases",
        "user-email:write",
        {**_CLAIM, "value": ["ann@example.com"]},
    ),
    Sample(
        "add_members",
        "POST /v1/groups/likes:all/members",
        "likes:write likes:read",
        {"counters": ["likes:a", "likes:b"]},
    ),
    Sample("list_groups", "GET /v1/groups", "*:read"),
    Sample("list_groups", "GET /v1/groups?of=likes:a", "*:read"),
    Sample("show_group", "GET /v1/groups/likes:all", "likes:read"),
    Sample("group_totals", "GET /v1/groups/likes:all/totals?limit=1", "likes:read"),
    Sample("group_top", "GET /v1/groups/likes:all/top", "likes:read"),
    Sample("rank_group", "PUT /v1/groups/likes:all/ranking", "likes:admin", {"on": False}),
    Sample("namespace_top", "GET /v1/namespaces/likes/top", "likes:read", status=404),
    Sample(
        "remove_members",
        "POST /v1/groups/likes:all/removals",
        "likes:write",
        {"counters": ["likes:a"]},
    ),
    Sample("delete_group", "DELETE /v1/groups/likes:all", "likes:admin"),
    # No stack is deployed around these tables, whose outputs name the targets of alerts.
    Sample("create_rule", "POST /v1/alerts/rules", "*:admin", _RULE, status=504),
    Sample("list_rules", "GET /v1/alerts/rules", "*:read"),
    Sample("show_rule", "GET /v1/alerts/rules/low", "*:read", status=404),
    Sample("delete_rule", "DELETE /v1/alerts/rules/low", "*:admin"),
    Sample("alert_log", "GET /v1/alerts/log", "*:read"),
    Sample("alert_log", "GET /v1/alerts/log?counter=likes:a", "likes:read"),
    Sample("freshness", "GET /v1/freshness", "*:read"),
    Sample("list_shards", "GET /v1/shards", "*:read"),
    Sample("list_regions", "GET /v1/regions", "*:read"),
    Sample("list_quarantine", "GET /v1/quarantine", "*:read"),
    Sample("status", "GET /v1/status", "*:read", status=504),
)
# What answers with what the caller may see, and so requires no scope.
OPEN: Final = (Sample("list_namespaces", "GET /v1/namespaces", ""),)
