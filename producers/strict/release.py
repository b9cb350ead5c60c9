"""Releases expired holds where they keep a call from having its way.

A call that a lower bound has refused looks for expired holds of its counter, releases 25 of them
and is tried again, until there is enough or no expired hold is left (`Releases`): so an expired
hold makes no sale fail. It looks only where the refusal says that something is held. A look that
finds nothing is repeated a second later, or as soon as a hold expires that it has seen: what is
placed after the look lasts a second at least, and expires later. A short lease keeps other
processes from the same work; they wait and try again. Each release is conditional anyway. A call
that has no time left while expired holds are left is not refused: it is contended.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.attempts import PASSING, Pause, Send
from countledger.ledger.errors import (
    ConditionFailed,
    NoSuchHold,
    Throttled,
)
from countledger.ledger.limits import (
    HOLD_MIN_MS,
    MINUTE_MS,
    RELEASE_LEASE_MS,
    RELEASE_TIME_MS,
    RELEASED_AT_ONCE,
    SECOND_MS,
)
from countledger.ledger.operations import Absent, AnyOf, Compare, Delete, Put
from countledger.producers.strict.change import POLICY, Look
from countledger.producers.strict.hold import End, Purpose, Resolution, bucket_query, buckets_of
from countledger.producers.strict.outcome import BoundReached, Contended, Unknown
from countledger.producers.strict.reader import split_over_bins

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Steps
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.operations import Page
    from countledger.producers.strict.change import MethodContext
    from countledger.producers.strict.definition import Definition, Part
    from countledger.producers.strict.outcome import StrictOutcome

    _T = TypeVar("_T")

# Between two attempts while another thread or process releases holds of the counter.
_WAIT_MS: Final = 100
# Of a page of the index: about three read units.
_PAGE_SIZE: Final = 100


@dataclass(slots=True)
class Releases:
    """What one call releases so that it is not refused. Made before its first request.

    Attributes:
        context: what to work with.
        until_ms: until when it waits, at least; begins with the first release.
        waits: how often it has waited: for others, or after an error.
        handled: the counters and ids of the keys of holds that it has released or found ended.
        tried: how many looks this process had begun when the last request of the call was sent.
    """

    context: MethodContext
    until_ms: int | None = None
    waits: int = 0
    handled: set[tuple[str, str]] = field(default_factory=set)
    tried: int = field(init=False)

    def __post_init__(self) -> None:
        """The first request of the call follows."""
        self.tried = self.context.looks.begun

    def for_refused(self, definition: Definition, refused: BoundReached) -> Steps[bool]:
        """Release expired holds of a counter that refused; whether to try again.

        Raises:
            Throttled: as `release`.
        """
        if refused.side != "lower" or not refused.held:
            return False
        return (yield from self.release(definition))

    def again(
        self,
        definition: Definition,
        ended: StrictOutcome | _T,
        attempt: Callable[[], Steps[StrictOutcome | _T]],
    ) -> Steps[StrictOutcome | _T]:
        """What an attempt ended with; after a refusal, what it ends with once nothing is expired.

        Costs what the attempts cost, and `release` before each of them. `Contended`: the time of
        the call is over, and expired holds may be left.
        """
        try:
            while isinstance(ended, BoundReached) and (
                yield from self.for_refused(definition, ended)
            ):
                ended = yield from attempt()
        except Throttled as error:
            return Contended(definition.counter, max(self.waits, 1), str(error))
        return ended

    def split(self, definition: Definition, delta: Amount) -> Steps[list[Part] | BoundReached]:
        """A change split over bins, once there is headroom for it or no expired hold is left.

        Raises:
            Throttled: as `release`; or the bins changed in every attempt to read them.
        """
        while True:
            parts = yield from split_over_bins(self.context, definition, delta)
            if not isinstance(parts, BoundReached) or not (
                yield from self.for_refused(definition, parts)
            ):
                return parts

    def release(self, definition: Definition) -> Steps[bool]:
        """Release up to 25 expired holds of a counter; whether to try again.

        Half a read unit for each page of each bucket (one bucket without bins, 16 at most); two
        write units for the lease if there is an expired hold, and a read unit and the units of a
        cancellation for each.

        Raises:
            Throttled: the time of the call is over, and expired holds may be left.
        """
        if (yield from self._look(definition)):
            self.tried = self.context.looks.begun
            return True
        return False

    def _look(self, definition: Definition) -> Steps[bool]:
        context, counter = self.context, definition.counter
        now_ms = context.clock.now_ms()
        self.until_ms = self.until_ms or now_ms + RELEASE_TIME_MS
        look = context.looks.begin(counter, now_ms, self.tried)
        if look is Look.UNDER_WAY:
            yield from self._wait(counter)
        if look is not Look.NOW:
            return look is not Look.NOTHING_EXPIRED
        quiet_until_ms = None
        try:
            lapsed, quiet_until_ms = yield from _lapsed(context, definition, self.handled)
            done = not lapsed or (yield from self._release(definition, lapsed))
        except PASSING:
            done = False
        finally:
            context.looks.end(counter, quiet_until_ms)
        if not done:
            yield from self._wait(counter)
        # Another process may have released what was in the way before this one looked.
        return True

    def _wait(self, counter: str) -> Steps[None]:
        self.waits += 1
        late = self.until_ms is not None and self.context.clock.now_ms() >= self.until_ms
        if late and self.waits >= POLICY.attempts:
            raise Throttled(
                f"strict counter {counter!r} has expired holds that could not be released yet"
            )
        yield Pause(_WAIT_MS)

    def _release(self, definition: Definition, lapsed: Sequence[str]) -> Steps[bool]:
        """Release these holds; whether one of them ended, by this call or another one."""
        context, owner = self.context, self.context.new_id(self.context.clock.now_ms())
        try:
            yield Send(_lease(context, definition, owner))
        except ConditionFailed:
            return False  # another process is at it
        done = False
        for change_id in lapsed:
            if (yield from release_hold(context, definition, change_id)):
                done = True
                self.handled.add((definition.counter, change_id))
        with suppress(ConditionFailed, *PASSING):
            key = keys.release_key(definition.counter)
            yield Send(Delete(context.table, key, Compare("owner", "=", owner)))
        return done


def _lease(context: MethodContext, definition: Definition, owner: str) -> Put:
    now_ms = context.clock.now_ms()
    item = {
        **keys.release_key(definition.counter),
        "owner": owner,
        "until": now_ms + RELEASE_LEASE_MS,
        "expires_at": (now_ms + MINUTE_MS) // SECOND_MS,
    }
    return Put(context.table, item, AnyOf(Absent("part"), Compare("until", "<", now_ms)))


def _lapsed(
    context: MethodContext, definition: Definition, handled: set[tuple[str, str]]
) -> Steps[tuple[list[str], int | None]]:
    """The holds of a counter that can be released, and until when no more can be.

    Returns:
        The ids of their keys, 25 at most, as the index lists them, without those that are handled;
        and None if there is one: there may be more.
    """
    places = keys.marker_places(definition.counter, definition.bins)
    now_ms, skew_ms = context.clock.now_ms(), context.clock_skew_ms
    quiet_until_ms = now_ms + HOLD_MIN_MS
    found: list[str] = []
    for bucket in buckets_of(places):
        # Together with those that expire soon: until then another look finds nothing.
        query = bucket_query(context.table, bucket, quiet_until_ms - skew_ms, _PAGE_SIZE)
        while True:
            page: Page = yield Send(query)
            for item in page.items:
                one = definition.counter, change_id_of(item)
                if item["counter"] not in places or one in handled:
                    continue
                if item["due_at"] + skew_ms < now_ms:
                    found.append(one[1])
                else:
                    quiet_until_ms = min(quiet_until_ms, item["due_at"] + skew_ms + 1)
            if page.after is None or len(found) >= RELEASED_AT_ONCE:
                break
            query = replace(query, after=page.after)
    return found[:RELEASED_AT_ONCE], None if found else quiet_until_ms


def change_id_of(key: Key) -> str:
    """The id of the key of a hold, by the key of its item."""
    return key["part"].removeprefix(keys.MARKER_PREFIX)


def release_hold(context: MethodContext, definition: Definition, change_id: str) -> Steps[bool]:
    """Release a hold whose time is over; whether it has ended, by this call or another one."""
    now_ms = context.clock.now_ms()
    call, attempts = context.new_id(now_ms), context.attempts()
    one = Resolution(context, definition, change_id, Purpose.RELEASE, attempts, call)
    try:
        return not isinstance((yield from one.apply()), Unknown | Contended | End)
    except NoSuchHold:
        return True  # the index is a moment late


def is_copied_into(context: MethodContext, on_failure: Callable[[Item, Exception], object]) -> bool:
    """Whether a restore copies items into the table now: one read unit.

    Args:
        context: of the table.
        on_failure: called with the error of the read; then nothing should be released either.
    """
    key = keys.restore_key()
    try:
        record = context.reads.get(context.table, key, consistent=True)
    except PASSING as error:
        on_failure(key, error)
        return True
    return record is not None and "copied_at" not in record
