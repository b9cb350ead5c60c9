"""Writes of several strict counters under one key: a transaction with a marker of it.

As method `marker`, but the key stands for all of the writes together, whatever their counters'
methods are: its marker lies by the key alone (`keyed#<id>`, `marker`) and is remembered for a day.
A cancelled transaction is read by its reasons, the marker's first:

    marker there, same call            applied, by a request of this call that got no answer
    marker there, same facts           duplicate, if its counters are still those that were changed
    marker there, other facts          the key was used for something else
    marker there, void                 given up
    no marker, conditions failed       refused, as of now; by which counter, the caller judges
    conflict, throttle                 not applied: sent again
    no answer                          sent again: the marker will tell

A refusal is said only after `confirm_refusal`: the marker is looked for by itself (one read unit,
for nothing promises that a cancelled transaction names every condition that failed), or, while a
request of this call may still land, a void marker is put in its way.

The marker names the incarnations of its counters. Where one of them was deleted and recreated, the
changes are in some of the counters and not in others: that is no duplicate, and doing them again
would count some of them twice. So the key is said to have been used for other counters.

Nothing leaves once the marker may have expired: a process that stood still for a day must neither
send its changes again nor say of what is in that it was given up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.errors import (
    ConditionFailed,
    CountledgerError,
    IdempotencyKeyReused,
    Reason,
    TransactionCancelled,
)
from countledger.ledger.expressions import Absent
from countledger.ledger.ids import IdempotencyKey, id_of_key
from countledger.ledger.limits import MARKER_WINDOW_DEFAULT_MS, SECOND_MS
from countledger.ledger.operations import Put
from countledger.producers.strict.change import check_key_age
from countledger.producers.strict.context import (
    PASSING,
    POLICY,
    Attempts,
    MethodContext,
    RetryPeriodOver,
    StaleDefinition,
)
from countledger.producers.strict.incarnations import check_same, digest_of, incarnations_of
from countledger.producers.strict.outcome import Applied, Duplicate, Withdrawn
from countledger.producers.strict.sending import check_passing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Write
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.outcome import Refusal, StrictOutcome

WINDOW_MS: Final = MARKER_WINDOW_DEFAULT_MS
_ADVICE: Final = (
    "no attempt got a clear answer: repeat it with the same key within a day, it cannot count "
    "twice; or give the key up, which tells whether it counted"
)

Reasons = tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """What a caller wants under one key, the same for every attempt.

    Attributes:
        counters: the names of all counters concerned.
        facts: what a retry has to repeat, as the marker keeps it.
        key: of all of it together.
        at_ms: when the call began.
        note: own short texts, kept in the marker.
        value: what the counter is at when it is done, if that is known beforehand.
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
        """What the key stands for."""
        return id_of_key(self.key)

    @property
    def key_text(self) -> str:
        """The key without its time."""
        return self.key.key if isinstance(self.key, IdempotencyKey) else self.key


