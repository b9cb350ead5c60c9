"""The buffer's state machine: what is sent when, and that each entry goes out once."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from countledger.ledger.amount import total_of
from countledger.ledger.entry import Entry
from countledger.producers.buffer.queue import EntryBatch, SendQueue
from countledger.producers.buffer.settings import Buffering, Outcomes, PendingEntry

if TYPE_CHECKING:
    from countledger.ledger.amount import Amount

LINGER_MS = 100
MAX_BYTES = Buffering().max_bytes
NOBODY = cast("Outcomes", None)


def buffering(*, max_entries: int = 1_000, senders: int = 3, window_events: int = 50) -> Buffering:
    return Buffering(
        linger_ms=LINGER_MS,
        max_entries=max_entries,
        senders=senders,
        window_events=window_events,
    )


def entry_of(counter: str, delta: Amount, key: str | None = None) -> Entry:
    name = f"k{key}" if key else f"id-{counter}-{delta}"
    return Entry(counter=counter, id=name, delta=delta, at_ms=1, origin="eu", key=key)


def pending_of(counter: str, delta: Amount = 1, key: str | None = None) -> PendingEntry:
    return PendingEntry(NOBODY, counter, delta, entry_of(counter, delta, key))


def filled(count: int, *, now_ms: float = 0, key: str | None = None) -> SendQueue:
    """A buffer with so many entries."""
    buffer = SendQueue(buffering())
    for number in range(count):
        pending = pending_of(f"a:{number}", key=key and f"{key}-{number}")
        assert buffer.reserve(1, pending.size)
        buffer.put(pending, now_ms)
    return buffer


def test_headroom_is_bounded_by_number_and_size_and_one_large_entry_always_fits() -> None:
    """Else it could never be sent."""
    buffer = SendQueue(Buffering(max_entries=25, max_bytes=1_048_576))

    assert buffer.reserve(1, 5_000_000)
    assert not buffer.reserve(1, 1)
    buffer.release(1, 5_000_000)
    assert buffer.reserve(25, 25)
    assert not buffer.reserve(1, 1)


@pytest.mark.parametrize(
    ("waiting", "max_entries", "size", "taken"),
    [
        pytest.param(1, 25, 0, True, id="headroom"),
        pytest.param(23, 25, 0, True, id="the last but one of a batch"),
        pytest.param(24, 25, 0, False, id="the last of a batch"),
        pytest.param(25, 50, 0, False, id="a full batch"),
        pytest.param(0, 25, 0, False, id="no batch"),
        pytest.param(26, 27, 0, True, id="the last entry that fits"),
        pytest.param(26, 26, 0, False, id="too many entries"),
        pytest.param(1, 25, MAX_BYTES, False, id="too many bytes"),
        pytest.param(1, 25, MAX_BYTES - 1, True, id="the last byte that fits"),
    ],
)
def test_a_further_plain_event_is_taken_where_a_batch_and_the_buffer_have_headroom(
    waiting: int, max_entries: int, size: int, *, taken: bool
) -> None:
    """In one step as in two; if it is not taken, nothing has changed."""
    queue, further = SendQueue(Buffering(max_entries=max_entries)), pending_of("a:further")
    for number in range(waiting):
        assert queue.reserve(1, 0)
        queue.put(pending_of(f"a:{number}"), 0)
    further.size, queue.size = 1, size
    queue.may_be_due = False

    assert queue.fill(further) is taken

    assert (queue.entries, queue.size) == (waiting + taken, size + taken)
    assert queue.waiting()[waiting:] == [further] * taken


def test_throttling_halves_what_is_on_its_way_and_success_raises_it_again() -> None:
    buffer = SendQueue(buffering(senders=8))
    limits = []
    for slow_down in [True] * 4 + [False] * 60:
        pending = pending_of("a:b")
        buffer.reserve(1, pending.size)
        buffer.put(pending, -LINGER_MS)
        buffer.finish(cast("EntryBatch", buffer.take(0)), slow_down=slow_down)
        limits.append(int(buffer.limit))

    assert limits[:4] == [4, 2, 1, 1]
    assert limits[-1] == 8
    assert limits[3:] == sorted(limits[3:])


def test_no_more_is_on_its_way_than_may_be() -> None:
    """Due or not: while all senders are at work, time alone makes nothing due."""
    buffer = filled(200)
    taken = [buffer.take(0) for _ in range(4)]

    assert [batch is not None for batch in taken] == [True, True, True, False]
    assert buffer.due_in_ms(10_000) is None
    assert buffer.batches_due(10_000) == 0


@pytest.mark.parametrize("coalesce", [False, True])
@pytest.mark.parametrize(("waited_ms", "due"), [(LINGER_MS - 1, False), (LINGER_MS, True)])
def test_what_has_waited_for_the_linger_time_is_due(
    waited_ms: int, *, due: bool, coalesce: bool
) -> None:
    """To the millisecond: a thread that waits until then must find a batch."""
    buffer = SendQueue(buffering()) if coalesce else filled(1)
    if coalesce:
        add_all(buffer, ["a:b"])

    assert buffer.due_in_ms(waited_ms) == LINGER_MS - waited_ms
    assert (buffer.take(waited_ms) is not None) is due


@pytest.mark.parametrize("events", [49, 50, 51])
def test_a_window_closes_when_it_is_full(events: int) -> None:
    buffer = SendQueue(buffering(window_events=50))
    add_all(buffer, ["a:b"] * events)
    batch = buffer.take(0)

    assert (batch is None) == (events < 50)
    if batch is not None:
        assert [(one.delta, one.events) for one in batch.pendings] == [(50, 50)]


def test_a_window_whose_end_is_interrupted_goes_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C strikes anywhere; what went out is not joined by any more events."""
    buffer = SendQueue(buffering())
    add_all(buffer, ["a:a", "a:b", "a:c"])
    put, calls = SendQueue.put, iter((False, True))

    def interrupted(buffer: SendQueue, pending: PendingEntry, now_ms: float) -> None:
        if next(calls):
            raise KeyboardInterrupt
        put(buffer, pending, now_ms)

    with monkeypatch.context() as patch:
        patch.setattr(SendQueue, "put", interrupted)
        with pytest.raises(KeyboardInterrupt):
            buffer.make_due()
    first = cast("EntryBatch", buffer.take(0)).pendings
    add_all(buffer, ["a:a", "a:b"])
    buffer.make_due()
    rest = cast("EntryBatch", buffer.take(0)).pendings

    assert [(one.counter, one.events) for one in first] == [("a:a", 1)]
    assert {(one.counter, one.events) for one in rest} == {("a:a", 1), ("a:b", 2), ("a:c", 1)}


