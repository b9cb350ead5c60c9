"""All errors of this library, with one root, in classes by who has to act.

CountledgerError
├── BadInput                  the call is wrong: change it                exit 2
│   ├── BadCounterName  BadDelta  BadKey  BadNote  BadTime  BadSetting  BadPayload
│   ├── IdempotencyKeyReused  the key was used for another delta
│   ├── KeyExpired            the entry was made longer ago than the horizon
│   ├── BadBounds  NoSuchCounter  CounterExists  WrongRegion    of strict counters
│   │                                                     (the last of compaction, too)
│   ├── NoSuchHold            no hold of a strict counter has that id
│   ├── NoSuchSchedule  ScheduleExists    of the compaction of a namespace
│   ├── BadRule  NoSuchRule  RuleExists    of alerts
│   ├── ClockSkew             the entry is dated further ahead than clocks may differ
│   ├── BadSequence  SequenceExists    of sequences, and of numbers within a collection
│   ├── BadClaim  BadItem     of unique claims; an app's own item, written for it
│   ├── BadGroupName  NoSuchGroup  NotRanked  NoWindows    of groups, rankings, windows
│   ├── BadQuota  NoSuchQuota  QuotaExists    of quotas
│   │   └── NotPriced         the cost of a guarded call is no amount (raised by guarded functions)
│   ├── NotQuarantined        no record of that id is in quarantine
│   ├── LedgerNotOpen         an asynchronous client is not open on this event loop
│   ├── TooManyCounters       for one transaction
│   └── NamespaceUnknown  NamespaceConflict  WrongKind
├── Refused                   the current state does not allow the call   exit 4
│   ├── AlreadyClaimed        another owner has the value
│   ├── NotClaimed            the given owner does not have the value
│   ├── ItemInTheWay          an app's own item is not as its write expects
│   ├── OpenHolds             a strict counter with open holds cannot be deleted
│   ├── AlreadyRanked         the counter is ranked in another group
│   ├── QuotaDenied           the limit of the window is reached (raised by guarded functions)
│   ├── TicketResolved        a reservation was committed or released before, in another way
│   ├── TicketExpired         a reservation can no longer be committed or released
│   ├── RegionRebuilding      the totals of this region are not complete yet
│   └── SequenceExhausted     no number is left
├── SetupError                names, permissions, network: correct them   exit 2
│   ├── StackNotFound  TableNotFound  NoCredentials  AccessDenied  Unreachable
│   ├── ArchiveRefused        the archive's bucket does not exist, or refuses
│   └── TargetRefused         an alert's bus or topic does not exist, or refuses
├── ServiceFailed             the service failed: try again               exit 3
│   ├── Throttled             refused for now, nothing was written
│   ├── Unclear               no clear answer: the write may have been applied or not
│   ├── RequestRejected       the service calls the request invalid
│   │   └── SumOverflow       a sum needs more digits than a number holds exit 5
│   ├── LeaseEnded            the right to merge has ended (inner use: the next run continues)
│   ├── TotalBehind           a total does not include an entry yet
│   ├── OutOfTime             the time of a function was over (inner use: its records come again)
│   ├── CallCancelled         the cause of a cancellation: what the call may have done
│   ├── Unacknowledged        an entry that no attempt could confirm
│   └── Unnumbered            an item that may have been put or not
├── CorruptItem               a stored item cannot be read
│   ├── ProgressLost          the progress of a known stream shard is lost: its records wait
│   ├── NewerFormat           a later release wrote the item
│   └── CorruptArchive        an archived generation does not match its checksum
├── ConditionFailed           a condition did not hold (inner use: becomes an outcome)
├── TransactionCancelled      nothing of the transaction was written (inner use)
└── TokenMismatch             the token belongs to another transaction (inner use)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from countledger.ledger.attributes import Item
    from countledger.ledger.entry import Entry


def shown(value: object, width: int = 60) -> str:
    """A value for a message: one line, cut to a width."""
    try:
        text = repr(value)
    except ValueError:  # Python writes out no integer of more than 4,300 digits
        text = f"(a huge {type(value).__name__})"
    return text if len(text) <= width else text[: width - 3] + "..."


class CountledgerError(Exception):
    """The root of all errors of this library; its text is one line for a person.

    Each error can be pickled and copied, with its attributes: process pools send errors so.
    """

    exit_code: ClassVar[int] = 3

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild the error without its constructor, which may take more than the text."""
        return _rebuilt, (type(self), self.args), self.__dict__


