"""Changes of several counters in one transaction, and a counter set to a value.

Each counter of a change has a leg: what it takes, and at which items. A counter with bins tries one
of them first; if that refuses, all its bins are read as of one moment and its leg is split over as
few as have the headroom, again while others are faster. If a counter has not enough headroom in
all its bins together, it refuses the whole change.

Every method but `set` may take part: a change of several counters leaves what the methods remember
as it is. For `occ` and `history` it is a version in between, which refuses a request that was based
on the one before; `atomic`, `request_token` and `marker` need only the headroom. A `set`
promises to know its keys for ever.

A counter is set to a value by writing it on condition that no change came in since it was read; if
one did, it is read again. So the counter was at that value at that moment, no unread change was
overwritten, and later changes count from there. With bins, value and headroom are dealt again over
all of them in the same transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from countledger.ledger import amount, keys
from countledger.ledger.attempts import (
    PASSING,
    Again,
    Done,
    Recheck,
    Reply,
    RetryPeriodOver,
    Send,
    attempt,
    otherwise,
)
from countledger.ledger.errors import (
    BadBounds,
    BadSetting,
    ConditionFailed,
    CountledgerError,
    IdempotencyKeyReused,
    Reason,
    Throttled,
    TooManyCounters,
    TransactionCancelled,
    Unreachable,
)
from countledger.ledger.limits import MARKER_WINDOW_DEFAULT_MS, SECOND_MS, TRANSACTION_ACTIONS
from countledger.ledger.operations import (
    Absent,
    Add,
    Assign,
    Compare,
    Get,
    GetMany,
    Put,
    Transact,
    Update,
)
from countledger.producers.strict.change import (
    end,
    refusal,
    refused_by,
    remembered_until,
    update_of,
)
from countledger.producers.strict.definition import (
    Bounds,
    Method,
    Part,
    StaleDefinition,
    deal_state,
    encode_state,
    of,
    whole_of,
)
from countledger.producers.strict.marker import decides, met_by_withdrawal
from countledger.producers.strict.outcome import (
    Applied,
    BoundReached,
    Contended,
    Duplicate,
    Unknown,
    Withdrawn,
)
from countledger.producers.strict.reader import read_of, split_over_bins, states_of
from countledger.producers.strict.release import Releases

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from random import Random

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Attempts, Exhausted, Steps, Verdict
    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection
    from countledger.ledger.operations import Write
    from countledger.producers.strict.change import KeyedRequest
    from countledger.producers.strict.definition import Definition, StrictState
    from countledger.producers.strict.outcome import Refusal, StrictOutcome


# Writes of several strict counters under one key: a transaction with a marker of it.
#
# As method `marker`, but the key stands for all of the writes together, whatever the methods of
# their counters are: the key alone determines where the marker is stored (`keyed#<id>`, `marker`),
# and it is remembered for a day. A cancelled transaction is read by its reasons, the marker's
# first.
#
# A refusal is final only after `confirm_refusal`: that reads the marker (one read unit, because
# nothing promises that a cancelled transaction names every condition that failed), or writes a
# void marker while a request of this call may still be applied.
#
# The marker contains a digest of the incarnations of its counters. If one of them was deleted and
# recreated, the changes are in some of the counters and not in others: that is no duplicate, and
# repeating them would count some of them twice. So the key counts as used for other counters.
#
# Nothing is sent once the marker may have expired: a process that was suspended for a day must not
# send its changes again, nor report that an applied change was withdrawn.


WINDOW_MS: Final = MARKER_WINDOW_DEFAULT_MS
_ADVICE: Final = (
    "no attempt got a clear answer: repeat it with the same key within a day, then it cannot count "
    "twice; or withdraw the key, which returns whether it counted"
)

Reasons = tuple[Reason, ...]


@dataclass(slots=True)
class KeyedWrite:
    """Writes under one key; `call` is the id by which the call recognizes its own marker."""

    connection: Connection
    request: KeyedRequest
    definitions: Sequence[Definition]
    attempts: Attempts
    marker: Put
    call: str

    @classmethod
    def begin(
        cls, connection: Connection, request: KeyedRequest, definitions: Sequence[Definition]
    ) -> KeyedWrite:
        """Nothing sent yet; the age of the key is checked."""
        until_ms = remembered_until(connection, request.key, WINDOW_MS, request.what)
        attempts = connection.attempts(request.at_ms + WINDOW_MS if until_ms is None else until_ms)
        call = connection.ids.new_id(request.at_ms)
        facts = {
            "call": call,
            "key": request.key_text,
            "note": request.note,
            "incarnations": digest_of({one.counter: one.incarnation for one in definitions}),
            **request.facts,
        }
        marker = _marker(connection, request.id, facts)
        return cls(connection, request, definitions, attempts, marker, call)

    def at(self, writes: Sequence[Write]) -> Steps[StrictOutcome | Reasons]:
        """Carry all of the writes out: two write units each, and for the marker for each KB.

        The answer: the outcome; or, if conditions of the writes failed, a reason for each write.
        Such a refusal is final only after `confirm_refusal`. `StaleDefinition`: a counter was
        deleted or recreated, and the key was used before.
        """
        send = self.send(writes)
        ended = yield from attempt(
            None, lambda _: send, self.interpret, self.give_up, self.attempts
        )
        return (yield from self.meaning_of(ended)) if isinstance(ended, dict) else ended

    def send(self, writes: Sequence[Write]) -> Send:
        token = self.connection.ids.new_id(self.request.at_ms)
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
        return end(exhausted, self.request.what, _ADVICE)

    def confirm_refusal(self, refused: Refusal) -> Steps[StrictOutcome]:
        """Make a refusal final: one read unit, or a write unit if a request may be applied yet."""
        if self.attempts.maybe_applied:
            request, until_ms = self.request, self.attempts.until_ms
            try:
                ended = yield from withdraw(self.connection, request.id, request.what, until_ms)
            except Unreachable:
                return self.unknown
            if isinstance(ended, Withdrawn):
                return refused
            if not isinstance(ended, Duplicate):
                # No void marker could be written: the old request may still be applied.
                return self.unknown
        try:
            marker = yield Send(Get(self.connection.counters, keys.keyed_key(self.request.id)))
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
        """A counter was deleted or recreated: unknown if a request may be applied, else raised."""
        if self.attempts.maybe_applied:
            return self.unknown
        raise StaleDefinition(f"of {self.request.what}, one was deleted or recreated")

    def meaning_of(self, marker: Item) -> Steps[StrictOutcome]:
        """What a marker that exists says of this request: one read unit for each counter."""
        what, mine = self.request.what, marker.get("call") == self.call
        if not decides(self.connection, marker, self.call, self.attempts):
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
            found = yield from _incarnations_of(self.connection, known)
        except PASSING:
            return self.unknown
        if found != known:
            return self.stale()
        _check_same(marker, found, self.request.key_text)
        return Duplicate(what, None)


def withdraw(
    connection: Connection, change_id: str, what: str, until_ms: int | None
) -> Steps[StrictOutcome]:
    """Write a void marker where the key's own would be: one write unit.

    `what` names the counters; `until_ms` is when the key's own marker may have expired, if known.

    `Withdrawn`: nothing under this key is applied, nor will be. `Duplicate`: it is applied.
    `Unknown`, `Contended`: withdraw it again; `Unknown` is also the answer if an earlier void
    marker is about to expire.
    """
    void = _marker(connection, change_id, {"void": 1})

    def interpret(reply: Reply[None]) -> Verdict[None, StrictOutcome]:
        match reply.answer:
            case ConditionFailed(item=item):
                return Done(met_by_withdrawal(connection, item or {}, what, change_id, _ADVICE))
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
        connection.attempts(until_ms),
    )


def check_counters(connection: Connection, change_id: str, key_text: str) -> Steps[None]:
    """Check that the changes of a key are in the counters that have their names now.

    A read unit for each KB of the marker, and one for each counter. If one of the counters was
    deleted or recreated since, the key was used for others.
    """
    marker: Item | None = yield Send(Get(connection.counters, keys.keyed_key(change_id)))
    if marker is not None and "void" not in marker:
        counters = [*marker.get("changes", {}), *marker.get("set", {})]
        _check_same(marker, (yield from _incarnations_of(connection, counters)), key_text)


def _incarnations_of(connection: Connection, counters: Collection[str]) -> Steps[dict[str, str]]:
    """The incarnations of those of the counters that exist: one read unit each."""
    places = [keys.total_key(counter) for counter in counters]
    items = yield Send(GetMany(connection.counters, places))
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


def _marker(connection: Connection, change_id: str, facts: Item) -> Put:
    now_ms = connection.clock.now_ms()
    # A request of the call may arrive so much later than the key is remembered.
    spare_ms = connection.clock_skew_ms + connection.request_life_ms
    item = {
        **keys.keyed_key(change_id),
        **facts,
        "at": now_ms,
        "expires_at": -(-(now_ms + WINDOW_MS + spare_ms) // SECOND_MS),
    }
    return Put(connection.counters, item, Absent("part"))


# One action of the transaction is the marker.
COUNTERS_MAX: Final = TRANSACTION_ACTIONS - 1
_SPLITS: Final = 10
_MOVED: Final = ("total", "headroom_up", "headroom_down")
_DEALT: Final = ("lower", "upper")


@dataclass(frozen=True, slots=True)
class Leg:
    """What one counter takes, and which of its items take how much of it."""

    definition: Definition
    delta: Amount
    parts: tuple[Part, ...]


def legs_of(
    definitions: Sequence[Definition], changes: Mapping[str, Amount], random: Random
) -> list[Leg]:
    """The legs of a change as they are tried first; counters of method `set` are refused."""
    for definition in definitions:
        if definition.method is Method.SET:
            raise BadSetting(
                f"counter {definition.counter!r} is of method set, which knows its keys for ever; "
                "a key of several changes is remembered for a day: change it alone"
            )
    return [
        Leg(one, delta, (Part(random.choice(one.places), delta),))
        for one in definitions
        for delta in (changes[one.counter],)
    ]


def check_number(changes: Mapping[str, Amount]) -> None:
    if not 1 <= len(changes) <= COUNTERS_MAX:
        raise TooManyCounters(
            f"{len(changes)} counters to change: one transaction takes 1 to {COUNTERS_MAX}"
        )


def transfer_of(source: str, target: str, moved: Amount) -> dict[str, Amount]:
    """A transfer as changes; source and target must differ."""
    if source == target:
        raise BadSetting(f"a transfer from {source!r} to itself changes nothing")
    return {source: amount.negated(moved), target: moved}


def apply_legs(
    connection: Connection, legs: Sequence[Leg], write: KeyedWrite
) -> Steps[StrictOutcome]:
    """Apply all legs, or none: two write units each, and for the marker for each KB.

    Each round is another plan from another reading, with the attempts of the same call. Expired
    holds of a counter that refuses are released first. `StaleDefinition`: no request may be
    applied.
    """
    what, releases, splits = write.request.what, Releases(connection), 0
    while splits < _SPLITS:
        if sum(len(leg.parts) for leg in legs) > COUNTERS_MAX:
            reason = "the split over its bins needs more items than a transaction takes"
            return (yield from write.confirm_refusal(Contended(what, _SPLITS, reason)))
        answer = yield from write.at(
            [one for leg in legs for one in _writes(connection, leg, write)]
        )
        if not isinstance(answer, tuple):
            return answer
        try:
            following = yield from _split_again(connection, legs, answer)
            if isinstance(following, BoundReached):
                refused = following.counter
                refusing = next(leg for leg in legs if leg.definition.counter == refused)
                if (yield from releases.for_refused(refusing.definition, following)):
                    continue
                return (yield from write.confirm_refusal(following))
        except StaleDefinition:
            return write.stale()
        except Throttled as error:
            return (
                yield from write.confirm_refusal(
                    Contended(what, max(releases.waits, 1), str(error))
                )
            )
        splits += 1
        legs = following
    busy = "other changes took the headroom each time before this one could"
    return (yield from write.confirm_refusal(Contended(what, _SPLITS, busy)))


def _writes(connection: Connection, leg: Leg, write: KeyedWrite) -> Iterator[Update]:
    # A counter of method request_token has no time, because its own changes cannot store one.
    now_ms = None if leg.definition.method is Method.REQUEST_TOKEN else write.request.at_ms
    for part in leg.parts:
        yield update_of(connection.counters, leg.definition, part, now_ms)


def _split_again(
    connection: Connection, legs: Sequence[Leg], reasons: Reasons
) -> Steps[list[Leg] | BoundReached]:
    """The legs, split again where a bin refused; or the first refusal of a whole counter."""
    left = iter(reasons)
    following: list[Leg] = []
    for leg in legs:
        own = [(part, next(left)) for part in leg.parts]
        refused = next(((part, why.item) for part, why in own if why.condition_failed), None)
        if refused is None:
            following.append(leg)
            continue
        bound = refused_by(leg.definition, *refused)
        if leg.definition.bins == 1:
            return bound
        parts = yield from split_over_bins(connection, leg.definition, leg.delta)
        if isinstance(parts, BoundReached):
            return parts
        following.append(replace(leg, parts=tuple(parts)))
    return following


def plan_value(
    table: str,
    definition: Definition,
    states: Sequence[StrictState],
    value: Amount,
    now_ms: int | None,
) -> list[Update]:
    """The writes that set a counter to a value, if it is still as it was read."""
    wanted = replace(whole_of(states), total=value)
    held = [state.held for state in states]
    shares = [wanted] if definition.bins == 1 else deal_state(wanted, definition.bins, held)
    names = _MOVED if definition.bins == 1 else _MOVED + _DEALT
    stamp = () if now_ms is None else (Assign("updated_at", now_ms),)
    writes = []
    for place, read, share in zip(definition.places, states, shares, strict=True):
        item = encode_state(share)
        moved = (Assign(name, item[name]) for name in names if item[name] is not None)
        unmoved = of(read.incarnation, Compare("version", "=", read.version))
        writes.append(Update(table, place, (*moved, *stamp, Add("version", 1)), unmoved))
    return writes


_BUSY: Final = Throttled("others changed the counter each time before it could be set")


@dataclass(frozen=True, slots=True)
class ExactWrite:
    """Sets a counter to a value.

    Two write units for each KB of each item, two for the marker; and the reading. The state of an
    attempt is the planned request, or None to read the counter.
    """

    definition: Definition
    value: Amount
    write: KeyedWrite

    def apply(self) -> Steps[StrictOutcome]:
        """Set it, unless value and bounds are further apart than a number can hold."""
        releases = Releases(self.write.connection)
        try:
            ended = yield from self._attempt()
            ended = yield from releases.again(self.definition, ended, self._attempt)
        except BadBounds as error:
            return (yield from self._unless_set(error))
        if isinstance(ended, dict):
            return (yield from self.write.meaning_of(ended))
        if isinstance(ended, BoundReached | Contended):
            return (yield from self.write.confirm_refusal(ended))
        return ended

    def _unless_set(self, error: BadBounds) -> Steps[StrictOutcome]:
        """The outcome of a request that got no answer; the error if none can be applied now."""
        if not self.write.attempts.maybe_applied:
            raise error
        refused = Contended(self.definition.counter, self.write.attempts.made, str(error))
        ended = yield from self.write.confirm_refusal(refused)
        if ended is refused:
            raise error
        return ended

    def _attempt(self) -> Steps[StrictOutcome | Item]:
        return attempt(None, self._request, self._interpret, self._give_up, self.write.attempts)

    def _request(self, planned: Send | None) -> Send:
        return planned or Send(read_of(self.write.connection, self.definition))

    def _interpret(self, reply: Reply[Send | None]) -> Verdict[Send | None, StrictOutcome | Item]:
        if reply.state is None:
            if isinstance(reply.answer, CountledgerError):
                return otherwise(reply)
            return self._from_reading(reply.answer)
        verdict = self.write.interpret(reply)
        if not isinstance(verdict, Done):
            return verdict
        if not isinstance(verdict.value, tuple):
            return Done(verdict.value)
        failed = [reason.item for reason in verdict.value if reason.condition_failed]
        if not all(self.definition.is_of(item) for item in failed):
            return Done(self.write.stale())
        return Again(None, _BUSY)

    def _from_reading(
        self, answer: Item | Sequence[Item | None] | None
    ) -> Verdict[Send | None, StrictOutcome | Item]:
        try:
            states = states_of(self.definition, answer)
        except StaleDefinition:
            return Done(self.write.stale())
        whole = whole_of(states)
        delta = amount.add(self.value, amount.negated(whole.total))
        refused = refusal(self.definition.counter, whole, delta)
        if refused is not None:
            return Done(refused)
        Bounds(whole.lower, whole.upper).check_inside(self.value, held=whole.held)
        now_ms = (
            None if self.definition.method is Method.REQUEST_TOKEN else self.write.request.at_ms
        )
        table = self.write.connection.counters
        writes = plan_value(table, self.definition, states, self.value, now_ms)
        return Recheck(self.write.send(writes))

    def _give_up(self, exhausted: Exhausted[Send | None]) -> StrictOutcome:
        if exhausted.state is None or exhausted.error is _BUSY:
            return Contended(self.definition.counter, exhausted.attempts, str(exhausted.error))
        return self.write.give_up(exhausted)
