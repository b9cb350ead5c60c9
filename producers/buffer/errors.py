"""The errors of a buffered producer, by the classes of `ledger.errors`.

BadInput       ProducerClosed   the producer is closed, or belongs to another process
SetupError     SpoolRefused     the spool is in use, belongs to another ledger, or is not usable
ServiceFailed  BufferFull       the buffer is full now
               StillBuffered    the wait ended before all entries were acknowledged
               NotRecorded      entries failed, each with its error

With one of the first three, the event was not accepted: they are `NotTaken` too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from countledger.ledger.errors import BadInput, CountledgerError, ServiceFailed, SetupError

if TYPE_CHECKING:
    from countledger.ledger.entry import Entry
    from countledger.producers.buffer.outcomes import PendingEntry


class Failure(NamedTuple):
    """An entry that was not recorded, and why.

    Attributes:
        entry: the entry; `resend` sends it again, and it cannot count twice. None if it was never
            created: its events stay in the spool.
        error: the reason.
    """

    entry: Entry | None
    error: CountledgerError


class NotTaken(CountledgerError):
    """The buffer did not accept an event; nothing of that event was written.

    Attributes:
        taken: if several events were added together (`add_many`), the entries of the events that
            were accepted before, in their order. They are sent.
    """

    taken: tuple[PendingEntry, ...] = ()


class ProducerClosed(NotTaken, BadInput):
    """A closed producer was used, or the outcome of an entry was read in another process."""


class SpoolRefused(NotTaken, SetupError):
    """A spool file is in use, belongs to another ledger, or cannot be read or written."""


class BufferFull(NotTaken, ServiceFailed):
    """The buffer is full; this event was not accepted."""


class StillBuffered(ServiceFailed):
    """The wait ended before all entries were acknowledged; the others stay in the buffer."""


class NotRecorded(ServiceFailed):
    """Entries failed, and no caller got their errors before.

    Attributes:
        failures: each entry with its error.
    """

    def __init__(self, failures: tuple[Failure, ...]) -> None:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        super().__init__(f"not recorded: {failures[0].error}{more}")
        self.failures = failures
