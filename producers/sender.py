"""Sending entries: until the ledger has them, or nobody may send them any more.

The SDK's own retries are off. The horizon is asked before *every* attempt, and once more when its
request is signed and leaves: a process that was frozen and wakes too late must not send what
compaction may have taken in the meantime.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.departure import looking
from countledger.ledger.entry import check_age, encode_entry
from countledger.ledger.errors import (
    BadInput,
    ClockSkew,
    ConditionFailed,
    CountledgerError,
    KeyExpired,
    RequestRejected,
    Throttled,
    Unacknowledged,
    Unclear,
    Unreachable,
)
from countledger.ledger.expressions import Absent
from countledger.ledger.limits import CLOCK_SKEW_DEFAULT_MS
from countledger.ledger.namespace import Kind
from countledger.ledger.operations import Put
from countledger.ledger.retry import Backoff
from countledger.producers.receipt import Receipt, Status, judge_existing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from countledger.ledger.attributes import Item
    from countledger.ledger.door import Door
    from countledger.ledger.entry import Entry
    from countledger.ledger.namespace import Namespace, Namespaces

Outcome: TypeAlias = Receipt | CountledgerError

_AGAIN: Final = (Throttled, Unclear, Unreachable)


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends entries to the ledger.

    Attributes:
        door: a door to DynamoDB whose SDK does not retry.
        table: the table `ledger`.
        namespaces: tell spread and horizon.
        clock: tells the time of every attempt.
        random: what the jitter is drawn from.
        backoff: how often an entry is sent, and how long between.
        clock_skew_ms: how far ahead of this clock an entry may be dated.
    """

    door: Door
    table: str
    namespaces: Namespaces
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=Random)
    backoff: Backoff = field(default_factory=Backoff)
    clock_skew_ms: int = CLOCK_SKEW_DEFAULT_MS

    def send(self, entry: Entry) -> Receipt:
        """Send one entry by conditional put: one write unit for each KB, one round trip.

        Raises:
            IdempotencyKeyReused: its key was used with another delta.
            KeyExpired, ClockSkew: it was made too long ago, or lies ahead.
            Unacknowledged: no attempt was answered clearly, or one was not and a later one failed.
        """
        namespace = self._namespace(entry)
        item = _stored_form(entry, namespace)
        waits_ms = self.backoff.waits_ms(self.random)
        lost = False  # whether an attempt that was never answered may have been applied
        while True:
            still_young = partial(self._check_age, entry, namespace)
            still_young()
            try:
                with looking(still_young):
                    self.door.put(Put(self.table, item, Absent("entry")))
            except (KeyExpired, ClockSkew):
                raise
            except ConditionFailed as failed:
                if failed.item is None:
                    raise
                # After a lost answer, finding our very item means that it was applied.
                if lost and failed.item == item:
                    break
                return judge_existing(entry, failed.item)
            except CountledgerError as error:
                lost = lost or isinstance(error, Unclear)
                if isinstance(error, _AGAIN) and self._pause(waits_ms):
                    continue
                raise _given_up(entry, error, lost=lost) from error
            else:
                break
        return Receipt(entry.counter, entry.id, Status.RECORDED)

    def send_batch(self, entries: Sequence[Entry]) -> list[Outcome]:
        """Send up to 25 entries whose ids were made here, without condition.

        Returns:
            One outcome for each entry, in their order; an error is this entry's own.
        """
        outcomes: dict[int, Outcome] = {}
        pending = dict(enumerate(entries))
        waits_ms = self.backoff.waits_ms(self.random)
        lost = False
        while pending:
            namespaces, refused = self._refuse_too_old(pending)
            outcomes |= refused
            if not pending:
                break
            try:
                taken, error = self._put_batch(pending, namespaces)
            except RequestRejected:
                # The service names no culprit. Sent one by one, only it fails.
                return _in_order(outcomes | {n: self.outcome_of(e) for n, e in pending.items()})
            if isinstance(error, KeyExpired | ClockSkew):
                continue  # one of them grew too old on its way out; the others are sent again
            outcomes |= taken
            pending = {n: entry for n, entry in pending.items() if n not in outcomes}
            lost = lost or isinstance(error, Unclear)
            if pending and not (isinstance(error, _AGAIN) and self._pause(waits_ms)):
                left: dict[int, Outcome] = {
                    n: _given_up(e, error, lost=lost) for n, e in pending.items()
                }
                return _in_order(outcomes | left)
        return _in_order(outcomes)

    def outcome_of(self, entry: Entry) -> Outcome:
        """`send`, with an error as a value."""
        try:
            return self.send(entry)
        except CountledgerError as error:
            return error

    def _put_batch(
        self, pending: dict[int, Entry], namespaces: dict[int, Namespace]
    ) -> tuple[dict[int, Outcome], CountledgerError]:
        """One attempt: the receipts of what was taken, and why the rest was not."""
        items = {n: _stored_form(e, namespaces[n]) for n, e in pending.items()}
        # All of them may leave from the one moment to the other: as they leave, one comparison.
        from_ms = max(e.at_ms for e in pending.values()) - self.clock_skew_ms
        to_ms = min(e.at_ms + namespaces[n].horizon_ms for n, e in pending.items())

        def still_young() -> None:
            if not from_ms <= self.clock.now_ms() <= to_ms:
                self._check_ages(pending, namespaces)

        try:
            with looking(still_young):
                unprocessed = self.door.put_batch(self.table, list(items.values()))
        except RequestRejected:
            raise
        except CountledgerError as error:
            return {}, error
        left = {(item["counter"], item["entry"]) for item in unprocessed}
        return {
            n: Receipt(pending[n].counter, pending[n].id, Status.RECORDED)
            for n, item in items.items()
            if (item["counter"], item["entry"]) not in left
        }, Throttled(f"BatchWriteItem on {self.table}: left unprocessed")

    def _refuse_too_old(
        self, pending: dict[int, Entry]
    ) -> tuple[dict[int, Namespace], dict[int, Outcome]]:
        """Take out of `pending` what may not be sent (any more); the namespaces of the rest."""
        namespaces: dict[int, Namespace] = {}
        refused: dict[int, Outcome] = {}
        for number, entry in list(pending.items()):
            try:
                namespaces[number] = self._namespace(entry)
                self._check_age(entry, namespaces[number])
            except BadInput as error:
                refused[number] = error
                del pending[number]
        return namespaces, refused

    def _check_ages(self, pending: dict[int, Entry], namespaces: dict[int, Namespace]) -> None:
        for number, entry in pending.items():
            self._check_age(entry, namespaces[number])

    def _check_age(self, entry: Entry, namespace: Namespace) -> None:
        check_age(
            entry,
            now_ms=self.clock.now_ms(),
            horizon_ms=namespace.horizon_ms,
            clock_skew_ms=self.clock_skew_ms,
        )

    def _namespace(self, entry: Entry) -> Namespace:
        return self.namespaces.for_use(entry.counter, Kind.LEDGER)

    def _pause(self, waits_ms: Iterator[float]) -> bool:
        """Wait before the next attempt; False where there is none."""
        wait_ms = next(waits_ms, None)
        if wait_ms is None:
            return False
        self.clock.sleep_ms(wait_ms)
        return True


def _stored_form(entry: Entry, namespace: Namespace) -> Item:
    return encode_entry(entry, namespace.spread)


def _given_up(entry: Entry, cause: CountledgerError, *, lost: bool) -> CountledgerError:
    """What the caller gets: the entry itself wherever it may be in, or may simply be sent again."""
    if not lost and not isinstance(cause, Throttled):
        return cause
    return Unacknowledged(
        f"entry {entry.id} of counter {entry.counter!r} was not acknowledged ({cause}); it may or "
        "may not be in the ledger: resend this very entry, it cannot count twice",
        entry,
    )


def _in_order(outcomes: dict[int, Outcome]) -> list[Outcome]:
    return [outcomes[number] for number in range(len(outcomes))]
