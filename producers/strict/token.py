"""Method `request_token`: a transaction of one write under a client request token. Two write units.

The service remembers a token for ten minutes after the first request with it was completed, and
carries a transaction out once, however often it is sent. All tables share one namespace of tokens.
A cancelled transaction leaves its token free. So the token is a hash of the counter, its
incarnation and the key, and nothing in the request may differ between two tries of a key, in
whatever process: no time, no random value. A key with a time is refused when it is too old to be
remembered. A bare key has no age: used again more than ten minutes after its first try, it counts
again, and nothing can detect that.

A request that got no answer may arrive when its token is forgotten. So each request is conditional
on the fence of its items as well (see `change`), and such a request is resolved before anything
else is sent, however long this process was suspended meanwhile:

1.  Raise the fence of its first item. Now the request cannot be applied any more.
2.  Ask: send the same request once more. The service answers a remembered token without looking at
    the fence:

        done before           the change is applied
        condition failed      the token is free, so the change is not applied, for good: send it
                              again, under the new number
        token of other writes another call has it: so too

A request of another process under the same key is the same one unless a fence was raised between
the two. If it meets the token of other writes, it asks with the numbers before.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Final

from countledger.ledger.attempts import (
    PASSING,
    Again,
    Done,
    Recheck,
    Reply,
    Send,
    attempt,
    otherwise,
)
from countledger.ledger.errors import (
    BadDelta,
    ConditionFailed,
    CountledgerError,
    Throttled,
    TokenMismatch,
    TransactionCancelled,
    Unclear,
    Unreachable,
)
from countledger.ledger.operations import Add, Lacks, SizeAtMost, Transact, Update
from countledger.producers.strict.change import (
    FENCES_ASKED,
    KnownFences,
    end,
    fence_of,
    raise_fences,
    raising,
    read_incarnation,
    refused_among,
    refused_by,
    unraised,
    update_of,
    value_of,
    withdrawal,
)
from countledger.producers.strict.definition import (
    Part,
    StaleDefinition,
    decode_state,
    has_headroom,
    moved,
    of,
)
from countledger.producers.strict.outcome import Applied, Duplicate, SetFull, Unknown, Withdrawn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Answer, Attempts, Steps, Verdict
    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection
    from countledger.ledger.errors import Reason
    from countledger.ledger.operations import Condition
    from countledger.producers.strict.change import StrictChange
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.outcome import Refusal, StrictOutcome


_ADVICE: Final = (
    "no attempt got a clear answer: withdraw the key within ten minutes of the first try, which "
    "returns whether it counted; or repeat the change with the same key in that time (a request "
    "that is still under way ten minutes after that could count again); later, whether it counted "
    "is unknown"
)
_WITHDRAW_ADVICE: Final = "no attempt to withdraw the change got a clear answer: withdraw it again"
_RAISED: Final = Throttled("the fence of the counter was raised by another call")


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """What a change writes under its token: the same for every try of the same parts.

    It names the number of the fence of each item.
    """

    parts: tuple[Part, ...]
    fences: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _SendChange:
    """Send the change."""

    request: TokenRequest


@dataclass(frozen=True, slots=True)
class _RaiseFence:
    """Keep a request without an answer from being applied later."""

    request: TokenRequest


@dataclass(frozen=True, slots=True)
class _AskToken:
    """Whether that request was applied, now that it cannot be any more."""

    request: TokenRequest


_Next = _SendChange | _RaiseFence | _AskToken


class _AppliedBy(Enum):
    """What a token says of the change that was applied."""

    NOW = "applied by this request"
    BEFORE = "applied by a request of another call"
    ASKED = "applied by a request of this call, or of another one under the same key"


@dataclass(slots=True)
class RequestTokenChange:
    """One change by method request_token; `sent` is the change as it was sent last."""

    connection: Connection
    definition: Definition
    change: StrictChange
    attempts: Attempts
    sent: TokenRequest | None = None

    @classmethod
    def begin(
        cls, connection: Connection, definition: Definition, change: StrictChange
    ) -> RequestTokenChange:
        """Nothing sent yet; the age of the key is checked."""
        life_ms = connection.token_life_ms
        change.check_age(connection.clock.now_ms(), life_ms, connection.clock_skew_ms)
        attempts = connection.attempts(change.remembered_until(life_ms))
        return cls(connection, definition, change, attempts)

    def at(self, parts: Sequence[Part]) -> Steps[StrictOutcome]:
        """Apply it to these items: two write units each, and one read unit for the value.

        After a request without an answer one write unit more for the fence, and two for each item
        for the question. `TokenMismatch`: the key was used with another delta for a counter with
        bins, where another bin may have taken it.
        """
        first: _Next = _SendChange(self._request(parts))
        try:
            ended = yield from attempt(
                first,
                self._send,
                self._interpret,
                lambda exhausted: end(exhausted, self.change.counter, _ADVICE),
                self.attempts,
            )
        except TokenMismatch:
            if self.definition.bins == 1:
                return (yield from self._taken())
            if not (yield from self._applied_before(parts)):
                raise
            return self._before(None)
        return (yield from self._applied(ended)) if isinstance(ended, _AppliedBy) else ended

    def confirm_refusal(self, refused: Refusal) -> Steps[StrictOutcome]:
        """Final as it is: a request without an answer was resolved before the refusal."""
        yield from ()
        return refused

    def _request(self, parts: Sequence[Part]) -> TokenRequest:
        identity = self.definition.incarnation
        fences = (self.connection.shared(KnownFences).of(part.key, identity) for part in parts)
        return TokenRequest(tuple(parts), tuple(fences))

    def _send(self, state: _Next) -> Send:
        table, definition = self.connection.counters, self.definition
        if isinstance(state, _RaiseFence):
            # A transaction cannot be applied once one of its conditions is false.
            first = state.request.parts[0].key
            return Send(raising(table, first, definition.incarnation))
        if isinstance(state, _SendChange):
            self.sent = state.request
        # A retry by another call must send the same: the time is not written.
        writes = [
            update_of(table, definition, part, None, unraised(fence))
            for part, fence in zip(state.request.parts, state.request.fences, strict=True)
        ]
        return Send(Transact(writes, token_of(definition, self.change.id)))

    def _interpret(self, reply: Reply[_Next]) -> Verdict[_Next, StrictOutcome | _AppliedBy]:
        match reply.state:
            case _SendChange(request):
                return self._written(reply, request)
            case _RaiseFence(request):
                return self._raised(reply, request)
            case _AskToken(request):
                return self._asked(reply, request)

    def _written(
        self, reply: Reply[_Next], request: TokenRequest
    ) -> Verdict[_Next, StrictOutcome | _AppliedBy]:
        match reply.answer:
            case bool(fresh):
                return Done(_AppliedBy.NOW if fresh else _AppliedBy.BEFORE)
            case TokenMismatch():
                raise reply.answer
            case Unclear():
                return Again(_RaiseFence(request))
            case TransactionCancelled(reasons=reasons):
                if self._is_raised(request, reasons):
                    # The token is free, so no request with it was applied, nor can this one be.
                    return Again(_SendChange(self._request(request.parts)), _RAISED)
                refused = refused_among(self.definition, request.parts, reasons)
                if refused is not None:
                    return Done(refused)
        return otherwise(reply)

    def _raised(
        self, reply: Reply[_Next], request: TokenRequest
    ) -> Verdict[_Next, StrictOutcome | _AppliedBy]:
        match reply.answer:
            case dict(item):
                first = request.parts[0].key
                self.connection.shared(KnownFences).learn(first, self.definition.incarnation, item)
                return Recheck(_AskToken(request))
            case ConditionFailed():  # it is gone, or of another incarnation
                return Recheck(_AskToken(request))
        return otherwise(reply)

    def _asked(
        self, reply: Reply[_Next], request: TokenRequest
    ) -> Verdict[_Next, StrictOutcome | _AppliedBy]:
        match reply.answer:
            case bool():
                return Done(_AppliedBy.ASKED)
            case TransactionCancelled() if not reply.answer.condition_failed:
                return otherwise(reply)
            case TransactionCancelled() | TokenMismatch():
                return Recheck(_SendChange(self._request(request.parts)), resolved=True)
        return otherwise(reply)

    def _is_raised(self, request: TokenRequest, reasons: Sequence[Reason]) -> bool:
        """Whether a fence is not what the request named; what it is now is known afterwards."""
        raised = False
        identity = self.definition.incarnation
        for part, fence, reason in zip(request.parts, request.fences, reasons, strict=True):
            item = reason.item if reason.condition_failed else None
            if item is not None and self.definition.is_of(item) and fence_of(item) != fence:
                self.connection.shared(KnownFences).learn(part.key, identity, item)
                raised = True
        return raised

    def _applied(self, found: _AppliedBy) -> Steps[StrictOutcome]:
        """The outcome of a token that stands for this change: one read unit."""
        if found is _AppliedBy.NOW:
            value = yield from value_of(self.connection, self.definition)
            return Applied(self.change.counter, value)
        # The service answers a remembered token without evaluating conditions.
        asked = found is _AppliedBy.ASKED
        try:
            item = yield from read_incarnation(self.connection, self.definition)
        except CountledgerError as error:
            if not asked and not isinstance(error, PASSING):
                raise
            # The change is applied, unless its counter is gone; a read that fails changes nothing.
            applied = asked and not isinstance(error, StaleDefinition)
            return Applied(self.change.counter, None) if applied else self._unknown
        value = None if self.definition.bins > 1 else item.get("total")
        return Applied(self.change.counter, value) if asked else self._before(value)

    def _before(self, value: Amount | None) -> StrictOutcome:
        """Applied by an earlier request; without a key no other call can have sent one."""
        return (Applied if self.change.key is None else Duplicate)(self.change.counter, value)

    def _applied_before(self, parts: Sequence[Part]) -> Steps[bool | None]:
        """Whether it was applied to this bin, under one of the last numbers of its fence.

        Those are below the number that was read, so none of the questions can be applied.
        """
        if len(parts) > 1:
            return False
        number = self.connection.shared(KnownFences).of(parts[0].key, self.definition.incarnation)
        return (yield from self._is_one_of(parts[0], range(number - 1, -1, -1)))

    def _is_one_of(self, part: Part, fences: Iterable[int]) -> Steps[bool | None]:
        """Whether the token stands for the change under one of the first of these numbers.

        None: a question got no clear answer.
        """
        for fence in islice(fences, FENCES_ASKED):
            applied = yield from self._is_applied(TokenRequest((part,), (fence,)))
            if applied is not False:
                return applied
        return False

    def _is_applied(self, request: TokenRequest) -> Steps[bool | None]:
        """Whether the token stands for this request: two write units. None: no clear answer."""

        def interpret(reply: Reply[_AskToken]) -> Verdict[_AskToken, bool | None]:
            match reply.answer:
                case False:
                    return Done(True)
                case True:
                    return Done(None)
                case TokenMismatch():
                    return Done(False)
                case TransactionCancelled() if reply.answer.condition_failed:
                    return Done(False)
            return otherwise(reply)

        attempts = self.connection.attempts(self.attempts.until_ms)
        return (
            yield from attempt(_AskToken(request), self._send, interpret, lambda _: None, attempts)
        )

    def _taken(self) -> Steps[StrictOutcome]:
        """The token stands for other writes: the change under another fence, none, or another."""
        connection, whole = self.connection, Part(self.definition.main, self.change.delta)
        if self.sent is None:
            raise AssertionError("a request was sent")
        (asked,) = self.sent.fences
        try:
            number = fence_of((yield from read_incarnation(connection, self.definition)))
        except PASSING:
            return self._unknown
        # A question under the present number could be applied, once the token is forgotten.
        if number == asked:
            number -= 1
        elif not (yield from raise_fences(connection, self.definition, [whole.key])):
            return self._unknown
        applied = yield from self._is_one_of(whole, range(number, -1, -1))
        if applied is None:
            return self._unknown
        if applied:
            return self._before(None)
        until_ms = self.attempts.until_ms
        ended = yield from withdraw(self.connection, self.definition, self.change.id, until_ms)
        if isinstance(ended, Withdrawn):
            return ended
        if isinstance(ended, Duplicate) and number < FENCES_ASKED:
            raise self.change.reused("another amount")
        return self._unknown

    @property
    def _unknown(self) -> Unknown:
        return Unknown(self.change.counter, _ADVICE)


def token_of(definition: Definition, change_id: str) -> str:
    """The token of a change: 32 characters, of the 36 that the service allows."""
    scope = f"{definition.counter}#{definition.incarnation}#{change_id}"
    return blake2b(scope.encode(), digest_size=16, person=b"token").hexdigest()


def withdraw(
    connection: Connection, definition: Definition, change_id: str, until_ms: int | None = None
) -> Steps[StrictOutcome]:
    """Use up the token of a change, in a transaction that raises the fence: two write units.

    One write unit more for each bin, and for a token that is taken already: then the change, or an
    earlier withdrawal, may have left requests that are under way. `until_ms`: when a change that
    was applied under the token may be forgotten; None: unknown.

    `Withdrawn`: the change is not applied, and no request of before can be. `Duplicate`: the token
    is taken, the change is applied. `Unknown`: no clear answer.
    """
    counter, token = definition.counter, token_of(definition, change_id)
    void = Transact([raising(connection.counters, definition.main, definition.incarnation)], token)
    withdrawn, duplicate = Withdrawn(counter, token), Duplicate(counter, None)
    taken = False

    def meaning(answer: Answer) -> StrictOutcome | Recheck[StrictOutcome | None] | None:
        nonlocal taken
        match answer:
            case True:
                return withdrawn
        taken = isinstance(answer, TokenMismatch) or answer is False
        match answer:
            case False:  # by an earlier request, without evaluating conditions
                return Recheck(withdrawn)
            case TokenMismatch():  # the token stands for a change
                return Recheck(duplicate)
        return None

    # After `until_ms` a change may be applied and forgotten.
    ended = yield from withdrawal(
        connection, definition, void, meaning, until_ms=until_ms, advice=_WITHDRAW_ADVICE
    )
    if not isinstance(ended, Withdrawn | Duplicate):
        return ended
    places = definition.places if taken or definition.bins > 1 else []
    raised = yield from raise_fences(connection, definition, places)
    return ended if raised else Unknown(counter, _WITHDRAW_ADVICE)


# Method `set`: the counter's own item holds all its changes. Only changes of +1 and -1.
#
# One update adds the change's token to the set and moves the value, on condition that the set has
# no token of that key and is not full, and that the headroom suffices. A withdrawn key is a token
# of zero. A key is known as long as the counter exists. The price: every change writes the whole
# item, one write unit for each KB, about one more with every 25 changes. The set never shrinks, so
# a full set takes no new change. A withdrawn key takes a place in it as a change does; in a full
# set it needs none.
#
# "Bound reached" is not final while a request of this call got no answer: it may still be applied,
# and find headroom. Then a token of zero is written first. The answer tables are in `SetChange.at`
# and `withdraw`.


_ADVICE_OF_SETS: Final = (
    "no attempt got a clear answer: repeat the change with the same key, it cannot count twice; or "
    "withdraw the key, which returns whether it counted"
)
_VOID: Final = "0"
_APPLIED: Final = ("1", "-1")
_DELTAS: Final = (*_APPLIED, _VOID)


def seed(incarnation: str) -> set[str]:
    """The first set: a set cannot be empty, so it contains the incarnation of the counter."""
    return {f"{incarnation}={_VOID}"}


def none_of(change_id: str) -> tuple[Condition, ...]:
    """No token of that key is in the set."""
    return tuple(Lacks("tokens", f"{change_id}={delta}") for delta in _DELTAS)


def plan_change(table: str, definition: Definition, change: StrictChange) -> Update:
    return Update(
        table,
        definition.main,
        (*moved(change.delta, change.at_ms), Add("tokens", {change.tag})),
        of(
            definition.incarnation,
            *none_of(change.id),
            _not_full(definition),
            has_headroom(change.delta),
        ),
        returning="ALL_NEW",
    )


def plan_void(table: str, definition: Definition, change_id: str) -> Update:
    """The write that keeps a change out for ever; a full set keeps it out by itself.

    So the item never holds more tokens than a change may leave in it.
    """
    return Update(
        table,
        definition.main,
        (Add("tokens", {f"{change_id}={_VOID}"}), Add("version", 1)),
        of(definition.incarnation, *none_of(change_id), _not_full(definition)),
    )


def _not_full(definition: Definition) -> Condition:
    """The set has a place for one more token, beside the seed."""
    return SizeAtMost("tokens", definition.max_tokens or 0)


@dataclass(slots=True)
class SetChange:
    """One change by method set."""

    connection: Connection
    definition: Definition
    change: StrictChange
    attempts: Attempts

    @classmethod
    def begin(
        cls, connection: Connection, definition: Definition, change: StrictChange
    ) -> SetChange:
        """Nothing sent yet; a change is +1 or -1."""
        if change.delta not in {1, -1}:
            raise BadDelta(
                f"counter {change.counter!r} of method set takes changes of 1 and -1, not "
                f"{change.delta}"
            )
        return cls(connection, definition, change, connection.attempts())

    def at(self, parts: Sequence[Part]) -> Steps[StrictOutcome]:
        """Apply it: one write unit for each KB of the item."""
        counter = self.change.counter
        write = plan_change(self.connection.counters, self.definition, self.change)

        def interpret(reply: Reply[None]) -> Verdict[None, StrictOutcome]:
            match reply.answer:
                case ConditionFailed(item=item):
                    return Done(self._refused(parts[0], item, maybe_applied=reply.maybe_applied))
                case CountledgerError():
                    return otherwise(reply)
            return Done(Applied(counter, reply.answer["total"]))

        return attempt(
            None,
            lambda _: Send(write),
            interpret,
            lambda exhausted: end(exhausted, counter, _ADVICE_OF_SETS),
            self.attempts,
        )

    def _refused(self, part: Part, item: Item | None, *, maybe_applied: bool) -> StrictOutcome:
        change, counter = self.change, self.change.counter
        if item is None or not self.definition.is_of(item):
            if maybe_applied:
                return self._unknown
            raise self.definition.stale()
        state = decode_state(item)
        if f"{change.id}={_VOID}" in state.tokens:
            return Withdrawn(counter, change.id)
        if change.remembered_in(state.tokens):
            mine = maybe_applied or change.key is None
            return (Applied if mine else Duplicate)(counter, state.total)
        limit = self.definition.max_tokens or 0
        if len(state.tokens) > limit:
            return SetFull(counter, state.total, limit)
        return refused_by(self.definition, part, item)

    def confirm_refusal(self, refused: Refusal) -> Steps[StrictOutcome]:
        """Write a token of zero if a request may still be applied: one more write.

        One read unit for each 4 KB if the set has a token of the key already.
        """
        if not self.attempts.maybe_applied or isinstance(refused, SetFull):
            return refused
        try:
            ended = yield from withdraw_of_set(self.connection, self.definition, self.change.id)
        except Unreachable:
            return self._unknown
        if isinstance(ended, Withdrawn):
            return refused
        if not isinstance(ended, Duplicate):
            # No token of zero could be written: the old request may still be applied.
            return self._unknown
        # The token may be of this change or of another one under the same key.
        try:
            item = yield from read_incarnation(self.connection, self.definition)
        except PASSING:
            return self._unknown
        state = decode_state(item)
        applied = self.change.remembered_in(state.tokens)
        return Applied(self.change.counter, state.total) if applied else self._unknown

    @property
    def _unknown(self) -> Unknown:
        return Unknown(self.change.counter, _ADVICE_OF_SETS)


def withdraw_of_set(
    connection: Connection, definition: Definition, change_id: str
) -> Steps[StrictOutcome]:
    """Write a token of zero where a change would write its own: one write unit for each KB.

    Nothing is written to a full set: no change under a new key can be applied any more.

    `Withdrawn`: the change is not applied and never will be. `Duplicate`: it is applied. `Unknown`:
    no clear answer.
    """
    counter = definition.counter

    def interpret(reply: Reply[None]) -> Verdict[None, StrictOutcome]:
        match reply.answer:
            case ConditionFailed(item=item):
                found = decode_state(definition.expect(item))
                if any(f"{change_id}={delta}" in found.tokens for delta in _APPLIED):
                    return Done(Duplicate(counter, found.total))
                # Its own token of zero is there, or the set is full for ever.
            case CountledgerError():
                return otherwise(reply)
        return Done(Withdrawn(counter, change_id))

    return attempt(
        None,
        lambda _: Send(plan_void(connection.counters, definition, change_id)),
        interpret,
        lambda exhausted: end(exhausted, counter, _ADVICE_OF_SETS),
        connection.attempts(),
    )
