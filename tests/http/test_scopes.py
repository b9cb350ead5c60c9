"""Each operation with its scope and without: a scope is what it requires, and is enough."""

from collections.abc import Iterator

import pytest
from httpx2 import Response

from countledger.infra.http.access import EVERYTHING, Scopes, ScopeVerb
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

    listed = whole.get("/v1/namespaces").json()["namespaces"]
    assert [one["name"] for one in listed] == ["likes"]


def test_a_batch_requires_the_scope_of_each_namespace_and_records_nothing_else(
    whole: Api,
) -> None:
    whole.scopes = Scopes.parse(["likes:write"])
    events = [{"counter": "likes:c", "delta": "1"}, {"counter": "views:c", "delta": "1"}]
    refused = whole.post("/v1/entries", {"events": events}, "k")

    assert (refused.status_code, refused.json()["scope"]) == (403, "views:write")
    assert whole.store.entry_items("likes:c") == []
