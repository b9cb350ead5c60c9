"""What can go wrong with a buffer of entries, by blame as in `ledger.errors`.

BadInput       ProducerClosed   it was used after its end
SetupError     SpoolRefused     the spool is in use, another ledger's, or cannot be read or written
ServiceFailed  BufferFull       it took no more, for now
               StillBuffered    the time was over before all was acknowledged
               NotRecorded      entries that failed, each with its error

For the first three an event is not taken: they are `NotTaken` as well.
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
        entry: send it again as it is; it cannot count twice. None where it was never made: its
            events stay in the spool.
        error: why.
    """

    entry: Entry | None
    error: CountledgerError


class NotTaken(CountledgerError):
    """A buffer did not take an event; of that event nothing was written.

    Attributes:
        taken: of several events that were added together (`add_many`), the entries of those that
            had been taken before: the first so many, in their order. They are sent.
    """

    taken: tuple[PendingEntry, ...] = ()


class ProducerClosed(NotTaken, BadInput):
    """A buffered producer was used after its end, or an entry's fate asked of another process."""


class SpoolRefused(NotTaken, SetupError):
    """A spool file is in use, belongs to another ledger, or cannot be read or written."""


class BufferFull(NotTaken, ServiceFailed):
    """A buffer holds as much as it may; this event was not taken."""


class StillBuffered(ServiceFailed):
    """The time given was over before all was acknowledged; what is left stays in the buffer."""


class NotRecorded(ServiceFailed):
    """Entries of a buffer that failed, and that nobody had asked after.

    Attributes:
        failures: each entry with its error.
    """

    def __init__(self, failures: tuple[Failure, ...]) -> None:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        super().__init__(f"not recorded: {failures[0].error}{more}")
        self.failures = failures
