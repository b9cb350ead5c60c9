"""What tables in memory take from the template, and the sizes that DynamoDB's guide gives."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from countledger.infra.local.mappings import record_filter
from countledger.infra.local.shards import StreamShardReader
from countledger.infra.memory.faults import GUIDE, Missing, NotInMemory
from countledger.infra.memory.functions import lambda_record, passes_counters, passes_ledger
from countledger.infra.memory.stream import Record, StreamsClient
from countledger.infra.memory.tables import (
    COUNTERS,
    INDEXES,
    LEDGER,
    MemoryTables,
    index_units,
    item_bytes,
    read_units,
    write_units,
)
from countledger.infra.template import mapping_settings, table_schemas
from countledger.ledger import keys
from countledger.ledger.errors import RequestRejected
from countledger.ledger.operations import Put
from countledger.testing import MemoryStack

_SORTS = {
    LEDGER: ("e#1", "h", "ns", "x"),
    COUNTERS: ("total", "w#1", "totals", "rule#a", "progress"),
}


def _records(table: str) -> list[Record]:
    memory = MemoryTables()
    stored = memory.table(table)
    for sort in _SORTS[table]:
        item = {"counter": "a:b", stored.sort: sort, "mark": b"\x00\x01", "total": Decimal("1.5")}
        stored.store(("a:b", sort), item)
        stored.store(("a:b", sort), {**item, "tokens": {"t"}})
        stored.store(("a:b", sort), None)
    stream = memory.ledger_stream if table == LEDGER else memory.counters_stream
    return [one for shard in stream.shards.values() for one in shard.records]


@pytest.mark.parametrize(
    ("table", "mapping", "passes"),
    [
        (LEDGER, "MaterializerMapping", passes_ledger),
        (COUNTERS, "EvaluatorMapping", passes_counters),
    ],
)
def test_a_function_gets_what_the_filter_of_its_mapping_passes(
    table: str, mapping: str, passes: Callable[[Any], bool]
) -> None:
    template = record_filter(mapping_settings(mapping).filter_patterns)
    records = [lambda_record(one, "arn") for one in _records(table)]

    assert [passes(one) for one in records] == [template(one) for one in records]
    assert {passes(one) for one in records} == {True, False}


def test_a_record_looks_as_the_local_stack_delivers_it() -> None:
    memory = MemoryTables()
    memory.table(LEDGER).write(Put(LEDGER, {"counter": "a:b", "entry": "e#1", "mark": b"\x01"}))
    (shard,) = memory.ledger_stream.shards
    client: Any = StreamsClient(memory.ledger_stream)
    arn = memory.ledger_stream.arn
    reader = StreamShardReader(
        client, arn, shard, start="TRIM_HORIZON", passes=lambda _record: True
    )

    _, (expected,) = reader.read()

    (record,) = memory.ledger_stream.shards[shard].records
    assert lambda_record(record, arn) == json.loads(expected.encoded)


def test_the_indexes_are_those_of_the_template() -> None:
    found = {
        index["IndexName"]: (
            index["KeySchema"][0]["AttributeName"],
            index["KeySchema"][1]["AttributeName"],
            index["Projection"]["ProjectionType"] == "ALL",
        )
        for schema in table_schemas().values()
        for index in schema.create_table.get("GlobalSecondaryIndexes", [])
    }

    assert found == {
        name: (index.partition, index.sort, index.whole) for name, index in INDEXES.items()
    }


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("aé", 3),
        (b"abc", 3),
        (True, 1),
        (0, 1),
        (7, 2),
        (-7, 3),
        (100, 2),
        (12_345, 4),
        (Decimal("1.25"), 3),
        ({"abc"}, 3),
        ([1, "a"], 3 + (2 + 1) + (1 + 1)),
        ({"k": "v"}, 3 + 1 + 1 + 1),
    ],
    ids=str,
)
def test_a_value_has_the_size_that_the_guide_gives(value: object, size: int) -> None:
    assert item_bytes({"name": value}) == 4 + size
    assert item_bytes(None) == 0


def test_units_are_those_of_the_larger_item() -> None:
    assert [write_units(*sizes) for sizes in ((0, 0), (1_024, 0), (1, 1_025), (4_096,))] == [
        1,
        1,
        2,
        4,
    ]
    assert read_units(4_097, consistent=True) == 2
    assert read_units(0, consistent=False) == 0.5


def test_an_index_costs_a_unit_for_each_entry_that_it_writes_or_deletes() -> None:
    table = MemoryTables().table(COUNTERS)
    plain = {**keys.total_key("a:b"), "total": 1}
    ranked = {**plain, "ranked": "a#0"}
    moved = {**ranked, "total": 2}

    units = [
        index_units(table, before, after)
        for before, after in [(plain, plain), (plain, ranked), (ranked, moved), (moved, None)]
    ]

    assert units == [0, 1, 2, 1]


def test_an_item_of_more_than_400_kb_is_refused() -> None:
    memory = MemoryTables()
    item = {"counter": "a:b", "entry": "e#1", "text": "x" * (400 * 1_024)}

    with pytest.raises(RequestRejected, match="maximum allowed size"):
        memory.table(LEDGER).write(Put(LEDGER, item))
    assert memory.table(LEDGER).items == {}


@pytest.mark.parametrize("key", ["", None, True, 1.5, "x" * 2_049], ids=repr)
def test_a_key_that_no_table_takes_is_refused(key: object) -> None:
    with pytest.raises(RequestRejected, match="counter"):
        MemoryTables().table(LEDGER).write(Put(LEDGER, {"counter": key, "entry": "e#1"}))


_REFUSED: dict[Missing, Callable[[MemoryStack], object]] = {
    Missing.ARCHIVE: lambda stack: stack.ledger.archived("a:b", "s3://bucket/prefix"),
    Missing.SESSION: lambda stack: stack.ledger.connection.session.get_credentials(),
    Missing.CLIENT: lambda stack: stack.ledger.connection.dynamo("none").client.list_tables(),
    Missing.FUNCTIONS: lambda stack: stack.ledger.connection.functions(),
    Missing.KINESIS: lambda stack: stack.ledger.kinesis,
    Missing.METRICS: lambda stack: stack.ledger.connection.metrics(),
    Missing.REGIONS: lambda stack: stack.ledger.connection.in_region("eu-west-1"),
    Missing.SERVICE: lambda stack: stack.ledger.connection.administration("iam"),
    Missing.STACK: lambda stack: stack.ledger.connection.stacks(),
}


@pytest.mark.parametrize("missing", Missing, ids=lambda one: one.name)
def test_what_is_missing_is_refused_by_its_name(missing: Missing) -> None:
    """The error names the guide, which exists and has the name in its table."""
    stack = MemoryStack(at=datetime(2026, 3, 1, tzinfo=UTC))

    with pytest.raises(NotInMemory, match=GUIDE) as refused:
        _REFUSED[missing](stack)

    assert refused.value.missing is missing
