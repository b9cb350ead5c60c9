"""Each operation with its scope and without: a scope is what it requires, and is enough."""

from collections.abc import Iterator

import pytest
from httpx2 import Response

from countledger.infra.calls.access import EVERYTHING, Scopes, ScopeVerb
from countledger.ledger import keys
from tests.http.samples import OPEN, SAMPLES, Sample
from tests.http.world import Api, moto_api, names_of


@pytest.fixture(scope="module")
def whole() -> Iterator[Api]:
    with moto_api() as api:
        yield api


def _send(api: Api, sample: Sample, kept: dict[str, str]) -> Response:
    method, path, headers, body = sample.request_with(kept)
    sent = {} if body is None else {"json": body}
    return api.http.request(method, path, headers=headers, **sent)


def test_there_is_a_sample_of_every_operation(api: Api) -> None:
    document = api.get("/v1/openapi.json").json()
    operations = {
        operation["operationId"]
        for operations in document["paths"].values()
        for operation in operations.values()
    }

    assert {one.operation for one in (*SAMPLES, *OPEN)} == operations


def _others(scope: str) -> Iterator[str]:
    """Scopes that are not enough: of another namespace, and of the other verbs of this one."""
    namespace, _, verb = scope.split(maxsplit=1)[0].rpartition(":")
    yield ""
    yield f"x{namespace}:admin"
    yield from (
        f"{namespace}:{other}" for other in ScopeVerb if other not in {verb, ScopeVerb.ADMIN}
    )


def test_an_operation_requires_its_scope_and_no_more(whole: Api) -> None:
    """In their order, since one makes what another reads."""
    kept: dict[str, str] = {}
    for sample in SAMPLES:
        for scopes in _others(sample.scope):
            whole.scopes = Scopes.parse(scopes.split())
            refused = _send(whole, sample, kept)
            assert (refused.status_code, names_of(refused.json())) == (403, "scope-missing"), (
                sample,
                scopes,
                refused.text,
            )
        whole.scopes = Scopes.parse(sample.scope.split())
        answer = _send(whole, sample, kept)
        assert answer.status_code == sample.status, (sample, answer.text)
        if sample.keeps is not None:
            name, field = sample.keeps
            kept[name] = answer.json()[field]
        if answer.status_code < 300:
            assert float(answer.headers["countledger-read-units"]) >= 0


def test_namespaces_without_a_scope_are_not_listed(whole: Api) -> None:
    whole.scopes = EVERYTHING
    for namespace in ("likes", "secret"):
        whole.post(f"/v1/counters/{namespace}:a/entries", {"delta": "1"}, "k")
    whole.scopes = Scopes.parse(["likes:read"])

    listed = whole.get("/v1/namespaces").json()["items"]
    assert [one["name"] for one in listed] == ["likes"]


def test_a_batch_requires_the_scope_of_each_namespace_and_records_nothing_else(
    whole: Api,
) -> None:
    whole.scopes = Scopes.parse(["likes:write"])
    events = [{"counter": "likes:c", "delta": "1"}, {"counter": "views:c", "delta": "1"}]
    refused = whole.post("/v1/entries", {"events": events}, "k")

    assert (refused.status_code, refused.json()["scope"]) == (403, "views:write")
    assert whole.store.entry_items("likes:c") == []


def test_a_group_takes_no_counter_of_a_namespace_that_the_caller_may_only_read(whole: Api) -> None:
    """A member has a total, and a place in the ranking of its namespace, from then on."""
    whole.scopes = Scopes.parse(["mine:admin", "theirs:read"])
    members = {"counters": ["theirs:x"]}
    for path in ("members", "removals"):
        refused = whole.post(f"/v1/groups/mine:group/{path}", members)
        assert refused.json()["scope"] == "theirs:write"

    whole.scopes = EVERYTHING
    assert whole.get("/v1/groups/mine:group").status_code == 404


