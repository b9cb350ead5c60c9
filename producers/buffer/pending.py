"""What an app gets back at once for an event that it adds: the fate of its entry, to come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from countledger.ledger.amount import Amount, add, may_be_added
from countledger.producers.event import Receipt

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.ledger.entry import Entry
    from countledger.producers.sender import Outcome


class Fates(Protocol):
    """Where the fates of pending entries are decided: one process's buffer."""

    def outcome_of(self, pending: Pending, timeout_s: float | None) -> Outcome:
        """Wait for an entry's outcome."""

    def call_when_done(self, pending: Pending, callback: Callable[[Pending], object]) -> None:
        """Have a function called once the outcome is known."""

    def refuse_in_a_fork(self) -> None:
        """Refuse to wait in another process."""


class Pending:
    """An entry on its way. Of events that were coalesced, all have the same one.

    Attributes:
        counter: the counter's name.
        delta: what the entry adds, as far as it is known yet.
        events: how many events it carries, as far as it is known yet.
        entry: the entry, once it is made: at once, or if coalescing, before it is first sent.
        outcome: its receipt or its error, once that is known.
    """

    __slots__ = (
        "_fates",
        "callbacks",
        "counter",
        "delta",
        "entry",
        "events",
        "handed_back",
        "loose",
        "number",
        "outcome",
        "rows",
        "seen",
        "since_ms",
        "size",
    )

    def __init__(self, fates: Fates, counter: str, delta: Amount, entry: Entry | None) -> None:
        self._fates = fates
        self.counter = counter
        self.delta = delta
        self.entry = entry
        self.events = 1
        self.outcome: Outcome | None = None
        # What follows is the buffer's own.
        self.number = 0  # its place in the queue
        self.since_ms = 0.0
        self.size = 0
        self.rows: list[int] | None = None  # where it lies in the spool
        self.loose = False  # whether the spool holds its events still, and not its entry
        self.seen = False  # whether somebody has been told of its outcome
        self.handed_back = False  # whether the producer's end reported it while it was under way
        self.callbacks: list[Callable[[Pending], object]] | None = None

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        return self.outcome is not None

    def result(self, timeout_s: float | None = None) -> Receipt:
        """Wait until the entry is acknowledged.

        Args:
            timeout_s: for how long, at the most; None waits until it is known.

        Raises:
            TimeoutError: it is not known yet.
            ProducerClosed: this is a fork of the process that the entry belongs to.
            CountledgerError: what `CountLedger.record` raises.
        """
        outcome = self.wait(timeout_s)
        if isinstance(outcome, Receipt):
            return outcome
        raise outcome

    def wait(self, timeout_s: float | None = None) -> Outcome:
        """As `result`, with an error of this entry as a value."""
        return self._fates.outcome_of(self, timeout_s)

    def add_done_callback(self, callback: Callable[[Pending], object]) -> None:
        """Have a function called with this, on a sender's thread, once the outcome is known.

        At once and here if it is known already. What it raises is logged.
        """
        self._fates.call_when_done(self, callback)

    def join(self, delta: Amount) -> bool:
        """Take in one more event of the counter; False where the sum is too long for an entry."""
        total = add(self.delta, delta)
        if not may_be_added(total):
            return False
        self.delta = total
        self.events += 1
        return True