def add_all(buffer: SendQueue, counters: list[str]) -> None:
    for counter in counters:
        if buffer.join(counter, 1) is None:
            pending = PendingEntry(NOBODY, counter, 1, None)
            buffer.reserve(1, 0)
            buffer.open(pending, 0)


def test_a_sum_that_can_grow_no_further_goes_and_another_is_opened() -> None:
    buffer = SendQueue(buffering())
    largest = 10**20 - 1
    buffer.open(PendingEntry(NOBODY, "a:b", largest, None), 0)

    assert buffer.join("a:b", 1) is None
    buffer.open(PendingEntry(NOBODY, "a:b", 1, None), 0)
    buffer.make_due()

    assert [one.delta for one in cast("EntryBatch", buffer.take(0)).pendings] == [largest, 1]


class Life(RuleBasedStateMachine):
    """Any life of a buffer: whatever is added comes out once, and nothing waits for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = SendQueue(buffering(max_entries=60, senders=2, window_events=20))
        self.now_ms = 0.0
        self.added: list[Amount] = []
        self.events = 0
        self.out: list[PendingEntry] = []
        self.under_way: list[EntryBatch] = []

    @rule(counter=st.sampled_from("abc"), delta=st.integers(-5, 5).filter(bool), key=st.booleans())
    def add_entry(self, counter: str, delta: int, key: bool) -> None:  # noqa: FBT001
        pending = pending_of(counter, delta, counter if key else None)
        if self.buffer.reserve(1, pending.size):
            self.buffer.put(pending, self.now_ms)
            self._note(delta)

    @rule(counter=st.sampled_from("abc"), delta=st.integers(-5, 5).filter(bool))
    def add_event(self, counter: str, delta: int) -> None:
        if self.buffer.join(counter, delta) is None:
            if not self.buffer.reserve(1, 10):
                return
            pending = PendingEntry(NOBODY, counter, delta, None)
            pending.size = 10
            self.buffer.open(pending, self.now_ms)
        self._note(delta)

    def _note(self, delta: Amount) -> None:
        self.added.append(delta)
        self.events += 1

    @rule(ms=st.integers(0, 150))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def make_due(self) -> None:
        self.buffer.make_due()

    @rule()
    def take(self) -> None:
        due = self.buffer.batches_due(self.now_ms)
        batch = self.buffer.take(self.now_ms)
        if batch is None:
            assert due <= 0 or self._blocked_by_a_key()
            return
        assert len(batch.pendings) <= (1 if batch.keyed else 25)
        self.under_way.append(batch)
        self.out += batch.pendings

    def _blocked_by_a_key(self) -> bool:
        return any(batch.keyed for batch in self.under_way)

    @precondition(lambda self: self.under_way)
    @rule(slow_down=st.booleans(), data=st.data())
    def finish(self, slow_down: bool, data: st.DataObject) -> None:  # noqa: FBT001
        batch = self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))
        self.buffer.finish(batch, slow_down=slow_down)

    @rule()
    def withdraw(self) -> None:
        self.out += self.buffer.waiting()
        self.buffer.withdraw()

    @invariant()
    def bounds_hold(self) -> None:
        assert 0 <= self.buffer.entries <= 60
        assert self.buffer.size >= 0
        assert len(self.under_way) <= 2
        keys = [one.counter for b in self.under_way if b.keyed for one in b.pendings]
        assert len(keys) == len(set(keys))

    def teardown(self) -> None:
        """In the end all of it is sent, and headroom for all is there again."""
        mark = self.buffer.make_due()
        for _ in range(500):
            self.take()
            for batch in self.under_way:
                self.buffer.finish(batch, slow_down=False)
            self.under_way.clear()
        assert self.buffer.finished_through(mark)
        assert (self.buffer.entries, self.buffer.size) == (0, 0)
        assert len({id(one) for one in self.out}) == len(self.out)
        assert total_of(one.delta for one in self.out) == total_of(self.added)
        assert sum(one.events for one in self.out) == self.events


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
