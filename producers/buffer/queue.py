"""The queue of a buffer, a state machine without I/O: what is sent when, and when it is full.

    window      for coalesced events: a pending entry for each counter, which events still join
    plain       entries that are sent in batches of 25
    keyed       entries that are sent one by one with conditional puts

A keyed entry is due at once. Plain entries are due when they fill a batch, when the oldest has
waited for the linger time, or when a caller waits for them. The window is due when it is full or
has waited for the linger time. The caller passes the time; nothing here waits, sends or uses
threads.
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

# The estimated size of an entry without its texts.
_ENTRY_BYTES: Final = 400


@dataclass(eq=False, slots=True)
class EntryBatch:
    """Entries that are sent together.

    Attributes:
        pendings: the pending entries, in their order.
        keyed: whether it is one entry that is sent with a conditional put.
    """

    pendings: list[PendingEntry]
    keyed: bool


def size_of(counter: str, entry: Entry | None) -> int:
    """The estimated size of a pending entry in bytes."""
    size = _ENTRY_BYTES + len(counter)
    if entry is not None and (entry.key is not None or entry.note is not None):
        if entry.key is not None:
            size += len(entry.key)
        if entry.note is not None:
            size += sum(len(name) + len(text) for name, text in entry.note.items())
    return size


@dataclass(slots=True)
class SendQueue:
    """All accepted entries that are not acknowledged yet.

    Attributes:
        buffering: the settings.
        entries: the number of entries that use headroom: waiting, being sent, or reserved.
        size: their total size in bytes.
        limit: how many batches may be sent at the same time; throttling halves it, and success
            raises it.
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
        """Start with the configured number of senders."""
        self.limit = float(self.buffering.senders)

    # ---- accepting ----

    def reserve(self, entries: int, size: int, *, over: bool = False) -> bool:
        """Reserve headroom for entries; False if it is not enough.

        An empty buffer accepts entries of any size.

        Args:
            entries: the number of entries.
            size: their total size in bytes.
            over: whether the limits may be exceeded.
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
        """Release headroom."""
        self.entries -= entries
        self.size -= size

    def recount(self, reserved: Iterable[tuple[int, int]]) -> None:
        """Compute again how much headroom is used.

        Args:
            reserved: the number and the size of each reservation.
        """
        held = [*self._plain, *self._keyed, *self._window.values(), *self.pending_under_way()]
        sizes = [(1, one.size) for one in held] + list(reserved)
        self.entries = sum(entries for entries, _ in sizes)
        self.size = sum(size for _, size in sizes)

    def put(self, pending: PendingEntry, now_ms: float) -> None:
        """Queue a finished entry; its headroom is reserved."""
        pending.since_ms = now_ms
        self._queue(pending)

    def join(self, counter: str, delta: Amount) -> PendingEntry | None:
        """Add an event to the pending entry of its counter; None if the window has none."""
        pending = self._window.get(counter)
        if pending is None:
            return None
        if not pending.join(delta):
            # The sum is at its limit: this entry is sent, and the event opens another one.
            self._leave_window(counter)
            return None
        self._window_events += 1
        if self._window_events >= self.buffering.window_events:
            self._close_window()
        return pending

    def open(self, pending: PendingEntry, now_ms: float) -> None:
        """Add the first event of a counter to the window; its headroom is reserved."""
        if not self._window:
            self._window_since_ms = now_ms
        pending.since_ms = now_ms
        self._window[pending.counter] = pending
        self._window_events += 1
        if self._window_events >= self.buffering.window_events:
            self._close_window()

    # ---- sending ----

    def take(self, now_ms: float) -> EntryBatch | None:
        """The next batch that is due, marked as being sent; None if no batch is due."""
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
        """The milliseconds until time alone makes a batch due; None if time alone does not."""
        if len(self._under_way) >= int(self.limit):
            return None
        since_ms = [self._plain[0].since_ms] if self._plain else []
        if self._window:
            since_ms.append(self._window_since_ms)
        if not since_ms:
            return None
        return max(min(since_ms) + self.buffering.lingers_ms - now_ms, 0)

    @property
    def may_be_due(self) -> bool:
        """Whether the entry that came last can have made a batch due, or begun a wait."""
        begins_or_fills_a_batch = len(self._plain) % BATCH_WRITE_ITEMS <= 1
        return begins_or_fills_a_batch or bool(self._keyed) or bool(self._window)

    def batches_due(self, now_ms: float) -> int:
        """The number of further batches that could be sent now."""
        ready = len(self._keyed)
        if self._plain_is_due(now_ms):
            ready += -(-len(self._plain) // BATCH_WRITE_ITEMS)
        return min(ready, int(self.limit) - len(self._under_way))

    def finish(self, batch: EntryBatch, *, slow_down: bool) -> None:
        """Release the headroom of a finished batch, and adapt the limit.

        Args:
            batch: a batch from `take`.
            slow_down: whether one of its attempts was throttled or not answered.
        """
        del self._under_way[batch]
        self.release(len(batch.pendings), sum(one.size for one in batch.pendings))
        if slow_down:
            self.limit = max(self.limit / 2, 1.0)
        else:
            self.limit = min(self.limit + 1 / self.limit, float(self.buffering.senders))

    # ---- deadlines ----

    def make_due(self) -> int:
        """Make all accepted entries due now; return a mark for `finished_through`."""
        self._close_window()
        self._due_through = self._last
        return self._last

    def finished_through(self, mark: int) -> bool:
        """Whether all entries accepted before a mark are finished."""
        first = [queue[0].number for queue in (self._plain, self._keyed) if queue]
        first += [batch.pendings[0].number for batch in self._under_way]
        return all(number > mark for number in first)

    def withdraw(self) -> list[PendingEntry]:
        """Remove and return the entries that are not being sent."""
        self._close_window()
        waiting = [*self._plain, *self._keyed]
        self._plain.clear()
        self._keyed.clear()
        self.release(len(waiting), sum(one.size for one in waiting))
        return waiting

    def pending_under_way(self) -> list[PendingEntry]:
        """The entries that are being sent."""
        return [pending for batch in self._under_way for pending in batch.pendings]

    @property
    def window_is_empty(self) -> bool:
        """Whether the window has no pending entry."""
        return not self._window

    # ---- internal ----

    def _queue(self, pending: PendingEntry) -> None:
        self._last += 1
        pending.number = self._last
        keyed = pending.entry is not None and pending.entry.key is not None
        (self._keyed if keyed else self._plain).append(pending)

    def _close_window(self) -> None:
        """Queue the entries of the window, and make them due."""
        # One by one: after a signal that interrupts this, no entry is both in the window and in the
        # queue. It would be sent while more events join it.
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
        """Whether a keyed entry is due; entries of one key are sent in order."""
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
    """Whether two entries have the same identity."""
    return (
        one is not None and other is not None and (one.counter, one.id) == (other.counter, other.id)
    )
