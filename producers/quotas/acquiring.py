"""Acquires and reserves: the amount is counted in the windows of the call, or denied.

It is counted under each limit of each counter by one update, all in one transaction; n: how many.

    without a key, n = 1         the update                            1 write unit
    without a key, n > 1         the updates                           2 n write units, n read units
    a key, and every quota has   the updates under a client token      2 n write units, n read units
    method request_token
    another key, and every       the updates and a marker of the key   2 n + 2 write units, n read
    reserve                                                            units

The windows of a call are those of the time when it began, for all of its attempts. The answers
mean:

    done                        admitted
    marker exists               this call's, or a duplicate, in whatever window; another amount or
                                another kind of call, or other counters: the key was reused
    condition of a window       a newer revision of the limit: the limit is read again, and the
                                amount is tried again. Else it does not fit: denied
    token of other writes       the key was used within ten minutes, with another amount or window,
                                or under other limits
    throttle, conflict          nothing was written: again
    no answer                   with a key: again. Without: as `prefer` says, no more attempt
                                (at-most-once) or again (at-least-once)

A token is forgotten ten minutes after its success, and a late request is not. So a request with a
token names the number of the fence of its first window (`fence`). After one without an answer the
call raises the number (one write unit) and asks with the same request once more: the token says
whether it was counted. If not, it is sent under the new number. An amount is never denied while a
request of the call may be applied.

A denial is final only if no request of this call can still be applied. Otherwise the outcome is
unknown: the same call under its key finds out.

Commits and releases: a reservation is resolved once, in the windows that it was counted in.

One transaction moves the marker of the reservation from `reserved` to its end and corrects the
counters of its windows: two write units for each, and two for the marker. A commit of exactly the
reserved amount changes the marker alone: one write unit. The answers mean:

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

from countledger.ledger.amount import add, negated
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
from countledger.ledger.clock import to_ms
from countledger.ledger.errors import (
    BadQuota,
    ConditionFailed,
    CountledgerError,
    Reason,
    Throttled,
    TokenMismatch,
    TransactionCancelled,
    Unclear,
)
from countledger.ledger.limits import ADMISSION_LIMITS_MAX
from countledger.ledger.operations import Get, GetMany, Transact
from countledger.producers.quotas.plan import (
    ADVICE,
    COMMITTED,
    RELEASED,
    Decision,
    LimitChanged,
    Share,
    Wanted,
    admission,
    correction,
    counted_in_of,
    expired,
    marker,
    raising,
    resolution,
    resolved_by,
)
from countledger.producers.quotas.quota import Admitted, Committed, Denied, Ticket
from countledger.producers.strict.change import (
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
    from countledger.ledger.connection import Connection
    from countledger.producers.quotas.administration import Limits
    from countledger.producers.quotas.quota import CountedIn


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
        shares: list[Share] = []
        for counter in wanted.counters:
            for limit in (yield from limits.of(counter, attempts)):
                zone = zone_of(limit.quota.time_zone)
                shares.append(Share(limit, window_of(wanted.at_ms, limit.quota.per, zone)))
        if len(shares) > ADMISSION_LIMITS_MAX:
            raise BadQuota(
                f"{wanted.name} have {len(shares)} limits: one call counts under at most "
                f"{ADMISSION_LIMITS_MAX}"
            )
        decision = Decision(wanted, tuple(shares))
        try:
            return (yield from _Admission(connection, limits, attempts, decision).carry_out())
        except LimitChanged:
            for counter in wanted.counters:
                limits.forget(counter)
    raise Throttled(f"the limits of {wanted.name} changed {_REVISIONS} times; try again later")


@dataclass(frozen=True, slots=True)
class _Admission:
    """An acquire or a reserve under its limits, as they were read."""

    connection: Connection
    limits: Limits
    attempts: Attempts
    decision: Decision

    @property
    def wanted(self) -> Wanted:
        return self.decision.wanted

    @property
    def shares(self) -> tuple[Share, ...]:
        return self.decision.shares

    def carry_out(self) -> Steps[Admitted | Denied]:
        """The outcome, unless the limits must be read again."""
        keyed = self.wanted.reserve or self.wanted.key is not None
        never = self.decision.impossible(self._now_ms)
        if never is not None:
            return (yield from self._confirmed(never)) if keyed else self._final(never)
        if not keyed:
            return (yield from self._plain())
        tokens = all(one.limit.quota.method is Method.REQUEST_TOKEN for one in self.shares)
        if tokens and not self.wanted.reserve:
            return (yield from self._tokened())
        return (yield from self._marked())

    def _plain(self) -> Steps[Admitted | Denied]:
        """Without a key: one update of one write unit, or several in a transaction."""
        writes = self._writes
        token = self.connection.ids.new_id(self.wanted.at_ms)
        operation: Any = writes[0] if len(writes) == 1 else Transact(writes, token)

        def interpret(reply: Reply[None]) -> Verdict[None, Admitted | Denied]:
            match reply.answer:
                case ConditionFailed(item=item):
                    return Done(self._refused((Reason("ConditionalCheckFailed", item),)))
                case TransactionCancelled(reasons=reasons) if reply.answer.condition_failed:
                    return Done(self._refused(reasons))
                case Unclear() if not self.wanted.again:
                    raise self.decision.unknown() from reply.answer
                case LimitChanged():
                    raise reply.answer
                case CountledgerError():
                    return otherwise(reply)
                case dict(item):
                    place = self.shares[0].counted_in
                    limits = self.decision.states([place], {place: item["used"]})
                    return Done(replace(self.decision.admitted(), limits=limits))
            return Done(self.decision.admitted())

        ended: Admitted | Denied = yield from attempt(
            None, lambda _: self._send(operation), interpret, self._give_up, self.attempts
        )
        if isinstance(ended, Denied) or len(writes) == 1:
            return ended
        return (yield from self._with_remaining(ended))

    def _refused(self, reasons: tuple[Reason, ...]) -> Denied:
        """A denial by the windows, which is final."""
        return self._final(self.decision.refused(reasons, self._now_ms))

    def _marked(self) -> Steps[Admitted | Denied]:
        """The updates and a marker."""
        decision = self.decision
        put = marker(
            self.connection.counters, decision.counted_in, self.wanted.key_id, decision.facts
        )
        token = self.connection.ids.new_id(self.wanted.at_ms)
        transaction = Transact([put, *self._writes], token)

        def interpret(reply: Reply[None]) -> Verdict[None, Admitted | Denied | Item]:
            match reply.answer:
                case TransactionCancelled(reasons=(mark, *_)) if mark.item is not None:
                    return Done(mark.item)
                case TransactionCancelled(reasons=(mark, *windows)) if (
                    any(one.condition_failed for one in windows) and not mark.passing
                ):
                    return Done(decision.refused(windows, self._now_ms))
                case LimitChanged():
                    raise reply.answer
                case CountledgerError():
                    return otherwise(reply)
            return Done(decision.admitted())

        ended = yield from attempt(
            None, lambda _: self._send(transaction), interpret, self._give_up, self.attempts
        )
        if isinstance(ended, dict):
            return (yield from self._duplicate(ended))
        if isinstance(ended, Denied):
            return (yield from self._confirmed(ended))
        return (yield from self._with_remaining(ended))

    def _tokened(self) -> Steps[Admitted | Denied]:
        """The updates under a token."""
        token = self._token()

        def request(state: _Tokened) -> Send:
            if state.step is _TokenStep.RAISE:
                return Send(self._raising)
            transaction = Transact(self._fenced(state.fence), token)
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
                return Done(self.decision.admitted(not fresh))
            case TokenMismatch():
                return Done(reply.state.fence)
            case Unclear():
                return Again(_Tokened(_TokenStep.RAISE, reply.state.fence))
            case TransactionCancelled(reasons=windows) if reply.answer.condition_failed:
                met = windows[0].item
                if met is not None and fence_of(met) != reply.state.fence:
                    # The token is free: no request with it was applied, nor can this one be.
                    self._fences.learn(self._window_key, "", met)
                    return Again(self._counting, _RAISED)
                return Done(self.decision.refused(windows, self._now_ms))
            case LimitChanged():
                raise reply.answer
        return otherwise(reply)

    def _asked(self, reply: Reply[_Tokened]) -> Verdict[_Tokened, Admitted | Denied | int]:
        match reply.answer:
            case bool():  # by this call, or by an earlier one
                return Done(self.decision.admitted(None))
            case TransactionCancelled() if not reply.answer.condition_failed:
                return otherwise(reply)
            case TransactionCancelled() | TokenMismatch():
                return Recheck(self._counting, resolved=True)
        return otherwise(reply)

    def _token(self) -> str:
        """The token of the key, whose age is checked."""
        wanted, connection = self.wanted, self.connection
        if wanted.key_at_ms is not None:
            what = f"idempotency key {wanted.key!r} of {wanted.name}"
            life_ms = connection.token_life_ms
            check_key_age(what, wanted.key_at_ms, self._now_ms, life_ms, connection.clock_skew_ms)
            until_ms = wanted.key_at_ms + life_ms
            self.attempts.until_ms = min(until_ms, self.attempts.until_ms or until_ms)
        scope = f"{'#'.join(wanted.counters)}#{wanted.key_id}"
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
                    yield Send(Transact(self._fenced(fence), token))
                    return self.decision.admitted(duplicate=True)
        except (*PASSING, TransactionCancelled) as error:
            raise self.decision.unknown() from error
        if number >= FENCES_ASKED:
            raise self.decision.unknown()
        raise self.decision.used_elsewhere()

    @property
    def _raising(self) -> Any:  # noqa: ANN401 - a write
        return raising(self.connection.counters, self.shares[0])

    def _fenced(self, fence: int) -> list[Any]:
        """The writes, of which the first names the number of the fence of its window."""
        return [
            admission(
                self.connection.counters,
                share,
                self.wanted.amount,
                *([] if number else [unraised(fence)]),
            )
            for number, share in enumerate(self.shares)
        ]

    @property
    def _window_key(self) -> Key:
        return self.shares[0].key

    @property
    def _writes(self) -> list[Any]:
        table, amount = self.connection.counters, self.wanted.amount
        return [admission(table, share, amount) for share in self.shares]

    def _send(self, operation: Any) -> Send:  # noqa: ANN401 - as of `Send`
        return Send(operation, self._check_age)

    def _check_age(self) -> None:
        """A request leaves only while its limits are as new as the guide promises."""
        if not all(self.limits.is_fresh(one.limit) for one in self.shares):
            raise LimitChanged("a limit was read too long ago")

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
        return (yield from self._duplicate(marker))

    def _duplicate(self, marker: Item) -> Steps[Admitted]:
        """What a marker that exists says of this call.

        `Unclear`: it is of an earlier call, and expires before a late request is too old.
        """
        if not decides(self.connection, marker, self.wanted.call, self.attempts):
            raise self.decision.unknown()
        counted = self.decision.meaning_of(marker)
        return (yield from self._with_remaining(counted, counted_in_of(marker)))

    def _final(self, refused: Denied) -> Denied:
        """A denial; `Unclear` while a request of this call may be applied yet."""
        if self.attempts.maybe_applied:
            raise self.decision.unknown()
        return refused

    def _with_remaining(
        self, admitted: Admitted, counted_in: tuple[CountedIn, ...] | None = None
    ) -> Steps[Admitted]:
        """With what its windows have left, if that can be read: one read unit for each."""
        places = counted_in or self.decision.counted_in
        try:
            items: list[Item] = yield Send(
                GetMany(self.connection.counters, [one.key for one in places])
            )
        except CountledgerError:
            # The amount is counted; a read that fails must not make it look otherwise.
            return admitted
        found = {(item["counter"], item["part"]): item["used"] for item in items}
        used = {
            one: found[place]
            for one in places
            if (place := (one.key["counter"], one.key["part"])) in found
        }
        return replace(admitted, limits=self.decision.states(places, used))

    def _give_up(self, exhausted: Exhausted[Any]) -> Any:  # noqa: ANN401 - it only raises
        if isinstance(exhausted.error, RetryPeriodOver) and not exhausted.maybe_applied:
            raise Throttled(
                f"{self.wanted.name}: this process was suspended, and nothing was written; "
                "call again"
            ) from exhausted.error
        raise_exhausted(exhausted, f"to acquire from {self.wanted.name}", ADVICE)

    @property
    def _now_ms(self) -> int:
        return self.connection.clock.now_ms()


_RESOLVE_AGAIN: Final = "call again with the same ticket: it cannot be resolved twice"


def committing(connection: Connection, ticket: Ticket, actual: Amount) -> Steps[Committed]:
    mine = yield from _resolving(connection, ticket, COMMITTED, actual)
    overrun = max(0, add(actual, negated(ticket.amount)))
    return Committed(ticket.counters, actual, overrun, duplicate=not mine)


def releasing(connection: Connection, ticket: Ticket) -> Steps[bool]:
    """Count nothing for a reservation; whether this call did it."""
    return (yield from _resolving(connection, ticket, RELEASED, 0))


def _resolving(connection: Connection, ticket: Ticket, state: str, actual: Amount) -> Steps[bool]:
    call = connection.ids.new_id(connection.clock.now_ms())
    mark = resolution(connection.counters, ticket, state, actual, call)
    found = (correction(connection.counters, ticket, one, actual) for one in ticket.counted_in)
    windows = [one for one in found if one is not None]
    operation: Any = Transact([mark, *windows], call) if windows else mark

    def interpret(reply: Reply[Any]) -> Verdict[Any, Item | bool | None]:
        match reply.answer:
            case ConditionFailed(item=item):
                return Done(item)
            case TransactionCancelled(reasons=(mark, *_)) if mark.condition_failed:
                return Done(mark.item)
            case TransactionCancelled(reasons=(mark, *corrected)) if (
                any(one.condition_failed for one in corrected) and not mark.passing
            ):
                # Nothing promises that the condition of the marker is named as well.
                return Recheck(Get(connection.counters, ticket.marker_key))
            case CountledgerError():
                return otherwise(reply)
        return Done(reply.answer if isinstance(reply.state, Get) else True)

    def give_up(exhausted: Exhausted[Any]) -> Any:  # noqa: ANN401 - it only raises
        if isinstance(exhausted.error, RetryPeriodOver) and not exhausted.maybe_applied:
            raise expired(ticket) from exhausted.error
        raise_exhausted(
            exhausted, f"to resolve a reservation of {ticket.counter!r}", _RESOLVE_AGAIN
        )

    attempts = connection.attempts(to_ms(ticket.until))
    ended = yield from attempt(operation, Send, interpret, give_up, attempts)
    if isinstance(ended, bool):
        return ended
    return resolved_by(ended, ticket, state, actual) == call
