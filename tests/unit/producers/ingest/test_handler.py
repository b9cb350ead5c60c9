"""The function's border: what an event must contain."""

from typing import Any

import pytest

from countledger.ledger.errors import BadPayload
from countledger.producers.ingest.handler import source_of
from tests.unit.producers.kinesis.streams import delivered


def test_stream_and_shard_come_from_the_records() -> None:
    """Lambda says them nowhere else."""
    assert source_of([delivered(b"", arrived_s=1.0)]) == (
        "arn:aws:kinesis:eu-west-1:000000000000:stream/events",
        "shardId-000000000000",
    )
    assert source_of([]) == ("", "")


@pytest.mark.parametrize("record", [{}, None, {"eventID": 7}, {"eventID": "a:1"}])
def test_a_record_without_them_is_refused(record: Any) -> None:  # noqa: ANN401 - anything
    """The mapping is wrong: its records go into quarantine."""
    with pytest.raises(BadPayload, match="of the stack's Kinesis stream"):
        source_of([record])
