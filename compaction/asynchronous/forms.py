"""What keeps ledgers small, for event loops: each method as in its synchronous class."""

from __future__ import annotations

from countledger.compaction.deletions import Deletions
from countledger.compaction.schedules import Schedules
from countledger.compaction.worker import Worker
from countledger.ledger.asynchronous.forms import (
    AsyncForm,
    awaited,
    iterated,
    iterated_in_thread,
    threaded,
)


class AsyncSchedules(AsyncForm[Schedules]):
    """The schedules of namespaces; see `Schedules`."""

    create = awaited(Schedules.create)
    set = awaited(Schedules.set)
    get = awaited(Schedules.get)
    find = awaited(Schedules.find)
    list = awaited(Schedules.list)
    state = awaited(Schedules.state)
    apply = iterated(Schedules.apply)
    delete = awaited(Schedules.delete)


class AsyncDeletions(AsyncForm[Deletions]):
    """Deletes counters; see `Deletions`."""

    delete = threaded(Deletions.delete)
    delete_all = iterated_in_thread(Deletions.delete_all)
    cancel = threaded(Deletions.cancel)
    pending = iterated_in_thread(Deletions.pending)


class AsyncWorker(AsyncForm[Worker]):
    """Compacts counters; see `Worker`."""

    compact = threaded(Worker.compact)
    compact_if_due = threaded(Worker.compact_if_due)
    plan = threaded(Worker.plan)
    rule_of = threaded(Worker.rule_of)
