"""Method `request_token`: a transaction of one write under a client request token. Two write units.

The service remembers a token for ten minutes after the first request with it was completed, and
carries a transaction out once, however often it is sent. All tables share one namespace of tokens.
A cancelled transaction leaves its token free. So the token is a hash of the counter, its
incarnation and the key, and nothing in the request may differ between two tries of a key, in
whatever process: no time, no random value. A key with a time is refused when it is too old to be
remembered. A bare key has no age: used again more than ten minutes after its first try, it counts
again, and nothing can detect that.

A request that got no answer may arrive when its token is forgotten. So each request is conditional
on the fence of its items as well (see `fence`), and after such a request the call ends in two
steps:

1.  Raise the fence of each item that it wrote to. Now none of its requests can be applied any more.
2.  Before a refusal, ask again: send the same request once more. The service answers a remembered
    token without looking at the fence:

        done before           the change is applied
        condition failed      the token is free, so the change is not applied, for good
        token of other writes another request of the call may have it; else see `_taken`

A request of another process under the same key is the same one unless a fence was raised between
the two. If it meets the token of other writes, it asks with the numbers before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
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
    Throttled,
    TokenMismatch,
    TransactionCancelled,
)
from countledger.ledger.operations import Transact
from countledger.producers.strict.bins import Part
from countledger.producers.strict.change import refused_among, update_of
from countledger.producers.strict.context import end, withdrawal
from countledger.producers.strict.definition import StaleDefinition
from countledger.producers.strict.fence import fence_of, raising, unraised
from countledger.producers.strict.outcome import (
    Applied,
    Duplicate,
    Unknown,
    Withdrawn,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.attempts import Answer, Attempts, Exhausted, Steps, Verdict
    from countledger.ledger.errors import Reason
    from countledger.producers.strict.change import StrictChange
    from countledger.producers.strict.context import MethodContext
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
# How many numbers before the present one another process is asked about, by one request each.
_FENCES_BEFORE: Final = 3


class Asked(Enum):
    """What a request says of its token, once its fence is raised."""

    APPLIED = "the token stands for this request"
    FREE = "the token stands for nothing: no request with it was applied"
    TAKEN = "the token stands for other writes"
    UNKNOWN = "no clear answer"


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """What a change writes under its token: the same for every try of the same parts.

    Attributes:
        parts: which item takes how much.
        fences: the number of the fence of each item.
    """

    parts: tuple[Part, ...]
    fences: tuple[int, ...]


@dataclass(slots=True)
class RequestTokenChange:
    """One change by method request_token.

    Attributes:
        context: what to work with.
        definition: of the counter.
        change: what to do.
        attempts: of the call.
        sent: the requests of this call that may have been applied, the last one at the end.
    """

    context: MethodContext
    definition: Definition
    change: StrictChange
    attempts: Attempts
    sent: list[TokenRequest] = field(default_factory=list)

    @classmethod
    def begin(
        cls, context: MethodContext, definition: Definition, change: StrictChange
    ) -> RequestTokenChange:
        """Nothing sent yet.

        Raises:
            KeyExpired, ClockSkew: its key is too old, or dated too far ahead.
        """
        life_ms = context.token_life_ms
        change.check_age(context.clock.now_ms(), life_ms, context.clock_skew_ms)
        attempts = context.attempts(change.remembered_until(life_ms))
        return cls(context, definition, change, attempts)

    def at(self, parts: Sequence[Part]) -> Steps[StrictOutcome]:
        """Apply it to these items: two write units each, and one read unit for the value.

        After a request without an answer one write unit more for each item, for its fence.

        Raises:
            IdempotencyKeyReused: the key was used with another delta.
            TokenMismatch: the same for a counter with bins, where another bin may have taken it.
            StaleDefinition: the counter was deleted or recreated.
        """
        try:
            ended = yield from attempt(
                self._request(parts), self._send, self._interpret, self._give_up, self.attempts
            )
            if not isinstance(ended, bool):
                return ended
            return (yield from self._applied(fresh=ended))
        except TokenMismatch:
            if self.definition.bins == 1:
                return (yield from self._taken())
            if not (yield from self._applied_before(parts)):
                raise
            return self._found()
        except StaleDefinition:
            if not self.attempts.maybe_applied:
                raise
            return self._unknown

    def confirm_refusal(  # noqa: PLR0911 - one for each answer
        self, refused: Refusal
    ) -> Steps[StrictOutcome]:
        """Make a refusal final if a request may still be applied: raise the fence, ask again.

        One write unit for each item, and two for the question.
        """
        if not self.attempts.maybe_applied:
            return refused
        if not (yield from self._raise()):
            return self._unknown
        for request in reversed(self.sent):
            match (yield from self._ask(request)):
                case Asked.FREE:
                    return refused
                case Asked.APPLIED:
                    return Applied(
                        self.change.counter, (yield from self.context.value_of(self.definition))
                    )
                case Asked.UNKNOWN:
                    return self._unknown
        if self.definition.bins > 1:
            return self._unknown
        return (yield from self._taken())

    def _request(self, parts: Sequence[Part]) -> TokenRequest:
        identity = self.definition.incarnation
        fences = (self.context.fences.of(part.key, identity) for part in parts)
        return TokenRequest(tuple(parts), tuple(fences))

    def _send(self, request: TokenRequest) -> Send:
        if request not in self.sent:
            self.sent.append(request)
        token = token_of(self.definition, self.change.id)
        # A retry by another call must send the same: the time is not written.
        writes = [
            update_of(self.context.table, self.definition, part, None, unraised(fence))
            for part, fence in zip(request.parts, request.fences, strict=True)
        ]
        return Send(Transact(writes, token))

    def _interpret(self, reply: Reply[TokenRequest]) -> Verdict[TokenRequest, StrictOutcome | bool]:
        match reply.answer:
            case bool(fresh):  # applied by this request, or by an earlier one with the token
                return Done(fresh)
            case TokenMismatch():
                raise reply.answer
            case TransactionCancelled(reasons=reasons):
                if self._is_raised(reply.state, reasons):
                    # The token is free, so no request with it was applied, nor can this one be.
                    return Again(self._request(reply.state.parts), _RAISED)
                refused = refused_among(self.definition, reply.state.parts, reasons)
                if refused is not None:
                    return Done(refused)
        return otherwise(reply)

    def _is_raised(self, request: TokenRequest, reasons: Sequence[Reason]) -> bool:
        """Whether a fence is not what the request named; what it is now is known afterwards."""
        raised = False
        identity = self.definition.incarnation
        for part, fence, reason in zip(request.parts, request.fences, reasons, strict=True):
            item = reason.item if reason.condition_failed else None
            if item is not None and self.definition.is_of(item) and fence_of(item) != fence:
                self.context.fences.learn(part.key, identity, item)
                raised = True
        return raised

    def _give_up(self, exhausted: Exhausted[TokenRequest]) -> StrictOutcome:
        return end(exhausted, self.change.counter, _ADVICE)

    def _applied(self, *, fresh: bool) -> Steps[StrictOutcome]:
        """The outcome of a token that stands for this change: one read unit."""
        mine = fresh or self.attempts.maybe_applied or self.change.key is None
        if self.attempts.maybe_applied and not (yield from self._raise()):
            return self._unknown
        value = None
        if fresh:
            value = yield from self.context.value_of(self.definition)
        else:
            # The service answers a remembered token without evaluating conditions.
            try:
                item = yield from self.context.read_incarnation(self.definition)
            except PASSING:
                return self._unknown
            value = None if self.definition.bins > 1 else item.get("total")
        return (Applied if mine else Duplicate)(self.change.counter, value)

    def _raise(self) -> Steps[bool]:
        """Raise the fence of each item that a request of this call names; whether all are."""
        places = {part.key["counter"]: part.key for one in self.sent for part in one.parts}
        return (yield from self.context.raise_fences(self.definition, places.values()))

    def _ask(self, request: TokenRequest) -> Steps[Asked]:
        """What the token stands for, by a request that cannot be applied: two write units."""

        def interpret(reply: Reply[TokenRequest]) -> Verdict[TokenRequest, Asked]:
            match reply.answer:
                case False:
                    return Done(Asked.APPLIED)
                case TokenMismatch():
                    return Done(Asked.TAKEN)
                case TransactionCancelled() if reply.answer.condition_failed:
                    return Done(Asked.FREE)
                case True:
                    return Done(Asked.UNKNOWN)
            return otherwise(reply)

        attempts = self.context.attempts(self.attempts.until_ms)
        attempts.maybe_applied = True
        return (
            yield from attempt(
                request,
                self._send,
                interpret,
                lambda _: Asked.UNKNOWN,
                attempts,
            )
        )

    def _applied_before(self, parts: Sequence[Part]) -> Steps[bool]:
        """Whether it was applied to this bin, under one of the last numbers of its fence.

        Those are below the number that was read, so none of the questions can be applied.
        """
        if len(parts) > 1:
            return False
        number = self.context.fences.of(parts[0].key, self.definition.incarnation)
        for fence in range(number - 1, max(0, number - _FENCES_BEFORE) - 1, -1):
            request = TokenRequest(tuple(parts), (fence,))
            if request not in self.sent and (yield from self._ask(request)) is Asked.APPLIED:
                return True
        return False

    def _found(self) -> StrictOutcome:
        mine = self.attempts.maybe_applied or self.change.key is None
        return (Applied if mine else Duplicate)(self.change.counter, None)

    def _taken(self) -> Steps[StrictOutcome]:
        """The token stands for other writes: the change under another fence, none, or another one.

        Raises:
            IdempotencyKeyReused: for another delta.
            StaleDefinition: the counter was deleted or recreated.
        """
        if self.attempts.maybe_applied and not (yield from self._raise()):
            return self._unknown
        try:
            number = fence_of((yield from self.context.read_incarnation(self.definition)))
        except PASSING:
            return self._unknown
        whole = (Part(self.definition.main, self.change.delta),)
        oldest = max(0, number - _FENCES_BEFORE)
        for fence in range(number, oldest - 1, -1):
            request = TokenRequest(whole, (fence,))
            if request not in self.sent and (yield from self._ask(request)) is Asked.APPLIED:
                return self._found()
        until_ms = self.attempts.until_ms
        ended = yield from withdraw(self.context, self.definition, self.change.id, until_ms)
        if isinstance(ended, Withdrawn):
            return ended
        if isinstance(ended, Duplicate) and not oldest:
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
    context: MethodContext, definition: Definition, change_id: str, until_ms: int | None = None
) -> Steps[StrictOutcome]:
    """Use up the token of a change, in a transaction that raises the fence: two write units.

    One write unit more for each bin, and for a token that is taken already: then the change, or an
    earlier withdrawal, may have left requests that are under way.

    Args:
        context: what to work with.
        definition: of the counter.
        change_id: the id of the change's key.
        until_ms: when a change that was applied under the token may be forgotten; None: unknown.

    Returns:
        `Withdrawn`: the change is not applied, and no request of before can be. `Duplicate`: the
        token is taken, the change is applied. `Unknown`: no clear answer.

    Raises:
        StaleDefinition: the counter was deleted or recreated.
    """
    counter, token = definition.counter, token_of(definition, change_id)
    void = Transact([raising(context.table, definition.main, definition.incarnation)], token)
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
        context, definition, void, meaning, until_ms=until_ms, advice=_WITHDRAW_ADVICE
    )
    if not isinstance(ended, Withdrawn | Duplicate):
        return ended
    places = definition.places if taken or definition.bins > 1 else []
    raised = yield from context.raise_fences(definition, places)
    return ended if raised else Unknown(counter, _WITHDRAW_ADVICE)
