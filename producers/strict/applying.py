"""Applies a change by the counter's method, to its item or to its bins.

1.  One bin at random (method request_token: by the key, so that a retry starts at the same bin).
2.  If that refuses: a few other bins.
3.  If these refuse: read all bins as of one moment, and split the change over as few of them as
    have the headroom, in one transaction; again while others are faster.
4.  If all of them together have not enough headroom: bound reached, as of that moment. Method
    request_token asks once more what the token of a key stands for, because another call under that
    key may have taken the headroom since the bins were tried.

A bin that gave no clear answer is resolved before another is tried; where the method cannot resolve
it, no other is tried. A counter without bins has one place, and steps 2 and 3 do not exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, Final

from countledger.ledger.attempts import PASSING, Done, Reply, Send, attempt, otherwise
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import (
    BadKey,
    BadNote,
    BadSetting,
    ConditionFailed,
    CountledgerError,
    KeyExpired,
    Throttled,
    TokenMismatch,
    TransactionCancelled,
    Unclear,
)
from countledger.ledger.ids import IdempotencyKey, id_of_key
from countledger.ledger.operations import Transact
from countledger.producers.strict import marker, token
from countledger.producers.strict.change import (
    end,
    read_incarnation,
    refused_by,
    remembered_until,
    update_of,
)
from countledger.producers.strict.definition import Method, Part, StaleDefinition, decode_state
from countledger.producers.strict.hold import is_hold
from countledger.producers.strict.marker import MarkerChange
from countledger.producers.strict.optimistic import OptimisticChange
from countledger.producers.strict.outcome import (
    Applied,
    BoundReached,
    Contended,
    Duplicate,
    Unknown,
)
from countledger.producers.strict.release import Releases
from countledger.producers.strict.token import RequestTokenChange, SetChange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.attempts import Attempts, Steps, Verdict
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.connection import Connection
    from countledger.ledger.errors import Reason
    from countledger.producers.strict.change import PendingChange, StrictChange
    from countledger.producers.strict.definition import Definition, StrictState
    from countledger.producers.strict.outcome import Refusal, StrictOutcome


# Method `atomic`: ADD on condition of the headroom. One write unit, one round trip.
#
# Without an answer (500, time-out, reset) it is unknown whether the change was or will be applied.
# So the caller chooses: `prefer="under"` (the default) sends nothing more and returns `Unknown`:
# the change counts once or not at all. `prefer="over"` sends it again: it counts once or more
# often. The method remembers no keys, so they are refused.
#
# There is no fence: the outcome of a call without a clear answer names the time after which none
# of its requests can be applied any more. A change that is split over several bins is one
# transaction, and the same rules hold.


_ADVICE: Final = (
    "method atomic cannot know whether the change counted: if you repeat it, it may count twice, "
    "if not, it may be missing; compare with your own records, or take another method"
)


class Prefer(StrEnum):
    """Which miscount a caller of method atomic prefers after a lost answer."""

    UNDER = "under"
    OVER = "over"


@dataclass(slots=True)
class AtomicChange:
    """One change by method atomic."""

    connection: Connection
    definition: Definition
    change: StrictChange
    prefer: Prefer
    attempts: Attempts

    @classmethod
    def begin(
        cls, connection: Connection, definition: Definition, change: StrictChange, prefer: Prefer
    ) -> AtomicChange:
        return cls(connection, definition, change, prefer, connection.attempts())

    def at(self, parts: Sequence[Part]) -> Steps[StrictOutcome]:
        """Apply it to these items: one write unit; two for each item of a split."""
        if len(parts) > 1:
            return self._split(parts)
        return self._at_one(parts[0])

    def _at_one(self, part: Part) -> Steps[StrictOutcome]:
        counter = self.change.counter
        write = update_of(self.connection.counters, self.definition, part, self.change.at_ms)

        def interpret(reply: Reply[None]) -> Verdict[None, StrictOutcome]:
            match reply.answer:
                case ConditionFailed(item=item):
                    return Done(self._refused(part, item, maybe_applied=reply.maybe_applied))
                case Unclear() if self.prefer is Prefer.UNDER:
                    return Done(self._unknown)
                case CountledgerError():  # after `Unclear` it may count twice, as preferred
                    return otherwise(reply)
            alone = self.definition.bins == 1
            return Done(Applied(counter, reply.answer["total"] if alone else None))

        return attempt(
            None,
            lambda _: Send(write),
            interpret,
            lambda exhausted: end(exhausted, counter, self._advice),
            self.attempts,
        )

    def _refused(self, part: Part, item: Item | None, *, maybe_applied: bool) -> StrictOutcome:
        """Unknown while an earlier attempt may be applied: it may have taken the headroom."""
        try:
            refused = refused_by(self.definition, part, item)
        except StaleDefinition:
            if not maybe_applied:
                raise
            return self._unknown
        return self._unknown if maybe_applied else refused

    def _split(self, parts: Sequence[Part]) -> Steps[StrictOutcome]:
        """A transaction of one write for each item; without an answer as at one item."""
        connection, at_ms = self.connection, self.change.at_ms
        writes = [update_of(connection.counters, self.definition, part, at_ms) for part in parts]
        transaction = Transact(writes, connection.ids.new_id(at_ms))

        def interpret(reply: Reply[None]) -> Verdict[None, StrictOutcome]:
            match reply.answer:
                case TransactionCancelled(reasons=reasons) if reply.answer.condition_failed:
                    return Done(self._refused_among(parts, reasons, reply.maybe_applied))
                case Unclear() if self.prefer is Prefer.UNDER:
                    return Done(self._unknown)
                case CountledgerError():
                    return otherwise(reply)
            return Done(Applied(self.change.counter, None))

        return attempt(
            None,
            lambda _: Send(transaction),
            interpret,
            lambda exhausted: end(exhausted, self.change.counter, self._advice),
            self.attempts,
        )

    def _refused_among(
        self,
        parts: Sequence[Part],
        reasons: Sequence[Reason],
        maybe_applied: bool,  # noqa: FBT001 - of the reply
    ) -> StrictOutcome:
        for part, reason in zip(parts, reasons, strict=True):
            if reason.condition_failed:
                return self._refused(part, reason.item, maybe_applied=maybe_applied)
        raise AssertionError("a condition failed")

    def confirm_refusal(self, refused: Refusal) -> Steps[StrictOutcome]:
        """Final as it is: while an attempt may be applied, `at` returns no refusal."""
        yield from ()
        return refused

    @property
    def _unknown(self) -> Unknown:
        return Unknown(self.change.counter, self._advice)

    @property
    def _advice(self) -> str:
        """With the time after which nothing of the call can be applied any more."""
        life_ms = self.connection.request_life_ms + self.connection.clock_skew_ms
        until = to_datetime(self.connection.clock.now_ms() + life_ms)
        return f"{_ADVICE}; until {until.isoformat(timespec='seconds')} it may still be applied"


# Bins that are tried one by one before all are read: a try costs a write, the reading two read
# units for each bin.
_PLACES: Final = 3
_SPLITS: Final = 10
_OPTIMISTIC: Final = frozenset({Method.OCC, Method.HISTORY})
_TAKEN_ELSEWHERE: Final = (
    "the key was used within the last ten minutes: for this change, split over other bins, or for "
    "another one; only method marker finds out which"
)
_LOOK_AGAIN: Final = "whether a hold is stored under the key could not be read: withdraw it again"


def apply(
    connection: Connection,
    definition: Definition,
    item: Item | None,
    change: StrictChange,
    *,
    prefer: str | None,
    known: StrictState | None,
) -> Steps[StrictOutcome]:
    """Apply a change by the counter's method; `item` is the main item, if it was just read."""
    _check_choices(definition, change, prefer, known)
    if definition.method not in _OPTIMISTIC:
        pending = _begin(connection, definition, change, prefer)
        return apply_at_places(connection, definition, change, pending)
    if known is None or known.incarnation != definition.incarnation:
        known = None if item is None else decode_state(item)
    begun = OptimisticChange.begin(connection, definition, change)
    return begun.apply(known, read=item is not None)