def test_a_group_shows_the_members_that_the_caller_may_read_now(whole: Api) -> None:
    whole.scopes = EVERYTHING
    both = {"counters": ["board:a", "hidden:b", "board:c"]}
    for counter in both["counters"]:
        whole.post(f"/v1/counters/{counter}/entries", {"delta": "1"}, "k")
    assert whole.post("/v1/groups/board:group/members", both).status_code == 200
    whole.scopes = Scopes.parse(["board:read"])

    totals = whole.get("/v1/groups/board:group/totals").json()["items"]
    pages = whole.get("/v1/groups/board:group/totals?limit=2").json()
    top = whole.get("/v1/groups/board:group/top").json()["items"]

    assert [one["counter"] for one in totals] == ["board:a", "board:c"]
    assert pages["next"] is not None
    assert {one["counter"] for one in top} == {"board:a", "board:c"}


@pytest.mark.parametrize("path", ["totals", "top"])
def test_a_group_names_corrupt_totals_of_members_that_the_caller_may_read_alone(
    whole: Api, path: str
) -> None:
    whole.scopes = EVERYTHING
    members = {"counters": ["worn:a", "unseen:b"]}
    whole.post("/v1/groups/worn:group/members", members)
    for counter in members["counters"]:
        item = {"part": {"S": keys.total_key(counter)["part"]}, "value": {"S": "odd"}}
        whole.store.client().put_item(
            TableName=whole.store.counters, Item={"counter": {"S": counter}, **item}
        )

    def named() -> list[str]:
        answer = whole.get(f"/v1/groups/worn:group/{path}").json()
        assert answer["items"] == []
        return sorted(one["pk"] for one in answer["unreadable"])

    assert named() == ["unseen:b", "worn:a"]
    whole.scopes = Scopes.parse(["worn:read"])
    assert named() == ["worn:a"]


def test_a_key_of_several_counters_is_one_of_their_namespaces(whole: Api) -> None:
    """Another tenant with the same key is neither refused by it, nor learns of it."""
    whole.scopes = EVERYTHING
    for counter in ("left:a", "left:b", "right:a", "right:b"):
        whole.post("/v1/strict", {"counter": counter, "method": "marker"})

    def change(tenant: str, amount: str) -> Response:
        whole.scopes = Scopes.parse([f"{tenant}:write"])
        counters = [f"{tenant}:a", f"{tenant}:b"]
        changes = [{"counter": one, "delta": amount} for one in counters]
        return whole.post("/v1/strict-changes", {"changes": changes}, "one-key")

    outcomes = [change(tenant, "1").json()["outcome"] for tenant in ("left", "right", "left")]
    assert outcomes == ["applied", "applied", "duplicate"]
    assert change("left", "2").status_code == 422


@pytest.mark.parametrize("resource", ["strict", "counters"])
def test_a_key_that_sets_a_value_is_one_of_the_namespace(whole: Api, resource: str) -> None:
    """Another tenant with the same key is neither refused by it, nor learns of it."""
    whole.scopes = EVERYTHING
    one, other = f"one-{resource}", f"other-{resource}"
    if resource == "strict":
        for tenant in (one, other):
            whole.post("/v1/strict", {"counter": f"{tenant}:a", "method": "marker"})

    def set_value(tenant: str, value: str) -> Response:
        whole.scopes = Scopes.parse([f"{tenant}:admin"])
        return whole.put(f"/v1/{resource}/{tenant}:a/value", {"value": value}, "one-key")

    answers = [set_value(tenant, "5").json() for tenant in (one, other, one)]
    outcomes = [answer["outcome"] for answer in answers]
    assert outcomes[0] == outcomes[1] != outcomes[2] == "duplicate"
    assert set_value(other, "6").status_code == 422


def test_the_namespace_of_a_claim_is_all_of_its_scope(whole: Api) -> None:
    """Also with a colon: `team:read` says nothing of the claims of `team:mail`."""
    path = "/v1/claims/team:mail?value=ops@example.org"
    whole.scopes = Scopes.parse(["team:read", "mail:read"])
    refused = whole.get(path)
    whole.scopes = Scopes.parse(["team:mail:read"])
    free = whole.get(path)

    assert (refused.status_code, refused.json()["scope"]) == (403, "team:mail:read")
    assert (free.status_code, free.json()["owner"], free.json()["claim_id"]) == (200, None, None)
