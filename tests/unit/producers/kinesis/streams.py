"""A stream in memory behind the call that producers make, with faults as inputs."""

import base64
from dataclasses import dataclass, field
from typing import Any

from countledger.producers.kinesis import KinesisProducer, decode, unpack_record
from tests.unit.ledger.clocks import NOW_MS, ManualClock
from tests.unit.ledger.memory import MemoryClient
from tests.unit.producers.senders import process_on

STREAM = "events"
ARN = "arn:aws:kinesis:eu-west-1:000000000000:stream/events"
REGION = "eu-west-1"


@dataclass(frozen=True, slots=True)
class Fault:
    """What one call meets.

    Attributes:
        error: what it raises, or None: it is answered.
        applied: whether the stream has the records all the same.
        refused: the places, in the call, of records that the stream does not take.
        code: why it does not.
        cut: whether the answer names none.
    """

    error: Exception | None = None
    applied: bool = False
    refused: tuple[int, ...] = ()
    code: str = "ProvisionedThroughputExceededException"
    cut: bool = False


@dataclass(slots=True)
class MemoryStream:
    """Takes records as PutRecords does, within its limits.

    Attributes:
        records: all that it has: data and partition key.
        faults: what the coming calls meet, one each; None lets one through.
        calls: how many records each call had.
    """

    records: list[tuple[bytes, str]] = field(default_factory=list)
    faults: list[Fault | None] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)

    def put_records(
        self,
        *,
        Records: list[dict[str, Any]],  # noqa: N803 - the service's name
        StreamName: str = "",  # noqa: N803 - the same
        StreamARN: str = "",  # noqa: N803 - the same
    ) -> dict[str, Any]:
        if (StreamName, StreamARN) not in {(STREAM, ""), ("", ARN)}:
            raise AssertionError(StreamName, StreamARN)
        sizes = [len(one["Data"]) + len(one["PartitionKey"].encode()) for one in Records]
        if not 1 <= len(Records) <= 500 or sum(sizes) > 5 * 2**20 or max(sizes) > 2**20:
            raise AssertionError("more than the service takes")
        self.calls.append(len(Records))
        fault = self.faults.pop(0) if self.faults else None
        fault = fault or Fault(applied=True)
        if fault.error is not None and not fault.applied:
            raise fault.error
        answers = [self._take(n, one, fault) for n, one in enumerate(Records)]
        if fault.error is not None:
            raise fault.error
        return {} if fault.cut else {"FailedRecordCount": len(fault.refused), "Records": answers}

    def _take(self, number: int, record: dict[str, Any], fault: Fault) -> dict[str, str]:
        if number in fault.refused:
            return {"ErrorCode": fault.code, "ErrorMessage": "no"}
        self.records.append((record["Data"], record["PartitionKey"]))
        return {"SequenceNumber": f"{len(self.records):056d}", "ShardId": "shardId-000000000000"}

    def delivered(self, *, arrived_s: float) -> list[dict[str, Any]]:
        """All of it, as Lambda delivers it."""
        return [
            delivered(data, sequence=number, arrived_s=arrived_s)
            for number, (data, _) in enumerate(self.records, start=1)
        ]


def delivered(data: bytes, *, sequence: int = 1, arrived_s: float) -> dict[str, Any]:
    """A record as Lambda delivers it."""
    number = f"{sequence:056d}"
    return {
        "kinesis": {
            "kinesisSchemaVersion": "1.0",
            "partitionKey": "p",
            "sequenceNumber": number,
            "approximateArrivalTimestamp": arrived_s,
            "data": base64.b64encode(data).decode(),
        },
        "eventSource": "aws:kinesis",
        "eventID": f"shardId-000000000000:{number}",
        "eventSourceARN": ARN,
    }


def producer_on(
    stream: MemoryStream, clock: ManualClock | None = None, name: str = STREAM
) -> KinesisProducer:
    """A producer on a stream in memory."""
    connection = process_on(
        MemoryClient(), clock, clients={"kinesis": stream}, ingest_stream_arn=name
    )
    return KinesisProducer(connection)


def deltas(stream: MemoryStream) -> list[object]:
    """What the stream holds, each identity once, in order."""
    # A record that was sent again is the same one.
    records = dict.fromkeys(data for data, _ in stream.records)
    made = [
        decode(payload, arrived_ms=NOW_MS, origin=REGION)
        for data in records
        for payload in unpack_record(data).messages
    ]
    return [entry.delta for entry in {entry.id: entry for entry in made}.values()]
