"""Errors that leave their process: pickled by pools of processes, or copied."""

import copy
import importlib
import multiprocessing
import pickle
import pkgutil
from concurrent.futures import ProcessPoolExecutor

import pytest

import countledger
from countledger.consumers.alerts.delivery import AlertsNotTaken
from countledger.consumers.alerts.message import FailedAlert
from countledger.ledger.entry import Entry
from countledger.ledger.errors import (
    AlreadyClaimed,
    ConditionFailed,
    CorruptItem,
    CountledgerError,
    NotPriced,
    QuotaDenied,
    Reason,
    TransactionCancelled,
    Unacknowledged,
    Unnumbered,
)
from countledger.producers.buffer.settings import Failure, NotRecorded
from tests.unit.alerts.test_message import ALERT

ENTRY = Entry(
    counter="pages:views", id="k1#a", delta=1, at_ms=1_700_000_000_000, origin="eu-west-1"
)
ITEM = {"counter": "pages:views", "part": "total", "total": 3}
# Of the classes whose constructors take more than a text, or another thing.
MADE: dict[type[CountledgerError], CountledgerError] = {
    AlreadyClaimed: AlreadyClaimed("taken", "user-email", ("a@b", "c"), "user-1"),
    NotPriced: NotPriced("no amount", ["a", "b"]),
    QuotaDenied: QuotaDenied("the limit is reached", ITEM),
    Unacknowledged: Unacknowledged("no answer", ENTRY),
    Unnumbered: Unnumbered("no answer", {"pending": 1}),
    CorruptItem: CorruptItem("no total", ITEM),
    ConditionFailed: ConditionFailed(ITEM),
    TransactionCancelled: TransactionCancelled((Reason("ConditionalCheckFailed", ITEM),)),
    NotRecorded: NotRecorded((Failure(ENTRY, Unacknowledged("no answer", ENTRY)),)),
    AlertsNotTaken: AlertsNotTaken([FailedAlert(ALERT, "no such bus")], final=True),
}


def every_class() -> list[type[CountledgerError]]:
    """All error classes of the library, those that later modules add included."""
    for module in pkgutil.walk_packages(countledger.__path__, "countledger."):
        if ".tests" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found, fresh = set(), {CountledgerError}
    while fresh:
        found |= fresh
        fresh = {sub for one in fresh for sub in one.__subclasses__()} - found
    ours = [one for one in found if one.__module__.startswith("countledger.")]
    return sorted(ours, key=lambda one: (one.__module__, one.__qualname__))


def facts(error: object) -> object:
    """The facts of an error, and of the errors within it."""
    if isinstance(error, CountledgerError):
        values = {name: facts(value) for name, value in vars(error).items()}
        return type(error), str(error), values
    if isinstance(error, tuple):
        return tuple(map(facts, error))
    return error


@pytest.mark.parametrize("kind", every_class(), ids=lambda kind: kind.__qualname__)
def test_an_error_that_was_pickled_or_copied_is_the_same(kind: type[CountledgerError]) -> None:
    error = MADE[kind] if kind in MADE else kind("what went wrong")
    error.add_note("in region eu-west-1")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        pickled = pickle.dumps(error, protocol)
        assert facts(pickle.loads(pickled)) == facts(error)  # noqa: S301 - of our own making
    assert facts(copy.copy(error)) == facts(error)
    assert facts(copy.deepcopy(error)) == facts(error)


def fail() -> None:
    raise MADE[Unacknowledged]


def test_a_pool_of_processes_hands_the_error_to_its_caller() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        failed = pool.submit(fail)
        with pytest.raises(Unacknowledged) as caught:
            failed.result(timeout=60)
    assert caught.value.entry == ENTRY