def withdraw(
    connection: Connection, definition: Definition, key: str | IdempotencyKey
) -> Steps[StrictOutcome]:
    """Withdraw a change, or report that it was applied, by a method that can do this."""
    change_id, what = id_of_key(key), f"counter {definition.counter!r}"
    match definition.method:
        case Method.MARKER:
            return _withdraw_marker(connection, definition, key)
        case Method.REQUEST_TOKEN:
            until_ms = remembered_until(connection, key, connection.token_life_ms, what)
            return token.withdraw(connection, definition, change_id, until_ms)
        case Method.SET:
            return token.withdraw_of_set(connection, definition, change_id)
        case _:
            raise BadSetting(
                f"counter {definition.counter!r} is of method {definition.method}, which cannot "
                "withdraw a key: marker, request_token and set can"
            )


def _withdraw_marker(
    connection: Connection, definition: Definition, key: str | IdempotencyKey
) -> Steps[StrictOutcome]:
    """As `withdraw`; the key of a hold is remembered until it has ended, whatever the window."""
    change_id, what = id_of_key(key), f"counter {definition.counter!r}"
    try:
        until_ms = remembered_until(connection, key, definition.marker_window_ms, what)
    except KeyExpired:
        try:
            stored = yield from marker.stored_marker(connection, definition, change_id)
            yield from read_incarnation(connection, definition)
        except PASSING:
            return Unknown(definition.counter, _LOOK_AGAIN)
        if not is_hold(stored):
            raise
        return Duplicate(definition.counter, None)
    return (yield from marker.withdraw(connection, definition, change_id, until_ms))


