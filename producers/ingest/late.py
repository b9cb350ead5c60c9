"""Late entries: those that arrived after their horizon.

An entry older than its horizon must not be written with its identity: an earlier send of it may
have been written and merged since, so that no item refuses the second one. Its item and then its
counter's head often show whether it was counted:

    item       head                                       status
    same delta                                            counted
    other delta                                           refused
    none       nothing of its time or later is merged     uncounted: a counted entry that is gone
                                                          would be in the period of the head
    none       something of its time or later is merged   unknown; an archive may have it
    none       it expired a moment ago                    unknown: on a clock that is late it has
                                                          not expired, and a write may follow

(A bare key has no time: it is uncounted only if its counter's head is empty.) An uncounted entry is
sent as a new entry, created now, with the key `override:<its id>`. A second send finds the first by
that key; after the first may have been merged, the status is unknown and nothing is sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from countledger.ledger.attributes import require_amount
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.exact import Head, decode_head
from countledger.ledger.ids import BARE_KEY_PREFIX, id_of_key
from countledger.ledger.keys import entry_key, head_key
from countledger.ledger.limits import (
    CLOCK_SKEW_DEFAULT_MS,
    REPLICATION_BOUND_DEFAULT_MS,
    SIGNED_REQUEST_LIFE_MS,
)
from countledger.ledger.namespace import Kind
from countledger.producers.event import Receipt, Status

if TYPE_CHECKING:
    from countledger.ledger.attributes import Item
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.entry import Entry
    from countledger.ledger.errors import CountledgerError
    from countledger.producers.sender import Sender

_OVERRIDE: Final = "override:"
_LATE_MS: Final = CLOCK_SKEW_DEFAULT_MS + SIGNED_REQUEST_LIFE_MS + REPLICATION_BOUND_DEFAULT_MS


class LateStatus(StrEnum):
    """Whether a late entry was counted."""

    UNCOUNTED = "uncounted"
    """It was never counted: sending it again is safe."""
    COUNTED = "counted"
    """It is in the ledger."""
    UNKNOWN = "unknown"
    """It may have been counted and merged since, or may still be written."""
    REFUSED = "refused"
    """Its key was used by an entry with another delta."""


@dataclass(frozen=True, slots=True)
class LateEntry:
    """A late entry.

    Attributes:
        entry: as it arrived.
        status: whether it was counted.
        sent: the result of sending it again, if that was done.
    """

    entry: Entry
    status: LateStatus
    sent: Status | CountledgerError | None = None

    @property
    def resolved(self) -> bool:
        """Whether it is counted now, so that it need not be kept."""
        return self.status is LateStatus.COUNTED or isinstance(self.sent, Status)


@dataclass(frozen=True, slots=True)
class LateResender:
    """Determines whether late entries were counted, and sends them again.

    Attributes:
        sender: writes entries to the ledger.
        reads: a DynamoDB client whose SDK may retry.
        clock: gives the time of the new entry.
        late_ms: how long after its horizon an entry may still appear: clocks differ, requests are
            delayed, and other regions write as well.
    """

    sender: Sender
    reads: DynamoClient
    clock: Clock = field(default_factory=SystemClock)
    late_ms: int = _LATE_MS

    def status_of(self, entry: Entry) -> LateStatus:
        """Whether an entry was counted: two read units, and one for each 4 KB of the head.

        Raises:
            BadInput: its counter does not take entries.
        """
        namespace = self.sender.namespaces.for_use(entry.counter, Kind.LEDGER)
        table = self.sender.table
        may_appear = self.clock.now_ms() - entry.at_ms <= namespace.horizon_ms + self.late_ms
        key = {"counter": entry.counter, "entry": entry_key(entry.id, namespace.spread)}
        item = self.reads.get(table, key, consistent=True)
        # Read second: an entry that is retired between the two reads is in this head.
        head = decode_head(self.reads.get(table, head_key(entry.counter), consistent=True))
        status = late_status(entry, item, head)
        return LateStatus.UNKNOWN if status is LateStatus.UNCOUNTED and may_appear else status

    def resolve(self, entry: Entry, *, send: bool, even_if_counted: bool = False) -> LateEntry:
        """Determine the status of an entry and, if wanted, send it: a write unit for each KB.

        Args:
            entry: as it arrived.
            send: whether to send it if that is known to be safe.
            even_if_counted: whether to send it also if the status is unknown; it may count twice.
        """
        # Taken before the status: if this process pauses for longer than the horizon (another
        # replacement may be merged by then), the send is refused as too old.
        now_ms = self.clock.now_ms()
        status = self.status_of(entry)
        safe = status is LateStatus.UNCOUNTED
        if not send or not (safe or (even_if_counted and status is LateStatus.UNKNOWN)):
            return LateEntry(entry, status)
        outcome = self.sender.outcome_of(replacement_of(entry, now_ms=now_ms))
        return LateEntry(entry, status, outcome.status if isinstance(outcome, Receipt) else outcome)


def late_status(entry: Entry, item: Item | None, head: Head) -> LateStatus:
    """Whether an entry was counted, by the table above.

    Args:
        entry: as it arrived.
        item: the item of its key, or None.
        head: the head of its counter, read after the item.
    """
    if item is not None:
        same = require_amount(item, "delta") == entry.delta
        return LateStatus.COUNTED if same else LateStatus.REFUSED
    if head.generation == 0 or head.to_at_ms is None:
        return LateStatus.UNCOUNTED
    # An entry merged after its time may be the replacement that an earlier run sent.
    bare = entry.id.startswith(BARE_KEY_PREFIX)
    return LateStatus.UNKNOWN if bare or entry.at_ms <= head.to_at_ms else LateStatus.UNCOUNTED


def replacement_of(entry: Entry, *, now_ms: int) -> Entry:
    """The new entry that is sent in place of a late one."""
    key = _OVERRIDE + entry.id
    occurred_at_ms = entry.at_ms if entry.occurred_at_ms is None else entry.occurred_at_ms
    return replace(entry, id=id_of_key(key), key=key, at_ms=now_ms, occurred_at_ms=occurred_at_ms)
