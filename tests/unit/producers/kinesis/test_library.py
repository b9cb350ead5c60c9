"""The defects of aws-kinesis-agg 1.2.3, each shown, and that nothing here has it.

Where one of these tests fails at its first half, the library was mended.
"""

from __future__ import annotations

import base64
import subprocess
import sys
import tomllib
from hashlib import md5
from importlib.metadata import requires
from pathlib import Path
from typing import Any, cast

import pytest
from aws_kinesis_agg import DIGEST_SIZE, MAX_BYTES_PER_RECORD, aggregator, deaggregator

from countledger.producers.kinesis.aggregate import BrokenAggregate, pack, unpack
from countledger.producers.kinesis.library import MAGIC, new_aggregate
from countledger.producers.kinesis.message import encode
from countledger.producers.kinesis.sender import calls
from tests.unit.producers.kinesis.entries import entry

KEY = "0197a1b2-c3d4-7abc-9def-0123456789ab"


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip()


def delivered(data: bytes) -> dict[str, Any]:
    """A record as Lambda delivers it."""
    inner = {
        "kinesisSchemaVersion": "1.0",
        "sequenceNumber": "1",
        "approximateArrivalTimestamp": 1.0,
        "data": base64.b64encode(data).decode(),
    }
    return {"kinesis": inner}


def read_by_the_library(data: bytes) -> list[bytes]:
    """The payloads that its reader hands on."""
    return [
        base64.b64decode(one["kinesis"]["data"])
        for one in deaggregator.deaggregate_records([delivered(data)])
    ]


def filled(record: Any, *, key: str | bytes = KEY, data: bytes = b"x" * 50) -> int:  # noqa: ANN401 - the library has no types
    """Add to a record of the library until it takes no more; how many it took."""
    count = 0
    while record.add_user_record(key, data):
        count += 1
    return count


def sealed(message: bytes) -> bytes:
    """A record around a protobuf message."""
    return MAGIC + message + md5(message, usedforsecurity=False).digest()


def test_1_its_import_puts_its_folders_in_front_of_the_path() -> None:
    """Where its modules would shadow an app's."""
    shown = "; print(len(sys.path) - before, 'config_pb2' in sys.modules)"
    before = "import sys; before = len(sys.path); "

    assert python(before + "import aws_kinesis_agg.aggregator" + shown) == "2 True"
    ours = "import countledger.producers.kinesis.library"
    assert python(before + ours + shown) == "0 False"


def test_1_a_module_of_that_name_of_the_apps_own_is_left_alone() -> None:
    """It stays the app's, and is not taken for the library's."""
    code = (
        "import sys, types; own = sys.modules['config_pb2'] = types.ModuleType('config_pb2')\n"
        "import countledger.producers.kinesis.library\n"
        "print(sys.modules['config_pb2'] is own)"
    )

    assert python(code) == "True"


def test_2_it_takes_a_record_for_full_far_too_early() -> None:
    """It reckons the key anew for every entry, where the key is text."""
    by_text, by_bytes = aggregator.AggRecord(51_200), aggregator.AggRecord(51_200)

    assert filled(by_text) < 0.7 * filled(by_bytes, key=KEY.encode())
    assert by_text.get_size_bytes() > 1.5 * len(by_text.get_contents()[2])
    full, *_ = pack(entry() for _ in range(1_000))
    assert full.size_bytes > 0.99 * 51_200


def test_2_it_gives_a_key_back_as_it_came() -> None:
    """Bytes, which PutRecords does not take."""
    record = aggregator.AggRecord()
    record.add_user_record(KEY.encode(), b"x")

    assert record.get_contents()[0] == KEY.encode()
    (ours,) = pack([entry()])
    assert isinstance(ours.partition_key, str)


def test_3_a_record_of_its_cannot_be_used_again() -> None:
    """Ours are made anew, and never change."""
    record = aggregator.AggRecord()

    with pytest.raises(AttributeError):
        record.clear()
    (ours,) = pack([entry()])
    with pytest.raises(AttributeError):
        ours.data = b""  # type: ignore[misc]


def test_4_it_cannot_make_an_explicit_hash_key() -> None:
    """Ours needs none: the partition key alone decides on the shard."""
    with pytest.raises(AttributeError):
        aggregator.AggRecord._create_explicit_hash_key(KEY.encode())
    (ours,) = pack([entry()])
    (call,) = calls(iter([ours]))
    assert call == [ours]
    assert not hasattr(ours, "explicit_hash_key")


