"""A hold: an amount of a strict counter that is reserved first and taken later, or not.

A hold is stored where the marker of a change under its key would be (method `marker`), so one key
is one change or one hold. Its state changes once:

    open  ->  confirmed     all or a part of it was taken; the rest is available again
          ->  cancelled     all of it is available again
          ->  expired       the same, after its time; once more, it may be confirmed (readmitted)

`lapses_at` is the time until which it can be confirmed. It is not the attribute of the table's time
to live: that would delete an open hold, and its counter would keep the amount back for ever. Only
the write that ends a hold sets `expires_at`. An open hold is in the index `due`, in one of the
buckets of all holds. All functions here are pure.

Ends a hold: confirm it, cancel it, release it after its time.

The hold is read, and what it says decides. Then one transaction writes its end and gives the
counter's items back what they held, conditional on the hold still being in the state that was read:

    purpose    open, in time    open, its time is over               ended
    confirm    confirmed        by every clock: released; else       as it ended; with `readmit` an
                                refused, or unknown                  expired one is confirmed
    cancel     cancelled        cancelled                            as it ended
    release    -                by every clock: released             as it ended

If a condition failed, the hold is read again. So a hold ends once, and what a call returns is what
is stored. A confirmation leaves before `lapses_at` by the clock of its process; a release happens
after `lapses_at` and the allowed skew, so no clock within the skew still confirms. After a request
without an answer, `HoldExpired` is returned only if that is stored: the request may be late.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from countledger.ledger import amount, indexes, keys
from countledger.ledger.attempts import (
    Again,
    Done,
    Recheck,
    Reply,
    RetryPeriodOver,
    Send,
    attempt,
    otherwise,
)
from countledger.ledger.attributes import check_format, describe, optional, require, require_amount
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import (
    BadCounterName,
    BadKey,
    CorruptItem,
    CountledgerError,
    NoSuchHold,
    Throttled,
    TransactionCancelled,
    shown,
)
from countledger.ledger.operations import AllOf, Assign, Compare, Drop, Get, Query, Transact, Update
from countledger.ledger.texts import has_control_characters, plain_text
from countledger.producers.strict.change import end, read_incarnation
from countledger.producers.strict.definition import has_headroom, of, reserved, unreserved
from countledger.producers.strict.outcome import (
    Cancelled,
    Confirmed,
    Duplicate,
    ExceedsHold,
    HoldCancelled,
    HoldConfirmed,
    HoldExpired,
    Unknown,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Attempts, Exhausted, Steps, Verdict
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.connection import Connection
    from countledger.ledger.operations import Clause, Condition, Write
    from countledger.producers.strict.definition import Definition, Part
    from countledger.producers.strict.outcome import EndOutcome


BUCKETS: Final = 16
_BUCKET_PREFIX: Final = "holds#"


class HoldState(StrEnum):
    """What became of a hold."""

    OPEN = "open"
    CONFIRMED = "confirmed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Hold:
    """A hold as it is stored.

    Attributes:
        id: what to confirm or to cancel it by.
        counter: the counter's name.
        amount: how much it reserves, or reserved.
        state: what became of it.
        expires_at: until when it can be confirmed.
        key: the key that it was placed under, or None.
        note: the caller's short texts.
        confirmed: how much of it was taken.
        ended_at: when it was confirmed, cancelled or released, or None.
        parts: which items of the counter hold how much.
        incarnation: of its counter.
        placed_by: the id of the call that placed it; no two holds have the same one.
        ended_by: the id of the call that ended it, or None.
        lapses_at_ms: `expires_at` in milliseconds.
        place: the key of its item.
    """

    id: str
    counter: str
    amount: Amount
    state: HoldState
    expires_at: datetime
    key: str | None
    note: Mapping[str, str] | None
    confirmed: Amount
    ended_at: datetime | None
    parts: tuple[tuple[Key, Amount], ...]
    incarnation: str
    placed_by: str
    ended_by: str | None
    lapses_at_ms: int
    place: Key


def hold_id(counter: str, change_id: str) -> str:
    """The id of a hold: the name of its counter, and the id of its key."""
    return f"{counter}#{change_id}"


def parse_hold_id(text: object) -> tuple[str, str]:
    if isinstance(text, str):
        counter, separator, change_id = plain_text(text).partition("#")
        try:
            counter = keys.check_counter(counter)
        except BadCounterName:
            separator = ""
        if separator and change_id and not has_control_characters(change_id):
            return counter, change_id
    raise BadKey(f"hold {shown(text, 80)} is no id of a hold: give the `id` that `hold` returned")


def encode_open(marker: Item, held: Amount, lapses_at_ms: int) -> Item:
    """The item of an open hold, without its parts, in the place of a marker.

    `marker`: as a change under the same key would write it.
    """
    kept = {name: value for name, value in marker.items() if name not in {"delta", "expires_at"}}
    return kept | {
        "hold": held,
        "state": str(HoldState.OPEN),
        "lapses_at": lapses_at_ms,
        "due_bucket": _bucket_of(marker["counter"]),
        "due_at": lapses_at_ms,
    }


def encode_parts(parts: Sequence[Part]) -> Item:
    """The attribute that stores which bins hold how much, of negative deltas; none without bins."""
    if parts[0].key["part"] == keys.TOTAL:
        return {}
    return {"parts": {part.key["counter"]: amount.negated(part.delta) for part in parts}}


def is_hold(item: Item | None) -> bool:
    return item is not None and "hold" in item


def decode_hold(counter: str, item: Item) -> Hold:
    check_format(item)
    state = require(item, "state", str)
    if state not in list(HoldState):
        raise CorruptItem(f"{describe(item)}: 'state' is {shown(state)}, no state of a hold", item)
    change_id = require(item, "part", str).removeprefix(keys.MARKER_PREFIX)
    held = require_amount(item, "hold")
    lapses_at_ms = require(item, "lapses_at", int)
    ended_ms = optional(item, "ended_at", int)
    return Hold(
        id=hold_id(counter, change_id),
        counter=counter,
        amount=held,
        state=HoldState(state),
        expires_at=to_datetime(lapses_at_ms),
        key=optional(item, "key", str),
        note=optional(item, "note", dict),
        confirmed=require_amount(item, "confirmed") if "confirmed" in item else 0,
        ended_at=None if ended_ms is None else to_datetime(ended_ms),
        parts=tuple(_parts_in(counter, item, held)),
        incarnation=require(item, "incarnation", str),
        placed_by=require(item, "call", str),
        ended_by=optional(item, "ended_by", str),
        lapses_at_ms=lapses_at_ms,
        place={"counter": require(item, "counter", str), "part": require(item, "part", str)},
    )


def _parts_in(counter: str, item: Item, held: Amount) -> Iterator[tuple[Key, Amount]]:
    parts = optional(item, "parts", dict)
    if parts is None:
        yield keys.total_key(counter), held
        return
    for place in sorted(parts):
        yield {"counter": place, "part": keys.BIN}, parts[place]


def plan_part(table: str, definition: Definition, part: Part, now_ms: int) -> Update:
    """The write that reserves a part (a negative delta), if there is headroom: one write unit."""
    return Update(
        table,
        part.key,
        reserved(amount.negated(part.delta), now_ms),
        of(definition.incarnation, has_headroom(part.delta)),
    )


@dataclass(frozen=True, slots=True)
class End:
    """How a hold ends: how much leaves the counter's value, and what must hold of its time."""

    hold: Hold
    state: HoldState
    taken: Amount = 0
    in_time: Condition | None = None


