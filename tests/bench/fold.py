"""A batch of stream records, our fold of it, and the least possible one."""

from __future__ import annotations

import json
from typing import Any

from countledger.consumers.fold import fold, folded_change
from countledger.ledger.ids import new_id

RECORDS = 1_000
COUNTERS = 64
NOW_MS = 1_800_000_000_000


def batch(counters: int = COUNTERS, count: int = RECORDS) -> list[dict[str, Any]]:
    """A full batch as Lambda delivers it, through JSON."""
    records = [
        {
            "eventID": f"{n:032x}",
            "eventName": "INSERT",
            "eventSource": "aws:dynamodb",
            "awsRegion": "us-east-1",
            "dynamodb": {
                "ApproximateCreationDateTime": NOW_MS / 1000,
                "Keys": {
                    "counter": {"S": f"likes:{n % counters}"},
                    "entry": {"S": f"e#{new_id(NOW_MS)}"},
                },
                "NewImage": {
                    "counter": {"S": f"likes:{n % counters}"},
                    "delta": {"N": str(n % 9 + 1)},
                    "at": {"N": str(NOW_MS)},
                    "origin": {"S": "us-east-1"},
                },
                "SequenceNumber": str(10**24 + n),
                "SizeBytes": 180,
                "StreamViewType": "NEW_AND_OLD_IMAGES",
            },
        }
        for n in range(count)
    ]
    found: list[dict[str, Any]] = json.loads(json.dumps(records))
    return found


def least_possible(records: list[dict[str, Any]]) -> dict[str, int]:
    """A fold that believes whatever it is given and drops nothing."""
    sums: dict[str, int] = {}
    for record in records:
        image = record["dynamodb"]["NewImage"]
        counter = image["counter"]["S"]
        sums[counter] = sums.get(counter, 0) + int(image["delta"]["N"])
    return sums


def ours(records: list[dict[str, Any]]) -> None:
    """The materializer's own: checked, in order, ready to be dropped again."""
    for changes in fold(records, NOW_MS).changes.values():
        folded_change(changes)
