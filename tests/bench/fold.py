"""What a stream record costs the materializer before it writes, against the least possible fold."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from countledger.consumers.fold import fold, step_of
from countledger.ledger.ids import new_id

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS = 1_000
COUNTERS = 64
ROUNDS = 30
NOW_MS = 1_800_000_000_000


def batch() -> list[dict[str, Any]]:
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
                    "counter": {"S": f"likes:{n % COUNTERS}"},
                    "entry": {"S": f"e#{new_id(NOW_MS)}"},
                },
                "NewImage": {
                    "counter": {"S": f"likes:{n % COUNTERS}"},
                    "delta": {"N": str(n % 9 + 1)},
                    "at": {"N": str(NOW_MS)},
                    "origin": {"S": "us-east-1"},
                },
                "SequenceNumber": str(10**24 + n),
                "SizeBytes": 180,
                "StreamViewType": "NEW_AND_OLD_IMAGES",
            },
        }
        for n in range(RECORDS)
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
        step_of(changes)


def microseconds_per_record(work: Callable[[list[dict[str, Any]]], object]) -> float:
    """The best of several rounds: the others say what else the machine was doing."""
    records = batch()
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.process_time()
        work(records)
        best = min(best, time.process_time() - begun)
    return best / RECORDS * 1e6


def rows() -> list[tuple[str, float, float]]:
    """Name, microseconds per record, and how many times the least possible."""
    least_us, ours_us = microseconds_per_record(least_possible), microseconds_per_record(ours)
    return [("least possible fold", least_us, 1.0), ("our fold", ours_us, ours_us / least_us)]
