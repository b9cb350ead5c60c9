"""Writing what was read: entries with an id in batches of 25, those with a key one by one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from countledger.ledger.errors import (
    BadInput,
    CorruptItem,
    CountledgerError,
    OutOfTime,
    RequestRejected,
)
from countledger.ledger.keys import namespace_of
from countledger.ledger.limits import BATCH_WRITE_ITEMS
from countledger.ledger.namespace import Kind
from countledger.producers.receipt import Receipt, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.deadline import Deadline
    from countledger.ledger.entry import Entry
    from countledger.producers.sender import Sender

# What became of an entry: it is in the ledger, or the reason why not.
Fate: TypeAlias = Status | CountledgerError

_WRITERS: Final = 8
_OF_THE_ENTRY: Final = (BadInput, RequestRejected, CorruptItem)


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes the entries of a batch.

    Attributes:
        sender: brings entries to the ledger, and asks the horizon before every attempt.
    """

    sender: Sender

    def write(self, entries: Sequence[Entry], deadline: Deadline | None = None) -> list[Fate]:
        """Write entries: a write unit for each KB of each.

        Args:
            entries: which.
            deadline: after which no write is begun; None: there is no such moment.

        Returns:
            A fate for each entry, in their order; an error is this entry's own.
        """
        fates = self._outside(entries)
        keyed: dict[tuple[str, str], list[int]] = {}
        plain: dict[tuple[str, str], list[int]] = {}
        for number, entry in enumerate(entries):
            if number not in fates:
                groups = plain if entry.key is None else keyed
                groups.setdefault((entry.counter, entry.id), []).append(number)
        firsts = [numbers[0] for numbers in plain.values()]
        batches = [
            firsts[start : start + BATCH_WRITE_ITEMS]
            for start in range(0, len(firsts), BATCH_WRITE_ITEMS)
        ]
        with ThreadPoolExecutor(_WRITERS, "countledger-ingest") as pool:
            # Of several with one key the first is the one that is recorded.
            for sent in pool.map(
                lambda group: self._in_turn(entries, group, deadline), keyed.values()
            ):
                fates |= sent
            for sent in pool.map(lambda batch: self._at_once(entries, batch, deadline), batches):
                fates |= sent
        for first, *others in plain.values():
            # A batch takes no item twice; the same identity is the same content.
            fate = fates[first]
            again = Status.DUPLICATE if isinstance(fate, Status) else fate
            fates |= dict.fromkeys(others, again)
        return [fates[number] for number in range(len(entries))]

    def _outside(self, entries: Sequence[Entry]) -> dict[int, Fate]:
        """Entries whose namespace takes none; each namespace is asked once."""
        refusals: dict[str, CountledgerError | None] = {}
        for entry in entries:
            namespace = namespace_of(entry.counter)
            if namespace not in refusals:
                refusals[namespace] = self._refusal(entry.counter)
        return {
            number: refusal
            for number, entry in enumerate(entries)
            if (refusal := refusals[namespace_of(entry.counter)]) is not None
        }

    def _refusal(self, counter: str) -> CountledgerError | None:
        try:
            self.sender.namespaces.for_use(counter, Kind.LEDGER)
        except CountledgerError as error:
            return error
        return None

    def _in_turn(
        self, entries: Sequence[Entry], numbers: list[int], deadline: Deadline | None
    ) -> dict[int, Fate]:
        fates: dict[int, Fate] = {}
        for number in numbers:
            late = _lateness(deadline)
            fates[number] = late or _fate(self.sender.outcome_of(entries[number]))
        return fates

    def _at_once(
        self, entries: Sequence[Entry], numbers: list[int], deadline: Deadline | None
    ) -> dict[int, Fate]:
        late = _lateness(deadline)
        if late is not None:
            return dict.fromkeys(numbers, late)
        outcomes = self.sender.send_batch([entries[number] for number in numbers])
        return dict(zip(numbers, map(_fate, outcomes), strict=True))


def _fate(outcome: Receipt | CountledgerError) -> Fate:
    return outcome.status if isinstance(outcome, Receipt) else outcome


def _lateness(deadline: Deadline | None) -> OutOfTime | None:
    """Why nothing is begun any more, or None; what is not begun is delivered again."""
    try:
        if deadline is not None:
            deadline.check()
    except OutOfTime as late:
        return late
    return None


def is_final(error: CountledgerError) -> bool:
    """Whether another try would end the same: a matter of this entry, and not of the service."""
    return isinstance(error, _OF_THE_ENTRY)
