"""Sending entries: until the ledger has them, or nobody may send them any more.

The SDK's own retries are off. The horizon is asked before *every* attempt, and once more when its
request is signed and leaves: a process that was frozen and wakes too late must not send what
compaction may have taken in the meantime.

What to do next is decided by generators that do nothing themselves, so the rules are the same for
whoever carries them out: a thread here, an event loop in `producers.asynchronous`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

from countledger.ledger.attempts import Backoff
from countledger.ledger.before_send import guarded
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.entry import check_age, encode_entry
from countledger.ledger.errors import (
    BadInput,
    ClockSkew,
    ConditionFailed,
    CountledgerError,
    KeyExpired,
    RequestRejected,
    Throttled,
    Unclear,
    Unreachable,
)
from countledger.ledger.limits import CLOCK_SKEW_DEFAULT_MS
from countledger.ledger.namespace import Kind
from countledger.producers.course import Attempt, Pause, carry_out
from countledger.producers.receipt import Receipt, Status, judge_existing, unacknowledged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.entry import Entry
    from countledger.ledger.namespace import Namespace, Namespaces
    from countledger.producers.course import Course, Step

Outcome: TypeAlias = Receipt | CountledgerError

_AGAIN: Final = (Throttled, Unclear, Unreachable)


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends entries to the ledger.

    Attributes:
        dynamo: a DynamoDB client whose SDK does not retry.
        table: the table `ledger`.
        namespaces: tell spread and horizon.
        clock: tells the time of every attempt.
        random: what the jitter is drawn from.
        backoff: how often an entry is sent, and how long between.
        clock_skew_ms: how far ahead of this clock an entry may be dated.
    """

    dynamo: DynamoClient
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
        return carry_out(self.sending(entry), self._do)

    def send_batch(self, entries: Sequence[Entry]) -> list[Outcome]:
        """Send up to 25 entries whose ids were made here, without condition.

        Returns:
            One outcome for each entry, in their order; an error is this entry's own.
        """
        return carry_out(self.sending_batch(entries), self._do)

    def outcome_of(self, entry: Entry) -> Outcome:
        """`send`, with an error as a value."""
        return carry_out(self.sending_alone(entry), self._do)

    # ---- what to do next, decided without doing it ----

    def sending(self, entry: Entry, *, lost: bool = False) -> Course[Receipt]:
        """How one entry is sent.

        Args:
            entry: the entry.
            lost: whether an attempt that was never answered may have been applied.
        """
        namespace = self._namespace(entry)
        item = _stored_form(entry, namespace)
        waits_ms = self.backoff.waits_ms(self.random)
        still_young = partial(self._check_age, entry, namespace)
        while True:
            still_young()
            try:
                yield Attempt([item], still_young)
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
                if (wait_ms := _wait_ms(error, waits_ms)) is None:
                    raise _given_up(entry, error, lost=lost) from error
                yield Pause(wait_ms)
            else:
                break
        return Receipt(entry.counter, entry.id, Status.RECORDED)

    def sending_batch(self, entries: Sequence[Entry]) -> Course[list[Outcome]]:
        """How a batch is sent."""
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
                taken, error = yield from self._attempting_batch(pending, namespaces)
            except RequestRejected:
                # The service names no culprit. Sent one by one, only it fails.
                for number, entry in pending.items():
                    outcomes[number] = yield from self.sending_alone(entry, lost=lost)
                break
            if isinstance(error, KeyExpired | ClockSkew):
                continue  # one of them grew too old on its way out; the others are sent again
            outcomes |= taken
            pending = {n: entry for n, entry in pending.items() if n not in outcomes}
            lost = lost or isinstance(error, Unclear)
            if not pending:
                break
            if (wait_ms := _wait_ms(error, waits_ms)) is None:
                outcomes |= {n: _given_up(e, error, lost=lost) for n, e in pending.items()}
                break
            yield Pause(wait_ms)
        return [outcomes[number] for number in range(len(outcomes))]

    def sending_alone(self, entry: Entry, *, lost: bool = False) -> Course[Outcome]:
        """`sending`, with an error as a value."""
        try:
            return (yield from self.sending(entry, lost=lost))
        except CountledgerError as error:
            return error

    def _attempting_batch(
        self, pending: dict[int, Entry], namespaces: dict[int, Namespace]
    ) -> Course[tuple[dict[int, Outcome], CountledgerError]]:
        """One attempt: the receipts of what was taken, and why the rest was not."""
        items = {n: _stored_form(e, namespaces[n]) for n, e in pending.items()}
        # All of them may leave from the one moment to the other: as they leave, one comparison.
        from_ms = max(e.at_ms for e in pending.values()) - self.clock_skew_ms
        to_ms = min(e.at_ms + namespaces[n].horizon_ms for n, e in pending.items())

        def still_young() -> None:
            if not from_ms <= self.clock.now_ms() <= to_ms:
                self._check_ages(pending, namespaces)

        try:
            unprocessed = yield Attempt(list(items.values()), still_young, batch=True)
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

    # ---- doing it ----

    def _do(self, step: Step) -> Sequence[Item]:
        """The items that the service left."""
        if isinstance(step, Pause):
            self.clock.sleep_ms(step.wait_ms)
            return ()
        with guarded(step.look):
            if step.batch:
                return self.dynamo.put_batch(self.table, step.items)
            self.dynamo.put(step.put(self.table))
            return ()

    # ---- what may be sent ----

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


def sender_of(connection: Connection, namespaces: Namespaces) -> Sender:
    """What brings entries to the ledger of a stack."""
    return Sender(
        connection.dynamo("none"),
        connection.setting("ledger_table"),
        namespaces,
        clock_skew_ms=connection.settings.clock_skew_ms,
    )


def _stored_form(entry: Entry, namespace: Namespace) -> Item:
    return encode_entry(entry, namespace.spread)


def _wait_ms(error: CountledgerError, waits_ms: Iterator[float]) -> float | None:
    """How long until the next attempt; None: there is none."""
    return next(waits_ms, None) if isinstance(error, _AGAIN) else None


def _given_up(entry: Entry, cause: CountledgerError, *, lost: bool) -> CountledgerError:
    """What the caller gets: the entry itself wherever it may be in, or may simply be sent again."""
    if not lost and not isinstance(cause, Throttled):
        return cause
    return unacknowledged(entry, cause)
