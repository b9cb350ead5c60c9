"""How often each method writes until a change is in, alone and among others.

The writers go as fast as they can, all at one counter: the worst case. The engine lets transactions
wait for each other where AWS would refuse some, so `crt` and `marker` look better than there; `occ`
and `history` meet what they would meet anywhere.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from countledger import CountLedger, Settings
from countledger.producers.strict.definition import Method
from countledger.producers.strict.outcome import Applied

if TYPE_CHECKING:
    from countledger.infra.local_stack import LocalStack

WRITERS: Final = (1, 8, 32)
CHANGES: Final = 192
_WRITES: Final = ("UpdateItem", "TransactWriteItems")


@dataclass(frozen=True)
class Measured:
    """One method among so many writers.

    Attributes:
        method: the method.
        writers: how many changed the counter at once, each with a client of its own.
        attempts: requests that write, for each change that came in.
        contended: the share of the changes that gave up.
        ms: milliseconds of wall clock for each change that came in, all writers together.
    """

    method: Method
    writers: int
    attempts: float
    contended: float
    ms: float


def _writer(stack: LocalStack, made: Counter[str]) -> CountLedger:
    """A client of its own, whose write requests are counted."""
    settings = Settings(stack_name=stack.name)
    ledger = CountLedger(settings, session=stack.session(), endpoint_url=stack.url)

    def count(model: Any, **_: object) -> None:  # noqa: ANN401 - botocore's operation
        made[model.name] += 1

    ledger.strict.means.door.client.meta.events.register("before-call", count)
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
    elapsed_ms = (time.perf_counter() - begun) * 1_000
    wrote = sum(made[name] for made in counted for name in _WRITES)
    lost = (CHANGES - applied) / CHANGES
    return Measured(method, writers, wrote / applied, lost, elapsed_ms / applied)


def rows(stack: LocalStack) -> list[Measured]:
    """Every method, alone, among eight and among thirty-two."""
    return [measure(stack, method, writers) for method in Method for writers in WRITERS]
