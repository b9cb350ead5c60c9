"""Acquires and reserves: the amount is counted in the window of the call, or denied.

    without a key                one update                          1 write unit
    method request_token, a key  the update under a client token     2 write units, 1 read unit
    method marker, a key,        the update and a marker of the key  4 write units, 1 read unit
    and every reserve

The window of a call is that of the time when it began, for all of its attempts. The answers mean:

    done                        admitted
    marker exists               this call's, or a duplicate, in whatever window; another amount or
                                another kind of call: the key was reused
    condition of the window     a newer revision of the limit: the limit is read again, and the
                                amount is tried again. Else it does not fit: denied
    token of other writes       the key was used within ten minutes, with another amount or window,
                                or under another revision
    throttle, conflict          nothing was written: again
    no answer                   with a key: again. Without: as `prefer` says, no more attempt
                                (at-most-once) or again (at-least-once)

A token is forgotten ten minutes after its success, and a late request is not. So a request with a
token names the number of the fence of its window (`fence`). After one without an answer the call
raises the number (one write unit) and asks with the same request once more (two): the token says
whether it was counted. If not, it is sent under the new number. An amount is never denied while a
request of the call may be applied.

A denial is final only if no request of this call can still be applied. Otherwise the outcome is
unknown: the same call under its key finds out.

The writes of quotas, and what their answers mean: admitted, denied, or another limit. Pure.

The counter of a window (`used`) is made by the first write of the window, an upsert. So no job
makes or resets it, and two first writes meet in one item. Each admission names

- the window, by the key of the item;
- the quota, by its incarnation in the key: a quota that is deleted and created again begins with
  other items;
- the revision of the limit: once a write under a newer revision was stored, every older one is
  refused, and its process reads the limit again.

Commits and releases: a reservation is resolved once, in the window that it was counted in.

One transaction moves the marker of the reservation from `reserved` to its end and corrects the
counter of its window: four write units. A commit of exactly the reserved amount changes the marker
alone: one write unit. The answers mean:

    done                       this call did it
    marker is resolved         by this call or another one: a duplicate if in the same way, else
                               refused
    marker is gone, or of      the time of the reservation is over: it stays counted
    another reservation
    throttle, conflict         nothing was written: again
    no answer                  again: the marker is moved once
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from countledger.ledger import amount as amounts
from countledger.ledger import keys
from countledger.ledger.amount import add, negated, to_text
from countledger.ledger.attempts import (
    PASSING,
    Again,
    Done,
    Recheck,
    RetryPeriodOver,
    Send,
    attempt,
    otherwise,
    raise_exhausted,
)
from countledger.ledger.calendar import window_of, zone_of
from countledger.ledger.clock import to_datetime, to_ms
from countledger.ledger.errors import (
    BadQuota,
    ConditionFailed,
    CorruptItem,
    CountledgerError,
    IdempotencyKeyReused,
    Throttled,
    TicketExpired,
    TicketResolved,
    TokenMismatch,
    TransactionCancelled,
    Unclear,
)
from countledger.ledger.operations import (
    Absent,
    Add,
    AllOf,
    AnyOf,
    Assign,
    AssignOnce,
    Compare,
    Get,
    Put,
    Transact,
    Update,
)
from countledger.producers.quotas.quota import (
    Admitted,
    Committed,
    Denied,
    Ticket,
    denied,
    left_of,
    marker_expires_at,
    tickets_until_ms,
    window_expires_at,
)
from countledger.producers.strict.change import (
    FENCE,
    FENCES_ASKED,
    KnownFences,
    check_key_age,
    fence_of,
    unraised,
)
from countledger.producers.strict.definition import Method
from countledger.producers.strict.marker import decides

if TYPE_CHECKING:
    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Attempts, Exhausted, Reply, Steps, Verdict
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.calendar import Window
    from countledger.ledger.connection import Connection
    from countledger.ledger.operations import Condition
    from countledger.producers.quotas.administration import Limits
    from countledger.producers.quotas.quota import CounterLimit


ACQUIRED: Final = "acquired"
RESERVED: Final = "reserved"
COMMITTED: Final = "committed"
RELEASED: Final = "released"
ADVICE: Final = (
    "the amount may be counted or not. With a key: call again with the same key. Without one: take "
    "it as not admitted; if it was counted, it is gone with its window"
)


def admission(
    table: str, limit: CounterLimit, window: Window, amount: Amount, *more: Condition
) -> Update:
    """Count an amount that is not above the limit, if it still fits: one write unit.

    `more` holds of the counter of the window, if there is one.
    """
    most = amounts.add(limit.amount, amounts.negated(amount))
    fits = AllOf(Compare("used", "<=", most), Compare("revision", "<=", limit.revision), *more)
    return Update(
        table,
        keys.quota_window_key(limit.quota.incarnation, limit.counter, window.name),
        (
            Assign("revision", limit.revision),
            AssignOnce("expires_at", window_expires_at(window.end_ms)),
            Add("used", amount),
        ),
        AnyOf(Absent("part"), fits),
        returning="ALL_NEW",
    )


def raising(table: str, limit: CounterLimit, window: Window) -> Update:
    """Raise the fence of the counter of a window, which it may create: one write unit.

    A request that is under way would create it otherwise.
    """
    clauses = (
        AssignOnce("revision", limit.revision),
        AssignOnce("expires_at", window_expires_at(window.end_ms)),
        Add("used", 0),
        Add(FENCE, 1),
    )
    key = keys.quota_window_key(limit.quota.incarnation, limit.counter, window.name)
    return Update(table, key, clauses, returning="ALL_NEW")


def marker(table: str, limit: CounterLimit, window: Window, key_id: str, facts: Item) -> Put:
    """Record what was done under a key, if the key has no marker: of whatever window."""
    item = {
        **keys.quota_marker_key(limit.quota.incarnation, limit.counter, key_id),
        **facts,
        "window": window.name,
        "window_end": window.end_ms,
        "expires_at": marker_expires_at(window.end_ms),
    }
    return Put(table, item, Absent("part"))


def resolution(table: str, ticket: Ticket, state: str, actual: Amount, call: str) -> Update:
    """Resolve a reservation, if it is this one and open.

    What the marker says counts: a ticket may come back from a stranger with another amount.
    """
    return Update(
        table,
        ticket.marker_key,
        (Assign("state", state), Assign("actual", actual), Assign("resolved_by", call)),
        AllOf(
            Compare("call", "=", ticket.reservation),
            Compare("state", "=", RESERVED),
            Compare("amount", "=", ticket.amount),
            Compare("window", "=", ticket.window),
        ),
    )


def correction(table: str, ticket: Ticket, actual: Amount) -> Update | None:
    """Count the actual amount instead of the reserved one, in the window of the reservation.

    Without a look at the limit: what was spent is spent. None: the two are equal.
    """
    difference = amounts.add(actual, amounts.negated(ticket.amount))
    if not difference:
        return None
    clauses = [Add("used", difference)]
    if difference > 0:
        clauses.append(Add("overrun", difference))
    # The counter of a window outlives its tickets. Were it gone, nothing may bring it back.
    return Update(table, ticket.window_key, tuple(clauses), Compare("used", ">=", ticket.amount))


class LimitChanged(CountledgerError):
    """The limit must be read again; nothing was written by this request (inner use)."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a call wants, the same for every attempt.

    The time when it began (`at_ms`) decides the window. `key` is as the caller gave it, without its
    time, and `key_id` its id, or drawn for this call. `reserve`: the amount may be corrected later.
    `again`: without a key, a request without an answer is sent again.
    """

    counter: str
    amount: Amount
    at_ms: int
    call: str
    key: str | None
    key_at_ms: int | None
    key_id: str
    reserve: bool
    again: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """An amount under one limit, as it was read, in one window."""

    wanted: Wanted
    limit: CounterLimit
    window: Window

    @property
    def marker_key(self) -> dict[str, str]:
        """Where the key of the call is remembered."""
        wanted = self.wanted
        return keys.quota_marker_key(self.limit.quota.incarnation, wanted.counter, wanted.key_id)

    def denied(self, used: Amount | None, now_ms: int) -> Denied:
        """The outcome for an amount that does not fit; `used` as far as it is known."""
        return denied(self.limit, self.wanted.amount, used, self.window, now_ms)

    def refused(self, item: Item | None, now_ms: int) -> Denied:
        """Why the counter of the window refuses the amount.

        `LimitChanged`: it knows a newer revision. `CorruptItem`: it has no reason.
        """
        found = item or {}
        if found.get("revision", 0) > self.limit.revision:
            raise LimitChanged("the counter of the window knows a newer limit")
        used = found.get("used")
        if used is None or add(used, self.wanted.amount) <= self.limit.amount:
            raise CorruptItem(
                f"quota of {self.wanted.counter!r}: what window {self.window.name} has used "
                f"({used}) contradicts its refusal; the item was changed by hand",
                item,
            )
        return self.denied(used, now_ms)

    def admitted(self, used: Amount | None, reservation: str | None = None) -> Admitted:
        """The outcome for an amount that is counted; `used` as far as it is known."""
        wanted, window = self.wanted, self.window
        ticket = None
        if wanted.reserve:
            ticket = Ticket(
                wanted.counter,
                wanted.amount,
                self.limit.quota.incarnation,
                window.name,
                wanted.key_id,
                reservation or wanted.call,
                to_datetime(tickets_until_ms(window.end_ms)),
            )
        left = None if used is None else left_of(self.limit.amount, used)
        ends = to_datetime(window.end_ms)
        return Admitted(wanted.counter, wanted.amount, window.name, left, ends, ticket=ticket)

    def meaning_of(self, marker: Item) -> Admitted:
        """What a marker that exists says of this call, in whatever window it is counted."""
        wanted, state = self.wanted, marker.get("state")
        reserved = state != ACQUIRED
        if marker.get("amount") != wanted.amount or reserved is not wanted.reserve:
            raise IdempotencyKeyReused(
                f"idempotency key {wanted.key!r} of {wanted.counter!r} was used to "
                f"{'reserve' if reserved else 'acquire'} {marker.get('amount')}, and now comes to "
                f"{'reserve' if wanted.reserve else 'acquire'} {to_text(wanted.amount)}: a new "
                "call needs a new key"
            )
        if reserved and state != RESERVED:
            raise TicketResolved(
                f"the reservation under key {wanted.key!r} of {wanted.counter!r} is {state}: what "
                "is done again needs a new key"
            )
        call = marker.get("call")
        window = replace(self.window, name=marker["window"], end_ms=marker["window_end"])
        counted = replace(self, window=window).admitted(None, call)
        return replace(counted, duplicate=call != wanted.call)

    def used_elsewhere(self) -> IdempotencyKeyReused:
        """The error for a token that stands for other writes."""
        return IdempotencyKeyReused(
            f"idempotency key {self.wanted.key!r} of {self.wanted.counter!r} was used within ten "
            "minutes: with another amount, in the window before, or before the limit was changed. "
            "It is not counted again; only method marker finds out which"
        )

    def unknown(self) -> Unclear:
        """The error while a request may be applied yet."""
        return Unclear(f"to acquire from the quota of {self.wanted.counter!r}: {ADVICE}")


# How often a call meets a newer revision of its limit than the one that it has just read.
_REVISIONS: Final = 10


class _TokenStep(Enum):
    """What a call with a token sends next."""

    COUNT = "the amount"
    RAISE = "the fence, so that a request without an answer is not applied later"
    ASK = "the same request once more, to ask whether it was applied"


class _Tokened(NamedTuple):
    """The next request of a call with a token; `fence` is the number that it names."""

    step: _TokenStep
    fence: int


_RAISED: Final = Throttled("the fence of the window was raised by another call")


def acquiring(
    connection: Connection, limits: Limits, wanted: Wanted, attempts: Attempts
) -> Steps[Admitted | Denied]:
    for _ in range(_REVISIONS):
        limit = yield from limits.of(wanted.counter, attempts)
        window = window_of(wanted.at_ms, limit.quota.per, zone_of(limit.quota.time_zone))
        decision = Decision(wanted, limit, window)
        admission = _Admission(connection, limits, attempts, decision)
        try:
            return (yield from admission.carry_out())
        except LimitChanged:
            limits.forget(wanted.counter)
    raise Throttled(f"the limit of {wanted.counter!r} changed {_REVISIONS} times; try again later")


@dataclass(frozen=True, slots=True)
class _Admission:
    """An acquire or a reserve under one limit, as it was read."""

    connection: Connection
    limits: Limits
    attempts: Attempts
    decision: Decision

    @property
    def wanted(self) -> Wanted:
        return self.decision.wanted

    @property
    def limit(self) -> CounterLimit:
        return self.decision.limit

    def carry_out(self) -> Steps[Admitted | Denied]:
        """The outcome, unless the limit must be read again."""
        keyed = self.wanted.reserve or self.wanted.key is not None
        if self.wanted.amount > self.limit.amount:
            if self.limit.read_at_ms < self.wanted.at_ms:
                raise LimitChanged("never is said of a limit that was read by this call only")
            refused = self.decision.denied(None, self._now_ms)
            return (yield from self._confirmed(refused)) if keyed else self._final(refused)
        if not keyed:
            return (yield from self._plain())
        if self.wanted.reserve or self.limit.quota.method is Method.MARKER:
            return (yield from self._marked())
        return (yield from self._tokened())

    def _plain(self) -> Steps[Admitted | Denied]:
        """One update: one write unit."""
        write = self._write

        def interpret(reply: Reply[None]) -> Verdict[None, Admitted | Denied]:
            match reply.answer:
                case ConditionFailed(item=item):
                    return Done(self._final(self.decision.refused(item, self._now_ms)))
                case Unclear() if not self.wanted.again:
                    raise self.decision.unknown() from reply.answer
                case LimitChanged():
                    raise reply.answer
                case CountledgerError():
                    return otherwise(reply)
            return Done(self.decision.admitted(reply.answer["used"]))

        return attempt(None, lambda _: self._send(write), interpret, self._give_up, self.attempts)

    def _marked(self) -> Steps[Admitted | Denied]:
        """The update and a marker: four write units, and a read unit for what remains."""
        facts = {
            "call": self.wanted.call,
            "amount": self.wanted.amount,
            "state": RESERVED if self.wanted.reserve else ACQUIRED,
            "key": self.wanted.key,
            "at": self.wanted.at_ms,
        }
        facts = {name: value for name, value in facts.items() if value is not None}
        put = marker(
            self.connection.counters, self.limit, self.decision.window, self.wanted.key_id, facts
        )
        token = self.connection.ids.new_id(self.wanted.at_ms)
        transaction = Transact([put, self._write], token)

        def interpret(reply: Reply[None]) -> Verdict[None, Admitted | Denied | Item]:
            match reply.answer:
                case TransactionCancelled(reasons=(marker, _)) if marker.item is not None:
                    return Done(marker.item)
                case TransactionCancelled(reasons=(marker, window)) if (
                    window.condition_failed and not marker.passing
                ):
                    return Done(self.decision.refused(window.item, self._now_ms))
                case LimitChanged():
                    raise reply.answer
                case CountledgerError():
                    return otherwise(reply)
            return Done(self.decision.admitted(None))

        ended = yield from attempt(
            None, lambda _: self._send(transaction), interpret, self._give_up, self.attempts
        )
        if isinstance(ended, dict):
            return (yield from self._with_remaining(self._meaning_of(ended)))
        if isinstance(ended, Denied):
            return (yield from self._confirmed(ended))
        return (yield from self._with_remaining(ended))

    def _tokened(self) -> Steps[Admitted | Denied]:
        """The update under a token: two write units, and a read unit for what remains."""
        token = self._token()

        def request(state: _Tokened) -> Send:
            if state.step is _TokenStep.RAISE:
                return Send(self._raising)
            transaction = Transact([self._fenced(state.fence)], token)
            # A question cannot be applied, however old the limit is.
            return Send(transaction) if state.step is _TokenStep.ASK else self._send(transaction)

        def interpret(reply: Reply[_Tokened]) -> Verdict[_Tokened, Admitted | Denied | int]:
            match reply.state.step, reply.answer:
                case _TokenStep.COUNT, _:
                    return self._counted(reply)
                case _TokenStep.ASK, _:
                    return self._asked(reply)
                case _TokenStep.RAISE, dict(item):
                    self._fences.learn(self._window_key, "", item)
                    return Recheck(reply.state._replace(step=_TokenStep.ASK))
            return otherwise(reply)

        ended = yield from attempt(self._counting, request, interpret, self._give_up, self.attempts)
        if isinstance(ended, int):
            ended = yield from self._found_before(token, ended)
        if isinstance(ended, Denied):
            return self._final(ended)
        return (yield from self._with_remaining(ended))

    @property
    def _fences(self) -> KnownFences:
        return self.connection.shared(KnownFences)

    @property
    def _counting(self) -> _Tokened:
        return _Tokened(_TokenStep.COUNT, self._fences.of(self._window_key, ""))

    def _counted(self, reply: Reply[_Tokened]) -> Verdict[_Tokened, Admitted | Denied | int]:
        match reply.answer:
            case bool(fresh):
                return Done(replace(self.decision.admitted(None), duplicate=not fresh))
            case TokenMismatch():
                return Done(reply.state.fence)
            case Unclear():
                return Again(_Tokened(_TokenStep.RAISE, reply.state.fence))
            case TransactionCancelled(reasons=(window,)) if window.condition_failed:
                if window.item is not None and fence_of(window.item) != reply.state.fence:
                    # The token is free: no request with it was applied, nor can this one be.
                    self._fences.learn(self._window_key, "", window.item)
                    return Again(self._counting, _RAISED)
                return Done(self.decision.refused(window.item, self._now_ms))
            case LimitChanged():
                raise reply.answer
        return otherwise(reply)

    def _asked(self, reply: Reply[_Tokened]) -> Verdict[_Tokened, Admitted | Denied | int]:
        match reply.answer:
            case bool():  # by this call, or by an earlier one
                return Done(replace(self.decision.admitted(None), duplicate=None))
            case TransactionCancelled() if not reply.answer.condition_failed:
                return otherwise(reply)
            case TransactionCancelled() | TokenMismatch():
                return Recheck(self._counting, resolved=True)
        return otherwise(reply)

    def _token(self) -> str:
        """The token of the key, whose age is checked."""
        wanted, connection = self.wanted, self.connection
        if wanted.key_at_ms is not None:
            what = f"idempotency key {wanted.key!r} of {wanted.counter!r}"
            life_ms = connection.token_life_ms
            check_key_age(what, wanted.key_at_ms, self._now_ms, life_ms, connection.clock_skew_ms)
            until_ms = wanted.key_at_ms + life_ms
            self.attempts.until_ms = min(until_ms, self.attempts.until_ms or until_ms)
        scope = f"{self.limit.quota.incarnation}#{wanted.counter}#{wanted.key_id}"
        return blake2b(scope.encode(), digest_size=16, person=b"quota").hexdigest()

    def _found_before(self, token: str, asked: int) -> Steps[Admitted]:
        """What another process counted under the token, if it named another number than `asked`.

        A read unit, and two write units for each number, the last `FENCES_ASKED` at the most; and
        one if the number is not the one that this call has asked with. `Unclear`: no clear answer,
        or there are numbers before those.
        """
        place = self._window_key
        try:
            item: Item | None = yield Send(Get(self.connection.counters, place))
            number = 0 if item is None else fence_of(item)
            # A question under the present number could be counted, once the token is forgotten.
            if number == asked:
                number -= 1
            else:
                self._fences.learn(place, "", (yield Send(self._raising)))
            for fence in range(number, max(-1, number - FENCES_ASKED), -1):
                with suppress(TokenMismatch):
                    yield Send(Transact([self._fenced(fence)], token))
                    return replace(self.decision.admitted(None), duplicate=True)
        except (*PASSING, TransactionCancelled) as error:
            raise self.decision.unknown() from error
        if number >= FENCES_ASKED:
            raise self.decision.unknown()
        raise self.decision.used_elsewhere()

    @property
    def _raising(self) -> Any:  # noqa: ANN401 - a write
        return raising(self.connection.counters, self.limit, self.decision.window)

    def _fenced(self, fence: int) -> Any:  # noqa: ANN401 - a write
        return admission(
            self.connection.counters,
            self.limit,
            self.decision.window,
            self.wanted.amount,
            unraised(fence),
        )

    @property
    def _window_key(self) -> Key:
        limit, window = self.limit, self.decision.window
        return keys.quota_window_key(limit.quota.incarnation, limit.counter, window.name)

    @property
    def _write(self) -> Any:  # noqa: ANN401 - a write
        return admission(
            self.connection.counters, self.limit, self.decision.window, self.wanted.amount
        )

    def _send(self, operation: Any) -> Send:  # noqa: ANN401 - as of `Send`
        return Send(operation, self._check_age)

    def _check_age(self) -> None:
        """A request leaves only while its limit is as new as the guide promises."""
        if not self.limits.is_fresh(self.limit):
            raise LimitChanged("the limit was read too long ago")

    def _confirmed(self, refused: Denied) -> Steps[Admitted | Denied]:
        """A denial under a key: its marker is read, because it may be admitted already.

        Nothing promises that a cancelled transaction names every condition that failed.
        """
        try:
            marker = yield Send(Get(self.connection.counters, self.decision.marker_key))
        except PASSING as error:
            if self.attempts.maybe_applied:
                raise self.decision.unknown() from error
            raise
        if marker is None:
            return self._final(refused)
        return (yield from self._with_remaining(self._meaning_of(marker)))

    def _meaning_of(self, marker: Item) -> Admitted:
        """What a marker that exists says of this call.

        `Unclear`: it is of an earlier call, and expires before a late request is too old.
        """
        if not decides(self.connection, marker, self.wanted.call, self.attempts):
            raise self.decision.unknown()
        return self.decision.meaning_of(marker)

    def _final(self, refused: Denied) -> Denied:
        """A denial; `Unclear` while a request of this call may be applied yet."""
        if self.attempts.maybe_applied:
            raise self.decision.unknown()
        return refused

    def _with_remaining(self, admitted: Admitted) -> Steps[Admitted]:
        """With what its window has left, if that can be read: one read unit."""
        key = keys.quota_window_key(
            self.limit.quota.incarnation, self.wanted.counter, admitted.window
        )
        try:
            item: Item | None = yield Send(Get(self.connection.counters, key))
        except CountledgerError:
            # The amount is counted; a read that fails must not make it look otherwise.
            return admitted
        if item is None:
            return admitted
        return replace(admitted, remaining=left_of(self.limit.amount, item["used"]))

    def _give_up(self, exhausted: Exhausted[Any]) -> Any:  # noqa: ANN401 - it only raises
        if isinstance(exhausted.error, RetryPeriodOver) and not exhausted.maybe_applied:
            raise Throttled(
                f"{self.wanted.counter!r}: this process was suspended, and nothing was written; "
                "call again"
            ) from exhausted.error
        raise_exhausted(exhausted, f"to acquire from {self.wanted.counter!r}", ADVICE)

    @property
    def _now_ms(self) -> int:
        return self.connection.clock.now_ms()


_RESOLVE_AGAIN: Final = "call again with the same ticket: it cannot be resolved twice"


def committing(connection: Connection, ticket: Ticket, actual: Amount) -> Steps[Committed]:
    mine = yield from _resolving(connection, ticket, COMMITTED, actual)
    overrun = max(0, add(actual, negated(ticket.amount)))
    return Committed(ticket.counter, actual, overrun, duplicate=not mine)


def releasing(connection: Connection, ticket: Ticket) -> Steps[bool]:
    """Count nothing for a reservation; whether this call did it."""
    return (yield from _resolving(connection, ticket, RELEASED, 0))


def _resolving(connection: Connection, ticket: Ticket, state: str, actual: Amount) -> Steps[bool]:
    call = connection.ids.new_id(connection.clock.now_ms())
    mark = resolution(connection.counters, ticket, state, actual, call)
    window = correction(connection.counters, ticket, actual)
    operation: Any = mark if window is None else Transact([mark, window], call)

    def interpret(reply: Reply[Any]) -> Verdict[Any, Item | bool | None]:
        match reply.answer:
            case ConditionFailed(item=item):
                return Done(item)
            case TransactionCancelled(reasons=(mark, _)) if mark.condition_failed:
                return Done(mark.item)
            case TransactionCancelled(reasons=(mark, corrected)) if (
                corrected.condition_failed and not mark.passing
            ):
                # Nothing promises that the condition of the marker is named as well.
                return Recheck(Get(connection.counters, ticket.marker_key))
            case CountledgerError():
                return otherwise(reply)
        return Done(reply.answer if isinstance(reply.state, Get) else True)

    def give_up(exhausted: Exhausted[Any]) -> Any:  # noqa: ANN401 - it only raises
        if isinstance(exhausted.error, RetryPeriodOver) and not exhausted.maybe_applied:
            raise _expired(ticket) from exhausted.error
        raise_exhausted(
            exhausted, f"to resolve a reservation of {ticket.counter!r}", _RESOLVE_AGAIN
        )

    attempts = connection.attempts(to_ms(ticket.until))
    ended = yield from attempt(operation, Send, interpret, give_up, attempts)
    if isinstance(ended, bool):
        return ended
    return _meaning_of(ended, ticket, state, actual) == call


def _meaning_of(marker: Item | None, ticket: Ticket, state: str, actual: Amount) -> object:
    """Which call has resolved a reservation in the wanted way.

    `TicketExpired`: its marker is gone. `BadQuota`: the ticket was changed.
    """
    if marker is None or marker.get("call") != ticket.reservation:
        raise _expired(ticket)
    if (marker.get("amount"), marker.get("window")) != (ticket.amount, ticket.window):
        raise BadQuota(
            f"the ticket of {ticket.counter!r} has another amount or window than its reservation: "
            "give the ticket as it was answered"
        )
    if marker.get("state") == RESERVED:
        raise CorruptItem(
            f"quota of {ticket.counter!r}: what window {ticket.window} has used does not include "
            "this reservation; the item was changed by hand",
            marker,
        )
    found = marker.get("state"), marker.get("actual")
    if found != (state, actual):
        raise TicketResolved(
            f"the reservation of {to_text(ticket.amount)} of {ticket.counter!r} is "
            f"{marker.get('state')} ({marker.get('actual')}); it cannot be {state} "
            f"({to_text(actual)}) any more"
        )
    return marker.get("resolved_by")


def _expired(ticket: Ticket) -> TicketExpired:
    return TicketExpired(
        f"the reservation of {to_text(ticket.amount)} of {ticket.counter!r} could be resolved "
        f"until {ticket.until.isoformat()}: it stays counted in window {ticket.window}"
    )
