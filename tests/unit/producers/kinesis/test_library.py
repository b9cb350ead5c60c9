"""The defects of aws-kinesis-agg 1.2.3 that decide what is used of it, and that nothing here has.

Where one of these tests fails at its first half, the library was corrected.
"""

from __future__ import annotations

import base64
import subprocess
import sys
import tomllib
from hashlib import md5
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
from aws_kinesis_agg import DIGEST_SIZE, MAX_BYTES_PER_RECORD, aggregator, deaggregator

from countledger.producers.kinesis.aggregate import BrokenAggregate, pack, unpack
from countledger.producers.kinesis.library import MAGIC, new_aggregate
from tests.unit.producers.kinesis.entries import entry
from tests.unit.producers.kinesis.streams import delivered

KEY = "0197a1b2-c3d4-7abc-9def-0123456789ab"


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip()


def read_by_the_library(data: bytes) -> list[bytes]:
    """The payloads that its reader returns."""
    read = deaggregator.deaggregate_records([delivered(data, arrived_s=1.0)])
    return [base64.b64decode(one["kinesis"]["data"]) for one in read]


def filled(record: Any, *, key: str | bytes = KEY, data: bytes = b"x" * 50) -> int:  # noqa: ANN401 - the library has no types
    """Add to a record of the library until it takes no more; how many it took."""
    count = 0
    while record.add_user_record(key, data):
        count += 1
    return count


def sealed(message: bytes) -> bytes:
    """A record around a protobuf message."""
    return MAGIC + message + md5(message, usedforsecurity=False).digest()


def test_its_import_puts_its_folders_first_in_the_path() -> None:
    """Where its modules would shadow an app's; and it takes an app's for its own."""
    shown = "; print(len(sys.path) - before, 'config_pb2' in sys.modules)"
    before = "import sys; before = len(sys.path); "
    ours = "import countledger.producers.kinesis.library"

    assert python(before + "import aws_kinesis_agg.aggregator" + shown) == "2 True"
    assert python(before + ours + shown) == "0 False"
    own = "import sys, types; own = sys.modules['config_pb2'] = types.ModuleType('config_pb2')\n"
    assert python(f"{own}{ours}\nprint(sys.modules['config_pb2'] is own)") == "True"


def test_it_takes_a_record_for_full_far_too_early() -> None:
    """It counts the key again for every entry, where the key is text."""
    by_text, by_bytes = aggregator.AggRecord(51_200), aggregator.AggRecord(51_200)

    assert filled(by_text) < 0.7 * filled(by_bytes, key=KEY.encode())
    full, *_ = pack(entry() for _ in range(1_000))
    assert full.size_bytes > 0.99 * 51_200


def test_it_fills_a_record_beyond_what_the_service_takes() -> None:
    """The limit counts data and partition key, the library counts the data alone."""
    record = aggregator.AggRecord(MAX_BYTES_PER_RECORD)
    filled(record, key=b"k" * 256, data=b"x" * 1_000)
    filled(record, key=b"k" * 256, data=b"")

    key, _, data = record.get_contents()
    assert len(data) + len(key) > MAX_BYTES_PER_RECORD
    ours = list(pack((entry() for _ in range(12_000)), MAX_BYTES_PER_RECORD))
    assert all(len(one.data) + len(one.partition_key) <= MAX_BYTES_PER_RECORD for one in ours)
    assert ours[0].size_bytes > MAX_BYTES_PER_RECORD - 200


def test_it_returns_a_record_with_a_wrong_checksum_as_a_plain_one() -> None:
    (record,) = pack([entry()])
    corrupt = record.data[:-1] + bytes([record.data[-1] ^ 1])

    assert read_by_the_library(corrupt) == [corrupt]
    with pytest.raises(BrokenAggregate):
        unpack(corrupt)


def test_it_drops_the_rest_of_a_record_after_a_bad_index(
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


def test_it_imports_what_it_does_not_declare_so_the_extra_names_it() -> None:
    needed = requires("aws-kinesis-agg") or []
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"]["kinesis"]

    assert not [one for one in needed if one.startswith("six")]
    assert [one for one in extra if one.startswith("six")]
    assert DIGEST_SIZE == 16
