"""A producer whose `add` returns at once; threads of its own send what was added, in batches.

    with ledger.buffered() as clicks:
        clicks.add("clicks:home", 1)

What was added is sent when it fills a batch, when it has waited long enough, by `flush`, and at
the end: of the `with` block, of the process, or in a Lambda, of each invocation (`flushing`).
Nothing is lost without a word: what fails comes back with its entry.
"""

from __future__ import annotations

from collections import deque
from functools import wraps
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from countledger.ledger.amount import parse_delta
from countledger.ledger.errors import BadInput
from countledger.ledger.limits import SECOND_MS
from countledger.producers.buffer.desk import Desk
from countledger.producers.buffer.errors import Failure, NotRecorded
from countledger.producers.buffer.holdings import Holdings
from countledger.producers.buffer.outcomes import Outcomes
from countledger.producers.buffer.processes import closed, opened
from countledger.producers.buffer.spool import Spool
from countledger.producers.event import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime
    from types import TracebackType
    from typing import Self

    from countledger.ledger.amount import Amount
    from countledger.ledger.entry import Entry
    from countledger.ledger.ids import IdempotencyKey
    from countledger.producers.buffer.buffering import Buffering
    from countledger.producers.buffer.coalesce import EntryMaker
    from countledger.producers.buffer.delivery import Delivery
    from countledger.producers.buffer.pending import Pending
    from countledger.producers.buffer.statistics import BufferStatistics
    from countledger.producers.sender import Outcome

P = ParamSpec("P")
R = TypeVar("R")

# What a process that ends waits for at the most.
_CLOSE_TIMEOUT_S: Final = 30.0
# So long before a Lambda's time is over it is told that not all was sent.
_MARGIN_MS: Final = SECOND_MS
# Events that are spooled by one commit.
_CHUNK: Final = 500
# How many events `record_many` adds before it waits for the first of them.
_AHEAD: Final = 20_000


