"""The buffer as a pure state machine: what is to be sent when, and when no more may be taken.

    window      if coalescing, per counter a pending entry that events still join
    plain       entries to go by batches of 25
    keyed       entries to go by conditional puts, one by one

What is due: a keyed entry at once; plain ones as soon as they fill a batch, or the oldest has
waited long enough, or somebody is waiting for them; the window when it is full or old. Time is
handed in; nothing here waits, sends or knows of threads.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from countledger.ledger.limits import BATCH_WRITE_ITEMS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from countledger.ledger.amount import Amount
    from countledger.ledger.entry import Entry
    from countledger.producers.buffer.buffering import Buffering
    from countledger.producers.buffer.outcomes import PendingEntry

# Roughly what an entry takes beside its texts.
_ENTRY_BYTES: Final = 400


@dataclass(eq=False, slots=True)
class EntryBatch:
    """Entries that go together.

    Attributes:
        pendings: in their order.
        keyed: whether it is one entry to go by conditional put.
    """

    pendings: list[PendingEntry]
    keyed: bool


def size_of(counter: str, entry: Entry | None) -> int:
    """Roughly how many bytes a pending entry takes."""
    size = _ENTRY_BYTES + len(counter)
    if entry is not None:
        if entry.key is not None:
            size += len(entry.key)
        if entry.note is not None:
            size += sum(len(name) + len(text) for name, text in entry.note.items())
    return size


@dataclass(slots=True)
class SendQueue:
    """Everything that was taken and is not acknowledged yet.

    Attributes:
        buffering: the bounds.
        entries: how many hold room: waiting, or on their way.
        size: how large they are.
        limit: how many batches may be on their way; throttling halves it, success raises it.
    """

    buffering: Buffering
    entries: int = 0
    size: int = 0
    limit: float = 0
    _window: dict[str, PendingEntry] = field(default_factory=dict)
    _window_events: int = 0
    _window_since_ms: float = 0
    _plain: deque[PendingEntry] = field(default_factory=deque)
    _keyed: deque[PendingEntry] = field(default_factory=deque)
    _under_way: dict[EntryBatch, None] = field(default_factory=dict)
    _last: int = 0
    _due_through: int = 0

    def __post_init__(self) -> None:
        """At first as many batches as may be."""
        self.limit = float(self.buffering.senders)

    # ---- taking ----

    def reserve(self, entries: int, size: int, *, over: bool = False) -> bool:
        """Hold room for entries to come; False where there is none.

        One entry alone always finds room for its size.

        Args:
            entries: how many.
            size: how large in all.
            over: whether the bounds may be passed.
        """
        if (self.entries and not over) and (
            self.entries + entries > self.buffering.max_entries
            or self.size + size > self.buffering.max_bytes
        ):
            return False
        self.entries += entries
        self.size += size
        return True

    def release(self, entries: int, size: int) -> None:
        """Give room back."""
        self.entries -= entries
        self.size -= size

    def recount(self, reserved: Iterable[tuple[int, int]]) -> None:
        """Reckon anew what holds room.

        Args:
            reserved: number and size of what is still to come.
        """
        held = [*self._plain, *self._keyed, *self._window.values(), *self.pending_under_way()]
        sizes = [(1, one.size) for one in held] + list(reserved)
        self.entries = sum(entries for entries, _ in sizes)
        self.size = sum(size for _, size in sizes)

    def put(self, pending: PendingEntry, now_ms: float) -> None:
        """Take an entry that is made, into room that is reserved."""
        pending.since_ms = now_ms
        self._queue(pending)

    def join(self, counter: str, delta: Amount) -> PendingEntry | None:
        """Take one more event into the window; None where none of its counter is there."""
        pending = self._window.get(counter)
        if pending is None:
            return None
        if not pending.join(delta):
            # Its sum can grow no further: it goes, and another one is opened.
            self._leave_window(counter)
            return None
        self._window_events += 1
        if self._window_events >= self.buffering.window_events:
            self._close_window()
        return pending

    def open(self, pending: PendingEntry, now_ms: float) -> None:
        """Take a counter's first event into the window, into room that is reserved."""
        if not self._window:
            self._window_since_ms = now_ms
        pending.since_ms = now_ms
        self._window[pending.counter] = pending
        self._window_events += 1
        if self._window_events >= self.buffering.window_events:
            self._close_window()

    # ---- sending ----

    def take(self, now_ms: float) -> EntryBatch | None:
        """The next batch that is due, now under way; None where none is."""
        if len(self._under_way) >= int(self.limit):
            return None
        if self._window and now_ms >= self._window_since_ms + self.buffering.lingers_ms:
            self._close_window()
        plain_due = self._plain_is_due(now_ms)
        if self._keyed_is_due() and not (
            plain_due and self._plain[0].number < self._keyed[0].number
        ):
            return self._send(EntryBatch([self._keyed.popleft()], keyed=True))
        if not plain_due:
            return None
        most = min(len(self._plain), BATCH_WRITE_ITEMS)
        return self._send(EntryBatch([self._plain.popleft() for _ in range(most)], keyed=False))

    def due_in_ms(self, now_ms: float) -> float | None:
        """After how long time alone makes something due; None where it does not."""
        if len(self._under_way) >= int(self.limit):
            return None
        since_ms = [self._plain[0].since_ms] if self._plain else []
        if self._window:
            since_ms.append(self._window_since_ms)
        if not since_ms:
            return None
        return max(min(since_ms) + self.buffering.lingers_ms - now_ms, 0)

    def batches_due(self, now_ms: float) -> int:
        """How many more batches could go now."""
        ready = len(self._keyed)
        if self._plain_is_due(now_ms):
            ready += -(-len(self._plain) // BATCH_WRITE_ITEMS)
        return min(ready, int(self.limit) - len(self._under_way))

    def finish(self, batch: EntryBatch, *, slow_down: bool) -> None:
        """A batch came to its end: its room is free.

        Args:
            batch: as `take` gave it.
            slow_down: whether an attempt of it was throttled, or not answered.
        """
        del self._under_way[batch]
        self.release(len(batch.pendings), sum(one.size for one in batch.pendings))
        if slow_down:
            self.limit = max(self.limit / 2, 1.0)
        else:
            self.limit = min(self.limit + 1 / self.limit, float(self.buffering.senders))

    # ---- hurrying ----

    def make_due(self) -> int:
        """Make all that was taken due now; a mark for `finished_through`."""
        self._close_window()
        self._due_through = self._last
        return self._last

    def finished_through(self, mark: int) -> bool:
        """Whether all that was there at a mark has come to its end."""
        first = [queue[0].number for queue in (self._plain, self._keyed) if queue]
        first += [batch.pendings[0].number for batch in self._under_way]
        return all(number > mark for number in first)

    def withdraw(self) -> list[PendingEntry]:
        """Take out all that waits and is not under way."""
        self._close_window()
        waiting = [*self._plain, *self._keyed]
        self._plain.clear()
        self._keyed.clear()
        self.release(len(waiting), sum(one.size for one in waiting))
        return waiting

    def pending_under_way(self) -> list[PendingEntry]:
        """The entries that are on their way."""
        return [pending for batch in self._under_way for pending in batch.pendings]

    @property
    def window_is_empty(self) -> bool:
        """Whether no event waits to be joined by others."""
        return not self._window

    # ---- inside ----

    def _queue(self, pending: PendingEntry) -> None:
        self._last += 1
        pending.number = self._last
        keyed = pending.entry is not None and pending.entry.key is not None
        (self._keyed if keyed else self._plain).append(pending)

    def _close_window(self) -> None:
        """Its entries had their chance: they are due."""
        # One by one: behind a signal that strikes here, none of them stands in both places, where
        # it would go out and be joined by more events.
        for counter in list(self._window):
            self._leave_window(counter)
            self._due_through = self._last
        self._window_events = 0

    def _leave_window(self, counter: str) -> None:
        self._queue(self._window[counter])
        del self._window[counter]

    def _plain_is_due(self, now_ms: float) -> bool:
        if not self._plain:
            return False
        oldest = self._plain[0]
        return (
            len(self._plain) >= BATCH_WRITE_ITEMS
            or oldest.number <= self._due_through
            or now_ms >= oldest.since_ms + self.buffering.lingers_ms
        )

    def _keyed_is_due(self) -> bool:
        """Entries of one key go in turn: the first of them is to be recorded, and no later one."""
        if not self._keyed:
            return False
        entry = self._keyed[0].entry
        return not any(
            batch.keyed and _same(batch.pendings[0].entry, entry) for batch in self._under_way
        )

    def _send(self, batch: EntryBatch) -> EntryBatch:
        self._under_way[batch] = None
        return batch


def _same(one: Entry | None, other: Entry | None) -> bool:
    """Whether two entries have one identity."""
    return (
        one is not None and other is not None and (one.counter, one.id) == (other.counter, other.id)
    )
