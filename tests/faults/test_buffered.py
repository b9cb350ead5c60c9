"""What an app hears, and what the ledger holds, when the writes of a buffer go wrong."""

from dataclasses import replace
from itertools import repeat

from countledger import Buffering
from tests.engines.store import Store
from tests.faults.canary import WrongNumber
from tests.faults.injection import Fault, Kind, faults
from tests.faults.producing import buffered_on
from tests.faults.recording import known, recorder_of, writer_of

PATIENT_MS = 30_000
PLAIN = Buffering(linger_ms=PATIENT_MS, attempts=8)


def expect(store: Store, counter: str, *, total: int, events: int) -> None:
    """The ledger holds exactly so much.

    Raises:
        WrongNumber: it does not.
    """
    exact = store.exact().read(counter)
    if (exact.value, exact.events) != (total, events):
        raise WrongNumber(f"{exact.value} of {exact.events} events, not {total} of {events}")


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
