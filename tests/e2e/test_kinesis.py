"""Through Kinesis into the ledger and its totals, on the deployed stack, under its roles."""

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from countledger import CountLedger, Event
from countledger.infra.local.mappings import INGEST
from countledger.infra.local.shards import KinesisSource
from countledger.infra.local.stack import LocalStack
from countledger.ledger.errors import AccessDenied, StackNotFound
from countledger.ledger.limits import HORIZON_DEFAULT_MS, HOUR_MS
from countledger.producers.kinesis import MAGIC, pack
from tests.e2e.command import Command
from tests.e2e.world import client_of, logged
from tests.unit.producers.kinesis.entries import entry


@pytest.fixture(scope="module")
def streaming() -> Iterator[LocalStack]:
    """A stack with a stream of two shards, IAM enforced; its pumps are driven by hand."""
    parameters = {"IngestStream": "provisioned", "IngestShards": "2"}
    with LocalStack(
        name="countledger-kinesis", auth=True, pumping=False, parameters=parameters
    ) as stack:
        yield stack


def put(stack: LocalStack, *data: bytes) -> None:
    """Put records into the stream, as a producer in any language would."""
    stack.client("kinesis").put_records(
        StreamARN=stack.outputs["IngestStreamArn"],
        Records=[{"Data": one, "PartitionKey": uuid.uuid4().hex} for one in data],
    )


def drain(stack: LocalStack) -> None:
    """Until everything has gone through both functions."""
    stack.pumps[INGEST].drain()
    stack.pump.drain()


def letters(stack: LocalStack, output: str) -> list[dict[str, Any]]:
    """What lies in a queue of the ingest, for whoever operates."""
    sqs = stack.client("sqs", stack.credentials_for("OperatePolicyArn"))
    answer = sqs.receive_message(QueueUrl=stack.outputs[output], MaxNumberOfMessages=10)
    for message in answer.get("Messages", []):
        sqs.delete_message(QueueUrl=stack.outputs[output], ReceiptHandle=message["ReceiptHandle"])
    bodies = [json.loads(message["Body"]) for message in answer.get("Messages", [])]
    return [one for body in bodies for one in body["rejected"]]


def metrics(stack: LocalStack) -> list[dict[str, Any]]:
    """The lines of the embedded metric format in the ingest's log."""
    return [one for one in logged(stack, "") if "IngestPayloads" in one]


def test_what_is_sent_through_the_stream_is_counted_once(
    streaming: LocalStack, counter: str
) -> None:
    producer = client_of(streaming, "KinesisPolicyArn")
    events = [Event(f"{counter}-{n % 3}", n) for n in range(1, 1_201)]
    events += [Event(f"{counter}-0", 1_000_000, key="order-1")] * 2

    outcomes = list(producer.kinesis.send_many(events))
    list(producer.kinesis.send_many(events[-1:]))
    drain(streaming)

    assert len({one.id for one in outcomes}) == 1_201  # type: ignore[union-attr]
    totals = client_of(streaming, "ReadPolicyArn").totals([f"{counter}-{n}" for n in range(3)])
    assert sum(total.events for total in totals.values()) == 1_201
    assert sum(int(total.value) for total in totals.values()) == 1_200 * 1_201 // 2 + 1_000_000
    with pytest.raises(AccessDenied):
        producer.record(counter, 1)


def test_plain_broken_and_expired_records_are_told_apart(
    streaming: LocalStack, counter: str
) -> None:
    old = int(time.time() * 1_000) - HORIZON_DEFAULT_MS - HOUR_MS
    (expired,) = pack([entry(7, counter, at_ms=old)])
    (whole,) = pack([entry(5, counter, at_ms=int(time.time() * 1_000))])
    plain = json.dumps({"v": 1, "counter": counter, "delta": 3, "key": "p"}).encode()

    put(streaming, plain, whole.data, whole.data[:-1], MAGIC, b"nonsense", expired.data)
    drain(streaming)

    assert client_of(streaming, "ReadPolicyArn").exact(counter).value == 8
    broken = letters(streaming, "IngestQuarantineQueueUrl")
    assert sorted(one["kind"] for one in broken) == ["malformed", "unreadable", "unreadable"]
    told = metrics(streaming)
    assert sum(one["IngestExpired"][0] for one in told) >= 1
    for one in told:
        out = one["IngestDuplicates"][0] + one["IngestQuarantined"][0]
        assert one["IngestPayloads"][0] == one["IngestAccepted"][0] + out
        assert one["service"] == f"{streaming.name}-ingest"
    (late,) = letters(streaming, "IngestExpiredQueueUrl")
    assert late["kind"] == "expired"
    assert json.loads(late["text"])["delta"] == 7


