"""What a stream record of a total costs the evaluator, by how many rules there are.

No record crosses anything, as almost none does. Half of the rules name a counter, half a prefix;
one of the prefixes watches every counter of the batch, so that each record is evaluated.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

from countledger.consumers.alerts.evaluator import Evaluator
from countledger.consumers.alerts.rule import Direction, Rule
from countledger.consumers.alerts.rule_index import RuleCache
from countledger.consumers.alerts.rules import Rules, encode_rule
from countledger.ledger.clock import SystemClock
from countledger.ledger.operations import Put
from tests.unit.connections import connection_on
from tests.unit.ledger.memory import MemoryClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.consumers.alerts.delivery import DeadLetter
    from countledger.consumers.alerts.message import Alert, FailedAlert
    from countledger.consumers.alerts.rule import Target

RECORDS: Final = 1_000
COUNTERS: Final = 64
ROUNDS: Final = 20
TABLE: Final = "counters"
REGION: Final = "us-east-1"
FAR: Final = 10**12


@dataclass(frozen=True)
class NothingToDo:
    """No record crosses, and none is bad: nobody is called."""

    def publish(self, alerts: Sequence[Alert], target: Target) -> list[FailedAlert]:
        """Fail."""
        _unexpected(alerts, target)

    def put(self, *what: object) -> None:
        """Fail."""
        _unexpected(what)


@dataclass(frozen=True)
class NoLetters:
    """The same, for dead letters."""

    def put(self, letter: DeadLetter) -> None:
        """Fail."""
        _unexpected(letter)


def _unexpected(*what: object) -> NoReturn:
    raise AssertionError(what)


def batch(now_s: int) -> list[dict[str, Any]]:
    """A full batch as Lambda delivers it, through JSON."""

    def image(n: int, value: int) -> dict[str, Any]:
        return {
            "counter": {"S": f"likes:{n % COUNTERS}"},
            "part": {"S": "total"},
            "total": {"N": str(value)},
            "events": {"N": str(value)},
            "entries": {"N": str(value)},
            "version": {"N": str(value)},
            "updated_at": {"N": str(now_s * 1000)},
            "incarnation": {"S": "n7Hk2QxT9aLw"},
            "w0123456789ab": {"B": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=="},
        }

    records = [
        {
            "eventID": f"{n:032x}",
            "eventName": "MODIFY",
            "eventSource": "aws:dynamodb",
            "awsRegion": REGION,
            "dynamodb": {
                "ApproximateCreationDateTime": now_s,
                "Keys": {"counter": {"S": f"likes:{n % COUNTERS}"}, "part": {"S": "total"}},
                "OldImage": image(n, n + 1),
                "NewImage": image(n, n + 2),
                "SequenceNumber": str(10**24 + n),
                "SizeBytes": 400,
                "StreamViewType": "NEW_AND_OLD_IMAGES",
            },
        }
        for n in range(RECORDS)
    ]
    found: list[dict[str, Any]] = json.loads(json.dumps(records))
    return found


def least_possible(records: list[dict[str, Any]]) -> dict[str, int]:
    """The last value of each counter, believed as it comes."""
    values: dict[str, int] = {}
    for record in records:
        image = record["dynamodb"]["NewImage"]
        values[image["counter"]["S"]] = int(image["total"]["N"])
    return values


def rules_of(count: int) -> list[Rule]:
    """So many rules."""
    return [
        Rule(
            name=f"rule-{n}",
            counter=f"stock:{n}" if n % 2 else None,
            prefix=None if n % 2 else f"shop{n}:" if n else "likes:",
            threshold=FAR,
            direction=Direction.RISING,
            evaluate_in=REGION,
            revision=f"revision-{n}",
        )
        for n in range(count)
    ]


def evaluator_with(count: int) -> Evaluator:
    """An evaluator that knows so many rules."""
    dynamo, clock = MemoryClient(), SystemClock()
    for one in rules_of(count):
        dynamo.put(Put(TABLE, encode_rule(one.name, [one], clock.now_ms())))
    connection = connection_on(dynamo, clock, region=REGION)
    cache = RuleCache(Rules(connection))
    if len(cache.index().rules) != count:
        raise AssertionError("the evaluator does not know the rules")
    return Evaluator(connection, cache, NothingToDo(), NoLetters(), NothingToDo())


def microseconds_per_record(rules: int) -> float:
    """The best of several rounds: the others say what else the machine was doing."""
    evaluator = evaluator_with(rules)
    records = batch(evaluator.connection.clock.now_ms() // 1000)
    best = float("inf")
    for _ in range(ROUNDS):
        evaluator.rules.index()  # what is read once a second is not the records' cost
        begun = time.process_time()
        outcome = evaluator.apply(records, "stream")
        best = min(best, time.process_time() - begun)
        assert (outcome.changes, outcome.published, outcome.quarantined) == (RECORDS, 0, 0)
    return best / RECORDS * 1e6


def rows() -> list[tuple[str, float, float]]:
    """Name, microseconds per record, and how many times the cost without rules."""
    costs = {count: microseconds_per_record(count) for count in (0, 10, 1_000)}
    return [(f"{count:,} rules", cost, cost / costs[0]) for count, cost in costs.items()]