def _begin(
    connection: Connection, definition: Definition, change: StrictChange, prefer: str | None
) -> PendingChange:
    match definition.method:
        case Method.REQUEST_TOKEN:
            return RequestTokenChange.begin(connection, definition, change)
        case Method.MARKER:
            return MarkerChange.begin(connection, definition, change)
        case Method.SET:
            return SetChange.begin(connection, definition, change)
        case _:
            chosen = Prefer(prefer or Prefer.UNDER)
            return AtomicChange.begin(connection, definition, change, chosen)


def _check_choices(
    definition: Definition, change: StrictChange, prefer: str | None, known: StrictState | None
) -> None:
    """Refuse what the method would ignore, because a caller relies on it."""
    counter, method = definition.counter, definition.method
    if method is Method.ATOMIC and change.key is not None:
        raise BadKey(
            f"counter {counter!r} is of method atomic, which remembers no keys: leave the key out, "
            "or create the counter with another method"
        )
    if change.note is not None and method is not Method.MARKER:
        raise BadNote(f"counter {counter!r} is of method {method}; only marker keeps notes")
    if prefer is not None and (method is not Method.ATOMIC or prefer not in list(Prefer)):
        raise BadSetting(
            f"prefer {prefer!r} for counter {counter!r} of method {method}: it is `under` or "
            "`over`, and only for method atomic, which cannot find out"
        )
    if known is not None and method not in _OPTIMISTIC:
        raise BadSetting(f"counter {counter!r} is of method {method}, which needs no known state")


def apply_at_places(
    connection: Connection, definition: Definition, change: StrictChange, pending: PendingChange
) -> Steps[StrictOutcome]:
    """Apply a change at the first place, or split over the places, that has the headroom."""
    refused: Refusal | None = None
    releases, elsewhere = Releases(connection), False
    places = first_places(definition, change, connection.random)
    for place in places:
        try:
            outcome = yield from pending.at([Part(place, change.delta)])
        except TokenMismatch:
            elsewhere = True
            continue
        if not isinstance(outcome, BoundReached):
            return outcome
        refused = outcome
    if elsewhere:
        return Unknown(change.counter, _TAKEN_ELSEWHERE)
    if definition.bins > 1:
        outcome = yield from _split_over_bins(connection, definition, change, pending)
        if not isinstance(outcome, BoundReached):
            return outcome
        return (yield from _confirm_by_token(definition, change, pending, places, outcome))
    if refused is None:
        raise AssertionError("a counter has at least one place")
    whole = [Part(definition.main, change.delta)]
    outcome = yield from releases.again(definition, refused, lambda: pending.at(whole))
    if isinstance(outcome, BoundReached | Contended):
        return (yield from pending.confirm_refusal(outcome))
    return outcome


def first_places(definition: Definition, change: StrictChange, random: Random) -> Sequence[Key]:
    if definition.method is Method.REQUEST_TOKEN:
        random = Random(change.id)  # noqa: S311 - spreads load, guards nothing
    places = definition.places
    return random.sample(places, min(_PLACES, len(places)))


def _split_over_bins(
    connection: Connection, definition: Definition, change: StrictChange, pending: PendingChange
) -> Steps[StrictOutcome]:
    """Each round is another plan from another reading, with the attempts of the same call."""
    releases = Releases(connection)
    for _ in range(_SPLITS):
        try:
            parts = yield from releases.split(definition, change.delta)
        except Throttled as error:
            tries = max(releases.waits, _PLACES)
            return (
                yield from pending.confirm_refusal(Contended(change.counter, tries, str(error)))
            )
        if isinstance(parts, BoundReached):
            return (yield from pending.confirm_refusal(parts))
        try:
            outcome = yield from pending.at(parts)
        except TokenMismatch:
            return Unknown(change.counter, _TAKEN_ELSEWHERE)
        if not isinstance(outcome, BoundReached):
            return outcome
    busy = "other changes took the headroom each time before this one could"
    return (yield from pending.confirm_refusal(Contended(change.counter, _SPLITS, busy)))


def _confirm_by_token(
    definition: Definition,
    change: StrictChange,
    pending: PendingChange,
    places: Sequence[Key],
    refused: BoundReached,
) -> Steps[StrictOutcome]:
    """Confirm a refusal of all bins by the token of its key: two write units (`request_token`).

    The bins were read after the token was seen to be free: what they lack may have been taken by
    another call under the key. A bin that refuses once more says that the token is free even now.
    """
    if definition.method is not Method.REQUEST_TOKEN or change.key is None:
        return refused
    for place in places:
        try:
            outcome = yield from pending.at([Part(place, change.delta)])
        except TokenMismatch:
            continue
        return refused if isinstance(outcome, BoundReached) else outcome
    return Unknown(change.counter, _TAKEN_ELSEWHERE)
