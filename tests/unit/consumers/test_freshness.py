"""Up to where totals are complete, and reading them."""

from __future__ import annotations

import pytest

from countledger.consumers.progress import ShardProgress, advance_of, opening_of
from countledger.consumers.stream import ShardName, StreamShard
from countledger.consumers.totals import TotalsReader, freshness_of
from countledger.ledger import keys
from countledger.ledger.errors import BadCounterName
from countledger.ledger.expressions import Add
from countledger.ledger.operations import Update
from countledger.ledger.total import Total
from tests.unit.ledger.clocks import NOW_MS
from tests.unit.ledger.memory import MemoryClient

TABLE = "counters"


def _shard(name: str, parent: str | None = None, *, closed: bool = False) -> StreamShard:
    return StreamShard(ShardName("label", name), parent, closed)


def _progress(**through_ms: int) -> dict[str, ShardProgress]:
    return {
        f"label/{name}": ShardProgress(f"label/{name}", "5", at_ms, at_ms, 1, 1, 2.0)
        for name, at_ms in through_ms.items()
    }


def test_freshness_is_that_of_the_slowest_open_shard() -> None:
    """A closed one was handled to its end before its child was begun."""
    shards = [_shard("a", closed=True), _shard("b", "a"), _shard("c")]

    found = freshness_of(shards, _progress(a=1, b=7, c=5))

    assert found.handled_through_ms == 5
    assert found.idle == ()
    assert [one.shard for one in found.shards] == ["label/a", "label/b", "label/c"]


def test_a_new_shard_stands_where_its_ancestor_ended() -> None:
    """Also over a shard that never had a record."""
    shards = [_shard("a", closed=True), _shard("b", "a", closed=True), _shard("c", "b")]

    assert freshness_of(shards, _progress(a=3)).handled_through_ms == 3


def test_a_shard_without_news_is_idle() -> None:
    """It holds nobody back; its parent may have been trimmed away."""
    found = freshness_of([_shard("a", "gone"), _shard("b")], _progress(b=4))

    assert found.idle == ("label/a",)
    assert found.handled_through_ms == 4


def test_before_the_first_record_there_is_no_freshness() -> None:
    """None, not the epoch."""
    found = freshness_of([_shard("a")], {})

    assert found.handled_through is None
    assert found.idle == ("label/a",)


def test_a_counter_never_seen_has_zeros() -> None:
    """Version 0 and no time; a read does not make it."""
    dynamo = MemoryClient()
    reader = TotalsReader(dynamo, TABLE)

    assert reader.read("a:b") == Total("a:b", 0, 0, 0, 0, None)
    assert reader.read_many(["a:b", "a:b", "c"]) == {"a:b": Total("a:b"), "c": Total("c")}
    assert dynamo.items(TABLE) == []


def test_totals_of_many_counters_come_by_name() -> None:
    """Those that exist and those that do not."""
    dynamo = MemoryClient()
    ones = (Add("total", 5), Add("events", 1), Add("entries", 1), Add("version", 1))
    dynamo.update(Update(TABLE, keys.total_key("a:b"), ones))

    found = TotalsReader(dynamo, TABLE).read_many(["c", "a:b"])

    assert [(name, total.total) for name, total in found.items()] == [("c", 0), ("a:b", 5)]


def test_a_bad_name_is_refused_before_anything_is_read() -> None:
    """One among many as well."""
    dynamo = MemoryClient()
    reader = TotalsReader(dynamo, TABLE)

    with pytest.raises(BadCounterName):
        reader.read("a#b")
    with pytest.raises(BadCounterName):
        reader.read_many(["a", ""])
    assert dynamo.calls == []


def test_progress_is_read_by_shard() -> None:
    """Of those that have any."""
    dynamo = MemoryClient()
    known = _progress(a=NOW_MS)["label/a"]
    for shard in ("label/a", "label/b"):  # of the second nothing was handled yet
        dynamo.update(opening_of(TABLE, shard, NOW_MS))
    dynamo.update(advance_of(TABLE, known))

    assert TotalsReader(dynamo, TABLE).progress(["label/a", "label/b"]) == {"label/a": known}
