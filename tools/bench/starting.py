"""What a process costs that starts, does one thing and ends: CPU time of the whole process."""

from __future__ import annotations

import resource
import subprocess
import sys
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Final

from countledger.testing import MemoryStack
from tools.bench.rounds import environment, servers

if TYPE_CHECKING:
    from collections.abc import Sequence

STACK: Final = {
    "AWS_DEFAULT_REGION": "us-east-1",
    "COUNTLEDGER_LEDGER_TABLE": "ledger",
    "COUNTLEDGER_COUNTERS_TABLE": "counters",
    "COUNTLEDGER_LEDGER_STREAM_ARN": "arn:aws:dynamodb:us-east-1:000000000000:table/l/stream/1",
    "COUNTLEDGER_HOME_REGION": "us-east-1",
}
_PUT: Final = """
import boto3
boto3.client("dynamodb").put_item(TableName="ledger", Item={"counter": {"S": "x"}})
"""
_CLIENT: Final = """
import boto3, aws_lambda_powertools, aws_lambda_powertools.metrics
boto3.client("dynamodb")
"""
_HANDLER: Final = """
import countledger.consumers.handler as handler, boto3
boto3.client("dynamodb")
"""


@dataclass(frozen=True, slots=True)
class Start:
    """A process, and the one that it is compared with.

    Attributes:
        name: its row.
        arguments: of the interpreter.
        peer: the row of the process that it is compared with; its own: the first of a comparison.
    """

    name: str
    arguments: tuple[str, ...]
    peer: str


_SDK: Final = "import boto3, botocore.client"
STARTS: Final = (
    Start(_SDK, ("-c", _SDK), _SDK),
    Start("import countledger", ("-c", "import countledger"), _SDK),
    Start("countledger --help", ("-m", "countledger", "--help"), _SDK),
    Start("countledger total x", ("-m", "countledger", "total", "x"), _SDK),
    Start("boto3: one put_item", ("-c", _PUT), "boto3: one put_item"),
    Start(
        "countledger: one record",
        ("-c", "import countledger; countledger.record('x', 1)"),
        "boto3: one put_item",
    ),
    Start("boto3, a client and Powertools", ("-c", _CLIENT), "boto3, a client and Powertools"),
    Start("the materializer's module", ("-c", _HANDLER), "boto3, a client and Powertools"),
)


# What a test of an app waits for, once `countledger.testing` is imported.
STACK_GOAL_MS: Final = 50.0


def stack_ms(rounds: int) -> tuple[float, float]:
    """Median time in ms in which a stack in memory starts; and until its first total is read."""
    started, read = [], []
    for _ in range(rounds):
        began_s = perf_counter()
        stack = MemoryStack()
        started.append((perf_counter() - began_s) * 1_000)
        stack.ledger.record("likes:post-1", 1)
        stack.ledger.total("likes:post-1")
        read.append((perf_counter() - began_s) * 1_000)
    return median(started), median(read)


def rows(rounds: int) -> list[tuple[str, float, float]]:
    """Name, median processor time in ms, and median ratio to its peer in the same round."""
    with servers([0]) as urls:
        found = [_round(urls[0]) for _ in range(rounds)]
    return [
        (
            one.name,
            median(costs[one.name] for costs in found),
            median(costs[one.name] / costs[one.peer] for costs in found),
        )
        for one in STARTS
    ]


def _round(url: str) -> dict[str, float]:
    variables = {**environment(), **STACK, "AWS_ENDPOINT_URL": url}
    return {one.name: cpu_ms(one.arguments, variables) for one in STARTS}


def cpu_ms(arguments: Sequence[str], variables: dict[str, str]) -> float:
    """Processor time of an interpreter with these arguments, from its start to its end."""
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *arguments],
        check=True,
        env=variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent_s = ended.ru_utime - began.ru_utime + ended.ru_stime - began.ru_stime
    return spent_s * 1_000
