"""A signal handler that raises while a window or a buffer closes: at each bytecode."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import closing, suppress
from functools import partial
from itertools import count
from threading import Lock
from time import sleep
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import pytest

from countledger.ledger.limits import BATCH_WRITE_ITEMS
from countledger.producers.buffer.queue import SendQueue
from countledger.producers.buffer.sending import BufferState, EntryMaker, keep
from countledger.producers.buffer.settings import Buffering, NotRecorded, Outcomes, PendingEntry
from countledger.producers.buffer.spool import Spool
from countledger.producers.event import Event, Status
from tests.unit.ledger.memory import MemoryClient
from tests.unit.producers.buffers import GatedClient, producer_on
from tests.unit.producers.senders import process_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from types import FrameType

NOBODY: Final = cast("Outcomes", None)
SIZE: Final = 10
LARGEST: Final = 10**20 - 1
OPENED: Final = ("a:a", "a:b")
CLOSING: Final = (
    SendQueue._close_window,
    SendQueue._leave_window,
    SendQueue._finish_leaving,
    SendQueue.put,
    SendQueue.fill,
)
WINDOW_EVENTS: Final = 5


class SignalError(Exception):
    """What the handler raises."""


class Signal:
    """Raises before one bytecode of some functions.

    Attributes:
        raised: whether that bytecode was reached.
    """

    def __init__(self, functions: Iterable[Callable[..., object]], at: int) -> None:
        self._codes = {function.__code__ for function in cast("Any", functions)}
        self._left = at
        self.raised = False

    def during(self, call: Callable[[], object]) -> None:
        """Call a function, interrupted or not."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            call()
        except SignalError:
            self.raised = True
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, _argument: object) -> Any:  # noqa: ANN401 - of the interpreter
        if frame.f_code not in self._codes:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self._left -= 1
            if self._left < 0:
                raise SignalError
        return self._trace


class Buffer:
    """A queue with a window of two counters: one fills a batch, the other begins one."""

    def __init__(self) -> None:
        self.queue = SendQueue(Buffering(linger_ms=100, window_events=WINDOW_EVENTS))
        self.added: Counter[str] = Counter()
        self.sent: list[tuple[PendingEntry, int, int]] = []
        for number in range(BATCH_WRITE_ITEMS - 1):
            self.queue.reserve(1, SIZE)
            self.queue.put(self._pending(f"plain:{number}", 1), 0)
        self.add(*OPENED)

    def _pending(self, counter: str, delta: int) -> PendingEntry:
        pending = PendingEntry(NOBODY, counter, delta, None)
        pending.size = SIZE
        self.added[counter] += delta
        return pending

    def add(self, *counters: str, delta: int = 1) -> None:
        """Add an event of each counter."""
        for counter in counters:
            if self.queue.join(counter, delta) is None:
                assert self.queue.reserve(1, SIZE)
                self.queue.open(self._pending(counter, delta), 0)
            else:
                self.added[counter] += delta

    def send(self, now_ms: float) -> None:
        """Send what is due; what is sent never changes."""
        while (batch := self.queue.take(now_ms)) is not None:
            self.sent += [(one, int(one.delta), one.events) for one in batch.pendings]
            self.queue.finish(batch, slow_down=False)

    def check(self) -> None:
        """Each event was sent once, and nothing is left."""
        sums: Counter[str] = Counter()
        for one, delta, events in self.sent:
            assert (delta, events) == (one.delta, one.events), "an event joined what was sent"
            sums[one.counter] += delta
        assert len({id(one) for one, *_ in self.sent}) == len(self.sent)
        assert sums == self.added
        assert (self.queue.entries, self.queue.size) == (0, 0)


def end(buffer: Buffer, *, recount: bool) -> None:
    """Go on after the signal: more events of the same counters, before and after a send."""
    if recount:
        before = buffer.queue.entries, buffer.queue.size
        buffer.queue.recount(())
        assert before == (buffer.queue.entries, buffer.queue.size)
    buffer.add(*OPENED)
    buffer.send(0)
    buffer.add(*OPENED)
    buffer.queue.make_due()
    buffer.send(0)


def closed_by_make_due(buffer: Buffer) -> Callable[[], object]:
    return buffer.queue.make_due


def closed_by_time(buffer: Buffer) -> Callable[[], object]:
    return lambda: buffer.send(100)


