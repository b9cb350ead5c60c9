"""Holds of strict counters: place, confirm, cancel, list. Method `marker` alone.

Placing a hold is a change by method `marker` that moves `held` and not the total: the same bins,
the same finality, and the hold is stored in the place of the marker. So a retry under its key finds
it. The methods of `HoldCalls` are those of `StrictCounters`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from countledger.ledger import amount
from countledger.ledger import amount as amounts
from countledger.ledger.amount import parse_delta
from countledger.ledger.attempts import PASSING, Done, Reply, Send, attempt, otherwise
from countledger.ledger.clock import show_duration, to_datetime
from countledger.ledger.errors import (
    BadDelta,
    BadSetting,
    CountledgerError,
    KeyExpired,
    Throttled,
    TransactionCancelled,
)
from countledger.ledger.limits import HOLD_MAX_MS, HOLD_MIN_MS
from countledger.producers.strict import applying
from countledger.producers.strict.change import make_change, refused_among, update_of
from countledger.producers.strict.definition import Method, Part, StaleDefinition
from countledger.producers.strict.hold import (
    End,
    Purpose,
    Resolution,
    decode_hold,
    encode_open,
    encode_parts,
    hold_id,
    is_hold,
    parse_hold_id,
    plan_part,
)
from countledger.producers.strict.marker import MarkerChange, stored_marker
from countledger.producers.strict.outcome import (
    Applied,
    BoundReached,
    Contended,
    Duplicate,
    Held,
    HoldExpired,
    SetFull,
)
from countledger.producers.strict.release import Releases, compare_held, open_holds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import TypeVar

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Steps, Verdict
    from countledger.ledger.attributes import Item, OnCorrupt
    from countledger.ledger.connection import Connection
    from countledger.ledger.errors import Reason
    from countledger.ledger.ids import IdempotencyKey
    from countledger.ledger.operations import Put, Write
    from countledger.producers.strict.change import StrictChange
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.hold import Hold
    from countledger.producers.strict.outcome import EndOutcome, HoldOutcome, StrictOutcome
    from countledger.producers.strict.release import HeldComparison


# Takes the headroom of an expired hold again, and confirms it: as a change.


_SPLITS: Final = 5
_NO_HEADROOM: Final = BoundReached, Contended


@dataclass(frozen=True, slots=True)
class Readmission:
    """Confirms an expired hold if there is headroom: as a change, split over bins if needed."""

    resolution: Resolution
    planned: End

    def apply(self) -> Steps[EndOutcome]:
        """Take the headroom: four write units; with bins two read units for each.

        A refusal costs one read unit more. `Duplicate`, `HoldConfirmed`: another call was faster.
        """
        resolution = self.resolution
        releases = Releases(resolution.connection)
        refused: EndOutcome | None
        try:
            refused = yield from self._with_headroom(releases)
        except Throttled as error:
            refused = Contended(resolution.definition.counter, releases.waits, str(error))
        if isinstance(refused, BoundReached):
            refused = yield from self.confirm_refusal(refused)
        elif refused is None:
            refused = yield from self._found()
        doubtful = resolution.attempts.maybe_applied
        return resolution.unknown if doubtful and isinstance(refused, _NO_HEADROOM) else refused

    def confirm_refusal(self, refused: BoundReached) -> Steps[EndOutcome]:
        """Make a refusal final: one read unit.

        Another call may have confirmed the hold since it was read, with the headroom that is short.
        """
        found = yield from self._found()
        return refused if isinstance(found, HoldExpired) else found

    def _found(self) -> Steps[EndOutcome]:
        """What has become of the hold: one read unit."""
        found = yield from replace(self.resolution, readmit=False).apply()
        return self.resolution.unknown if isinstance(found, End) else found

    def _with_headroom(self, releases: Releases) -> Steps[EndOutcome | None]:
        """As `_at`, once there is headroom or no expired hold is left."""
        definition = self.resolution.definition
        delta = amount.negated(self.planned.taken)
        parts: list[Part] | BoundReached = [Part(definition.main, delta)]
        for _ in range(_SPLITS):
            if definition.bins > 1:
                parts = yield from releases.split(definition, delta)
            if isinstance(parts, BoundReached):
                return parts
            refused = yield from self._at(parts)
            if definition.bins == 1 and isinstance(refused, BoundReached):
                if not (yield from releases.for_refused(definition, refused)):
                    return refused
            elif not isinstance(refused, BoundReached):
                return refused
        busy = "other changes took the headroom each time before this one could"
        return Contended(definition.counter, _SPLITS, busy)

    def _at(self, parts: Sequence[Part]) -> Steps[EndOutcome | None]:
        """One transaction; None: the hold is not expired any more."""
        connection, definition = self.resolution.connection, self.resolution.definition

        def request(_: None) -> Send:
            now_ms = connection.clock.now_ms()
            updates = [update_of(connection.counters, definition, part, now_ms) for part in parts]
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


if TYPE_CHECKING:
    _T = TypeVar("_T")

_WHY_MARKER: Final = (
    "a hold is stored where a marker would be, under its key; create the counter with method marker"
)


class HoldChange(MarkerChange):
    """One hold that is placed."""

    __slots__ = ()

    @classmethod
    def placed(
        cls, connection: Connection, definition: Definition, change: StrictChange, lapses_at_ms: int
    ) -> HoldChange:
        """Nothing sent yet; the change has the amount as a negative delta.

        The caller checks the age of its key.
        """
        begun = MarkerChange.of_any_age(connection, definition, change)
        item = encode_open(begun.marker.item, amounts.negated(change.delta), lapses_at_ms)
        marker = replace(begun.marker, item=item)
        return cls(connection, definition, change, begun.attempts, marker, begun.call)

    def found(self) -> Steps[StrictOutcome | None]:
        """The outcome if a hold exists under the key; else None. Two read units at the most."""
        try:
            stored = yield from stored_marker(self.connection, self.definition, self.change.id)
        except PASSING:
            return self._unknown
        if stored is None or not is_hold(stored):
            return None
        return (yield from self._meaning_of(stored))

    def writes(self, parts: Sequence[Part]) -> list[Write]:
        """The hold, and what each item reserves."""
        table, at_ms = self.connection.counters, self.change.at_ms
        own: Put = replace(self.marker, item=self.marker.item | encode_parts(parts))
        return [own, *(plan_part(table, self.definition, part, at_ms) for part in parts)]

    def duplicate_of(self, marker: Item, value: Amount | None) -> Duplicate:
        """As of a change; under the key of a change, or of another amount, it raises."""
        if not is_hold(marker) or marker["hold"] != amounts.negated(self.change.delta):
            raise self.change.reused(marker.get("delta"))
        return Duplicate(self.change.counter, value, decode_hold(self.change.counter, marker))

    def applied(self, outcome: StrictOutcome) -> Steps[StrictOutcome]:
        """As it is: the value did not change, so none is read."""
        yield from ()
        return outcome


class HoldCalls:
    """The calls about holds; `StrictCounters` has them."""

    __slots__ = ()

    connection: Connection

    def _with_definition(
        self, counter: str, act: Callable[[Connection, Definition, Item | None], Steps[_T]]
    ) -> _T:
        raise NotImplementedError

    def hold(
        self,
        counter: str,
        amount: Amount,
        *,
        expires_in: timedelta,
        key: str | IdempotencyKey | None = None,
        note: Mapping[str, str] | None = None,
    ) -> HoldOutcome:
        """Reserve an amount: four write units, one for the index; as `change` with bins.

        The value stays, and nothing else can take it until it is confirmed, cancelled or expires.

        Args:
            counter: its name; of method `marker`.
            amount: how much, more than zero: an int or an exact decimal.
            expires_in: for how long it can be confirmed, 1 second to 366 days.
            key: what a retry repeats; remembered until the hold has ended and the counter's window
                after that. It shares its keys with the changes of the counter.
            note: the caller's short texts.

        Returns:
            `Held`. `Duplicate`: this key holds, or held, the amount; see its `hold`.
            `BoundReached`: not enough is available. `Withdrawn`, `Contended`: nothing is held.
            `Unknown`: repeat it with the same key.

        Raises:
            BadSetting: the counter's method has no holds, or the time is out of its range.
            BadDelta: the amount is not above zero.
            IdempotencyKeyReused: the key was used for a change, or for another amount.
            KeyExpired: the key is older than the counter's window, and no hold is stored under it.
            ClockSkew, NoSuchCounter, BadInput, Unreachable: as `change`.
        """
        length_ms = _length_ms(expires_in)
        held = _above_zero(amount)
        change = make_change(
            counter,
            amounts.negated(held),
            key,
            note,
            now_ms=self.connection.clock.now_ms(),
            new_id=self.connection.ids.new_id,
        )
        lapses_at_ms = change.at_ms + length_ms

        def placed(
            connection: Connection, definition: Definition, _item: Item | None
        ) -> Steps[StrictOutcome]:
            _check_method(definition)
            begun = HoldChange.placed(connection, definition, change, lapses_at_ms)
            window_ms, skew_ms = definition.marker_window_ms, connection.clock_skew_ms
            try:
                change.check_age(connection.clock.now_ms(), window_ms, skew_ms)
            except KeyExpired:
                found = yield from begun.found()  # a hold may last longer than the window
                if found is None:
                    raise
                return found
            return (yield from applying.apply_at_places(connection, definition, change, begun))

        outcome = self._with_definition(counter, placed)
        match outcome:
            case Applied():
                until = to_datetime(lapses_at_ms)
                return Held(change.counter, hold_id(change.counter, change.id), held, until)
            case SetFull():
                raise AssertionError("method marker has no set")
        return outcome

    def confirm(
        self, hold: str, amount: Amount | None = None, *, readmit: bool = False
    ) -> EndOutcome:
        """Take what is held: four write units, one for the index, a read unit; more with bins.

        Args:
            hold: the id that `hold` returned.
            amount: how much of it; the rest is available again. None: all of it.
            readmit: after its time, take the amount again if enough is available.

        Returns:
            `Confirmed`. `Duplicate`: it was confirmed before. `HoldExpired`, `HoldCancelled`: it
            cannot be any more. `HoldConfirmed`: with another amount. `ExceedsHold`: more than is
            held. `BoundReached`: not enough is available to readmit it. `Contended`: try again.
            `Unknown`: call again with the same hold.

        Raises:
            NoSuchHold: no hold has that id, or it is forgotten.
            BadKey: it is no id of a hold.
            BadDelta: the amount is not above zero.
            NoSuchCounter, Unreachable: as `change`.
        """
        asked = None if amount is None else _above_zero(amount)
        return self._end(hold, Purpose.CONFIRM, asked, readmit=readmit)

    def cancel(self, hold: str) -> EndOutcome:
        """Make what is held available again: as `confirm`, and costs the same.

        Returns:
            `Cancelled`. `Duplicate`: it was cancelled before. `HoldExpired`: it was released.
            `HoldConfirmed`: it was taken. `Contended`: try again. `Unknown`: call again.

        Raises:
            NoSuchHold, BadKey, NoSuchCounter, Unreachable: as `confirm`.
        """
        return self._end(hold, Purpose.CANCEL)

    def holds(self, counter: str, *, on_corrupt: OnCorrupt | None = None) -> Iterator[Hold]:
        """The open holds of a counter by their time, also those that are over but not released.

        Half a read unit for each, and for about 30 holds beside these in the index.

        Args:
            counter: its name.
            on_corrupt: called with the error of each hold that cannot be read, which is left out.

        Raises:
            BadSetting: the counter's method has no holds.
            NoSuchCounter: no counter has that name.
            CorruptItem: a hold cannot be read, and `on_corrupt` is not given.
        """

        def known(
            _connection: Connection, definition: Definition, _item: Item | None
        ) -> Steps[Definition]:
            yield from ()
            _check_method(definition)
            return definition

        return iter(open_holds(self.connection, self._with_definition(counter, known), on_corrupt))

    def verify_holds(self, counter: str) -> HeldComparison:
        """Compare what a counter holds with its open holds: `compare_held` says at what cost.

        Raises:
            BadSetting: the counter's method has no holds.
            NoSuchCounter: no counter has that name.
            CorruptItem: an item of it, or a hold, cannot be read.
        """

        def verified(
            connection: Connection, definition: Definition, _item: Item | None
        ) -> Steps[HeldComparison]:
            _check_method(definition)
            return (yield from compare_held(connection, definition))

        return self._with_definition(counter, verified)

    def _end(
        self, hold: str, purpose: Purpose, asked: Amount | None = None, *, readmit: bool = False
    ) -> EndOutcome:
        counter, change_id = parse_hold_id(hold)
        call = self.connection.ids.new_id(self.connection.clock.now_ms())

        def ended(
            connection: Connection, definition: Definition, _item: Item | None
        ) -> Steps[EndOutcome]:
            _check_method(definition)
            attempts = connection.attempts()
            resolution = Resolution(
                connection, definition, change_id, purpose, attempts, call, asked, readmit
            )
            outcome = yield from resolution.apply()
            if isinstance(outcome, End):
                return (yield from Readmission(resolution, outcome).apply())
            return outcome

        return self._with_definition(counter, ended)


def _check_method(definition: Definition) -> None:
    if definition.method is not Method.MARKER:
        raise BadSetting(
            f"counter {definition.counter!r} is of method {definition.method}, which has no holds: "
            f"{_WHY_MARKER}"
        )


def _above_zero(value: Amount) -> Amount:
    given = parse_delta(value)
    if given < 0:
        raise BadDelta(f"amount {given} is below zero: give how much to hold, as a positive number")
    return amounts.canonical(given)


def _length_ms(expires_in: object) -> int:
    if not isinstance(expires_in, timedelta):
        kind = type(expires_in).__name__
        raise BadSetting(f"expires_in {expires_in!r} is a {kind}: give a datetime.timedelta")
    length_ms = expires_in // timedelta(milliseconds=1)
    if not HOLD_MIN_MS <= length_ms <= HOLD_MAX_MS:
        raise BadSetting(
            f"expires_in {expires_in} is not between {show_duration(HOLD_MIN_MS)} and "
            f"{show_duration(HOLD_MAX_MS)}"
        )
    return length_ms
