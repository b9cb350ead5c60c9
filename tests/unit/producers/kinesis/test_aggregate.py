"""Packing and unpacking, against the format's own definition and the library's reader."""

import base64
import subprocess
import sys
from hashlib import md5
from itertools import pairwise

import pytest
from aws_kinesis_agg import deaggregator
from hypothesis import example, given
from hypothesis import strategies as st

from countledger.ledger.entry import Entry
from countledger.producers.kinesis import (
    CALL_BYTES,
    CALL_RECORDS,
    MAGIC,
    TARGET_BYTES,
    Aggregate,
    BrokenAggregate,
    bundle,
    calls,
    encode,
    messages_in,
    new_aggregate,
    pack,
    unpack_record,
)
from tests.unit.producers.kinesis.entries import entries, entry
from tests.unit.producers.kinesis.streams import delivered


def sealed(message: bytes) -> bytes:
    """A record around a protobuf message."""
    return MAGIC + message + md5(message, usedforsecurity=False).digest()


@given(st.lists(entries(), max_size=40), st.integers(20_000, 60_000))
def test_every_entry_comes_out_once_and_in_order(many: list[Entry], limit: int) -> None:
    records = list(pack(many, limit))

    assert [payload for r in records for payload in unpack_record(r.data).messages] == [
        encode(e) for e in many
    ]
    assert [e for r in records for e in r.entries] == many
    assert all(r.size_bytes <= limit for r in records)


@given(st.integers(1, 3_000), st.integers(1_000, 30_000))
def test_the_size_is_computed_to_the_byte(length: int, limit: int) -> None:
    """A record is closed only when the next entry would not have fitted."""
    many = [entry(counter="c" * (1 + (length + n) % 500)) for n in range(200)]
    records = list(pack(many, limit))

    for record, following in pairwise(records):
        (alone,) = pack([following.entries[0]])
        first = len(encode(following.entries[0]))
        assert record.size_bytes <= limit
        assert record.size_bytes + first + 9 > limit
        assert alone.size_bytes <= limit


def test_the_librarys_reader_reads_what_is_packed_here() -> None:
    """So do the consumer libraries of other languages."""
    many = [entry(delta) for delta in range(1, 1_000)]

    records = deaggregator.deaggregate_records(
        [delivered(r.data, arrived_s=1.0) for r in pack(many)]
    )

    assert [base64.b64decode(one["kinesis"]["data"]) for one in records] == [
        encode(one) for one in many
    ]
    assert {one["kinesis"]["aggregated"] for one in records} == {True}


def test_a_record_made_by_the_definition_alone_is_read() -> None:
    """Its own keys, hash keys and tags, as a producer in C++ or Java would make it."""
    aggregate = new_aggregate()
    aggregate.partition_key_table.extend(["a", "b"])
    aggregate.explicit_hash_key_table.append("123")
    aggregate.records.add(partition_key_index=0, data=b"first")
    second = aggregate.records.add(partition_key_index=1, explicit_hash_key_index=0, data=b"second")
    second.tags.add(key="t", value="u")

    assert unpack_record(sealed(aggregate.SerializeToString())).messages == [b"first", b"second"]


def test_a_record_written_by_hand_is_read() -> None:
    """Byte by byte, from the published format: tag, length, value."""
    record = b"\x08\x00" + b"\x1a\x02{}"
    message = b"\x0a\x01p" + b"\x1a" + bytes([len(record)]) + record

    assert unpack_record(b"\xf3\x89\x9a\xc2" + message + md5(message).digest()).messages == [b"{}"]  # noqa: S324


def test_a_plain_record_is_one_payload() -> None:
    assert unpack_record(b'{"v":1}').messages == [b'{"v":1}']
    assert unpack_record(b"").messages == [b""]
    assert unpack_record(MAGIC[:3]).messages == [MAGIC[:3]]


@given(st.data())
def test_one_flipped_bit_never_alters_an_entry(data: st.DataObject) -> None:
    (record,) = pack([entry(delta) for delta in range(1, 20)])
    bit = data.draw(st.integers(0, 8 * len(record.data) - 1))
    corrupt = bytearray(record.data)
    corrupt[bit // 8] ^= 1 << bit % 8

    if bit < 8 * len(MAGIC):
        assert unpack_record(bytes(corrupt)).messages == [bytes(corrupt)]
    else:
        with pytest.raises(BrokenAggregate, match="checksum"):
            unpack_record(bytes(corrupt))


@given(st.data())
def test_a_record_cut_short_is_never_taken_for_a_shorter_one(data: st.DataObject) -> None:
    (record,) = pack([entry(delta) for delta in range(1, 20)])
    cut = data.draw(st.integers(len(MAGIC), len(record.data) - 1))

    with pytest.raises(BrokenAggregate, match=r"cut short|checksum"):
        unpack_record(record.data[:cut])


@given(st.binary(max_size=200))
def test_a_right_checksum_over_nonsense_is_refused_or_read_whole(message: bytes) -> None:
    """By the definition alone: what protobuf takes for a record of its kind."""
    try:
        record = unpack_record(sealed(message))
    except BrokenAggregate as broken:
        assert "protobuf" in str(broken) or "no messages" in str(broken)  # noqa: PT017 - both ends are right
    else:
        aggregate = new_aggregate()
        aggregate.ParseFromString(message)
        assert record.messages == [
            message for one in aggregate.records for message in messages_in(one.data)
        ]
        aggregate.DiscardUnknownFields()
        if record.unread is None:
            assert aggregate.ByteSize() == len(aggregate.SerializeToString()) <= len(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x0a\x01p",  # a partition key and nothing else
        b"\x7a\x02{}" * 3,  # entries in a field that the format does not have
    ],
)
def test_an_aggregate_without_any_message_is_broken(message: bytes) -> None:
    """Its checksum is right: without this it would vanish."""
    with pytest.raises(BrokenAggregate, match="no messages"):
        unpack_record(sealed(message))