def _rebuilt(error: type[CountledgerError], args: tuple[Any, ...]) -> CountledgerError:
    return error.__new__(error, *args)


class BadInput(CountledgerError, ValueError):
    """The call itself is wrong; nothing was written."""

    exit_code = 2


class BadCounterName(BadInput):
    """A counter name breaks the grammar of names."""


class BadDelta(BadInput):
    """A delta is zero, no exact number, too long, or sums no possible number of events."""


class BadKey(BadInput):
    """An idempotency key is empty, too long, or holds control characters."""


class BadNote(BadInput):
    """A note is not a map of short strings."""


class BadTime(BadInput):
    """A time is not a point in time: naive, malformed or out of range."""


class BadSetting(BadInput):
    """The value of a setting breaks its rule."""


class BadPayload(BadInput):
    """An event's text is malformed."""


class IdempotencyKeyReused(BadInput):
    """An entry with another delta has used the key."""


class KeyExpired(BadInput):
    """The entry was made longer ago than the horizon: whether it counted is no longer known."""


class ClockSkew(BadInput):
    """The entry is dated further ahead than clocks may differ."""


class NamespaceUnknown(BadInput):
    """The namespace does not exist in this region and cannot be created here."""


class NamespaceConflict(BadInput):
    """The namespace exists with other settings; they are fixed when it is created."""


class WrongKind(BadInput):
    """The call belongs to another kind of namespace."""


class BadBounds(BadInput):
    """The lower bound is above the upper one, or the value is outside the bounds."""


class NoSuchCounter(BadInput):
    """No strict counter has that name."""


class NoSuchHold(BadInput):
    """No hold has that id: it was never placed, or ended so long ago that it is forgotten."""


class CounterExists(BadInput):
    """A strict counter of that name exists."""


class WrongRegion(BadInput):
    """Strict counters and compaction live in the home region only."""


class NoSuchSchedule(BadInput):
    """The namespace has no schedule."""


class ScheduleExists(BadInput):
    """The namespace has another schedule."""


class BadRule(BadInput):
    """The definition of an alert rule is not valid."""


class NoSuchRule(BadInput):
    """No alert rule has that name."""


class RuleExists(BadInput):
    """An alert rule of that name exists."""


class BadSequence(BadInput):
    """The definition of a sequence, a block of numbers or a collection is not valid."""


class SequenceExists(BadInput):
    """A sequence of that name exists."""


class BadClaim(BadInput):
    """A scope, a value or an owner breaks the grammar of claims."""


class BadItem(BadInput):
    """An app's own item, or a change of it, is not valid."""


class BadGroupName(BadInput):
    """A group's name breaks the grammar of names."""


class NoSuchGroup(BadInput):
    """No group has that name."""


class NotRanked(BadInput):
    """Ranking is not switched on for that namespace or group, or is not possible for it."""


class NoWindows(BadInput):
    """Windows are not switched on for that namespace, or are not possible for it."""


class BadQuota(BadInput):
    """The definition of a quota, or an amount for it, is not valid."""


class NotPriced(BadQuota):
    """`actual` of a guard gave no amount; what was reserved is committed.

    Attributes:
        answer: what the function returned; of a generator the list of its parts.
    """

    def __init__(self, message: str, answer: Any) -> None:  # noqa: ANN401 - of the app
        super().__init__(message)
        self.answer = answer


class NoSuchQuota(BadInput):
    """No quota has that prefix, or none is for that counter."""


