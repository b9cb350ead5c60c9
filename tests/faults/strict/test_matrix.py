"""Every method, every trouble, alone and among eight writers: what is said, and what is stored."""

from contextlib import ExitStack

import pytest

from countledger.producers.strict.definition import Method
from tests.engines.store import Store
from tests.faults.injection import faults
from tests.faults.strict.conflicts import conflicts
from tests.faults.strict.matrix import (
    OTHERS,
    ROWS,
    Cell,
    Company,
    Row,
    Trouble,
    expected,
)
from tests.faults.strict.sellers import client_of, others_change, seller_of, write_of

_OPENING = 10


def _meet(store: Store, counter: str, row: Row, trouble: Trouble, company: Company) -> Cell:
    """Let one change meet its trouble, and look."""
    victim = seller_of(store, retries="standard" if trouble.hidden else "none")
    victim.create(counter, method=row.method, lower=0, upper=100, opening=_OPENING)
    others = [seller_of(store) for _ in range(OTHERS)] if company is Company.EIGHT else []

    def meanwhile() -> None:
        if others:
            others_change(others, counter)

    client, operation, fault = client_of(victim), write_of(row.method), trouble.fault
    key = None if row.method is Method.ATOMIC else "order-1"
    with ExitStack() as happening:
        if fault is None:
            happening.enter_context(conflicts(client, operation, then=meanwhile))
        else:
            happening.enter_context(faults(client, at=operation, plan=[fault], then=meanwhile))
        outcome = victim.change(counter, 1, key=key, prefer=row.prefer)
    counted = victim.show(counter).value - _OPENING - len(others)
    return Cell(type(outcome).__name__, int(counted))


@pytest.mark.parametrize("company", list(Company), ids=lambda one: one.value)
@pytest.mark.parametrize("trouble", list(Trouble), ids=lambda one: one.value)
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_each_method_says_what_it_can_know_and_no_more(
    store: Store, counter: str, row: Row, trouble: Trouble, company: Company
) -> None:
    """The outcome and the stored value are those of the guide's table, miscounts included."""
    assert _meet(store, counter, row, trouble, company) == expected(row, trouble, company)