def closed_by_events(buffer: Buffer) -> Callable[[], object]:
    """The event has joined when the window closes, whether or not its caller learns so."""
    buffer.add(*("a:b",) * (WINDOW_EVENTS - 1 - len(OPENED)))
    buffer.added["a:b"] += 1
    return lambda: buffer.queue.join("a:b", 1)


def left_at_the_largest_sum(buffer: Buffer) -> Callable[[], object]:
    buffer.add("a:b", delta=LARGEST - 1)
    return lambda: buffer.queue.join("a:b", LARGEST)


Preparation: TypeAlias = "Callable[[Buffer], Callable[[], object]]"
ENDS: Final = (closed_by_make_due, closed_by_time, closed_by_events, left_at_the_largest_sum)


def interrupted(
    functions: Iterable[Callable[..., object]], at: int, prepare: Preparation
) -> Buffer | None:
    """A buffer after a signal at a bytecode; None if there are not so many."""
    buffer = Buffer()
    call, signal = prepare(buffer), Signal(functions, at)
    signal.during(call)
    return buffer if signal.raised else None


def each_interrupted(prepare: Preparation) -> Iterator[Buffer]:
    """A buffer after a signal at each bytecode in turn."""
    at = 0
    while (buffer := interrupted(CLOSING, at, prepare)) is not None:
        yield buffer
        at += 1
    assert at > 30


@pytest.mark.parametrize("prepare", ENDS)
@pytest.mark.parametrize("recount", [False, True])
def test_a_signal_while_a_window_closes_loses_and_repeats_nothing(
    prepare: Preparation,
    *,
    recount: bool,
) -> None:
    """What was sent is joined by no more events, and each event is sent once."""
    for buffer in each_interrupted(prepare):
        end(buffer, recount=recount)
        buffer.check()


@pytest.mark.parametrize("prepare", ENDS)
def test_a_signal_in_the_repair_loses_and_repeats_nothing(prepare: Preparation) -> None:
    """A second signal, at each bytecode of the next call, after one at each bytecode."""
    for first in range(sum(1 for _ in each_interrupted(prepare))):
        for second in range(200):
            buffer = interrupted(CLOSING, first, prepare)
            assert buffer is not None
            again = Signal([SendQueue._finish_leaving], second)
            again.during(lambda queue=buffer.queue: queue.recount(()))  # type: ignore[misc]
            end(buffer, recount=False)
            buffer.check()
            if not again.raised:
                break


TAKING: Final = BufferState.take_plain, SendQueue.fill


def test_a_signal_while_a_plain_event_is_taken_leaves_no_headroom_behind() -> None:
    """The event is queued or it is not; the headroom is that of what is queued."""
    for at in count():
        outcomes = Outcomes(Lock(), None)
        state = BufferState(Buffering(), EntryMaker(process_on(MemoryClient())), None, outcomes)
        first, second = (state.pending_of_plain("a:a", 1) for _ in range(2))
        assert state.has_headroom(1, first.size)
        state.take(first)
        signal = Signal(TAKING, at)
        signal.during(partial(state.take_plain, second))
        state.queue.recount(())

        assert state.queue.waiting() in ([first], [first, second])
        assert state.queue.entries == len(state.queue.waiting())
        assert state.queue.size == state.queue.entries * first.size
        if not signal.raised:
            break
    assert at > 20


@pytest.mark.parametrize("obstacle", ["closed", "failed", "not plain"])
def test_a_plain_event_is_not_taken_in_one_step_where_something_is_to_be_decided(
    obstacle: str,
) -> None:
    outcomes = Outcomes(Lock(), None)
    state = BufferState(Buffering(), EntryMaker(process_on(MemoryClient())), None, outcomes)
    first, second = (state.pending_of_plain("a:a", 1) for _ in range(2))
    assert state.has_headroom(1, first.size)
    state.take(first)
    if obstacle == "closed":
        state.closed = True
    elif obstacle == "failed":
        outcomes.failed.append(first)
    else:
        second = state.pending_of(Event("a:a", 1, key="k"))

    assert not state.take_plain(second)
    assert (state.events, state.queue.entries) == (1, 1)


HANDING_BACK: Final = (
    BufferState.hand_back,
    SendQueue.waiting,
    SendQueue.withdraw,
    EntryMaker.make,
    Outcomes.resolve,
    Outcomes.take_failures,
)


