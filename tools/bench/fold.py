"""A batch of stream records, our fold of it, and the least possible one."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

from countledger.consumers.total_writer import fold, folded_change
from countledger.consumers.window_writer import window_changes
from countledger.ledger.ids import new_id
from countledger.ledger.limits import DAY_MS, HOUR_MS
from tests.unit.ledger.window_settings import window_setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.calendar import Per
    from countledger.ledger.windows import WindowSetting

RECORDS = 1_000
COUNTERS = 64
NOW_MS = 1_800_000_000_000


def batch(
    counters: int = COUNTERS, count: int = RECORDS, late_ms: Sequence[int] = ()
) -> list[dict[str, Any]]:
    """A full batch as Lambda delivers it, through JSON; events are as late as these, in turn."""
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
    for record, ago_ms in zip(records, late_ms, strict=False):
        stream: Any = record["dynamodb"]
        stream["NewImage"]["occurred_at"] = {"N": str(NOW_MS - ago_ms)}
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


def setting(finest: Per) -> WindowSetting:
    """Windows that have been on for a year."""
    since_ms = NOW_MS - 366 * DAY_MS
    return window_setting("Europe/Berlin", finest=finest, keep_ms=90 * DAY_MS, from_ms=since_ms)


def late_mix() -> list[int]:
    """How late the events of a batch are, in ms: 56 % by over an hour, 20 % by over a day."""
    random = Random(1)  # noqa: S311 - of a benchmark
    bounds = [(DAY_MS, 40 * DAY_MS)] * 20 + [(HOUR_MS, DAY_MS)] * 36 + [(0, HOUR_MS)] * 44
    return [random.randrange(*random.choice(bounds)) for _ in range(RECORDS)]


def with_windows(one: WindowSetting, records: list[dict[str, Any]]) -> None:
    """The same as `ours`, and what each item of windows adds."""
    for changes in fold(records, NOW_MS).changes.values():
        folded_change(changes)
        for windows in window_changes(changes, (one,)):
            for item in windows.items:
                item.folded()