def confirmed_before(now_ms: int) -> Condition:
    """The time of the hold is not over."""
    return Compare("lapses_at", ">", now_ms)


def lapsed_before(now_ms: int, skew_ms: int) -> Condition:
    """The time of the hold is over by every clock."""
    return Compare("lapses_at", "<", now_ms - skew_ms)


def plan_parts(table: str, hold: Hold, taken: Amount, now_ms: int) -> list[Update]:
    """The writes of the counter's items when an open hold ends: one write unit each.

    Each names the counter's incarnation; that the hold is open is the condition of its own write.
    """
    return [
        Update(
            table,
            key,
            unreserved(held, share, now_ms),
            of(hold.incarnation, Compare("held", ">=", held)),
        )
        for (key, held), share in zip(hold.parts, shares_of(hold, taken), strict=True)
    ]


def shares_of(hold: Hold, taken: Amount) -> list[Amount]:
    """How much of a confirmed amount each part gives, the first ones first."""
    shares: list[Amount] = []
    for _, held in hold.parts:
        share = min(held, taken)
        shares.append(share)
        taken = amount.add(taken, amount.negated(share))
    return shares


def plan_end(table: str, end: End, call: str, now_ms: int, kept_ms: int) -> Update:
    """The write of the hold itself, if it is the same hold and its state is what was read.

    From now on it is remembered for `kept_ms`.
    """
    hold = end.hold
    clauses: list[Clause] = [
        Assign("state", str(end.state)),
        Assign("ended_by", call),
        Assign("ended_at", now_ms),
        Assign("expires_at", -(-(now_ms + kept_ms) // 1_000)),
        Drop("due_bucket"),
        Drop("due_at"),
    ]
    same: list[Condition] = [
        Compare("call", "=", hold.placed_by),
        Compare("state", "=", str(hold.state)),
    ]
    if end.in_time is not None:
        same.append(end.in_time)
    if end.state is HoldState.CONFIRMED:
        clauses.append(Assign("confirmed", end.taken))
    return Update(table, hold.place, tuple(clauses), of(hold.incarnation, *same))


def bucket_query(table: str, bucket: str, before_ms: int, page_size: int | None) -> Query:
    """The open holds of a bucket whose time ends before then, the oldest first."""
    lapsed = AllOf(Compare("due_bucket", "=", bucket), Compare("due_at", "<", before_ms))
    return Query(table, lapsed, index=indexes.INDEX, page_size=page_size)


def buckets_of(places: Sequence[str]) -> list[str]:
    """The buckets of the holds that are stored in these partitions, each once."""
    return sorted({_bucket_of(place) for place in places})


def all_buckets() -> list[str]:
    return [f"{_BUCKET_PREFIX}{number}" for number in range(BUCKETS)]


def _bucket_of(place: str) -> str:
    digest = blake2b(place.encode(), digest_size=1, person=b"hold").digest()
    return f"{_BUCKET_PREFIX}{digest[0] % BUCKETS}"


_ADVICE: Final = (
    "no attempt got a clear answer: call again with the same hold, then it cannot count twice; "
    "once its time is over, the answer is clear as soon as it has been released or cancelled"
)
_BUSY: Final = Throttled("the hold or its counter changed each time since it was read")


class Purpose(Enum):
    """What a call wants of a hold."""

    CONFIRM = "confirm"
    CANCEL = "cancel"
    RELEASE = "release"


@dataclass(slots=True)
class Resolution:
    """One call about one hold.

    `call`: the id by which it recognizes what it wrote. `asked`: how much to confirm; None: all of
    it. `readmit`: an expired hold is to be confirmed if there is headroom for it. `placed_by`: the
    identity of the hold, once it was read.
    """

    connection: Connection
    definition: Definition
    change_id: str
    purpose: Purpose
    attempts: Attempts
    call: str
    asked: Amount | None = None
    readmit: bool = False
    placed_by: str | None = None

    def apply(self) -> Steps[EndOutcome | End]:
        """End the hold: four write units and a read unit; two for each further bin that holds.

        The answer is what became of it: of a release of a hold that is still valid `Unknown`; of an
        expired hold that may be readmitted an end.
        """
        ended = yield from attempt(
            None, self._request, self._interpret, self.give_up, self.attempts
        )
        if ended is None:
            yield from read_incarnation(self.connection, self.definition)
            raise NoSuchHold(
                f"hold {self._id!r} does not exist: it was never placed, or it ended so long ago "
                "that it is forgotten"
            )
        return ended

    # The state is the planned end of the hold, or None to read it first.
    def _request(self, planned: End | None) -> Send:
        table = self.connection.counters
        if planned is None:
            place = keys.marker_key(self.definition.counter, self.definition.bins, self.change_id)
            return Send(Get(table, place))
        now_ms = self.connection.clock.now_ms()
        updates = plan_parts(table, planned.hold, planned.taken, now_ms)
        return self.send(planned, updates, now_ms)

    def send(self, planned: End, updates: Sequence[Write], now_ms: int) -> Send:
        # A late request to place the hold must find that it has ended.
        spare_ms = self.connection.clock_skew_ms + self.connection.request_life_ms
        kept_ms = self.definition.marker_window_ms + spare_ms
        own = plan_end(self.connection.counters, planned, self.call, now_ms, kept_ms)

        def check() -> None:
            in_time = planned.state is not HoldState.CONFIRMED or planned.in_time is None
            if not (in_time or _may_confirm(planned.hold, self.connection)):
                raise RetryPeriodOver("the time of the hold was over before the request left")

        return Send(Transact([own, *updates], self.connection.ids.new_id(now_ms)), check)

    def _interpret(  # noqa: PLR0911 - one for each row of the table
        self, reply: Reply[End | None]
    ) -> Verdict[End | None, EndOutcome | End | None]:
        match reply:
            case Reply(CountledgerError(), None):
                return otherwise(reply)
            case Reply(item, None):
                return self._decide(item, maybe_applied=reply.maybe_applied)
            case Reply(RetryPeriodOver()):
                return Recheck(None)
            case Reply(TransactionCancelled(reasons=(_, *others))) if reply.answer.condition_failed:
                failed = [reason.item for reason in others if reason.condition_failed]
                if not all(map(self.definition.is_of, failed)):
                    return Done(self._stale(maybe_applied=reply.maybe_applied))
                return Again(None, _BUSY)
            case Reply(CountledgerError()):
                return otherwise(reply)
        return Done(self.done(reply.state))

    def give_up(self, exhausted: Exhausted[Any]) -> EndOutcome:
        return end(exhausted, self.definition.counter, _ADVICE)

    def _decide(
        self, item: Item | None, *, maybe_applied: bool
    ) -> Verdict[End | None, EndOutcome | End | None]:
        """What the hold, as it was read, means for this call."""
        counter = self.definition.counter
        if item is None or not self.definition.is_of(item) or not is_hold(item):
            return Done(self.unknown if maybe_applied else None)
        hold = decode_hold(counter, item)
        if self.placed_by not in (None, hold.placed_by):
            return Done(self.unknown if maybe_applied else None)
        self.placed_by = hold.placed_by
        if hold.state is not HoldState.OPEN:
            return Done(self._ended(hold))
        planned = self._planned(hold)
        if planned is not None:
            return planned
        if maybe_applied or self.purpose is Purpose.RELEASE:
            return Done(self.unknown)
        return Done(HoldExpired(counter, hold.id, hold.amount, hold.expires_at))

    def _planned(self, hold: Hold) -> Verdict[End | None, EndOutcome | End | None] | None:
        """How an open hold ends, if it can."""
        if self.purpose is Purpose.CANCEL:
            return Recheck(End(hold, HoldState.CANCELLED))
        now_ms = self.connection.clock.now_ms()
        if self.purpose is Purpose.CONFIRM:
            taken = hold.amount if self.asked is None else self.asked
            if taken > hold.amount:
                return Done(ExceedsHold(hold.counter, hold.id, hold.amount, taken))
            in_time = None if self.readmit else confirmed_before(now_ms)
            # An expired hold is readmitted at once: its headroom is still reserved.
            if self.readmit or _may_confirm(hold, self.connection):
                return Recheck(End(hold, HoldState.CONFIRMED, taken, in_time))
        if _may_release(hold, self.connection):
            lapsed = lapsed_before(now_ms, self.connection.clock_skew_ms)
            return Recheck(End(hold, HoldState.EXPIRED, 0, lapsed))
        return None

    def done(self, planned: End | None) -> EndOutcome:
        if planned is None:
            raise AssertionError("only an end is written")
        hold = planned.hold
        match planned.state:
            case HoldState.CONFIRMED:
                return self._confirmed(hold, planned.taken)
            case HoldState.CANCELLED:
                return Cancelled(hold.counter, hold.id, hold.amount)
        return HoldExpired(hold.counter, hold.id, hold.amount, hold.expires_at)

    def _confirmed(self, hold: Hold, taken: Amount) -> Confirmed:
        released = amount.add(hold.amount, amount.negated(taken))
        return Confirmed(hold.counter, hold.id, taken, released)

    def _ended(self, hold: Hold) -> EndOutcome | End:  # noqa: PLR0911 - one for each state
        """What a hold that has ended means for this call; an end where it can be readmitted."""
        mine = hold.ended_by == self.call
        confirming = self.purpose is Purpose.CONFIRM
        match hold.state:
            case HoldState.CONFIRMED if mine:
                return self._confirmed(hold, hold.confirmed)
            case HoldState.CONFIRMED if confirming and self.asked in (None, hold.confirmed):
                return Duplicate(hold.counter, None, hold)
            case HoldState.CONFIRMED:
                return HoldConfirmed(hold.counter, hold.id, hold.confirmed)
            case HoldState.CANCELLED if mine:
                return Cancelled(hold.counter, hold.id, hold.amount)
            case HoldState.CANCELLED if self.purpose is Purpose.CANCEL:
                return Duplicate(hold.counter, None, hold)
            case HoldState.CANCELLED:
                return HoldCancelled(hold.counter, hold.id)
        taken = hold.amount if self.asked is None else self.asked
        if confirming and taken > hold.amount:
            return ExceedsHold(hold.counter, hold.id, hold.amount, taken)
        if confirming and self.readmit:
            return End(hold, HoldState.CONFIRMED, taken)
        return HoldExpired(hold.counter, hold.id, hold.amount, hold.expires_at)

    def _stale(self, *, maybe_applied: bool) -> Unknown:
        if not maybe_applied:
            raise self.definition.stale()
        return self.unknown

    @property
    def unknown(self) -> Unknown:
        """No clear answer; the same call again finds out."""
        return Unknown(self.definition.counter, _ADVICE)

    @property
    def _id(self) -> str:
        return hold_id(self.definition.counter, self.change_id)


def _may_confirm(hold: Hold, connection: Connection) -> bool:
    """Whether the time of a hold is not over by this process's clock."""
    return connection.clock.now_ms() < hold.lapses_at_ms


def _may_release(hold: Hold, connection: Connection) -> bool:
    """Whether the time of a hold is over by every clock within the allowed skew."""
    return hold.lapses_at_ms + connection.clock_skew_ms < connection.clock.now_ms()
