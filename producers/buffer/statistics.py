"""What a buffered producer has done, and what it holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferStatistics:
    """One moment of one process's buffer; entries are what is written, events what was added.

    Attributes:
        events: added.
        waiting: entries that wait to be sent, or are on their way.
        under_way: those of them that are on their way.
        recorded: entries acknowledged as new.
        duplicates: entries acknowledged as recorded before.
        failed: entries that came back with an error.
        batches: requests' worth of entries that came to their end.
        waits: attempts that were throttled or not answered, and made again.
        senders: batches that may be on their way at once, now.
    """

    events: int
    waiting: int
    under_way: int
    recorded: int
    duplicates: int
    failed: int
    batches: int
    waits: int
    senders: int
