"""The parts of a stack: how late each shard of its stream is, and its regions."""

from tests.http.world import Api


def test_a_shard_waits_since_its_oldest_record_that_no_total_has(api: Api) -> None:
    """A shard without a change for long is not late."""
    api.materialize()
    assert {one["waiting_since"] for one in api.get("/v1/shards").json()["items"]} == {None}

    api.post("/v1/counters/parts:a/entries", {"delta": "1"}, "k")
    found = api.get("/v1/shards").json()
    waiting = [one["waiting_since"] for one in found["items"] if one["waiting_since"]]
    assert len(waiting) == 1
    assert waiting[0] <= found["at"]

    api.materialize()
    after = api.get("/v1/shards").json()["items"]
    assert {one["waiting_since"] for one in after} == {None}
    assert max(one["handled_through"] or "" for one in after) >= waiting[0]


def test_a_stack_in_one_region_has_that_region(api: Api) -> None:
    (region,) = api.get("/v1/regions").json()["items"]

    assert (region["home"], region["replica"], region["state"]) == (True, "ACTIVE", "ready")
    assert region["name"]
