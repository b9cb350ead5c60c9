"""Writes of several strict counters under one key: a transaction with a marker of it.

As method `marker`, but the key stands for all of the writes together, whatever the methods of their
counters are: the key alone determines where the marker is stored (`keyed#<id>`, `marker`), and it
is remembered for a day. A cancelled transaction is read by its reasons, the marker's first.

A refusal is final only after `confirm_refusal`: that reads the marker (one read unit, because
nothing promises that a cancelled transaction names every condition that failed), or writes a void
marker while a request of this call may still be applied.

The marker contains a digest of the incarnations of its counters. If one of them was deleted and
recreated, the changes are in some of the counters and not in others: that is no duplicate, and
repeating them would count some of them twice. So the key counts as used for other counters.

Nothing is sent once the marker may have expired: a process that was suspended for a day must not
send its changes again, nor report that an applied change was withdrawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from countledger.ledger import keys
from countledger.ledger.attempts import (
    PASSING,
    Done,
    Reply,
    RetryPeriodOver,
    Send,
    attempt,
    otherwise,
)
from countledger.ledger.errors import (
    ConditionFailed,
    CountledgerError,
    IdempotencyKeyReused,
    Reason,
    TransactionCancelled,
    Unreachable,
)
from countledger.ledger.limits import MARKER_WINDOW_DEFAULT_MS, SECOND_MS
from countledger.ledger.operations import Absent, Get, GetMany, Put, Transact
from countledger.producers.strict.change import end, remembered_until
from countledger.producers.strict.definition import StaleDefinition
from countledger.producers.strict.outcome import Applied, Duplicate, Unknown, Withdrawn

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from countledger.ledger.attempts import Attempts, Exhausted, Steps, Verdict
    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Write
    from countledger.producers.strict.change import KeyedRequest, MethodContext
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.outcome import Refusal, StrictOutcome

WINDOW_MS: Final = MARKER_WINDOW_DEFAULT_MS
_ADVICE: Final = (
    "no attempt got a clear answer: repeat it with the same key within a day, then it cannot count "
    "twice; or withdraw the key, which returns whether it counted"
)

Reasons = tuple[Reason, ...]


@dataclass(slots=True)
class KeyedWrite:
    """Writes under one key.

    Attributes:
        context: what it works with.
        request: what the caller wants.
        definitions: of its counters, as this process knows them.
        attempts: of the call.
        marker: the write of it.
        call: the id of the call, by which it recognizes its own marker.
    """

    context: MethodContext
    request: KeyedRequest
    definitions: Sequence[Definition]
    attempts: Attempts
    marker: Put
    call: str

    @classmethod
    def begin(
        cls, context: MethodContext, request: KeyedRequest, definitions: Sequence[Definition]
    ) -> KeyedWrite:
        """Nothing sent yet.

        Raises:
            KeyExpired, ClockSkew: the key is too old, or dated too far ahead.
        """
        until_ms = remembered_until(context, request.key, WINDOW_MS, request.what)
        attempts = context.attempts(request.at_ms + WINDOW_MS if until_ms is None else until_ms)
        call = context.new_id(request.at_ms)
        facts = {
            "call": call,
            "key": request.key_text,
            "note": request.note,
            "incarnations": digest_of({one.counter: one.incarnation for one in definitions}),
            **request.facts,
        }
        marker = _marker(context, request.id, facts)
        return cls(context, request, definitions, attempts, marker, call)

    def at(self, writes: Sequence[Write]) -> Steps[StrictOutcome | Reasons]:
        """Carry all of the writes out: two write units each, and for the marker for each KB.

        Returns:
            The outcome; or, if conditions of the writes failed, a reason for each write. Such a
            refusal is final only after `confirm_refusal`.

        Raises:
            IdempotencyKeyReused: the key was used for something else.
            StaleDefinition: a counter was deleted or recreated, and the key was used before.
        """
        send = self.send(writes)
        ended = yield from attempt(
            None, lambda _: send, self.interpret, self.give_up, self.attempts
        )
        return (yield from self.meaning_of(ended)) if isinstance(ended, dict) else ended

    def send(self, writes: Sequence[Write]) -> Send:
        """The transaction of these writes and the marker."""
        token = self.context.new_id(self.request.at_ms)
        return Send(Transact([self.marker, *writes], token))

    def interpret(self, reply: Reply[Any]) -> Verdict[Any, StrictOutcome | Reasons | Item]:
        """Its answers: the outcome, the reasons of a refusal, or the marker that exists."""
        match reply.answer:
            case TransactionCancelled(reasons=(marker, *_)) if marker.item is not None:
                return Done(marker.item)
            case TransactionCancelled(reasons=(marker, *others)) if not marker.passing and any(
                reason.condition_failed for reason in others
            ):
                return Done(tuple(others))
            case CountledgerError():
                return otherwise(reply)
        return Done(Applied(self.request.what, self.request.value))

    def give_up(self, exhausted: Exhausted[Any]) -> StrictOutcome:
        """The outcome if no attempt is left."""
        return end(exhausted, self.request.what, _ADVICE)

    def confirm_refusal(self, refused: Refusal) -> Steps[StrictOutcome]:
        """Make a refusal final: one read unit, or a write unit if a request may be applied yet."""
        if self.attempts.maybe_applied:
            request, until_ms = self.request, self.attempts.until_ms
            try:
                ended = yield from withdraw(self.context, request.id, request.what, until_ms)
            except Unreachable:
                return self.unknown
            if isinstance(ended, Withdrawn):
                return refused
            if not isinstance(ended, Duplicate):
                # No void marker could be written: the old request may still be applied.
                return self.unknown
        try:
            marker = yield Send(Get(self.context.table, keys.keyed_key(self.request.id)))
        except PASSING:
            return self.unknown
        if marker is not None:
            return (yield from self.meaning_of(marker))
        # A marker that the withdrawal met has expired: nothing says of which call it was.
        return self.unknown if self.attempts.maybe_applied else refused

    @property
    def unknown(self) -> Unknown:
        """No clear answer; the same key again finds out."""
        return Unknown(self.request.what, _ADVICE)

    def stale(self) -> Unknown:
        """The outcome if one of the counters was deleted or recreated.

        Raises:
            StaleDefinition: no request of this call may be applied.
        """
        if self.attempts.maybe_applied:
            return self.unknown
        raise StaleDefinition(f"of {self.request.what}, one was deleted or recreated")

    def meaning_of(self, marker: Item) -> Steps[StrictOutcome]:
        """What a marker that exists says of this request: one read unit for each counter."""
        what, mine = self.request.what, marker.get("call") == self.call
        if not self.context.decides(marker, self.call, self.attempts):
            return self.unknown
        if "void" in marker:
            return Withdrawn(what, self.request.id)
        if any(marker.get(name) != fact for name, fact in self.request.facts.items()):
            raise IdempotencyKeyReused(
                f"idempotency key {self.request.key_text!r} was used for other changes, and now "
                f"comes for {what}: new changes need a new key"
            )
        if mine:
            return Applied(what, self.request.value)
        known = {one.counter: one.incarnation for one in self.definitions}
        try:
            found = yield from _incarnations_of(self.context, known)
        except PASSING:
            return self.unknown
        if found != known:
            return self.stale()
        _check_same(marker, found, self.request.key_text)
        return Duplicate(what, None)


def withdraw(
    context: MethodContext, change_id: str, what: str, until_ms: int | None
) -> Steps[StrictOutcome]:
    """Write a void marker where the key's own would be: one write unit.

    `what` names the counters; `until_ms` is when the key's own marker may have expired, if known.

    Returns:
        `Withdrawn`: nothing under this key is applied, nor will be. `Duplicate`: it is applied.
        `Unknown`, `Contended`: withdraw it again; `Unknown` is also the answer if an earlier void
        marker is about to expire.
    """
    void = _marker(context, change_id, {"void": 1})

    def interpret(reply: Reply[None]) -> Verdict[None, StrictOutcome]:
        match reply.answer:
            case ConditionFailed(item=item):
                return Done(context.met_by_withdrawal(item or {}, what, change_id, _ADVICE))
            case RetryPeriodOver():  # the key's own marker may have expired
                return Done(Unknown(what, _ADVICE))
            case CountledgerError():
                return otherwise(reply)
        return Done(Withdrawn(what, change_id))

    return attempt(
        None,
        lambda _: Send(void),
        interpret,
        lambda exhausted: end(exhausted, what, _ADVICE),
        context.attempts(until_ms),
    )


def check_counters(context: MethodContext, change_id: str, key_text: str) -> Steps[None]:
    """Check that the changes of a key are in the counters that have their names now.

    A read unit for each KB of the marker, and one for each counter.

    Raises:
        IdempotencyKeyReused: one of the counters was deleted or recreated since.
        Throttled, Unclear, Unreachable: it could not be read.
    """
    marker: Item | None = yield Send(Get(context.table, keys.keyed_key(change_id)))
    if marker is not None and "void" not in marker:
        counters = [*marker.get("changes", {}), *marker.get("set", {})]
        _check_same(marker, (yield from _incarnations_of(context, counters)), key_text)


def _incarnations_of(context: MethodContext, counters: Collection[str]) -> Steps[dict[str, str]]:
    """The incarnations of those of the counters that exist: one read unit each."""
    places = [keys.total_key(counter) for counter in counters]
    items = yield Send(GetMany(context.table, places))
    return {item["counter"]: item["incarnation"] for item in items if "incarnation" in item}


def _check_same(marker: Item, incarnations: Mapping[str, str], key_text: str) -> None:
    if marker.get("incarnations") != digest_of(incarnations):
        raise IdempotencyKeyReused(
            f"idempotency key {key_text!r} was used before one of its counters was deleted "
            "or recreated: its changes are not in that counter; new changes need a new key"
        )


def digest_of(incarnations: Mapping[str, str]) -> str:
    """Identifies the incarnations of all counters: 32 characters, however many they are."""
    text = "\n".join(f"{counter}#{one}" for counter, one in sorted(incarnations.items()))
    return blake2b(text.encode(), digest_size=16, person=b"incarnations").hexdigest()


def _marker(context: MethodContext, change_id: str, facts: Item) -> Put:
    now_ms = context.clock.now_ms()
    # A request of the call may arrive so much later than the key is remembered.
    spare_ms = context.clock_skew_ms + context.request_life_ms
    item = {
        **keys.keyed_key(change_id),
        **facts,
        "at": now_ms,
        "expires_at": -(-(now_ms + WINDOW_MS + spare_ms) // SECOND_MS),
    }
    return Put(context.table, item, Absent("part"))
