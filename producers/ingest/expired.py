"""What expired in a backlog: whether it was counted, and sending it again, if a person says so.

An entry older than its horizon may not be written under its identity any more: an earlier sending
of it may have been written, and merged since, so that nothing stands in the way of a second one.
Often it can be told all the same, by a look at the entry and, behind that, at its counter's head:

    the entry is there, with this delta          it was counted
    it is not, and nothing of its time or        it was never counted: what was written
      later was ever merged                      and is gone would lie in the head's period
    it is not, and something was                 nobody knows; the archive may, if there is one
    it expired a moment ago                      nobody knows yet: to a clock that is behind it
                                                 had not expired, and its request may be on its way

(A bare key carries no time: for it only a counter of which nothing was merged tells.) What is sent
again is another entry, made now, under the key `override:<its id>`. Done twice, it counts once: the
first is found by its key, and once it may have been merged nobody sends a second one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from countledger.ledger.attributes import require_amount
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.head import Head, decode_head
from countledger.ledger.ids import BARE_KEY_PREFIX, id_of_key
from countledger.ledger.keys import entry_key, head_key
from countledger.ledger.limits import (
    CLOCK_SKEW_DEFAULT_MS,
    REPLICATION_BOUND_DEFAULT_MS,
    SIGNED_REQUEST_LIFE_MS,
)
from countledger.ledger.namespace import Kind
from countledger.producers.receipt import Receipt, Status

if TYPE_CHECKING:
    from countledger.ledger.attributes import Item
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.entry import Entry
    from countledger.ledger.errors import CountledgerError
    from countledger.producers.sender import Sender

_OVERRIDE: Final = "override:"
_LATE_MS: Final = CLOCK_SKEW_DEFAULT_MS + SIGNED_REQUEST_LIFE_MS + REPLICATION_BOUND_DEFAULT_MS


class LateStatus(StrEnum):
    """What is known of an entry that came too late."""

    UNCOUNTED = "uncounted"
    """It was never counted: sending it again is safe."""
    COUNTED = "counted"
    """It is in the ledger."""
    UNKNOWN = "unknown"
    """It may have been counted, and merged since; or it expired so lately that it still may be."""
    REFUSED = "refused"
    """Its key is taken by an entry with another delta."""


@dataclass(frozen=True, slots=True)
class LateEntry:
    """An entry that came too late.

    Attributes:
        entry: as it came.
        standing: whether it was counted.
        sent: what became of sending it again, where that was done.
    """

    entry: Entry
    standing: LateStatus
    sent: Status | CountledgerError | None = None

    @property
    def settled(self) -> bool:
        """Whether it is counted now, and need not be kept."""
        return self.standing is LateStatus.COUNTED or isinstance(self.sent, Status)


@dataclass(frozen=True, slots=True)
class Override:
    """Judges entries that came too late, and sends them again.

    Attributes:
        sender: brings entries to the ledger.
        reads: a DynamoDB client whose SDK may retry.
        clock: tells the time at which the new entry is made.
        late_ms: for how long behind its horizon an entry may still appear here: clocks differ,
            requests are held on their way, and other regions write as well.
    """

    sender: Sender
    reads: DynamoClient
    clock: Clock = field(default_factory=SystemClock)
    late_ms: int = _LATE_MS

    def judge(self, entry: Entry) -> LateStatus:
        """Whether an entry was counted: two read units, and one for each 4 KB of the head.

        Raises:
            BadInput: its counter cannot be used like this.
        """
        namespace = self.sender.namespaces.for_use(entry.counter, Kind.LEDGER)
        table = self.sender.table
        may_appear = self.clock.now_ms() - entry.at_ms <= namespace.horizon_ms + self.late_ms
        key = {"counter": entry.counter, "entry": entry_key(entry.id, namespace.spread)}
        there = self.reads.get(table, key, consistent=True)
        # Behind it: an entry that was retired in between is in this head.
        head = decode_head(self.reads.get(table, head_key(entry.counter), consistent=True))
        standing = standing_of(entry, there, head)
        return LateStatus.UNKNOWN if standing is LateStatus.UNCOUNTED and may_appear else standing

    def late(self, entry: Entry, *, send: bool, even_if_counted: bool = False) -> LateEntry:
        """Judge an entry and, if wanted, send it again: a write unit for each KB.

        Args:
            entry: as it came.
            send: whether to send it again where that is known to be safe.
            even_if_counted: whether to send it also where that is not known; it may count twice.
        """
        # Before it is judged: who stands still in between does not send what others sent by then.
        now_ms = self.clock.now_ms()
        standing = self.judge(entry)
        safe = standing is LateStatus.UNCOUNTED
        if not send or not (safe or (even_if_counted and standing is LateStatus.UNKNOWN)):
            return LateEntry(entry, standing)
        outcome = self.sender.outcome_of(made_anew(entry, now_ms=now_ms))
        return LateEntry(
            entry, standing, outcome.status if isinstance(outcome, Receipt) else outcome
        )


def standing_of(entry: Entry, there: Item | None, head: Head) -> LateStatus:
    """What the ledger tells of an entry.

    Args:
        entry: as it came.
        there: the item under its key.
        head: its counter's head, read behind that item.
    """
    if there is not None:
        same = require_amount(there, "delta") == entry.delta
        return LateStatus.COUNTED if same else LateStatus.REFUSED
    if head.generation == 0 or head.to_at_ms is None:
        return LateStatus.UNCOUNTED
    # What was merged later than its time may be what an earlier override made of it.
    bare = entry.id.startswith(BARE_KEY_PREFIX)
    return LateStatus.UNKNOWN if bare or entry.at_ms <= head.to_at_ms else LateStatus.UNCOUNTED


def made_anew(entry: Entry, *, now_ms: int) -> Entry:
    """The entry that stands for one that came too late."""
    key = _OVERRIDE + entry.id
    occurred_at_ms = entry.at_ms if entry.occurred_at_ms is None else entry.occurred_at_ms
    return replace(entry, id=id_of_key(key), key=key, at_ms=now_ms, occurred_at_ms=occurred_at_ms)
