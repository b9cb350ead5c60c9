"""What a read of a total and a change of a strict counter cost, beside boto3's own call."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import boto3

from countledger.producers.strict.outcome import Applied
from tools.bench.canned import STRICT_NAMESPACE
from tools.bench.emitting import REGION, ours
from tools.bench.way import Way, Work, with_each_transport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger import CountLedger

_TABLE: Final = "bench-counters"
_STRICT: Final = f"{STRICT_NAMESPACE}:stock"


def _boto3_get(url: str) -> Work:
    client = boto3.client("dynamodb", region_name=REGION, endpoint_url=url)

    def work(counters: Sequence[str]) -> float:
        for counter in counters:
            answer = client.get_item(
                TableName=_TABLE, Key={"counter": {"S": counter}, "part": {"S": "total"}}
            )
            int(answer["Item"]["total"]["N"])
        return 0.0

    return work


def _boto3_change(url: str) -> Work:
    """What method `atomic` needs, by hand: the change if there is headroom for it."""
    client = boto3.client("dynamodb", region_name=REGION, endpoint_url=url)

    def work(counters: Sequence[str]) -> float:
        for _ in counters:
            client.update_item(
                TableName=_TABLE,
                Key={"counter": {"S": _STRICT}, "part": {"S": "total"}},
                UpdateExpression="ADD #t :d, #h :m",
                ConditionExpression="#h >= :d",
                ExpressionAttributeNames={"#t": "total", "#h": "headroom_up"},
                ExpressionAttributeValues={":d": {"N": "1"}, ":m": {"N": "-1"}},
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        return float(len(counters))

    return work


def _total(ledger: CountLedger, counters: Sequence[str]) -> None:
    for counter in counters:
        if not ledger.total(counter).value:
            raise AssertionError(counter)


def _change(ledger: CountLedger, counters: Sequence[str]) -> None:
    for _ in counters:
        outcome = ledger.strict.change(_STRICT, 1)
        if not isinstance(outcome, Applied):
            raise TypeError(outcome)


# The first of each is what the others are compared with.
TOTALS: Final = (
    Way("boto3: get_item", _boto3_get, 1_000),
    *with_each_transport(Way("total", partial(ours, _total), 1_000)),
)
CHANGES: Final = (
    Way("boto3: a conditional update_item", _boto3_change, 1_000),
    *with_each_transport(Way("strict.change, method atomic", partial(ours, _change), 1_000)),
)
