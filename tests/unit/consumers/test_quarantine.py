"""The message of a quarantined record."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from countledger.consumers.quarantine import body
from tests.unit.consumers.records import record, with_stream

# What SQS took in one message for most of its life.
_SQS_MAX_BYTES = 262_144


def test_a_record_is_kept_whole_with_its_reason() -> None:
    """Whoever repairs sees what came, why it was refused, and from where."""
    malformed = record(111, 5)

    assert json.loads(body(malformed, "no delta", "label/shard-1")) == {
        "reason": "no delta",
        "shard": "label/shard-1",
        "record": malformed,
    }


def test_of_a_huge_record_the_keys_are_kept() -> None:
    """An item with both its images can be larger than a message."""
    huge = with_stream(record(111), NewImage={"note": {"S": "é" * 400_000}})

    message = json.loads(body(huge, "no delta", "s"))

    assert message["record"]["dynamodb"] == {
        "Keys": huge["dynamodb"]["Keys"],
        "SequenceNumber": "111",
    }


@pytest.mark.parametrize(
    ("malformed", "reason"),
    [
        (with_stream(record(111), NewImage={"a": {"S": "x" * 400_000}}), "y" * 400_000),
        (with_stream(record(111), Keys={"counter": {"S": "x" * 400_000}}), "r"),
        (with_stream(record(111), SequenceNumber="1" * 400_000), "r"),
        ({"dynamodb": "x" * 400_000}, "r"),
        ({**record(111), "userIdentity": "\U0001f600" * 100_000}, "r"),
        ("x" * 400_000, "r"),
        ([["x" * 400_000]], "r"),
    ],
)
def test_every_message_fits_into_the_queue(malformed: Any, reason: str) -> None:  # noqa: ANN401
    """Refused by the queue, a malformed record would block its stream for ever."""
    text = body(malformed, reason, "s")

    assert len(text.encode()) < _SQS_MAX_BYTES
    assert json.loads(text)["reason"].startswith(reason[:100])


@pytest.mark.parametrize(
    "malformed", [None, 5, "text", {}, {"dynamodb": None}, {"n": Decimal("1.5")}]
)
def test_whatever_comes_can_be_kept(malformed: Any) -> None:  # noqa: ANN401
    """MalformedRecord has no shape."""
    assert "record" in json.loads(body(malformed, "r", "s"))
