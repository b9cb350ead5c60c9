"""The spool: what is not acknowledged outlives its process, and counts once all the same."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from shutil import copy
from time import sleep
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countledger.ledger.entry import Entry
from countledger.ledger.errors import KeyExpired, NoCredentials
from countledger.ledger.limits import DAY_MS
from countledger.producers.buffer import producer as buffer_processes
from countledger.producers.buffer.producer import BufferedProducer
from countledger.producers.buffer.sending import EntryMaker
from countledger.producers.buffer.settings import (
    BufferFull,
    Buffering,
    NotRecorded,
    PendingEntry,
    SpoolRefused,
    StillBuffered,
)
from countledger.producers.buffer.spool import Spool, decode_row, encode_row
from countledger.producers.event import Event, Status
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import Fault, MemoryClient, waits_for
from tests.unit.ledger.processes import printed
from tests.unit.producers.buffers import LEDGER, PATIENT_MS, producer_on
from tests.unit.producers.senders import entries_in, process_on
from tests.unit.producers.test_buffer import NOBODY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from countledger.producers.buffer.settings import Failure


def spooling(path: Path, *, coalesce: bool = False, attempts: int = 2) -> Buffering:
    return Buffering(
        spool=path / "spool", linger_ms=PATIENT_MS, coalesce=coalesce, attempts=attempts
    )


def crash(producer: BufferedProducer) -> None:
    """The process dies with nothing under way; the kernel lets go of its file."""
    spool = producer._spool
    assert spool is not None
    assert producer.statistics.under_way == 0
    producer._here().queue.limit = 0
    spool.connection.close()
    buffer_processes.closed(producer)


def handed_back(producer: BufferedProducer) -> Entry:
    """The one entry that is not recorded."""
    with pytest.raises(NotRecorded) as raised:
        producer.flush()
    ((entry, _),) = raised.value.failures
    assert entry is not None
    return entry


def kept_in(folder: Path) -> list[object]:
    """The rows of a spool that no process has open."""
    spool = Spool.open(folder / "spool", ledger=LEDGER)
    kept: list[object] = list(spool.kept())
    spool.close()
    return kept


@settings(max_examples=50, deadline=None)
@given(
    delta=st.one_of(
        st.integers(-(10**38) + 1, 10**38 - 1),
        st.decimals(places=4, min_value=-(10**20), max_value=10**20).filter(
            lambda value: value != value.to_integral_value()
        ),
    ),
    key=st.none() | st.text(min_size=1),
    note=st.none() | st.dictionaries(st.text(min_size=1), st.text(), min_size=1),
    events=st.integers(1, 10**9),
)
def test_an_entry_comes_out_as_it_went_in(
    delta: int | Decimal, key: str | None, note: dict[str, str] | None, events: int
) -> None:
    """To the last digit; a sum of 0, too."""
    delta = delta.normalize() if isinstance(delta, Decimal) else delta
    entry = Entry(
        counter="a:b",
        id="i",
        delta=delta,
        at_ms=1,
        origin="eu",
        events=events,
        key=key,
        note=note,
        occurred_at_ms=None if key else 5,
    )
    row = decode_row(1, encode_row("a:b", delta, entry))

    assert row.entry == entry
    assert type(row.entry.delta) is type(delta)


def test_an_entry_that_finds_no_headroom_keeps_its_row(tmp_path: Path) -> None:
    dynamo = MemoryClient(faults=[Fault(NoCredentials("expired"))])
    buffering = replace(spooling(tmp_path), max_entries=25, when_full="error")
    producer = producer_on(dynamo, buffering)
    producer.add("a:b", 1)
    entry = handed_back(producer)
    producer._here().queue.limit = 0
    producer.add_many([Event("a:b", 1)] * 25)
    with pytest.raises(BufferFull):
        producer.resend(entry)
    producer._here().queue.limit = 1
    producer.flush()
    producer.resend(entry)
    producer.close()

    assert kept_in(tmp_path) == []
    assert entries_in(dynamo) == [1] * 26


def test_what_no_sender_could_be_made_for_counts_once(tmp_path: Path) -> None:
    dynamo, clock = MemoryClient(), ManualClock()
    failures = [NoCredentials("none")]

    def fail() -> None:
        if failures:
            raise failures.pop()

    buffering = spooling(tmp_path, coalesce=True)
    producer = producer_on(dynamo, buffering, clock=clock, before_client=fail)
    producer.add_many([Event("a:b", 1)] * 3)
    entry = handed_back(producer)
    producer.resend(entry)
    producer.close()
    with producer_on(dynamo, buffering, clock=clock):
        pass

    assert entries_in(dynamo) == [3]


def test_a_full_disk_is_called_a_full_disk(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path / "spool", ledger=LEDGER)
    entry = EntryMaker(process_on(MemoryClient())).of_event(
        Event("a:b", 1, note={"n": "x" * 1_000})
    )
    spool.connection.execute("PRAGMA max_page_count = 20")
    with pytest.raises(SpoolRefused, match="disk is full"):
        spool.append([PendingEntry(NOBODY, "a:b", 1, entry) for _ in range(5_000)])
    spool.append([PendingEntry(NOBODY, "a:b", 1, entry)])

    assert len(spool.kept()) == 1
    spool.close()


def test_what_the_spool_does_not_keep_is_not_sent(tmp_path: Path) -> None:
    """The entry of events that coalesced; else the next process would make another one of them."""
    dynamo, buffering = MemoryClient(), spooling(tmp_path, coalesce=True)
    producer = producer_on(dynamo, buffering)
    producer.add("a:b", 1)
    spool = producer._spool
    assert spool is not None
    spool.connection.execute("PRAGMA query_only = ON")

    with pytest.raises(NotRecorded) as raised:
        producer.flush(20)
    assert [type(error) for _, error in raised.value.failures] == [SpoolRefused]
    assert entries_in(dynamo) == []
    spool.connection.execute("PRAGMA query_only = OFF")
    producer.close()
    with producer_on(dynamo, buffering):
        pass
    assert entries_in(dynamo) == [1]


def test_an_interrupted_commit_is_undone_and_the_next_one_passes(tmp_path: Path) -> None:
    """Else the transaction would stay open, and the spool would take nothing more."""
    spool = Spool.open(tmp_path / "spool", ledger=LEDGER)
    entry = EntryMaker(process_on(MemoryClient())).of_event(Event("a:b", 1))
    spool.append([PendingEntry(NOBODY, "a:b", 1, entry) for _ in range(3)])

    def interrupted() -> Iterator[int]:
        yield 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        spool.update(interrupted(), [])
    assert [one.row for one in spool.kept()] == [1, 2, 3]
    spool.connection.execute("BEGIN IMMEDIATE")  # what a signal leaves that comes right after it
    spool.update([1], [])
    assert [one.row for one in spool.kept()] == [2, 3]
    assert not spool.connection.in_transaction
    spool.close()


def test_what_expired_is_reported_and_put_aside(tmp_path: Path) -> None:
    dynamo, clock = MemoryClient(), ManualClock()
    doomed = producer_on(dynamo, spooling(tmp_path), clock=clock)
    doomed._here().queue.limit = 0
    doomed.add("a:b", 1)
    crash(doomed)
    clock.at_ms += DAY_MS + 1

    for reported in (True, False):
        producer = producer_on(dynamo, spooling(tmp_path), clock=clock)
        producer.add("a:b", 2)
        if reported:
            with pytest.raises(NotRecorded) as raised:
                producer.flush()
            assert [type(failure.error) for failure in raised.value.failures] == [KeyExpired]
        refused = producer.refused()
        assert [one.entry.delta for one in refused if one.entry] == [1]
        assert "beyond the horizon" in str(refused[0].error)
        if not reported:
            producer.forget_refused()
            assert producer.refused() == []
        producer.close()

    assert entries_in(dynamo) == [2, 2]


def test_events_that_wait_to_be_coalesced_never_expire(tmp_path: Path) -> None:
    """They were never sent: nothing can double them."""
    dynamo, clock = MemoryClient(), ManualClock()
    doomed = producer_on(dynamo, spooling(tmp_path, coalesce=True), clock=clock)
    doomed.add("a:b", 1)
    doomed.add("a:b", 4)
    crash(doomed)
    clock.at_ms += 10 * DAY_MS

    with producer_on(dynamo, spooling(tmp_path, coalesce=True), clock=clock):
        pass
    assert entries_in(dynamo) == [5]


OPENING = """
import sys
from countledger.producers.buffer.spool import Spool

