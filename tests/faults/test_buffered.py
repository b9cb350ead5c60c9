"""What an app hears, and what the ledger holds, when the writes of a buffer go wrong."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import repeat
from pathlib import Path

import pytest

from countledger import Buffering
from countledger.producers.buffer import delivery as buffer_delivery
from countledger.producers.buffer import processes as buffer_processes
from countledger.producers.buffer.buffering import NotRecorded
from countledger.producers.buffer.outcomes import PendingEntry
from countledger.producers.buffer.producer import BufferedProducer
from countledger.producers.buffer.spool import Spool
from tests.engines.store import Store
from tests.faults.canary import Rule, WrongNumber, judged
from tests.faults.injection import Fault, Kind, faults
from tests.faults.leftovers import unprocessed
from tests.faults.producing import buffered_on
from tests.faults.product import recorder_of, writer_of
from tests.faults.ways import known

PATIENT_MS = 30_000
PLAIN = Buffering(linger_ms=PATIENT_MS, attempts=8)
COALESCING = Buffering(linger_ms=PATIENT_MS, attempts=8, coalesce=True)


def expect(store: Store, counter: str, *, total: int, events: int) -> None:
    """The ledger holds exactly so much.

    Raises:
        WrongNumber: it does not.
    """
    exact = store.exact().read(counter)
    if (exact.sum, exact.events) != (total, events):
        raise WrongNumber(f"{exact.sum} of {exact.events} events, not {total} of {events}")


def sending_before_the_spool_knows(patch: pytest.MonkeyPatch) -> None:
    """Coalesced entries are sent while the spool still holds their events."""

    def keep(_pendings: Iterable[PendingEntry], _spool: Spool | None) -> None:
        pass

    patch.setattr(buffer_delivery, "keep", keep)


def test_throttling_slows_down_and_loses_nothing(store: Store, counter: str) -> None:
    """Sixty refusals in a row: fewer batches at once, and every event is in."""
    recorder = known(recorder_of(store), counter)
    senders: list[int] = []

    with (
        faults(writer_of(recorder), at="BatchWriteItem", plan=repeat(Fault(Kind.THROTTLE), 60)),
        buffered_on(recorder, replace(PLAIN, attempts=100)) as producer,
    ):
        for _ in range(1_000):
            pending = producer.add(counter, 1)
            pending.add_done_callback(lambda _: senders.append(producer.statistics.senders))
        producer.flush()
        statistics = producer.statistics

    assert (statistics.waits, statistics.recorded, statistics.failed) == (60, 1_000, 0)
    assert min(senders) < PLAIN.senders
    expect(store, counter, total=1_000, events=1_000)


def test_what_a_batch_leaves_is_sent_again(store: Store, counter: str) -> None:
    """The service may take some of a batch only."""
    recorder = known(recorder_of(store), counter)
    with (
        unprocessed(writer_of(recorder), [10, 3]),
        buffered_on(recorder, PLAIN) as producer,
    ):
        for _ in range(25):
            producer.add(counter, 1)
    expect(store, counter, total=25, events=25)


@judged(sending_before_the_spool_knows)
@pytest.mark.parametrize("fault", [Fault(Kind.TIMEOUT, applied=True)], ids=str)
def test_p1_a_crash_after_a_lost_answer_counts_once(
    rule: Rule, store: Store, counter: str, tmp_path: Path, fault: Fault
) -> None:
    with rule.watched():
        spooling = replace(COALESCING, spool=tmp_path / "spool", attempts=1)
        recorder = known(recorder_of(store), counter)
        doomed = buffered_on(recorder, spooling)
        with faults(writer_of(recorder), plan=repeat(fault)), suppress(NotRecorded):
            for _ in range(30):
                doomed.add(counter, 7)
            doomed.flush()
        crash(doomed)
        buffered_on(recorder_of(store), spooling).close()
        expect(store, counter, total=210, events=30)


def crash(producer: BufferedProducer) -> None:
    """The process dies with nothing under way; the kernel lets go of its file."""
    spool = producer._spool
    assert spool is not None
    assert producer.statistics.under_way == 0
    producer._buffer.queue.limit = 0
    spool.connection.close()
    buffer_processes.closed(producer)
