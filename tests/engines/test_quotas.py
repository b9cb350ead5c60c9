"""Quotas on every engine: the limit holds among many callers, and each call is counted once."""

from dataclasses import replace
from decimal import Decimal
from functools import partial

import pytest

from countledger.ledger.errors import QuotaExists
from countledger.producers.quotas.quota import Admitted
from countledger.producers.quotas.quotas import Quotas
from tests.engines.clock import HandClock
from tests.engines.differences import Difference
from tests.engines.numbering import at_once
from tests.engines.store import Store

THREADS = 32


def quotas_of(store: Store) -> Quotas:
    """The quotas of a new process, which has read no limit."""
    return Quotas(replace(store.app().connection, clock=HandClock()))


@pytest.fixture(autouse=True)
def _believable(tables: Store) -> None:
    if tables.engine.has(Difference.LOSES_UPDATES_UNDER_THREADS):
        pytest.skip(Difference.LOSES_UPDATES_UNDER_THREADS.value)


@pytest.fixture
def counter(tables: Store, namespace: str) -> str:
    """Ten a month."""
    quotas_of(tables).create(f"{namespace}:", limit=10, per="month")
    return f"{namespace}:a"


def test_no_more_than_the_limit_is_admitted_among_many(tables: Store, counter: str) -> None:
    """The first amount of a window is among them: its counter is made by one of them."""
    processes = [quotas_of(tables) for _ in range(THREADS)]

    outcomes = at_once([partial(one.acquire, counter, Decimal("0.5")) for one in processes])

    admitted = [one for one in outcomes if isinstance(one, Admitted)]
    assert len(admitted) == 20
    assert sorted(one.remaining or 0 for one in admitted) == [n / Decimal(2) for n in range(20)]
    shown = processes[0].show(counter)
    assert (shown.used, shown.remaining) == (10, 0)


def test_a_key_of_many_processes_at_once_is_counted_once(tables: Store, counter: str) -> None:
    processes = [quotas_of(tables) for _ in range(8)]

    outcomes = at_once([partial(one.reserve, counter, 3, key="k") for one in processes])

    tickets = {one.ticket for one in outcomes if isinstance(one, Admitted)}
    assert len(tickets) == 1
    assert sum(isinstance(one, Admitted) and not one.duplicate for one in outcomes) == 1
    (ticket,) = tickets
    assert ticket is not None
    done = at_once([partial(one.commit, ticket, 2) for one in processes])
    assert sorted(one.duplicate for one in done) == [False] + [True] * 7
    assert processes[0].show(counter).used == 2


def test_a_quota_is_made_by_one_of_many(tables: Store, namespace: str) -> None:
    def create(quotas: Quotas) -> str:
        try:
            return quotas.create(f"{namespace}-b:", limit=1, per="day").incarnation
        except QuotaExists:
            return "exists"

    made = at_once([partial(create, quotas_of(tables)) for _ in range(8)])

    assert made.count("exists") == 7
