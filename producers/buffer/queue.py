"""The queue of a buffer, a state machine without I/O: what is sent when, and when it is full.

    window      for coalesced events: a pending entry for each counter, which events still join
    plain       batches of 25 entries; the last one may have fewer, and still accepts entries
    keyed       entries that are sent one by one with conditional puts

A keyed entry is due at once. A plain batch is due when it is full, when its first entry has waited
for the linger time, or when a caller waits for it. The window is due when it is full or has waited
for the linger time. The caller passes the time; nothing here waits, sends or uses threads.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from countledger.ledger.limits import BATCH_WRITE_ITEMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.entry import Entry
    from countledger.producers.buffer.settings import Buffering, PendingEntry


@dataclass(eq=False, slots=True)
class EntryBatch:
    """Entries that are sent together; `keyed`: it is one, sent with a conditional put.

    `number` is its place in the order of all batches. The entries are there once they are created.
    """

    pendings: list[PendingEntry]
    number: int
    since_ms: float
    keyed: bool
    entries: Sequence[Entry] = ()


@dataclass(slots=True)
class SendQueue:
    """All accepted entries that are not acknowledged yet.

    `entries`, of `size` bytes together, use headroom: waiting, being sent, or reserved. `limit`:
    how many batches may be sent at once; throttles halve it, and success raises it. `may_be_due`:
    whether a batch began or became due since the caller last set this to False.
    """

    buffering: Buffering
    entries: int = 0
    size: int = 0
    limit: float = 0
    may_be_due: bool = False
    _entries_max: int = 0
    _window: dict[str, PendingEntry] = field(default_factory=dict)
    _window_events: int = 0
    _window_since_ms: float = 0
    _leaving: str | None = None  # the counter whose entry moves from the window to the queue
    _plain: deque[EntryBatch] = field(default_factory=deque)
    _keyed: deque[EntryBatch] = field(default_factory=deque)
    _under_way: dict[EntryBatch, None] = field(default_factory=dict)
    _last: int = 0
    _due_through: int = 0

    def __post_init__(self) -> None:
        self.limit = float(self.buffering.senders)
        self._entries_max = self.buffering.holds_entries

    # ---- accepting ----

    def reserve(self, entries: int, size: int) -> bool:
        """Reserve headroom for entries; False if it is not enough.

        An empty buffer accepts entries of any size.
        """
        all_entries, all_bytes = self.entries + entries, self.size + size
        too_many = all_entries > self._entries_max or all_bytes > self.buffering.max_bytes
        if self.entries and too_many:
            return False
        self.entries, self.size = all_entries, all_bytes
        return True

    def exceed(self, entries: int, size: int) -> None:
        """Reserve headroom, also above the limits."""
        self.entries += entries
        self.size += size

    def release(self, entries: int, size: int) -> None:
        self.entries -= entries
        self.size -= size

    def recount(self, reserved: Iterable[tuple[int, int]]) -> None:
        """Compute again how much headroom is used, with the number and size of each reservation."""
        self._finish_leaving()
        held = [*self._waiting(), *self._window.values(), *self.pending_under_way()]
        sizes = [(1, one.size) for one in held] + list(reserved)
        self.entries = sum(entries for entries, _ in sizes)
        self.size = sum(size for _, size in sizes)

    def fill(self, pending: PendingEntry) -> bool:
        """`reserve` and `put` in one step, of a plain entry that makes no batch full or due.

        Most events are such ones. False if it is not one, or if there is no headroom for it.
        """
        plain, size = self._plain, self.size + pending.size
        if not plain or self.entries >= self._entries_max or size > self.buffering.max_bytes:
            return False
        filling = plain[-1].pendings
        if len(filling) >= BATCH_WRITE_ITEMS - 1:
            return False
        filling.append(pending)
        self.entries += 1
        self.size = size
        return True

    def put(self, pending: PendingEntry, now_ms: float) -> None:
        """Queue an entry that no more events join; its headroom is reserved."""
        keyed, plain = pending.entry is not None and pending.entry.key is not None, self._plain
        if not keyed and plain and len(filling := plain[-1].pendings) < BATCH_WRITE_ITEMS:
            filling.append(pending)
            self.may_be_due |= len(filling) == BATCH_WRITE_ITEMS
        else:
            self._last += 1
            self.may_be_due = True
            batch = EntryBatch([pending], self._last, now_ms, keyed)
            (self._keyed if keyed else plain).append(batch)

    def join(self, counter: str, delta: Amount, rows: Sequence[int] = ()) -> PendingEntry | None:
        """Add an event to the pending entry of its counter; None if the window has none."""
        pending = self._window.get(counter)
        if pending is None:
            return None
        if not pending.join(delta, rows):
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
            self.may_be_due = True
        self._window[pending.counter] = pending
        self._window_events += 1
        if self._window_events >= self.buffering.window_events:
            self._close_window()

    # ---- sending ----

    def take(self, now_ms: float) -> EntryBatch | None:
        """The next batch that is due, marked as being sent; None if no batch is due."""
        if len(self._under_way) >= int(self.limit):
            return None
        self._finish_leaving()
        if self._window and now_ms >= self._window_since_ms + self.buffering.lingers_ms:
            self._close_window()
        due = self._plain if self._plain and self._is_due(self._plain[0], now_ms) else None
        if self._keyed_is_due() and (due is None or self._keyed[0].number < due[0].number):
            due = self._keyed
        if due is None:
            return None
        batch = due.popleft()
        self._under_way[batch] = None
        return batch

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

    def batches_due(self, now_ms: float) -> int:
        """The number of further batches that could be sent now."""
        ready = len(self._keyed) + len(self._plain)
        if self._plain and not self._is_due(self._plain[-1], now_ms):
            ready -= 1
        return min(ready, int(self.limit) - len(self._under_way))

    def finish(self, batch: EntryBatch, *, slow_down: bool) -> None:
        """Release the headroom of a finished batch, and adapt the limit.

        `slow_down`: one of its attempts was throttled or not answered.
        """
        del self._under_way[batch]
        self.release(len(batch.pendings), sum([one.size for one in batch.pendings]))
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

    def finished_through(self, mark: float) -> bool:
        """Whether all entries accepted before a mark are finished."""
        first = [queue[0] for queue in (self._plain, self._keyed) if queue]
        return all(batch.number > mark for batch in (*first, *self._under_way))

    def waiting(self) -> list[PendingEntry]:
        """The entries that are not being sent; no more events join them."""
        self._close_window()
        return self._waiting()

    def withdraw(self) -> None:
        """Remove the entries that are not being sent."""
        waiting = self.waiting()
        self._plain.clear()
        self._keyed.clear()
        self.release(len(waiting), sum(one.size for one in waiting))

    def pending_under_way(self) -> list[PendingEntry]:
        return [pending for batch in self._under_way for pending in batch.pendings]

    # ---- internal ----

    def _waiting(self) -> list[PendingEntry]:
        return [one for batch in (*self._plain, *self._keyed) for one in batch.pendings]

    def _close_window(self) -> None:
        """Queue the entries of the window, and make them due."""
        for counter in list(self._window):
            self._leave_window(counter)
            self._due_through = self._last
        self._window_events = 0
        self.may_be_due = True

    def _leave_window(self, counter: str) -> None:
        self._finish_leaving()
        if counter in self._window:
            self._leaving = counter
            self.put(self._window[counter], self._window_since_ms)
            del self._window[counter]
            self._leaving = None

    def _finish_leaving(self) -> None:
        """Finish the move of an entry that a signal handler interrupted, if there was one.

        Called before any entry moves, is sent or is counted: an entry that is in the window and in
        the queue would be sent twice, or while more events join it.
        """
        if self._leaving is None:
            return
        if self._window.get(self._leaving) in self._waiting():
            del self._window[self._leaving]
        self._leaving = None

    def _is_due(self, plain: EntryBatch, now_ms: float) -> bool:
        return (
            len(plain.pendings) == BATCH_WRITE_ITEMS
            or plain.number <= self._due_through
            or now_ms >= plain.since_ms + self.buffering.lingers_ms
        )

    def _keyed_is_due(self) -> bool:
        """Whether a keyed entry is due; entries of one key are sent in order."""
        if not self._keyed:
            return False
        under_way = [_identity(one) for one in self._under_way if one.keyed]
        return _identity(self._keyed[0]) not in under_way


def _identity(keyed: EntryBatch) -> tuple[str, str] | None:
    entry = keyed.pendings[0].entry
    return None if entry is None else (entry.counter, entry.id)
