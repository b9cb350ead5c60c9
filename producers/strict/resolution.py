"""Ends a hold: confirm it, cancel it, release it after its time.

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
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from countledger.ledger import amount, keys
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
from countledger.ledger.errors import (
    CountledgerError,
    NoSuchHold,
    Throttled,
    TransactionCancelled,
)
from countledger.ledger.operations import Get, Transact
from countledger.producers.strict.change import end
from countledger.producers.strict.hold import (
    End,
    HoldState,
    confirmed_before,
    decode_hold,
    hold_id,
    is_hold,
    lapsed_before,
    plan_end,
    plan_parts,
)
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
    from collections.abc import Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Attempts, Exhausted, Steps, Verdict
    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Write
    from countledger.producers.strict.change import MethodContext
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.hold import Hold
    from countledger.producers.strict.outcome import EndOutcome

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

    Attributes:
        context: what to work with.
        definition: of the counter.
        change_id: the id of the hold's key.
        purpose: what the call wants.
        attempts: of the call.
        call: its id, by which it recognizes what it wrote.
        asked: how much to confirm; None: all of it.
        readmit: whether an expired hold is to be confirmed if there is headroom for it.
        placed_by: the identity of the hold, once it was read.
    """

    context: MethodContext
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

        Returns:
            What became of it; for a release of a hold that is still valid `Unknown`. An end: of an
            expired hold that may be readmitted.

        Raises:
            NoSuchHold: no hold has that id.
            StaleDefinition: the counter was deleted or recreated.
        """
        ended = yield from attempt(
            None, self._request, self._interpret, self.give_up, self.attempts
        )
        if ended is None:
            yield from self.context.read_incarnation(self.definition)
            raise NoSuchHold(
                f"hold {self._id!r} does not exist: it was never placed, or it ended so long ago "
                "that it is forgotten"
            )
        return ended

    # The state is the planned end of the hold, or None to read it first.
    def _request(self, planned: End | None) -> Send:
        table = self.context.table
        if planned is None:
            place = keys.marker_key(self.definition.counter, self.definition.bins, self.change_id)
            return Send(Get(table, place))
        now_ms = self.context.clock.now_ms()
        updates = plan_parts(table, planned.hold, planned.taken, now_ms)
        return self.send(planned, updates, now_ms)

    def send(self, planned: End, updates: Sequence[Write], now_ms: int) -> Send:
        """The transaction of the end of the hold and the writes of its counter."""
        # A late request to place the hold must find that it has ended.
        spare_ms = self.context.clock_skew_ms + self.context.request_life_ms
        kept_ms = self.definition.marker_window_ms + spare_ms
        own = plan_end(self.context.table, planned, self.call, now_ms, kept_ms)

        def check() -> None:
            in_time = planned.state is not HoldState.CONFIRMED or planned.in_time is None
            if not (in_time or _may_confirm(planned.hold, self.context)):
                raise RetryPeriodOver("the time of the hold was over before the request left")

        return Send(Transact([own, *updates], self.context.new_id(now_ms)), check)

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
        """The outcome if no attempt is left."""
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
        now_ms = self.context.clock.now_ms()
        if self.purpose is Purpose.CONFIRM:
            taken = hold.amount if self.asked is None else self.asked
            if taken > hold.amount:
                return Done(ExceedsHold(hold.counter, hold.id, hold.amount, taken))
            in_time = None if self.readmit else confirmed_before(now_ms)
            # An expired hold is readmitted at once: its headroom is still reserved.
            if self.readmit or _may_confirm(hold, self.context):
                return Recheck(End(hold, HoldState.CONFIRMED, taken, in_time))
        if _may_release(hold, self.context):
            lapsed = lapsed_before(now_ms, self.context.clock_skew_ms)
            return Recheck(End(hold, HoldState.EXPIRED, 0, lapsed))
        return None

    def done(self, planned: End | None) -> EndOutcome:
        """The outcome of a transaction that was carried out."""
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


def _may_confirm(hold: Hold, context: MethodContext) -> bool:
    """Whether the time of a hold is not over by this process's clock."""
    return context.clock.now_ms() < hold.lapses_at_ms


def _may_release(hold: Hold, context: MethodContext) -> bool:
    """Whether the time of a hold is over by every clock within the allowed skew."""
    return hold.lapses_at_ms + context.clock_skew_ms < context.clock.now_ms()
