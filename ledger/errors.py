"""What can go wrong, by blame. One root; a class says whose turn it is to act.

CountledgerError
├── BadInput                  the caller's: change the call               exit 2
│   ├── BadCounterName  BadDelta  BadKey  BadNote  BadTime  BadSetting  BadPayload
│   ├── IdempotencyKeyReused  the key was used for another delta
│   ├── KeyExpired            the entry was made longer ago than the horizon
│   ├── BadBounds  NoSuchCounter  CounterExists  WrongRegion    of strict counters
│   │                                                     (the last of compaction, too)
│   ├── NoSuchSchedule  ScheduleExists    of the compaction of a namespace
│   ├── BadRule  NoSuchRule  RuleExists    of alerts
│   ├── ClockSkew             the entry is dated further ahead than clocks may differ
│   ├── BadSequence  SequenceExists    of sequences, and of numbers within a collection
│   ├── BadClaim  BadItem     of unique claims; an app's own item, written for it
│   ├── BadGroupName  NoSuchGroup  NotRanked    of groups and rankings
│   ├── NotQuarantined        there is no copy of that name in quarantine
│   ├── TooManyCounters       for one transaction
│   └── NamespaceUnknown  NamespaceConflict  WrongKind
├── Refused                   things are not so that it can be done       exit 4
│   ├── AlreadyClaimed        somebody else owns that value
│   ├── NotClaimed            its supposed owner does not own it
│   ├── ItemInTheWay          an app's own item is not as its write expects
│   ├── AlreadyRanked         the counter is ranked in another group
│   └── SequenceExhausted     there is no number left
├── SetupError                the operator's: names, permissions, network  exit 2
│   ├── StackNotFound  TableNotFound  NoCredentials  AccessDenied  Unreachable
│   ├── ArchiveRefused        the archive's bucket does not exist, or refuses
│   └── TargetRefused         an alert's bus or topic does not exist, or refuses
├── ServiceFailed             the service's: try again                    exit 3
│   ├── Throttled             refused for now, nothing was written
│   ├── Unclear               no answer: it may have been applied or not
│   ├── RequestRejected       the service calls the request invalid
│   │   └── SumOverflow       a sum needs more digits than a number holds exit 5
│   ├── OutOfTime             a function's time was over (inner use: its records come again)
│   ├── Unacknowledged        an entry that no attempt could confirm
│   └── Unnumbered            an item of which nobody can tell whether it was put
├── CorruptItem               a stored item cannot be read as what it should be
│   ├── ProgressLost          of a stream shard that is known: its records wait
│   ├── NewerFormat           it was written by a later release
│   └── CorruptArchive        an archived generation is not what its checksum is of
├── ConditionFailed           a condition did not hold (inner use: becomes an outcome)
├── TransactionCancelled      nothing of it was written, for these reasons (inner use)
└── TokenMismatch             the token stands for another transaction (inner use)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

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
        """Rebuild it without its constructor, which may take more than the text."""
        return _rebuilt, (type(self), self.args), self.__dict__


def _rebuilt(error: type[CountledgerError], args: tuple[Any, ...]) -> CountledgerError:
    return error.__new__(error, *args)


class BadInput(CountledgerError, ValueError):
    """The call itself is wrong; nothing was written."""

    exit_code = 2


class BadCounterName(BadInput):
    """A counter name breaks the grammar of names."""


class BadDelta(BadInput):
    """A delta is zero, no exact number, or too long."""


class BadKey(BadInput):
    """An idempotency key is empty, too long, or holds control characters."""


class BadNote(BadInput):
    """A note is no map of short strings."""


class BadTime(BadInput):
    """A time is not a point in time: naive, malformed or out of range."""


class BadSetting(BadInput):
    """A setting has a value that it cannot have."""


class BadPayload(BadInput):
    """An event's text is malformed."""


class IdempotencyKeyReused(BadInput):
    """The key is taken by an entry with another delta."""


class KeyExpired(BadInput):
    """The entry was made longer ago than the horizon: whether it counted is no longer known."""


class ClockSkew(BadInput):
    """The entry is dated further ahead than clocks may differ."""


class NamespaceUnknown(BadInput):
    """The namespace cannot be seen from here and may not be made here."""


class NamespaceConflict(BadInput):
    """The namespace exists with other settings; they are fixed when it is made."""


class WrongKind(BadInput):
    """The call belongs to another kind of namespace."""


class BadBounds(BadInput):
    """Bounds that cross, or that the value would lie outside of."""


class NoSuchCounter(BadInput):
    """There is no strict counter of that name."""


class CounterExists(BadInput):
    """There is a strict counter of that name already."""


class WrongRegion(BadInput):
    """Strict counters and compaction live in the home region only."""


class NoSuchSchedule(BadInput):
    """The namespace has no schedule."""


class ScheduleExists(BadInput):
    """The namespace has a schedule already, and another one."""


class BadRule(BadInput):
    """What no alert rule can be."""


class NoSuchRule(BadInput):
    """There is no alert rule of that name."""


class RuleExists(BadInput):
    """There is an alert rule of that name already."""