@dataclass(slots=True)
class KeyedWrite:
    """Writes on their way under one key.

    Attributes:
        context: what it works with.
        request: what the caller wants.
        definitions: of its counters, as this process knows them.
        attempts: of the call.
        marker: the write of it.
        call: the id of the call, by which it knows its own marker.
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
            KeyExpired, ClockSkew: the key was made too long ago, or lies ahead.
        """
        until_ms = remembered_until(context, request.key, request.what)
        if until_ms is None:
            until_ms = request.at_ms + WINDOW_MS
        attempts = Attempts(context, POLICY, _ADVICE, until_ms=until_ms)
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

    def at(self, writes: Sequence[Write]) -> StrictOutcome | Reasons:
        """Carry all of the writes out: two write units each, and for the marker for each KB.

        Returns:
            What became of them; or, where a condition of theirs failed, a reason for each. Such a
            refusal is final only when `confirm_refusal` has said so.

        Raises:
            IdempotencyKeyReused: the key was used for something else.
            StaleDefinition: a counter is not the one that was read, and the key was used before.
        """
        token = self.context.new_id(self.request.at_ms)
        while True:
            failure: CountledgerError
            try:
                with self.attempts.sending():
                    self.context.dynamo.transact([self.marker, *writes], token)
            except RetryPeriodOver as late:
                return self.attempts.end(self.request.what, late)
            except TransactionCancelled as cancelled:
                marker, *others = cancelled.reasons
                if marker.condition_failed and marker.item is not None:
                    return self._marked(marker.item)
                if not marker.passing:
                    if any(reason.condition_failed for reason in others):
                        return tuple(others)
                    check_passing(cancelled.reasons)
                failure = cancelled
            except PASSING as error:
                failure = error
            else:
                return Applied(self.request.what, self.request.value)
            if not self.attempts.again(failure):
                return self.attempts.end(self.request.what, failure)

    def confirm_refusal(self, refused: Refusal) -> StrictOutcome:
        """Make a refusal final: one read unit, or a write unit where a request may still land."""
        if self.attempts.maybe_applied:
            ended = self.attempts.fenced(self.request.what, self._fence)
            if isinstance(ended, Withdrawn):
                return refused
            if not isinstance(ended, Duplicate):
                # The way could not be closed: the old request may still land.
                return self.unknown()
        try:
            marker = self.context.reads.get(
                self.context.table, keys.keyed_key(self.request.id), consistent=True
            )
        except PASSING:
            return self.unknown()
        return refused if marker is None else self._marked(marker)

    def _fence(self) -> StrictOutcome:
        until_ms = self.attempts.until_ms
        return withdraw(self.context, self.request.id, self.request.what, until_ms)

    def unknown(self) -> StrictOutcome:
        """Nobody can tell; the same key again will."""
        return self.attempts.unknown(self.request.what)

    def _marked(self, marker: Item) -> StrictOutcome:
        """What a marker that is there says of this request."""
        what = self.request.what
        if "void" in marker:
            return Withdrawn(what, self.request.id)
        if any(marker.get(name) != fact for name, fact in self.request.facts.items()):
            raise IdempotencyKeyReused(
                f"idempotency key {self.request.key_text!r} was used for other changes, and now "
                f"comes for {what}: new changes need a new key"
            )
        if marker.get("call") == self.call:
            return Applied(what, self.request.value)
        known = {one.counter: one.incarnation for one in self.definitions}
        try:
            found = incarnations_of(self.context, known)
        except PASSING:
            return self.unknown()
        if found != known:
            if self.attempts.maybe_applied:
                return self.unknown()
            raise StaleDefinition(f"of {what}, one was deleted or recreated")
        check_same(marker, found, self.request.key_text)
        return Duplicate(what, None)


def remembered_until(context: MethodContext, key: str | IdempotencyKey, what: str) -> int | None:
    """Until when a key with its time is surely remembered; None: a bare one does not tell.

    Raises:
        KeyExpired, ClockSkew: that is over, or the key lies ahead; `what` names what it is of.
    """
    if not isinstance(key, IdempotencyKey):
        return None
    named = f"idempotency key {key.key!r} of {what}"
    check_key_age(named, key.at_ms, context.clock.now_ms(), WINDOW_MS, context.clock_skew_ms)
    return key.at_ms + WINDOW_MS


def withdraw(
    context: MethodContext, change_id: str, what: str, until_ms: int | None
) -> StrictOutcome:
    """Put a void marker where the key's own would lie: one write unit.

    Args:
        context: what to work with.
        change_id: what the key stands for.
        what: what the key is of, for outcomes.
        until_ms: when the key's own marker may have expired; None: nobody can tell.

    Returns:
        `Withdrawn`: nothing under this key is in, nor will be. `Duplicate`: it is in. `Unknown`,
        `Contended`: ask again.
    """
    attempts = Attempts(context, POLICY, _ADVICE, until_ms=until_ms)
    void = _marker(context, change_id, {"void": 1})
    while True:
        try:
            with attempts.sending():
                context.dynamo.put(void)
        except RetryPeriodOver:
            return attempts.unknown(what)
        except ConditionFailed as failed:
            if "void" in (failed.item or {}):
                return Withdrawn(what, change_id)
            return Duplicate(what, None)
        except PASSING as error:
            if not attempts.again(error):
                return attempts.end(what, error)
        else:
            return Withdrawn(what, change_id)


def _marker(context: MethodContext, change_id: str, facts: Item) -> Put:
    now_ms = context.clock.now_ms()
    item = {
        **keys.keyed_key(change_id),
        **facts,
        "at": now_ms,
        "expires_at": -(-(now_ms + WINDOW_MS + context.clock_skew_ms) // SECOND_MS),
    }
    return Put(context.table, item, Absent("part"))
