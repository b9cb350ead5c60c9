"""Writes that belong together: all of them or none. A retry is recognized and is not refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from countledger.ledger.attempts import (
    Again,
    Attempts,
    Done,
    Exhausted,
    GiveUp,
    Recheck,
    Send,
    ask,
    attempt,
    otherwise,
)
from countledger.ledger.attributes import Item
from countledger.ledger.errors import ConditionFailed, CountledgerError, TransactionCancelled
from countledger.ledger.limits import TOKEN_LIFE_MS
from countledger.ledger.operations import Delete, Get, Put, Transact, Update
from countledger.producers.claims.claim import Freeing, Taking, fence_of
from countledger.producers.strict.context import POLICY, raise_exhausted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from countledger.ledger.attempts import Reply, Steps, Verdict
    from countledger.ledger.errors import Refused
    from countledger.producers.strict.context import MethodContext

_ADVICE: Final = "call again with the same arguments: writes that were applied are recognized"


class OwnedWrite(Protocol):
    """One of the writes."""

    @property
    def place(self) -> tuple[str, Item]:
        """Table and key."""

    def write(self) -> Put | Update | Delete:
        """The write."""

    def done(self, found: Item | None) -> bool:
        """Whether the item is as the write would leave it."""

    def refused(self, found: Item | None) -> Refused:
        """Why the write was refused, by the item that was found."""


# A write that was refused, and the item that it met.
Met: TypeAlias = tuple[OwnedWrite, Item | None]
Read: TypeAlias = Callable[[Get], "Steps[Item | None]"]
Prepare: TypeAlias = Callable[[Read], "Steps[Sequence[OwnedWrite]]"]


def write_all(context: MethodContext, what: str, prepare: Prepare) -> Steps[bool]:
    """Write everything or nothing: one write unit for a single item, two each for several.

    A refusal costs the same, and one read unit for each item that no condition met, to see whether
    it was done before. The answers mean:

        done                         all of it is written
        condition failed             refused, because of another owner or an item that is not as
                                     expected; or after a lost answer this very item: written;
                                     or all items are as the writes would leave them: done before
        condition failed: tombstones these takes again at once, each in place of the tombstone that
        and nothing else             it met: all writes cost the same once more
        throttle, conflict           nothing was written: again
        no answer                    again, a transaction under the same token; after that, what a
                                     single write meets says whether it `was_applied`, and the
                                     call answers once no request of it can be applied: by a
                                     fence (`fence_of`), one unit, unless the claim is decided

    Args:
        context: what to work with.
        what: what this is, for messages.
        prepare: makes the writes, at different items; it is given what reads. Every attempt sends
            these writes, so that a retry names the identity of what this call saw.

    Returns:
        Whether this call did it; False: it was done before.

    Raises:
        Refused: of the write that was refused.
        Unclear: no attempt got a clear answer.
        Throttled: every attempt was refused for now.
    """
    begun_ms = context.clock.now_ms()
    until_ms = begun_ms + TOKEN_LIFE_MS - context.clock_skew_ms
    attempts = Attempts(context.clock, context.random, POLICY, until_ms)

    def give_up(exhausted: Exhausted[Any]) -> Any:  # noqa: ANN401 - it only raises
        raise_exhausted(exhausted, what, _ADVICE)

    def read(operation: Get) -> Steps[Item | None]:
        return ask(operation, attempts, give_up)

    writes = yield from prepare(read)

    def interpret(reply: Reply[_Sent]) -> Verdict[_Sent, _Answered]:
        return reply.state.interpret(reply, lambda: context.new_id(begun_ms))

    first = _Sent(tuple(writes), context.new_id(begun_ms))
    sent, met = yield from attempt(first, _Sent.send, interpret, give_up, attempts)
    if attempts.maybe_applied:
        met = yield from _Confirmation(context, sent, attempts, give_up).confirm_refusal(met)
    if not met:
        return True
    _refuse(met)
    # What was met was done at that moment, whatever others have done since.
    places = [write.place for write, _ in met]
    for write in writes:
        table, key = write.place
        if write.place not in places and not write.done((yield from read(Get(table, key)))):
            refused, found = met[0]
            raise refused.refused(found)
    return False


@dataclass(frozen=True, slots=True)
class _Sent:
    """What an attempt sends.

    Attributes:
        writes: one, or those of a transaction.
        token: of the transaction.
    """

    writes: tuple[OwnedWrite, ...]
    token: str

    def send(self) -> Send:
        """The request."""
        if len(self.writes) == 1:
            return Send(self.writes[0].write())
        return Send(Transact([write.write() for write in self.writes], self.token))

    def interpret(
        self, reply: Reply[_Sent], new_id: Callable[[], str]
    ) -> Verdict[_Sent, _Answered]:
        """The answer table."""
        match reply.answer:
            case ConditionFailed(item=found):
                claim = _claim_of(self.writes)
                applied = claim.was_applied(found) if reply.maybe_applied else False
                if applied is None:
                    return GiveUp(reply.answer)
                return Done((self, [])) if applied else self._met({0: found}, new_id)
            case TransactionCancelled(reasons=reasons):
                met = {n: one.item for n, one in enumerate(reasons) if one.condition_failed}
                return self._met(met, new_id) if met else otherwise(reply)
            case CountledgerError():
                return otherwise(reply)
        return Done((self, []))

    def _met(
        self, met: Mapping[int, Item | None], new_id: Callable[[], str]
    ) -> Verdict[_Sent, _Answered]:
        """Conditions failed: of takes that met tombstones only, or also of writes to be refused."""
        writes, others = list(self.writes), []
        for number, found in met.items():
            write = writes[number]
            over = None
            if isinstance(write, Taking | Freeing):
                over = write.over(found, new_id())
            if over is None:
                others.append((write, found))
            else:
                writes[number] = over
        if others:
            return Done((self, others))
        # Other writes than before: they need another token. What refused those refuses them for
        # ever, so none of them can be applied.
        return Recheck(_Sent(tuple(writes), new_id()), resolved=True)


# What an attempt that was answered had sent, and what its writes met; nothing: all was written.
_Answered: TypeAlias = tuple[_Sent, list[Met]]


@dataclass(frozen=True, slots=True)
class _Confirmation:
    """Makes an outcome final, after a request without a clear answer: by the first claim.

    Attributes:
        context: what to work with.
        sent: the request that was answered: those before it are the same, or cannot be applied.
        attempts: of the call.
        give_up: ends it.
    """

    context: MethodContext
    sent: _Sent
    attempts: Attempts
    give_up: Callable[[Exhausted[Any]], Any]

    def confirm_refusal(self, met: list[Met]) -> Steps[list[Met]]:
        """See to it that no request is applied after the answer; what the writes have met.

        What was done needs a fence only for the sake of the app's items: a claim that was freed
        cannot be freed again, and one that was taken is at most taken again by its owner.

        Raises:
            Unclear: the fence got no clear answer; or what was to be released may still be taken.
        """
        write = _claim_of(self.sent.writes)
        if not met and not (isinstance(write, Taking) and write.own):
            return met
        found = next((item for one, item in met if one is write), None)
        if not any(one is write for one, _ in met):
            found = yield from ask(Get(*write.place), self.attempts, self.give_up)
        if isinstance(write, Freeing) and write.may_come(found):
            self._unknown(found)
        alone = len(self.sent.writes) == 1
        if (yield from self._fence(write, found, alone=alone)):
            return []
        if alone or not met:
            return met
        return [] if (yield from self._was_applied()) else met

    def _fence(self, write: Taking | Freeing, found: Item | None, *, alone: bool) -> Steps[bool]:
        """Move the fence; whether a request was applied before it, as far as the claim shows."""

        def fence(seen: Item | None) -> Put | Update | None:
            now_ms = self.context.clock.now_ms()
            return fence_of(write, seen, now_ms, self.context.new_id(now_ms))

        def interpret(reply: Reply[Item | None]) -> Verdict[Item | None, bool]:
            match reply.answer:
                case ConditionFailed(item=seen):
                    applied = write.was_applied(seen) if alone else False
                    if applied is None:
                        return GiveUp(reply.answer)
                    return Done(applied) if applied or fence(seen) is None else Again(seen)
                case CountledgerError():
                    return otherwise(reply)
            return Done(value=False)

        if fence(found) is None:
            return False
        applied: bool = yield from attempt(
            found, lambda seen: Send(fence(seen)), interpret, self.give_up, self.attempts
        )
        return applied

    def _was_applied(self) -> Steps[bool]:
        """Ask with the same request again: its token says whether it was applied."""

        def interpret(reply: Reply[None]) -> Verdict[None, bool]:
            match reply.answer:
                case TransactionCancelled(reasons=reasons):
                    failed = any(reason.condition_failed for reason in reasons)
                    return Done(value=False) if failed else otherwise(reply)
                case CountledgerError():
                    return otherwise(reply)
            return Done(value=True)

        send = self.sent.send()
        applied: bool = yield from attempt(
            None, lambda _: send, interpret, self.give_up, self.attempts
        )
        return applied

    def _unknown(self, found: Item | None) -> None:
        error = ConditionFailed(found)
        self.give_up(Exhausted(None, self.attempts.made, error, maybe_applied=True))


def _claim_of(writes: Sequence[OwnedWrite]) -> Taking | Freeing:
    """The first write: it is of a claim."""
    if not isinstance(writes[0], Taking | Freeing):
        raise TypeError(f"{writes[0]} is no claim")
    return writes[0]


def _refuse(met: Sequence[Met]) -> None:
    """Refuse for an item that is not as this call would leave it; another owner first.

    Writes of claims come before those of an app's own items, and a claim is refused for its owner.

    Raises:
        Refused: of the write that met it.
    """
    for write, found in met:
        if not write.done(found):
            raise write.refused(found)