class BufferedProducer:
    """Adds events at once and sends them in the background. Safe to share between threads.

    In a fork it begins anew with nothing in hand; what was added before is the parent's.
    """

    def __init__(
        self,
        buffering: Buffering,
        make_delivery: Callable[[], Delivery],
        maker: EntryMaker,
        *,
        ledger: str,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> None:
        """Open the spool, if one is named, and send what is in it; nothing else is done yet.

        Args:
            buffering: the bounds.
            make_delivery: makes what batches are sent by; called once in each process.
            maker: makes entries.
            ledger: names the ledger, for the spool.
            on_failure: told of each failure, on a thread of this producer's, which it must not let
                wait for the producer; it may `resend`.

        Raises:
            SpoolRefused: the spool cannot be used.
        """
        self.buffering = buffering
        self._make_delivery = make_delivery
        self._maker = maker
        self._on_failure = on_failure
        self._spool: Spool | None = None
        if buffering.spool is not None:
            self._spool = Spool.open(buffering.spool, ledger=ledger, fsync=buffering.fsync)
        self._desk = self._new_desk()
        opened(self)
        try:
            left = self._desk.holdings.left_in_spool()
            if left:
                self._desk.take_in(left)
        except BaseException:
            # Else nobody could open the spool again before this process ends.
            closed(self)
            if self._spool is not None:
                self._spool.close()
            raise

    def add(
        self,
        counter: str,
        delta: Amount,
        *,
        key: str | IdempotencyKey | None = None,
        occurred_at: datetime | None = None,
        note: Mapping[str, str] | None = None,
    ) -> Pending:
        """Add to a counter, soon: as `CountLedger.record`, without waiting for it.

        One write unit for each KB of its entry; coalesced events share theirs.

        Returns:
            Its entry on its way; `result()` waits for the receipt.

        Raises:
            BadInput: an argument breaks its rule; nothing was taken.
            BufferFull: there is no room, and the producer is not to wait (`when_full`).
            SpoolRefused: the spool could not keep it; nothing was taken.
        """
        if self._joins and key is None and occurred_at is None and note is None:
            delta = parse_delta(delta)
            joined = self._desk.join(counter, delta)
            if joined is not None:
                return joined
        return self._take([Event(counter, delta, key, occurred_at, note)])[0]

    def add_many(self, events: Iterable[Event]) -> list[Pending]:
        """Add many events; with a spool much cheaper than one by one.

        Raises:
            As `add`, with the events up to there taken.
        """
        taken: list[Pending] = []
        chunk: list[Event] = []
        most = min(_CHUNK, self.buffering.max_entries)
        for event in events:
            chunk.append(event)
            if len(chunk) == most:
                taken += self._take(chunk)
                chunk = []
        return taken + self._take(chunk)

    def record_many(self, events: Iterable[Event]) -> Iterator[Outcome]:
        """Add many events and wait for them, some at a time.

        Yields:
            One outcome for each event, in their order: the receipt or the error of its entry.
        """
        pendings: deque[Pending] = deque()
        for event in events:
            pendings.extend(self._take([event]))
            while pendings and (pendings[0].done or len(pendings) > _AHEAD):
                yield pendings.popleft().wait()
        self._desk.hurry()
        for pending in pendings:
            yield pending.wait()

    def resend(self, entry: Entry) -> Pending:
        """Add an entry that came back with an error, as it is; it cannot count twice.

        Raises:
            As `add`.
        """
        return self._desk.take_in([self._desk.holdings.pending_again(entry)])[0]

    def flush(self, timeout_s: float | None = None) -> None:
        """Send all that was added so far, and wait until it is acknowledged.

        Args:
            timeout_s: for how long, at the most; None waits as long as it takes.

        Raises:
            NotRecorded: entries failed, by now, and nobody was told: each with its error.
            StillBuffered: the time was over; what is left is still sent.
        """
        failures = self._desk.flush(timeout_s)
        if failures:
            raise NotRecorded(failures)

    def close(self, timeout_s: float | None = _CLOSE_TIMEOUT_S) -> None:
        """Send all that is left, and take no more.

        Args:
            timeout_s: for how long, at the most.

        Raises:
            NotRecorded: entries failed and nobody was told, or could not be sent in time; with a
                spool they are sent again at the next start, unless they were refused for good.
        """
        failures = self._desk.close(timeout_s)
        closed(self)
        if self._spool is not None:
            self._spool.close()
        if failures:
            raise NotRecorded(failures)

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it, also after an error."""
        self.close()

    def flushing(self, handler: Callable[P, R]) -> Callable[P, R]:
        """A Lambda handler that sends all it added before it ends: a frozen process sends nothing.

        Raises:
            NotRecorded: entries failed and nobody was told; the invocation fails.
            StillBuffered: its time was nearly over; what is left is sent by the next invocation,
                if there is one in this process.
        """

        @wraps(handler)
        def invoke(*arguments: P.args, **options: P.kwargs) -> R:
            try:
                return handler(*arguments, **options)
            finally:
                self.flush(_time_left_s(arguments))

        return invoke

    @property
    def statistics(self) -> BufferStatistics:
        """What was done so far in this process, and what waits."""
        return self._desk.statistics()

    def refused(self) -> list[Failure]:
        """The entries in the spool that can never be recorded: too old, or against a rule."""
        if self._spool is None:
            return []
        return [Failure(row.entry, BadInput(why)) for row, why in self._spool.refused()]

    def forget_refused(self) -> None:
        """Remove them from the spool."""
        if self._spool is not None:
            self._spool.forget([row.row for row, _ in self._spool.refused()])

    def start_anew(self) -> None:
        """Begin again in a fork, with nothing in hand."""
        self._desk.outcomes.abandoned = True
        self._desk = self._new_desk()

    def _new_desk(self) -> Desk:
        lock = Lock()
        outcomes = Outcomes(lock, self._on_failure)
        holdings = Holdings(self.buffering, self._maker, self._spool, outcomes)
        self._joins = self.buffering.coalesce and self._spool is None
        return Desk(holdings, lock, self._make_delivery)

    def _take(self, events: Sequence[Event]) -> list[Pending]:
        desk = self._desk
        return desk.take_in([desk.holdings.pending_of(event) for event in events]) if events else []


def _time_left_s(arguments: tuple[Any, ...]) -> float | None:
    """What an invocation has left, less a margin; None for a context that does not tell."""
    tell = getattr(arguments[1], "get_remaining_time_in_millis", None) if arguments[1:] else None
    return None if tell is None else max(tell() - _MARGIN_MS, 0) / SECOND_MS