try:
    Spool.open(sys.argv[1], ledger="table ledger in eu-west-1")
except Exception as error:
    print(type(error).__name__, error)
"""


def test_a_sender_that_outlives_its_spool_says_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate, done = threading.Event(), threading.Event()
    dynamo, buffering = MemoryClient(plans=[waits_for(gate)]), spooling(tmp_path)
    told: list[Failure] = []
    producer = producer_on(dynamo, buffering, on_failure=told.append)
    pending = producer.add("a:b", 1)
    pending.add_done_callback(lambda _: done.set())
    producer.close(0)
    assert [failure.entry for failure in told] == [pending.entry]
    gate.set()
    assert done.wait(20)
    with pytest.raises(SpoolRefused, match="is closed, as its producer is"):
        producer.refused()

    with producer_on(dynamo, buffering) as again:
        assert again.statistics.waiting == 1
    assert entries_in(dynamo) == [1]
    assert caplog.records == []


def test_a_close_reports_no_entry_that_the_spool_does_not_know(tmp_path: Path) -> None:
    """Its events stay in the spool, and the next process makes another entry of them.

    An app that sent the first entry again would count them twice.
    """
    gate, under_way, done = threading.Event(), threading.Event(), threading.Event()
    dynamo, buffering = MemoryClient(), spooling(tmp_path, coalesce=True)

    def wait() -> None:
        under_way.set()
        assert gate.wait(20)

    told: list[Failure] = []
    producer = producer_on(dynamo, buffering, on_failure=told.append, before_client=wait)
    for _ in range(3):
        pending = producer.add("a:b", 1)
    pending.add_done_callback(lambda _: done.set())
    with pytest.raises(StillBuffered):
        producer.flush(0)
    assert under_way.wait(20)
    producer.close(0)

    assert [failure.entry for failure in told] == [None]
    gate.set()
    assert done.wait(20)
    assert entries_in(dynamo) == []
    with producer_on(dynamo, buffering):
        pass
    assert entries_in(dynamo) == [3]


def test_a_spool_is_one_processs(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    with producer_on(MemoryClient(), spooling(tmp_path)):
        words = printed(OPENING, str(path))

    assert words[0] == "SpoolRefused"
    assert "is in use" in " ".join(words)


def test_a_fork_leaves_its_parents_spool_alone(tmp_path: Path) -> None:
    dynamo = MemoryClient()
    producer = producer_on(dynamo, spooling(tmp_path))
    producer._here().queue.limit = 0
    producer.add("a:b", 1)
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        try:
            producer.add("a:b", 1)
        except SpoolRefused:
            producer.close()
            os._exit(3)
        finally:
            os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    producer.add("a:b", 1)

    # The files as a crash would leave them now.
    for name in ("spool", "spool-wal"):
        copy(tmp_path / name, tmp_path / f"copied-{name}")
    copied = Spool.open(tmp_path / "copied-spool", ledger=LEDGER)
    assert len(copied.kept()) == 2
    copied.close()
    producer._here().queue.limit = 1
    producer.close()
    assert entries_in(dynamo) == [1, 1]


FORKING = """
import os, sys
from countledger.producers.buffer.spool import Spool