class BadSequence(BadInput):
    """A sequence, a block of numbers or a collection cannot be such."""


class SequenceExists(BadInput):
    """There is a sequence of that name already."""


class BadClaim(BadInput):
    """A scope, a value or an owner breaks the grammar of claims."""


class BadItem(BadInput):
    """An app's own item, or a change of it, cannot be written as it was given."""


class BadGroupName(BadInput):
    """A group's name breaks the grammar of names."""


class NoSuchGroup(BadInput):
    """There is no group of that name."""


class NotRanked(BadInput):
    """Nobody has switched ranking on for that namespace or group, or it cannot be."""


class NotQuarantined(BadInput):
    """There is no copy of that name in quarantine."""


class TooManyCounters(BadInput):
    """So many counters, with their bins, do not fit into one transaction."""


class Refused(CountledgerError):
    """The call is right, but things are not so that it can be done; nothing was written."""

    exit_code = 4


class AlreadyClaimed(Refused):
    """Somebody else owns the value.

    Attributes:
        scope: within which it is unique.
        value: what is owned; of a combination, its parts.
        owner: who owns it.
    """

    def __init__(self, message: str, scope: str, value: tuple[str, ...], owner: str) -> None:
        super().__init__(message)
        self.scope = scope
        self.value = value
        self.owner = owner


class NotClaimed(Refused):
    """Nobody owns the value that its owner would change or release."""


class ItemInTheWay(Refused):
    """An app's own item is there already, is not there, or is not as expected."""


class AlreadyRanked(Refused):
    """A counter has one place for a ranked group, and another group has it."""


class SequenceExhausted(Refused):
    """A sequence, or a collection, has no number left."""


class SetupError(CountledgerError):
    """What surrounds the call is not in place; nothing was written."""

    exit_code = 2


class StackNotFound(SetupError):
    """There is no such stack here, or it has no outputs of ours."""


class TableNotFound(SetupError):
    """A table does not exist."""


class NoCredentials(SetupError):
    """No AWS credentials, or they were not accepted."""


class AccessDenied(SetupError):
    """The credentials are good but may not do this."""


class Unreachable(SetupError):
    """Nothing answers at the endpoint."""


class ArchiveRefused(SetupError):
    """The bucket of an archive does not exist, or refuses."""


class TargetRefused(SetupError):
    """The bus or topic of an alert does not exist, or refuses."""


class ServiceFailed(CountledgerError):
    """AWS failed; the same call may succeed later."""


class Throttled(ServiceFailed):
    """Refused for now; nothing was written by that attempt."""


class Unclear(ServiceFailed):
    """No clear answer came: the write may have been applied or not."""


class RequestRejected(ServiceFailed):
    """The service calls the request invalid; nothing was written and a retry would not help."""


class SumOverflow(RequestRejected):
    """A sum needs more than the 38 digits of a DynamoDB number; nothing was written.

    AWS did not fail, and a retry fails in the same way: correct the amounts. Amounts that this
    release takes are so short that a billion of them cannot get there; larger ones were written by
    hand, or by another program.
    """

    exit_code = 5


class OutOfTime(ServiceFailed):
    """The time of a function's invocation was over before this was written; it is tried again."""


class Unacknowledged(ServiceFailed):
    """Every attempt to write an entry stayed unclear or was throttled.

    Attributes:
        entry: send it again as it is (`resend`) within the horizon; it cannot count twice.
    """

    def __init__(self, message: str, entry: Entry) -> None:
        super().__init__(message)
        self.entry = entry


class Unnumbered(ServiceFailed):
    """Every attempt to put an item under the next number stayed unclear.

    Attributes:
        pending: resume it as it is (`sequences.resume`): it cannot be put twice.
    """

    def __init__(self, message: str, pending: Any) -> None:  # noqa: ANN401 - of the producers' room
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
    """The progress of a known stream shard is not there, or cannot be read: nothing is applied."""


class NewerFormat(CorruptItem):
    """A stored item was written by a later release than this one."""


class CorruptArchive(CorruptItem):
    """The entries of a generation, archived or to be archived, are not what was sealed."""


class ConditionFailed(CountledgerError):
    """The condition of a write did not hold.

    Attributes:
        item: the item that stood in the way, or None where there is none.
    """

    def __init__(self, item: Item | None) -> None:
        super().__init__("the condition of the write did not hold")
        self.item = item


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one action of a transaction was refused.

    Attributes:
        code: as the service names it; `None` (the text) for an action that stood in nobody's way.
        item: the item that a failed condition met, or None where there is none.
    """

    code: str
    item: Item | None = None

    @property
    def condition_failed(self) -> bool:
        """Whether the action's condition did not hold."""
        return self.code == "ConditionalCheckFailed"

    @property
    def passing(self) -> bool:
        """Whether another try may find the way free: a conflict with another write, a throttle."""
        return self.code in {
            "TransactionConflict",
            "ThrottlingError",
            "ProvisionedThroughputExceeded",
        }


class TransactionCancelled(CountledgerError):
    """A transaction was refused as a whole.

    Attributes:
        reasons: one for each action, in their order.
    """

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
