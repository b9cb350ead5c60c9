"""How often each method writes until a change is in, alone and among others; what bins cost.

The writers go as fast as they can, all at one counter: the worst case. The engine lets transactions
wait for each other where AWS would refuse some, so `request_token` and `marker` look better than
there; `occ` and `history` meet what they would meet anywhere. Nor does it slow down a hot
partition, so what bins are good for cannot be seen here; what they cost can.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from countledger.producers.strict.definition import Method
from countledger.producers.strict.outcome import Applied, BoundReached

if TYPE_CHECKING:
    from countledger import CountLedger
    from countledger.infra.local.stack import LocalStack

WRITERS: Final = (1, 8, 32)
CHANGES: Final = 192
BINS: Final = (1, 5, 20)
STOCK: Final = 200
_SELLERS: Final = 8
_WRITES: Final = ("UpdateItem", "TransactWriteItems")


@dataclass(frozen=True)
class Measured:
    """One method among so many writers.

    Attributes:
        method: the method.
        writers: how many changed the counter at once, each with a client of its own.
        attempts: requests that write, for each change that came in.
        contended: the share of the changes that gave up.
        each_second: changes that came in each second, all writers together.
    """

    method: Method
    writers: int
    attempts: float
    contended: float
    each_second: float


@dataclass(frozen=True)
class SoldOut:
    """A stock sold to the last one, ticket by ticket, by several sellers at once.

    Attributes:
        bins: over how many items it was spread.
        write_units: for each ticket sold; what the refusals in the end cost is among it.
        read_units: likewise.
        each_second: tickets sold each second.
    """

    bins: int
    write_units: float
    read_units: float
    each_second: float


def _writer(stack: LocalStack, made: Counter[str]) -> CountLedger:
    """A client of its own, whose write requests are counted."""
    ledger = stack.home.ledger()

    def count(model: Any, **_: object) -> None:  # noqa: ANN401 - botocore's operation
        made[model.name] += 1

    ledger.strict.connection.unretried.client.meta.events.register("before-call", count)
    return ledger


def measure(stack: LocalStack, method: Method, writers: int) -> Measured:
    """Let writers share some changes of one counter."""
    counted: list[Counter[str]] = [Counter() for _ in range(writers)]
    ledgers = [_writer(stack, made) for made in counted]
    counter = f"bench-strict:{uuid.uuid4().hex[:8]}"
    ledgers[0].strict.create(counter, method=method)
    for ledger in ledgers:
        ledger.strict.show(counter)
    for made in counted:
        made.clear()

    def work(ledger: CountLedger) -> int:
        told = [ledger.strict.change(counter, 1) for _ in range(CHANGES // writers)]
        return sum(isinstance(outcome, Applied) for outcome in told)

    begun = time.perf_counter()
    with ThreadPoolExecutor(writers) as pool:
        applied = sum(pool.map(work, ledgers))
    elapsed_s = time.perf_counter() - begun
    wrote = sum(made[name] for made in counted for name in _WRITES)
    lost = (CHANGES - applied) / CHANGES
    return Measured(method, writers, wrote / applied, lost, applied / elapsed_s)


def rows(stack: LocalStack) -> list[Measured]:
    """Every method, alone, among eight and among thirty-two."""
    return [measure(stack, method, writers) for method in Method for writers in WRITERS]


def sell_out(stack: LocalStack, bins: int) -> SoldOut:
    """Sell a stock by method atomic until every seller has heard that there is none left."""
    counter = f"bench-strict:{uuid.uuid4().hex[:8]}"
    sellers = [stack.home.ledger() for _ in range(_SELLERS)]
    sellers[0].strict.create(counter, method="atomic", lower=0, opening=STOCK, bins=bins)
    for seller in sellers:
        seller.strict.show(counter)
    before = _units(sellers)

    def work(seller: CountLedger) -> int:
        sold = 0
        while not isinstance(outcome := seller.strict.change(counter, -1), BoundReached):
            sold += isinstance(outcome, Applied)
        return sold

    begun = time.perf_counter()
    with ThreadPoolExecutor(_SELLERS) as pool:
        sold = sum(pool.map(work, sellers))
    elapsed_s = time.perf_counter() - begun
    wrote, read = (now - then for now, then in zip(_units(sellers), before, strict=True))
    return SoldOut(bins, wrote / sold, read / sold, sold / elapsed_s)


def _units(ledgers: list[CountLedger]) -> tuple[float, float]:
    return sum(one.write_units for one in ledgers), sum(one.read_units for one in ledgers)


def bins_rows(stack: LocalStack) -> list[SoldOut]:
    """The same stock in one item and spread over several."""
    return [sell_out(stack, bins) for bins in BINS]
