"""Releases expired holds, and takes the headroom of one that expired again.

A call that a lower bound has refused looks for expired holds of its counter, releases them and is
tried again (`make_room`): so an expired hold makes no sale fail. It looks only where the refusal
says that something is held, at most once a second for each process and counter, and releases at
most 25 holds. A short lease keeps other processes from the same work; each release is conditional
anyway. An expired hold that no call needs stays as it is: `show` counts it as held.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from countledger.ledger import amount, keys
from countledger.ledger.attempts import PASSING, Done, Pause, Reply, Send, attempt, otherwise
from countledger.ledger.errors import (
    ConditionFailed,
    CountledgerError,
    NoSuchHold,
    TransactionCancelled,
)
from countledger.ledger.expressions import Absent, AnyOf, Compare
from countledger.ledger.limits import MINUTE_MS, RELEASE_LEASE_MS, RELEASED_AT_ONCE, SECOND_MS
from countledger.ledger.operations import Put
from countledger.producers.strict.bins import Part
from countledger.producers.strict.change import refused_among, update_of
from countledger.producers.strict.definition import StaleDefinition
from countledger.producers.strict.hold import End, bucket_query, buckets_of
from countledger.producers.strict.outcome import BoundReached, HoldExpired
from countledger.producers.strict.reader import split_over_bins
from countledger.producers.strict.resolution import Purpose, Resolution

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.attempts import Steps, Verdict
    from countledger.ledger.attributes import Key
    from countledger.ledger.errors import Reason
    from countledger.ledger.operations import Page
    from countledger.producers.strict.context import MethodContext
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.outcome import EndOutcome

_SPLITS: Final = 5
# Of each bucket; a bucket also lists holds of other counters.
_PAGES: Final = 4
# How long a call waits for another process that releases holds of its counter.
_WAIT_MS: Final = 250


def make_room(context: MethodContext, definition: Definition, refused: BoundReached) -> Steps[bool]:
    """Release expired holds of a counter that refused a change; whether to try again.

    One write unit for the lease; half a read unit for each page of each bucket (one bucket without
    bins, 16 at most); a read unit and the units of a cancellation for each released hold.
    """
    if refused.side != "lower" or not refused.held:
        return False
    if not context.looks.allow(definition.counter, context.clock.now_ms()):
        return False
    try:
        yield Send(_lease(context, definition))
    except ConditionFailed:
        yield Pause(_WAIT_MS)
        return True
    except PASSING:
        return False
    released = 0
    try:
        for change_id in (yield from _lapsed(context, definition)):
            released += yield from _release(context, definition, change_id)
    except PASSING:
        pass  # what was released is
    return released > 0


def _lease(context: MethodContext, definition: Definition) -> Put:
    now_ms = context.clock.now_ms()
    item = {
        **keys.release_key(definition.counter),
        "until": now_ms + RELEASE_LEASE_MS,
        "expires_at": (now_ms + MINUTE_MS) // SECOND_MS,
    }
    return Put(context.table, item, AnyOf(Absent("part"), Compare("until", "<", now_ms)))


def _lapsed(context: MethodContext, definition: Definition) -> Steps[list[str]]:
    """The ids of the keys of holds of the counter that can be released, as the index lists them."""
    places = keys.marker_places(definition.counter, definition.bins)
    before_ms = context.clock.now_ms() - context.clock_skew_ms
    found: list[str] = []
    for bucket in buckets_of(places):
        query = bucket_query(context.table, bucket, before_ms, RELEASED_AT_ONCE)
        for _ in range(_PAGES):
            page: Page = yield Send(query)
            found += [change_id_of(item) for item in page.items if item["counter"] in places]
            if page.after is None or len(found) >= RELEASED_AT_ONCE:
                break
            query = replace(query, after=page.after)
    return found[:RELEASED_AT_ONCE]


def change_id_of(key: Key) -> str:
    """The id of the key of a hold, by the key of its item."""
    return key["part"].removeprefix(keys.MARKER_PREFIX)


def _release(context: MethodContext, definition: Definition, change_id: str) -> Steps[bool]:
    """Release one hold; whether something became available, by this call or another one."""
    now_ms = context.clock.now_ms()
    call, attempts = context.new_id(now_ms), context.attempts()
    one = Resolution(context, definition, change_id, Purpose.RELEASE, attempts, call)
    try:
        return isinstance((yield from one.apply()), HoldExpired)
    except NoSuchHold:
        return False  # the index is a moment late


@dataclass(frozen=True, slots=True)
class Readmission:
    """Confirms an expired hold if there is headroom: as a change, split over bins if needed."""

    resolution: Resolution
    planned: End

    def apply(self) -> Steps[EndOutcome]:
        """Take the headroom: four write units; with bins two read units for each.

        Returns:
            `Confirmed`; `BoundReached`: there is not enough headroom. `Duplicate`, `HoldConfirmed`:
            another call was faster. `Unknown`.

        Raises:
            StaleDefinition: the counter was deleted or recreated.
        """
        resolution = self.resolution
        context, definition = resolution.context, resolution.definition
        for _ in range(_SPLITS):
            refused: EndOutcome | End | None
            parts = yield from self._parts()
            refused = parts if isinstance(parts, BoundReached) else (yield from self._at(parts))
            if refused is None:
                found = yield from replace(resolution, readmit=False).apply()
                return resolution.unknown if isinstance(found, End) else found
            if not isinstance(refused, BoundReached):
                return refused
            again = yield from make_room(context, definition, refused)
            if not again and (definition.bins == 1 or isinstance(parts, BoundReached)):
                return resolution.unknown if resolution.attempts.maybe_applied else refused
        return resolution.unknown

    def _parts(self) -> Steps[list[Part] | BoundReached]:
        definition = self.resolution.definition
        delta = amount.negated(self.planned.taken)
        if definition.bins == 1:
            return [Part(definition.main, delta)]
        return (yield from split_over_bins(self.resolution.context, definition, delta))

    def _at(self, parts: Sequence[Part]) -> Steps[EndOutcome | None]:
        """One transaction; None: the hold is not expired any more."""
        context, definition = self.resolution.context, self.resolution.definition

        def request(_: None) -> Send:
            now_ms = context.clock.now_ms()
            updates = [update_of(context.table, definition, part, now_ms) for part in parts]
            return self.resolution.send(self.planned, updates, now_ms)

        def interpret(reply: Reply[None]) -> Verdict[None, EndOutcome | None]:
            match reply.answer:
                case TransactionCancelled(reasons=(own, *_)) if own.condition_failed:
                    return Done(None)
                case TransactionCancelled(reasons=(_, *others)):
                    return self._refused(parts, others, reply)
                case CountledgerError():
                    return otherwise(reply)
            return Done(self.resolution.done(self.planned))

        return attempt(None, request, interpret, self.resolution.give_up, self.resolution.attempts)

    def _refused(
        self, parts: Sequence[Part], reasons: Sequence[Reason], reply: Reply[None]
    ) -> Verdict[None, EndOutcome | None]:
        try:
            refused = refused_among(self.resolution.definition, parts, reasons)
        except StaleDefinition:
            if not reply.maybe_applied:
                raise
            return Done(self.resolution.unknown)
        return otherwise(reply) if refused is None else Done(refused)
