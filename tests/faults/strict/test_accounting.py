"""Eight writers, every kind of fault at random: the value is what they were told."""

from functools import partial
from random import Random

import pytest

from countledger.ledger.clock import SystemClock
from countledger.producers.strict.counters import StrictCounters
from countledger.producers.strict.definition import SPREADABLE, Method
from countledger.producers.strict.outcome import (
    Applied,
    Contended,
    Duplicate,
    SetFull,
    StrictOutcome,
    Unknown,
)
from tests.engines.store import Store
from tests.faults.injection import FAULTS, faults
from tests.faults.strict.sellers import client_of, in_threads, seller_of, write_of

WRITERS = 8
CHANGES = 6
CASES = [(method, 1) for method in Method] + [(method, 5) for method in SPREADABLE]


def _work(seller: StrictCounters, counter: str, method: Method, seed: int) -> list[StrictOutcome]:
    """Changes of one, a third of the attempts at which go wrong; every key comes twice."""
    random = Random(seed)  # noqa: S311 - a test
    plan = [random.choice(FAULTS) if random.random() < 1 / 3 else None for _ in range(400)]
    told: list[StrictOutcome] = []
    with faults(client_of(seller), at=write_of(method), plan=plan):
        for number in range(CHANGES):
            key = None if method is Method.ATOMIC else f"{seed}-{number}"
            outcome = seller.change(counter, 1, key=key)
            if isinstance(outcome, Unknown) and method in {Method.CRT, Method.MARKER, Method.SET}:
                outcome = seller.change(counter, 1, key=key)
            told.append(outcome)
    return told


@pytest.mark.parametrize(("method", "bins"), CASES)
def test_the_value_is_what_the_writers_were_told(
    store: Store, counter: str, method: Method, bins: int
) -> None:
    """Applied counts once, refused not at all, and only unknown leaves it open."""
    sellers = [seller_of(store, clock=SystemClock()) for _ in range(WRITERS)]
    sellers[0].create(counter, method=method, lower=0, upper=WRITERS * CHANGES - 7, bins=bins)
    told: list[StrictOutcome] = []

    def work(number: int) -> StrictOutcome:
        told.extend(_work(sellers[number], counter, method, number))
        return told[-1]

    in_threads([partial(work, number) for number in range(WRITERS)])

    value = sellers[0].show(counter).value
    surely = sum(isinstance(outcome, Applied | Duplicate) for outcome in told)
    perhaps = sum(isinstance(outcome, Unknown) for outcome in told)
    assert surely <= value <= surely + perhaps
    assert value <= WRITERS * CHANGES - 7
    assert not any(isinstance(outcome, SetFull) for outcome in told)
    if method in {Method.CRT, Method.MARKER, Method.SET}:
        assert (value, perhaps) == (surely, 0)
    # Where nothing stood in their way, they went on until the bound.
    if not any(isinstance(outcome, Contended | Unknown) for outcome in told):
        assert value == WRITERS * CHANGES - 7