@pytest.mark.parametrize("coalesce", [False, True])
def test_a_signal_while_a_buffer_hands_back_leaves_no_entry_without_an_outcome(
    *,
    coalesce: bool,
) -> None:
    """The next call resolves each entry; what had not left the queue, it returns, once."""
    for at in count():
        lock = Lock()
        lock.acquire()  # as `close` holds it
        outcomes = Outcomes(lock, None)
        maker = EntryMaker(process_on(MemoryClient()))
        state = BufferState(Buffering(coalesce=coalesce), maker, None, outcomes)
        pendings = [state.pending_of_plain(f"a:{number}", 1) for number in range(3)]
        for one in pendings:
            assert state.has_headroom(1, one.size)
            state.take(one)
        signal = Signal(HANDING_BACK, at)
        signal.during(state.hand_back)
        queued = state.queue.waiting()
        left, failures, _ = state.hand_back()

        assert all(one.done for one in pendings)
        assert left == queued
        if signal.raised:
            assert [one.entry for one in failures] == [one.entry for one in queued]
        if not signal.raised:
            break
    assert at > 100


def test_a_close_after_an_interrupted_one_counts_no_headroom_twice() -> None:
    """What is still being sent gets its outcome, and then nothing waits."""
    for at in count():
        dynamo = GatedClient()
        dynamo.gate.clear()
        producer = producer_on(dynamo, Buffering(senders=1))
        sent, *_, left = [producer.add("a:a", 1) for _ in range(BATCH_WRITE_ITEMS + 1)]
        while producer.statistics.under_way < BATCH_WRITE_ITEMS:
            sleep(0.001)
        signal = Signal([SendQueue.withdraw], at)
        with suppress(NotRecorded):
            signal.during(lambda close=producer.close: close(0))  # type: ignore[misc]
        with suppress(NotRecorded):
            producer.close(0)
        dynamo.gate.set()

        assert sent.result(20).status is Status.RECORDED
        assert left.done
        with suppress(NotRecorded):
            producer.close(1)
        assert producer.statistics.waiting == 0
        if not signal.raised:
            break
    assert at > 10


def _make_and_keep(maker: EntryMaker, pendings: list[PendingEntry], spool: Spool) -> None:
    maker.make(pendings)
    keep(pendings, spool)


def test_a_signal_while_entries_are_kept_leaves_none_that_the_spool_does_not_know(
    tmp_path: Path,
) -> None:
    """Sent again by its owner and by the next start, under two ids, an event would count twice."""
    maker = EntryMaker(process_on(MemoryClient()))
    keeping = (EntryMaker.make, keep, Spool.freeze, Spool._roll_back, Spool._delete)
    with closing(Spool.open(tmp_path / "spool", ledger="ours", fsync=False)) as spool:
        for at in count():
            pendings = [PendingEntry(NOBODY, f"a:{n}", 1) for n in range(2)]
            spool.append(pendings)
            signal = Signal(keeping, at)
            signal.during(partial(_make_and_keep, maker, pendings, spool))

            keep(pendings, spool)  # as a batch that was interrupted ends

            kept = spool.kept()
            known = {row.entry.id for row in kept if row.entry is not None}
            assert {one.entry.id for one in pendings if one.entry is not None} == known, at
            spool.update([row.row for row in kept], [])
            if not signal.raised:
                break
    assert at > 100


JOINING: Final = (BufferState.take, SendQueue.join, SendQueue.open, PendingEntry.join)


@pytest.mark.parametrize("before", [0, 1], ids=["the first event", "one more event"])
def test_a_signal_while_an_event_is_added_leaves_it_in_no_entry_and_in_the_spool_as_well(
    tmp_path: Path, *, before: int
) -> None:
    """Both would count at the end: its entry now, and its row in the spool at the next start."""
    maker = EntryMaker(process_on(MemoryClient()))
    with closing(Spool.open(tmp_path / "spool", ledger="ours", fsync=False)) as spool:
        for at in count():
            outcomes = Outcomes(Lock(), None)
            state = BufferState(Buffering(coalesce=True), maker, spool, outcomes)
            pendings = [state.pending_of_plain("a:a", 1) for _ in range(before + 1)]
            assert state.has_headroom(len(pendings), sum(one.size for one in pendings))
            spool.append(pendings)
            for one in pendings[:before]:
                state.take(one)
            signal = Signal(JOINING, at)
            signal.during(partial(state.take, pendings[-1]))

            sums = state.queue.waiting()
            _make_and_keep(maker, sums, spool)
            left = sum(int(row.delta) for row in spool.kept() if row.entry is None)
            assert sum(int(one.delta) for one in sums) + left <= before + 1, at
            spool.forget([row.row for row in spool.kept()])
            if not signal.raised:
                break
    assert at > 20
