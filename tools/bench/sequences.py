"""What a number costs: processor time of the process that draws, and write units.

Blocks of 1, 100 and 10,000 against a bare ADD by boto3. The engine is another process, and does not
slow down a hot partition as AWS would at about 1,000 writes a second: there, the write units for
each number are what decides.
"""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger import CountLedger
    from countledger.infra.local.stack import LocalStack

BLOCKS: Final = {1: 500, 100: 50_000, 10_000: 2_000_000}
_DRAWS: Final = 300
_CROWD: Final = 32


@dataclass(frozen=True)
class Drawn:
    """One way to draw.

    Attributes:
        way: what it is.
        each_second: numbers for each second of processor time.
        per_unit: numbers for each write unit.
    """

    way: str
    each_second: float
    per_unit: float


@dataclass(frozen=True)
class Crowd:
    """One way among thirty-two threads, each with a client of its own.

    Attributes:
        way: what it is.
        each_second: numbers that all of them drew each second.
        write_units: for each number.
    """

    way: str
    each_second: float
    write_units: float


def _sequence() -> str:
    return f"bench-numbers:{uuid.uuid4().hex[:8]}"


def _each_second(numbers: int, draw: Callable[[], object]) -> float:
    begun = time.process_time()
    for _ in range(numbers):
        draw()
    return numbers / (time.process_time() - begun)


def rows(stack: LocalStack) -> list[Drawn]:
    """By hand, and out of blocks of each size."""
    bare, table = stack.client("dynamodb"), stack.outputs["CountersTableName"]
    key = {"counter": {"S": "bench:bare"}, "part": {"S": "total"}}

    def by_hand() -> None:
        bare.update_item(
            TableName=table,
            Key=key,
            UpdateExpression="ADD #n :one",
            ExpressionAttributeNames={"#n": "number"},
            ExpressionAttributeValues={":one": {"N": "1"}},
            ReturnValues="UPDATED_NEW",
        )

    measured = [Drawn("boto3 update_item", _each_second(BLOCKS[1], by_hand), 1.0)]
    for block, numbers in BLOCKS.items():
        ledger = stack.home.ledger()
        lease = ledger.sequences.lease(_sequence(), block)
        lease.draw()
        before = ledger.write_units
        each_second = _each_second(numbers, lease.draw)
        per_unit = numbers / (ledger.write_units - before)
        measured.append(Drawn(f"blocks of {block:,}", each_second, per_unit))
    return measured


def crowd_rows(stack: LocalStack) -> list[Crowd]:
    """One sequence, thirty-two threads."""
    ways: dict[str, Callable[[CountLedger, str], int]] = {
        "draw": lambda ledger, sequence: ledger.sequences.draw(sequence),
        "draw_expected": lambda ledger, sequence: ledger.sequences.draw_expected(sequence),
    }
    return [_crowd(stack, way, draw) for way, draw in ways.items()]


def _crowd(stack: LocalStack, way: str, draw: Callable[[CountLedger, str], int]) -> Crowd:
    ledgers, sequence = [stack.home.ledger() for _ in range(_CROWD)], _sequence()
    for ledger in ledgers:
        draw(ledger, sequence)
    before = sum(ledger.write_units for ledger in ledgers)
    begun = time.perf_counter()
    with ThreadPoolExecutor(_CROWD) as pool:
        list(pool.map(lambda n: draw(ledgers[n % _CROWD], sequence), range(_DRAWS)))
    elapsed_s = time.perf_counter() - begun
    spent = sum(ledger.write_units for ledger in ledgers) - before
    return Crowd(way, _DRAWS / elapsed_s, spent / _DRAWS)