def test_a_stream_that_is_split_and_merged_is_read_to_its_end(
    streaming: LocalStack, counter: str
) -> None:
    kinesis, arn = streaming.client("kinesis"), streaming.outputs["IngestStreamArn"]
    ledger = client_of(streaming)
    send = ledger.kinesis.send_many
    list(send([Event(counter, 1)] * 5))
    drain(streaming)
    first, second = open_shards(kinesis, arn)
    middle = str(sum(map(int, first["HashKeyRange"].values())) // 2)
    kinesis.split_shard(StreamARN=arn, ShardToSplit=first["ShardId"], NewStartingHashKey=middle)
    list(send([Event(counter, 1)] * 5))
    drain(streaming)
    left, right = (one for one in open_shards(kinesis, arn) if one["ShardId"] != second["ShardId"])
    kinesis.merge_shards(
        StreamARN=arn, ShardToMerge=left["ShardId"], AdjacentShardToMerge=right["ShardId"]
    )
    list(send([Event(counter, 1)] * 5))
    drain(streaming)

    assert ledger.total(counter).value == 15
    assert len(open_shards(kinesis, arn)) == 2


def test_a_reader_whose_iterator_is_gone_goes_on_behind_its_last_record(
    streaming: LocalStack, counter: str
) -> None:
    """One lives for five minutes, and a failing function may hold up its shard for hours."""
    source = KinesisSource(streaming.client("kinesis"), streaming.outputs["IngestStreamArn"])
    readers = [source.reader(shard.shard_id, "TRIM_HORIZON", None) for shard in source.shards()]
    seen = [record.sequence for reader in readers for record in reader.read()[1]]
    before = len(seen)
    for number in range(3):
        put(streaming, f"{counter}-{number}".encode())
        for reader in readers:
            reader._iterator = "gone"
            seen += [record.sequence for record in reader.read()[1]]
    drain(streaming)
    letters(streaming, "IngestQuarantineQueueUrl")

    assert len(set(seen)) == len(seen) == before + 3


def open_shards(kinesis: Any, arn: str) -> list[Any]:  # noqa: ANN401 - a boto3 client
    """The shards that take records, by their hash keys."""
    found = [
        one
        for one in kinesis.list_shards(StreamARN=arn)["Shards"]
        if "EndingSequenceNumber" not in one["SequenceNumberRange"]
    ]
    return sorted(found, key=lambda one: int(one["HashKeyRange"]["StartingHashKey"]))


def test_what_came_too_late_is_listed_and_sent_again_by_command(
    streaming: LocalStack, counter: str
) -> None:
    old = int(time.time() * 1_000) - HORIZON_DEFAULT_MS - HOUR_MS
    (record,) = pack([entry(7, counter, at_ms=old), entry(9, counter, at_ms=old)])
    put(streaming, record.data, record.data)
    drain(streaming)
    command = Command(streaming.environment())

    shown = command("quarantine", "expired", "--json")
    sent = command("quarantine", "resend", "--all", "--source", "kinesis", "--json")
    left = command("quarantine", "expired", "--json")
    drain(streaming)

    assert (shown.code, left.code) == (1, 0)
    mine = [one for one in shown.items if one["counter"] == counter]
    # The record came twice, and so may its entries.
    late = {("7", "uncounted"), ("9", "uncounted")}
    assert {(one["delta"], one["status"]) for one in mine} == late
    assert any(one["resolved"] for one in sent.items)
    assert left.items == []
    assert counter not in command("quarantine", "list", "--json").out
    assert client_of(streaming, "ReadPolicyArn").total(counter).value == 16


def test_what_was_set_aside_is_worked_off_by_an_operator(
    streaming: LocalStack, counter: str
) -> None:
    old = int(time.time() * 1_000) - HORIZON_DEFAULT_MS - HOUR_MS
    (late,) = pack([entry(7, counter, at_ms=old)])
    first, second = (
        json.dumps({"v": 1, "counter": counter, "delta": delta, "key": "k"}).encode()
        for delta in (3, 4)
    )
    put(streaming, first)
    drain(streaming)
    put(streaming, second, late.data)
    drain(streaming)
    streaming.new_pump(mapping=INGEST).drain()
    streaming.pump.drain()
    operator = client_of(streaming, "OperatePolicyArn", "EmitPolicyArn").quarantine

    mine = {copy.kind: copy.id for copy in operator.list("kinesis") if copy.counter == counter}
    resent = list(operator.resend(mine.values(), by="ann"))
    command = Command(streaming.environment())
    listed = command("quarantine", "list", "--source", "kinesis", "--json")
    asked = command("quarantine", "discard", mine["refused"])
    both = command("quarantine", "discard", mine["refused"], "--all", "--yes")
    discarded = command("quarantine", "discard", mine["refused"], "--yes", "--by", "bob", "--json")
    shown = command("quarantine", "show", mine["refused"])
    drain(streaming)

    assert sorted(mine) == ["expired", "refused"]
    assert {one.record.kind: one.resolved for one in resent} == {"expired": True, "refused": False}
    assert listed.code == 1
    assert mine["refused"] in [one["id"] for one in listed.items]
    assert [asked.code, both.code, discarded.code, shown.code] == [2, 2, 0, 0]
    assert "--yes" in asked.err
    assert [one["resolved"] for one in discarded.items] == [True]
    assert (shown.json["handled"]["how"], shown.json["handled"]["by"]) == ("discarded", "bob")
    assert shown.json["record"]["delta"] == 4
    assert client_of(streaming, "ReadPolicyArn").total(counter).value == 10
    for output in ("IngestQuarantineQueueUrl", "IngestExpiredQueueUrl"):
        left = letters(streaming, output)
        assert not [one for one in left if one["quarantine_id"] in mine.values()]


def test_a_stack_without_a_stream_says_how_to_have_one(client: CountLedger) -> None:
    with pytest.raises(StackNotFound, match="IngestStream"):
        _ = client.kinesis
