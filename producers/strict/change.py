"""A change of a strict counter, the update that writes it, and why an item refuses it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from countledger.ledger import amount, keys
from countledger.ledger.amount import parse_delta, to_text
from countledger.ledger.attempts import (
    Attempts,
    Done,
    Recheck,
    Reply,
    RetryPeriodOver,
    Send,
    attempt,
    otherwise,
)
from countledger.ledger.clock import show_duration
from countledger.ledger.entry import check_note
from countledger.ledger.errors import (
    ClockSkew,
    ConditionFailed,
    CorruptItem,
    CountledgerError,
    IdempotencyKeyReused,
    KeyExpired,
    TransactionCancelled,
    Unreachable,
)
from countledger.ledger.ids import IdempotencyKey, check_key, id_of_key
from countledger.ledger.operations import Add, Compare, Get, Update, unchanged
from countledger.ledger.recent import Recent
from countledger.producers.strict.definition import decode_state, has_headroom, moved, of
from countledger.producers.strict.outcome import (
    BoundReached,
    Contended,
    Unknown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Answer, Exhausted, Steps, Verdict
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.connection import Connection
    from countledger.ledger.errors import Reason
    from countledger.ledger.operations import Condition, Transact
    from countledger.producers.strict.definition import Definition, Part, StrictState
    from countledger.producers.strict.outcome import Refusal, StrictOutcome


# The fence of a strict counter: what keeps late requests of an answered call from being applied.
#
# Each item of a counter has a number (`fence`, absent as long as it is 0). Every request of method
# `request_token`, and every deletion, is conditional on the number that its process knows. A call
# that had a request without a clear answer raises the number before it says its outcome, by method
# `request_token` before it sends anything else: then that request cannot be applied any more,
# however late it arrives. Raising costs one write unit. A call whose requests were all answered
# raises nothing.
#
# A process takes the number for 0 until it reads another one, in the counter or in the item that
# refused a request. Only a raised fence costs another process one refused request.


FENCE: Final = "fence"
# To find out what a token stands for: how many of the last numbers of a fence are tried, by one
# request each.
FENCES_ASKED: Final = 4


@dataclass(slots=True)
class KnownFences:
    """The numbers of raised fences that this process has read, by item and identity.

    A number that is not kept any more is taken for 0, until a refusal names it.
    """

    _known: Recent[tuple[str, str, str], int] = field(default_factory=Recent)

    def of(self, key: Key, identity: str) -> int:
        """The number of an item; 0: as far as this process knows, it was never raised."""
        known = self._known.get((key["counter"], key["part"], identity))
        return 0 if known is None else known.value

    def learn(self, key: Key, identity: str, item: Item) -> None:
        number, place = fence_of(item), (key["counter"], key["part"], identity)
        if number or self._known.get(place) is not None:
            self._known.keep(place, number)


def fence_of(item: Item) -> int:
    number: int = item.get(FENCE, 0)
    return number


def unraised(number: int) -> Condition:
    """The fence of the item was not raised since its number was this."""
    return unchanged(FENCE, number or None)


def raising(table: str, key: Key, incarnation: str) -> Update:
    """Raise the fence of an item of this incarnation; a repeated request raises it once more."""
    same = Compare("incarnation", "=", incarnation)
    raised = (Add(FENCE, 1), Add("version", 1))
    return Update(table, key, raised, same, returning="ALL_NEW")


def raise_each(writes: Iterable[Update], attempts: Attempts) -> Steps[list[Item | None] | None]:
    """Raise fences, one write unit each; the limits of the call may be used up by now.

    The answer: the items afterwards; for one that is gone or has another identity None, because no
    request of the call can be applied to it either. None: a fence got no clear answer, so it is
    none.
    """
    items: list[Item | None] = []
    # Whatever error comes instead of an answer: a request of the call may be applied yet.
    attempts.maybe_applied = True

    def interpret(reply: Reply[Update]) -> Verdict[Update, list[Item | None] | None]:
        match reply.answer:
            case ConditionFailed():
                return Done([None])
            case CountledgerError():
                return otherwise(reply)
        return Done([reply.answer])

    for write in writes:
        raised = yield from attempt(write, Send, interpret, lambda _: None, attempts)
        if raised is None:
            return None
        items += raised
    return items


def raise_fences(
    connection: Connection, definition: Definition, places: Iterable[Key]
) -> Steps[bool]:
    """Raise the fences of items of a counter: one write unit each; whether all are raised."""
    writes = [raising(connection.counters, key, definition.incarnation) for key in places]
    items = yield from raise_each(writes, connection.attempts())
    if items is None:
        return False
    known = connection.shared(KnownFences)
    for write, item in zip(writes, items, strict=True):
        if item is not None:
            known.learn(write.key, definition.incarnation, item)
    return True


def read_incarnation(connection: Connection, definition: Definition) -> Steps[Item]:
    """A counter's main item, if its incarnation is still the definition's: one read unit."""
    return definition.expect((yield Send(Get(connection.counters, definition.main))))


def value_of(connection: Connection, definition: Definition) -> Steps[Amount | None]:
    """The value after a transaction, whose answer has none: one read unit; none with bins."""
    if definition.bins > 1:
        return None
    try:
        item: Item | None = yield Send(Get(connection.counters, definition.main))
    except CountledgerError:
        # The change is applied; a read that fails must not make it look otherwise.
        return None
    # A counter that was recreated since has the value of other changes.
    return item.get("total") if item is not None and definition.is_of(item) else None


def end(exhausted: Exhausted[Any], counter: str, advice: str) -> Unknown | Contended:
    """What a method ends with when no attempt is left; raises if nothing was ever sent.

    `advice`: what a caller can do when the outcome stays unknown.
    """
    if exhausted.maybe_applied:
        return Unknown(counter, advice)
    if isinstance(exhausted.error, Unreachable):
        raise exhausted.error
    return Contended(counter, exhausted.attempts, str(exhausted.error))


def withdrawal(
    connection: Connection,
    definition: Definition,
    void: Transact,
    meaning: Callable[[Answer], StrictOutcome | Recheck[StrictOutcome | None] | None],
    *,
    until_ms: int | None,
    advice: str,
) -> Steps[StrictOutcome]:
    """Send a transaction that changes nothing but keeps a change from being applied later.

    Its last write checks the counter's incarnation. Nothing promises that a cancelled transaction
    names every condition that failed, so an outcome may have to be confirmed by a read of the
    incarnation: one read unit.

    `meaning` says what an answer means: an outcome; an outcome to be confirmed; None: neither.
    `until_ms`: when what the change itself left may be forgotten; None: unknown. `advice`: what a
    caller can do when the outcome stays unknown.
    """
    counter = definition.counter

    # The state is the outcome that a read of the incarnation has to confirm, if any.
    def request(state: StrictOutcome | None) -> Send:
        return Send(void if state is None else Get(connection.counters, definition.main))

    def interpret(
        reply: Reply[StrictOutcome | None],
    ) -> Verdict[StrictOutcome | None, StrictOutcome]:
        match reply.answer:
            case TransactionCancelled(reasons=(*_, same)) if same.condition_failed:
                raise definition.stale() from reply.answer
            case RetryPeriodOver():
                return Done(Unknown(counter, advice))
        if reply.state is not None and not isinstance(reply.answer, CountledgerError):
            definition.expect(reply.answer)
            return Done(reply.state)
        found = meaning(reply.answer)
        if found is None:
            return otherwise(reply)
        return found if isinstance(found, Recheck) else Done(found)

    return attempt(
        None,
        request,
        interpret,
        lambda exhausted: end(exhausted, counter, advice),
        connection.attempts(until_ms),
    )


@dataclass(frozen=True, slots=True)
class StrictChange:
    """One change, the same for every attempt.

    `id` is that of its key, or drawn for this call: at most 36 characters. `key_at_ms`: when the
    key was made, if the caller gave that.
    """

    counter: str
    delta: Amount
    id: str
    at_ms: int
    key: str | None = None
    key_at_ms: int | None = None
    note: Mapping[str, str] | None = None

    @property
    def tag(self) -> str:
        """How an item remembers it: its id and its delta."""
        return f"{self.id}={to_text(self.delta)}"

    def remembered_in(self, tags: Iterable[str]) -> bool:
        """Whether it is among the remembered changes; with another delta its key was reused."""
        prefix = f"{self.id}="
        for tag in tags:
            if tag.startswith(prefix):
                if tag != self.tag:
                    raise self.reused(tag.removeprefix(prefix))
                return True
        return False

    def reused(self, delta: object) -> IdempotencyKeyReused:
        before = "something else" if delta is None else f"a delta of {delta}"
        return IdempotencyKeyReused(
            f"idempotency key {self.key!r} of counter {self.counter!r} was used for {before}, and "
            f"now comes with {to_text(self.delta)}: a new change needs a new key"
        )

    def remembered_until(self, life_ms: int) -> int:
        """Until when a method that remembers keys for so long surely recognizes this one."""
        return (self.at_ms if self.key_at_ms is None else self.key_at_ms) + life_ms

    def check_age(self, now_ms: int, life_ms: int, skew_ms: int) -> None:
        """Check that its key, if it has a time, is still remembered if it was used before."""
        what = f"idempotency key {self.key!r} of counter {self.counter!r}"
        check_key_age(what, self.key_at_ms, now_ms, life_ms, skew_ms)


def check_key_age(
    what: str, key_at_ms: int | None, now_ms: int, life_ms: int, skew_ms: int
) -> None:
    """Check that a key made at that time (None: unknown) is still remembered."""
    age_ms = now_ms - (now_ms if key_at_ms is None else key_at_ms)
    if age_ms > life_ms:
        raise KeyExpired(
            f"{what} was made {show_duration(age_ms)} ago and is remembered for "
            f"{show_duration(life_ms)}: whether it counted is no longer known"
        )
    if -age_ms > skew_ms:
        raise ClockSkew(
            f"{what} is dated {show_duration(-age_ms)} ahead; clocks may differ by "
            f"{show_duration(skew_ms)}"
        )


def remembered_until(
    connection: Connection, key: str | IdempotencyKey, life_ms: int, what: str
) -> int | None:
    """Until when a key with a time is surely remembered, if it still is; None: a bare key."""
    if not isinstance(key, IdempotencyKey):
        return None
    named = f"idempotency key {key.key!r} of {what}"
    check_key_age(named, key.at_ms, connection.clock.now_ms(), life_ms, connection.clock_skew_ms)
    return key.at_ms + life_ms


def make_change(
    counter: str,
    delta: Amount,
    key: str | IdempotencyKey | None,
    note: Mapping[str, str] | None,
    *,
    now_ms: int,
    new_id: Callable[[int], str],
) -> StrictChange:
    if key is not None and not isinstance(key, IdempotencyKey):
        key = check_key(key)
    return StrictChange(
        counter=keys.check_counter(counter),
        delta=parse_delta(delta),
        id=new_id(now_ms) if key is None else id_of_key(key),
        at_ms=now_ms,
        key=key.key if isinstance(key, IdempotencyKey) else key,
        key_at_ms=key.at_ms if isinstance(key, IdempotencyKey) else None,
        note=None if note is None else check_note(note),
    )


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """What a caller wants under one key, the same for every attempt.

    `facts`: what a retry has to repeat, as the marker stores it. `value`: that of the counter
    afterwards, if it is known before.
    """

    counters: tuple[str, ...]
    facts: Mapping[str, Mapping[str, Amount]]
    key: str | IdempotencyKey
    at_ms: int
    note: Mapping[str, str] | None = None
    value: Amount | None = None

    @property
    def what(self) -> str:
        """The counters, for outcomes and messages."""
        return ", ".join(self.counters)

    @property
    def id(self) -> str:
        return id_of_key(self.key)

    @property
    def key_text(self) -> str:
        """The key without its time."""
        return self.key.key if isinstance(self.key, IdempotencyKey) else self.key


class PendingChange(Protocol):
    """A change under one method, and what is known of its attempts so far."""

    def at(self, parts: Sequence[Part]) -> Steps[StrictOutcome]:
        """Apply it to these items, with retries as the method allows.

        `BoundReached` if an item has not enough headroom: nothing was written, and other items may
        be tried. (Its numbers are those of the item, which may be a bin.)
        """

    def confirm_refusal(self, refused: Refusal) -> Steps[StrictOutcome]:
        """Make a refusal final: afterwards no request of this call can apply the change."""


def update_of(
    table: str, definition: Definition, part: Part, now_ms: int | None, *more: Condition
) -> Update:
    """The write that moves an item by its part, if it has the headroom: one write unit."""
    return Update(
        table,
        part.key,
        moved(part.delta, now_ms),
        of(definition.incarnation, has_headroom(part.delta), *more),
        returning="ALL_NEW",
    )


def refusal(counter: str, state: StrictState, delta: Amount) -> BoundReached | None:
    """The result of the condition `has_headroom` for a state; None: there is enough headroom."""
    after = amount.add(state.total, delta)
    if delta > 0 and state.upper is not None and after > state.upper:
        return BoundReached(counter, state.total, "upper", state.upper, delta)
    free = amount.add(after, amount.negated(state.held))
    if delta < 0 and state.lower is not None and free < state.lower:
        return BoundReached(counter, state.total, "lower", state.lower, delta, state.held)
    return None


def refused_by(definition: Definition, part: Part, item: Item | None) -> BoundReached:
    """Why an item whose condition failed has refused its part."""
    if item is None or not definition.is_of(item):
        raise definition.stale()
    refused = refusal(definition.counter, decode_state(item), part.delta)
    if refused is None:
        raise CorruptItem(
            f"strict counter {definition.counter!r}: total, bounds and headroom contradict each "
            "other; an item was changed by hand"
        )
    return refused


def refused_among(
    definition: Definition, parts: Sequence[Part], reasons: Sequence[Reason]
) -> BoundReached | None:
    """The refusal in a cancelled transaction; None if no condition failed."""
    for part, reason in zip(parts, reasons, strict=True):
        if reason.condition_failed:
            return refused_by(definition, part, reason.item)
    return None