class QuotaExists(BadInput):
    """A quota of that prefix and kind of window exists."""


class NotQuarantined(BadInput):
    """No record of that id is in quarantine."""


class LedgerNotOpen(BadInput):
    """An asynchronous client was used before it was opened, after it was closed, or elsewhere."""


class TooManyCounters(BadInput):
    """The counters, with their bins, do not fit into one transaction."""


class Refused(CountledgerError):
    """The call is valid, but the current state does not allow it; nothing was written."""

    exit_code = 4


class AlreadyClaimed(Refused):
    """Another owner has the value.

    Attributes:
        scope: within which it is unique.
        value: the value; of a combination, its parts.
        owner: who has it.
    """

    def __init__(self, message: str, scope: str, value: tuple[str, ...], owner: str) -> None:
        super().__init__(message)
        self.scope = scope
        self.value = value
        self.owner = owner


class NotClaimed(Refused):
    """The given owner does not have the value that the call changes or releases."""


class ItemInTheWay(Refused):
    """An app's own item exists already, does not exist, or is not as expected."""


class OpenHolds(Refused):
    """A strict counter with open holds cannot be deleted."""


class AlreadyRanked(Refused):
    """The counter is in another ranked group; it can be in one only."""


class QuotaDenied(Refused):
    """The limit of the window is reached; the guarded function was not called.

    Attributes:
        denied: the outcome: when to try again, and the numbers.
    """

    def __init__(self, message: str, denied: Any) -> None:  # noqa: ANN401 - of package producers
        super().__init__(message)
        self.denied = denied


class TicketResolved(Refused):
    """A reservation was committed or released before; nothing was changed.

    Attributes:
        actual: the amount that it was committed with; None: it was released.
    """

    def __init__(self, message: str, actual: Any = None) -> None:  # noqa: ANN401 - an amount
        super().__init__(message)
        self.actual = actual


class TicketExpired(Refused):
    """The time to commit or release a reservation is over; it stays counted in its window."""


class RegionRebuilding(Refused):
    """The region joined a moment ago, and its totals are being made from the ledger."""


class SequenceExhausted(Refused):
    """A sequence, or a collection, has no number left."""


class SetupError(CountledgerError):
    """A name, a permission or the network is not set up correctly; nothing was written."""

    exit_code = 2


class StackNotFound(SetupError):
    """The stack does not exist in this region, or is not a stack of countledger."""


class TableNotFound(SetupError):
    """A table does not exist."""


class NoCredentials(SetupError):
    """No AWS credentials, or they were not accepted."""


class AccessDenied(SetupError):
    """The credentials are valid but lack a permission."""


class Unreachable(SetupError):
    """Nothing answers at the endpoint."""


class ArchiveRefused(SetupError):
    """The bucket of an archive does not exist, or refuses the request."""


class TargetRefused(SetupError):
    """The bus or topic of an alert does not exist, or refuses the request."""


class ServiceFailed(CountledgerError):
    """AWS failed; the same call may succeed later."""


class LeaseEnded(ServiceFailed):
    """The home's right to merge has ended: the request was not sent, the next run continues."""


class Throttled(ServiceFailed):
    """Refused for now; nothing was written by that attempt."""


class Unclear(ServiceFailed):
    """No clear answer came: a write may have been applied or not; of a read nothing is known."""


class RequestRejected(ServiceFailed):
    """The service calls the request invalid; nothing was written and a retry would not help."""


class SumOverflow(RequestRejected):
    """A sum needs more than the 38 digits of a DynamoDB number; nothing was written.

    AWS did not fail, and a retry fails in the same way: correct the amounts. This release accepts
    only amounts so short that a billion of them cannot cause this; larger amounts were written by
    hand, or by another program.
    """

    exit_code = 5


class TotalBehind(ServiceFailed):
    """A total did not include the recorded entries in time; they are recorded and will count."""


class OutOfTime(ServiceFailed):
    """The time of a function's invocation was over before the write; the write is tried again."""