def test_what_is_in_unknown_fields_beside_messages_is_named() -> None:
    record = b"\x08\x00" + b"\x1a\x02{}"
    known = b"\x1a" + bytes([len(record)]) + record

    found = unpack_record(sealed(known + b"\x7a\x02{}"))
    whole = unpack_record(sealed(known))

    assert found.messages == whole.messages == [b"{}"]
    assert found.unread is not None
    assert "4 bytes" in found.unread
    assert whole.unread is None


BOM = b"\xef\xbb\xbf"


@pytest.mark.parametrize(
    ("payload", "messages"),
    [
        (b'{"v":1}\n', [b'{"v":1}\n']),
        (b'{"v":1}\r\n', [b'{"v":1}\r\n']),
        (BOM + b'{"v":1}', [b'{"v":1}']),
        (b'{"a":1}\n{"a":2}', [b'{"a":1}', b'{"a":2}']),
        (b'{"a":1}\r\n\r\n{"a":2}\r\n', [b'{"a":1}', b'{"a":2}']),
        (BOM + b'{"a":1}\n' + BOM + b'{"a":2}\n', [b'{"a":1}', b'{"a":2}']),
        (b'{\n  "a": 1\n}', [b'{\n  "a": 1\n}']),  # one message, laid out over lines
        (b'{"a":1}\nbroken\n', [b'{"a":1}', b"broken"]),
        (b"\n\n", [b"\n\n"]),
        (BOM, [b""]),
        (b"\xff\n\xfe\n", [b"\xff\n\xfe\n"]),  # no text
    ],
)
def test_a_payload_has_a_message_on_each_line(payload: bytes, messages: list[bytes]) -> None:
    aggregate = new_aggregate()
    aggregate.records.add(partition_key_index=0, data=payload)

    assert unpack_record(payload).messages == messages
    assert unpack_record(sealed(aggregate.SerializeToString())).messages == messages


@given(st.lists(st.binary(max_size=20) | st.text(max_size=20).map(str.encode), min_size=1))
@example([MAGIC])
def test_a_bundle_is_unpacked_to_its_payloads(payloads: list[bytes]) -> None:
    """Lines where they suffice, so that a person can read them."""
    payloads = [message for one in payloads for message in messages_in(one)]

    assert unpack_record(bundle(payloads)).messages == payloads


@pytest.mark.parametrize(("size", "fit"), [(0, 500), (10_000, 500), (51_200, 102), (CALL_BYTES, 1)])
def test_a_call_is_never_larger_than_the_service_takes(size: int, fit: int) -> None:
    """500 records and 5 MB, keys included; all records in their order."""
    key = "k" * 36
    records = [Aggregate(key, b"x" * max(size - len(key), 0), ()) for _ in range(fit + 1)]

    made = list(calls(iter(records)))

    assert [one for call in made for one in call] == records
    assert [len(call) for call in made] == [fit, 1]
    assert fit <= CALL_RECORDS


def test_a_record_with_a_bad_index_is_read_whole() -> None:
    """The index leads to a key, which nothing here needs."""
    aggregate = new_aggregate()
    aggregate.partition_key_table.append("p")
    for index, payload in enumerate((b"a", b"b", b"c", b"d")):
        aggregate.records.add(partition_key_index=9 if index == 2 else 0, data=payload)

    assert unpack_record(sealed(aggregate.SerializeToString())).messages == [b"a", b"b", b"c", b"d"]


def test_the_librarys_import_leaves_the_path_and_an_apps_module_as_they_were() -> None:
    """It puts its folders first, where its modules would shadow an app's `config_pb2`."""
    code = """
import sys, types
before, own = list(sys.path), types.ModuleType("config_pb2")
sys.modules["config_pb2"] = own
import countledger.producers.kinesis
assert sys.path == before and sys.modules["config_pb2"] is own
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_one_partition_key_serves_a_record() -> None:
    """That of its first entry: a consumer that checks keys against shards drops none."""
    first, second = pack([entry() for _ in range(800)])

    assert first.partition_key == first.entries[0].id
    assert first.partition_key != second.partition_key
    assert TARGET_BYTES - 200 < first.size_bytes <= TARGET_BYTES