spool = Spool.open(sys.argv[1], ledger="table ledger in eu-west-1")
child = os.fork()
if child == 0:
    sys.exit()
os.waitpid(child, 0)
print(os.path.exists(sys.argv[1] + "-wal"))
"""


def test_the_end_of_a_fork_leaves_the_log_where_it_is(tmp_path: Path) -> None:
    """Python closes what is open as it ends; SQLite would remove the log with what is in it."""
    assert printed(FORKING, str(tmp_path / "spool")) == ["True"]


def test_a_spool_belongs_to_one_ledger(tmp_path: Path) -> None:
    """Its entries would count in the wrong place."""
    Spool.open(tmp_path / "spool", ledger="one").close()

    with pytest.raises(
        SpoolRefused, match="has entries for one, but this producer writes to another"
    ):
        Spool.open(tmp_path / "spool", ledger="another")


def test_what_is_no_spool_is_refused_and_not_touched(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("hello " * 1_000)
    other = tmp_path / "other"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE theirs (x)")
    database.close()
    later = tmp_path / "later"
    Spool.open(later, ledger=LEDGER).close()
    with sqlite3.connect(later) as database:
        database.execute("PRAGMA user_version = 2")
    database.close()
    for path, why in (
        (text, "cannot be used"),
        (other, "another program"),
        (later, "has format 2"),
        (tmp_path / "absent" / "spool", "cannot be used"),
    ):
        before = path.read_bytes() if path.exists() else None
        with pytest.raises(SpoolRefused, match=why):
            Spool.open(path, ledger=LEDGER)
        assert (path.read_bytes() if path.exists() else None) == before


def test_a_spool_that_was_tampered_with_says_so(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    Spool.open(path, ledger=LEDGER).close()
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO rows VALUES (1, ?, NULL)", (json.dumps({"counter": "a"}),))
    database.close()

    with pytest.raises(SpoolRefused, match="has a row that is not an entry"):
        producer_on(MemoryClient(), spooling(tmp_path))


def test_an_event_that_is_accepted_during_the_close_is_sent_at_once(tmp_path: Path) -> None:
    """It has its headroom, and is not in the spool yet, when the close begins."""
    producer = producer_on(MemoryClient(), spooling(tmp_path))
    assert producer._spool is not None
    commits, goes_on = threading.Event(), threading.Event()

    def hold(statement: str) -> None:
        if statement == "COMMIT":
            commits.set()
            goes_on.wait(20)

    producer._spool.connection.set_trace_callback(hold)
    with ThreadPoolExecutor() as pool:
        adding = pool.submit(producer.add, "a:b", 1)
        assert commits.wait(20)
        closing = pool.submit(producer.close, 10)
        while not producer._here().state.closed:
            sleep(0.001)
        goes_on.set()

        assert adding.result(20).result(20).status is Status.RECORDED
        closing.result(20)


def test_what_is_sent_again_after_its_receipt_is_spooled_again(tmp_path: Path) -> None:
    """Its old row is gone."""
    producer = producer_on(
        MemoryClient(faults=[Fault(NoCredentials("expired"))]), spooling(tmp_path)
    )
    producer.add("a:b", 1)
    entry = handed_back(producer)
    producer.resend(entry)
    producer.flush()
    producer._here().queue.limit = 0
    producer.resend(entry)
    assert producer._spool is not None
    kept = producer._spool.kept()
    producer._here().queue.limit = 1
    producer.close()

    assert [row.entry for row in kept] == [entry]


def test_many_events_are_spooled_by_one_commit(tmp_path: Path) -> None:
    producer = producer_on(MemoryClient(), spooling(tmp_path))
    assert producer._spool is not None
    commits: list[str] = []
    producer._spool.connection.set_trace_callback(
        lambda statement: commits.append(statement) if statement == "COMMIT" else None
    )
    producer._here().queue.limit = 0
    producer.add_many(Event("a:b", 1) for _ in range(400))
    spooled = len(commits)
    producer._here().queue.limit = 8
    producer.close()

    assert spooled == 1