class CallCancelled(ServiceFailed):
    """What a call of an event loop may have done until its task was cancelled.

    It is the cause of the `CancelledError`, or of the `TimeoutError` of `asyncio.timeout`.

    Attributes:
        maybe_applied: whether the call may have changed anything.
        entries: those that may have been recorded: `resend` each; it cannot count twice. All other
            events of the call were not recorded.
    """

    def __init__(
        self, message: str, *, maybe_applied: bool = True, entries: tuple[Entry, ...] = ()
    ) -> None:
        super().__init__(message)
        self.maybe_applied = maybe_applied
        self.entries = entries

    @classmethod
    def of(cls, error: BaseException | None) -> Self | None:
        """The call whose cancellation is an error's cause; None: no call had begun."""
        while error is not None and not isinstance(error, cls):
            error = error.__cause__
        return error


class Unacknowledged(ServiceFailed):
    """Every attempt to write an entry stayed unclear or was throttled.

    Attributes:
        entry: send it again unchanged (`resend`) within the horizon; it cannot count twice.
    """

    def __init__(self, message: str, entry: Entry) -> None:
        super().__init__(message)
        self.entry = entry


class Unnumbered(ServiceFailed):
    """Every attempt to put an item under the next number stayed unclear.

    Attributes:
        pending: resume it unchanged (`sequences.resume`): it cannot be put twice.
    """

    def __init__(self, message: str, pending: Any) -> None:  # noqa: ANN401 - of package producers
        super().__init__(message)
        self.pending = pending


class CorruptItem(CountledgerError):
    """A stored item lacks an attribute or holds one of another type.

    Attributes:
        key: partition key and sort key of the item; None where they are not known.
    """

    def __init__(self, message: str, item: Item | None = None) -> None:
        super().__init__(message)
        sort = None if item is None else item.get("entry", item.get("part"))
        self.key = None if item is None else (str(item.get("counter")), str(sort))


class ProgressLost(CorruptItem):
    """The progress of a known stream shard is lost or unreadable: nothing is applied."""


class NewerFormat(CorruptItem):
    """A stored item was written by a later release than this one."""


class CorruptArchive(CorruptItem):
    """The entries of a generation do not match their checksum, or cannot be read."""


class ConditionFailed(CountledgerError):
    """The condition of a write did not hold.

    Attributes:
        item: the item that the condition met, or None if none exists.
        maybe_applied: whether an earlier attempt of the SDK in the same call got no clear answer:
            it may have been applied, or may still be if its condition holds again.
    """

    maybe_applied: bool = False

    def __init__(self, item: Item | None) -> None:
        super().__init__("the condition of the write did not hold")
        self.item = item


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one action of a transaction was refused.

    Attributes:
        code: the service's code; the text `None` for an action that was not refused.
        item: the item that a failed condition met, or None if none exists.
    """

    code: str
    item: Item | None = None

    @property
    def condition_failed(self) -> bool:
        """Whether the action's condition did not hold."""
        return self.code == "ConditionalCheckFailed"

    @property
    def passing(self) -> bool:
        """Whether another attempt may succeed: a conflict with another write, a throttle."""
        return self.code in {
            "TransactionConflict",
            "ThrottlingError",
            "ProvisionedThroughputExceeded",
        }


class TransactionCancelled(CountledgerError):
    """A transaction was refused as a whole.

    Attributes:
        reasons: one for each action, in their order.
        maybe_applied: as of `ConditionFailed`.
    """

    maybe_applied: bool = False

    def __init__(self, reasons: tuple[Reason, ...]) -> None:
        super().__init__(
            f"the transaction was cancelled ({', '.join(reason.code for reason in reasons)})"
        )
        self.reasons = reasons

    @property
    def condition_failed(self) -> bool:
        """Whether a condition of one of its actions failed."""
        return any(reason.condition_failed for reason in self.reasons)


class TokenMismatch(CountledgerError):
    """The client request token was used for a transaction with another body."""
