"""Coalesced events become one entry: their sum, and how many they are.

Until it is first sent, a pending entry takes in the events of its counter. Then its entry is made,
and never altered: it is sent again as it is, or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.entry import Entry
from countledger.ledger.errors import CountledgerError
from countledger.ledger.ids import new_id
from countledger.producers.event import make_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from countledger.producers.buffer.pending import Pending
    from countledger.producers.buffer.spool import Spool
    from countledger.producers.event import Event


def may_coalesce(event: Event) -> bool:
    """Whether nothing of an event is lost in a sum: no identity, no note, no time of its own."""
    return event.key is None and event.note is None and event.occurred_at is None


@dataclass(frozen=True, slots=True)
class EntryMaker:
    """Makes entries.

    Attributes:
        region: where this process works; every entry says so.
        clock: tells the time at which an entry is made.
        new_id: makes an id for a millisecond.
    """

    region: str
    clock: Clock = field(default_factory=SystemClock)
    new_id: Callable[[int], str] = new_id

    def of_event(self, event: Event) -> Entry:
        """The entry of one event."""
        return make_entry(event, now_ms=self.clock.now_ms(), origin=self.region, new_id=self.new_id)

    def make(self, pendings: Iterable[Pending]) -> None:
        """Make the entries that coalesced events have waited for.

        Their sum may be 0: it is written all the same, for the number of its events.
        """
        at_ms = self.clock.now_ms()
        for draft in pendings:
            if draft.entry is None:
                draft.entry = Entry(
                    counter=draft.counter,
                    id=self.new_id(at_ms),
                    delta=draft.delta,
                    at_ms=at_ms,
                    origin=self.region,
                    events=draft.events,
                )
                draft.loose = draft.rows is not None


def keep(pendings: Iterable[Pending], spool: Spool | None) -> None:
    """Let the spool know entries in place of their events, before they are first sent.

    Raises:
        SpoolRefused: they could not be kept, and must not be sent: their events are still spooled,
            and become entries of another id at the next start.
    """
    drafts = [pending for pending in pendings if pending.loose]
    if not drafts or spool is None:
        return
    try:
        spool.freeze(drafts)
    except CountledgerError:
        for draft in drafts:
            draft.entry = None
        raise
    finally:
        for draft in drafts:
            draft.loose = False