def test_5_it_fills_a_record_beyond_what_the_service_takes() -> None:
    """The limit counts data and partition key, its reckoning the data alone."""
    record = aggregator.AggRecord(MAX_BYTES_PER_RECORD)
    filled(record, key=b"k" * 256, data=b"x" * 1_000)
    filled(record, key=b"k" * 256, data=b"")

    key, _, data = record.get_contents()
    assert len(data) + len(key) > MAX_BYTES_PER_RECORD
    ours = list(pack((entry() for _ in range(12_000)), MAX_BYTES_PER_RECORD))
    assert all(len(one.data) + len(one.partition_key) <= MAX_BYTES_PER_RECORD for one in ours)
    assert ours[0].size_bytes > MAX_BYTES_PER_RECORD - 200


def test_6_it_hands_on_what_its_checksum_refuses() -> None:
    """As a plain record, without a word."""
    (record,) = pack([entry()])
    corrupt = record.data[:-1] + bytes([record.data[-1] ^ 1])

    assert read_by_the_library(corrupt) == [corrupt]
    with pytest.raises(BrokenAggregate):
        unpack(corrupt)


def test_7_it_drops_the_rest_of_a_record_behind_a_bad_index(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Printed to stderr, and lost; the entries themselves are whole."""
    aggregate = new_aggregate()
    aggregate.partition_key_table.append("p")
    for index, payload in enumerate((b"a", b"b", b"c", b"d")):
        aggregate.records.add(partition_key_index=9 if index == 2 else 0, data=payload)
    data = sealed(aggregate.SerializeToString())

    assert read_by_the_library(data) == [b"a", b"b"]
    assert "list index out of range" in capsys.readouterr().err
    assert unpack(data) == [b"a", b"b", b"c", b"d"]


def test_8_it_gives_data_in_another_type_than_lambda_does() -> None:
    """Bytes of base64, where every other record has text; ours gives the payload itself."""
    (record,) = pack([entry()])

    (one,) = deaggregator.deaggregate_records([delivered(record.data)])
    assert isinstance(one["kinesis"]["data"], bytes)
    assert unpack(record.data) == [encode(record.entries[0])]


def test_9_it_gives_one_entrys_hash_key_to_another() -> None:
    """Where only some have one; ours reads no hash keys and writes none."""
    record = aggregator.AggRecord()
    record.add_user_record("p", b"a", "123")
    record.add_user_record("p", b"b")
    data = record.get_contents()[2]

    told = deaggregator.deaggregate_records([delivered(data)])
    assert [one["kinesis"]["explicitHashKey"] for one in told] == ["123", "123"]
    assert unpack(data) == [b"a", b"b"]


def test_10_it_delivers_a_full_record_twice() -> None:
    """To the callback and as the value; ours has one way out."""
    packer = aggregator.RecordAggregator(200)
    called: list[object] = []
    packer.on_record_complete(called.append, execute_on_new_thread=False)

    returned = [packer.add_user_record("p", b"x" * 60) for _ in range(4)]
    assert len(called) == len([one for one in returned if one]) > 0
    many = [entry(delta) for delta in range(1, 2_000)]
    assert [one for record in pack(many) for one in record.entries] == many


def test_11_it_calls_a_callback_as_often_as_it_was_given() -> None:
    """The check for a second one compares a callback with a pair; ours has no callbacks."""
    packer = aggregator.RecordAggregator(200)
    called: list[object] = []
    for _ in range(2):
        packer.on_record_complete(called.append, execute_on_new_thread=False)
    while not called:
        packer.add_user_record("p", b"x" * 60)

    assert len(called) == 2


def test_12_it_takes_an_empty_record_for_a_plain_one() -> None:
    """Ours unpacks it: there is nothing in it; and makes none."""
    empty = sealed(b"")

    assert read_by_the_library(empty) == [empty]
    assert unpack(empty) == []
    assert list(pack([])) == []


def test_13_it_refuses_what_fits_the_service() -> None:
    """With a ValueError from the midst of a batch; here an entry is bounded at its birth."""
    with pytest.raises(ValueError, match="too big"):
        aggregator.AggRecord(100).add_user_record("p", b"x" * 100)

    (over,) = pack([entry(counter="c" * 512)], limit_bytes=100)
    assert len(unpack(over.data)) == 1


def test_14_it_takes_anything_for_data() -> None:
    """And fails in the midst of a batch; here only entries go in."""
    with pytest.raises(TypeError):
        aggregator.AggRecord().add_user_record("p", cast("bytes", 7))
    (record,) = pack([entry()])
    assert isinstance(record.data, bytes)


def test_it_imports_what_it_does_not_declare() -> None:
    """So the extra names it."""
    needed = requires("aws-kinesis-agg") or []
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"]["kinesis"]

    assert not [one for one in needed if one.startswith("six")]
    assert [one for one in extra if one.startswith("six")]
    assert DIGEST_SIZE == 16
