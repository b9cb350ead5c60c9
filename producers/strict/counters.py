"""Strict counters: create, change, read, bound, list and delete them; hold amounts of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from countledger.ledger import amount as amounts
from countledger.ledger import keys
from countledger.ledger.amount import parse_delta
from countledger.ledger.attempts import PASSING
from countledger.ledger.clock import show_duration, to_datetime
from countledger.ledger.errors import BadDelta, BadSetting, KeyExpired, Throttled
from countledger.ledger.ids import IdempotencyKey, check_key
from countledger.ledger.limits import HOLD_MAX_MS, HOLD_MIN_MS
from countledger.producers.strict import applying, creation
from countledger.producers.strict.change import make_change
from countledger.producers.strict.definition import (
    KEEP,
    Bounds,
    Keep,
    Method,
    StaleDefinition,
    encode_definition,
    encode_state,
)
from countledger.producers.strict.hold import End, Purpose, Resolution, hold_id, parse_hold_id
from countledger.producers.strict.holds import HoldChange, Readmission
from countledger.producers.strict.outcome import Applied, Held, SetFull
from countledger.producers.strict.reader import (
    StrictCounter,
    StrictTables,
    check_age,
    created,
    list_counters,
    read_counter,
)
from countledger.producers.strict.release import compare_held, open_holds
from countledger.producers.strict.transaction import StrictTransactions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeVar

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Steps
    from countledger.ledger.attributes import Item, OnCorrupt
    from countledger.ledger.connection import Connection
    from countledger.producers.strict.definition import Definition, StrictState
    from countledger.producers.strict.hold import Hold
    from countledger.producers.strict.outcome import EndOutcome, HoldOutcome, StrictOutcome
    from countledger.producers.strict.release import HeldComparison

    _T = TypeVar("_T")

_WHY_MARKER: Final = (
    "a hold is stored where a marker would be, under its key; create the counter with method marker"
)
# How often a counter may be recreated during one call.
_INCARNATIONS: Final = 3


@dataclass(frozen=True, slots=True)
class StrictCounters:
    """The strict counters of a stack. Safe to share between threads."""

    connection: Connection
    tables: StrictTables = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", StrictTables(self.connection))

    def create(
        self,
        counter: str,
        *,
        method: str,
        lower: Amount | None = None,
        upper: Amount | None = None,
        opening: Amount = 0,
        bins: int = 1,
        history: int | None = None,
        max_tokens: int | None = None,
        window_ms: int | None = None,
        regions: bool = False,
    ) -> StrictCounter:
        """Create a counter: two write units for it, two for its list entry, two for each bin.

        Over regions: one write unit for each of the two in each region, and a read unit; no bins.
        Twice as much if the name was deleted less than about a minute ago. The answer is the
        counter as it was created; others may have changed or deleted it since.

        Args:
            counter: its name; its namespace must be of kind strict or strict-regions, and is
                created if it is new.
            method: `atomic`, `occ`, `history`, `request_token`, `marker` or `set`; fixed.
            lower: the least that its value may be; None for no such bound.
            upper: the most that it may be; None for no such bound.
            opening: its first value, of at most 38 digits, 9 of them after the decimal point.
            bins: over how many items to spread it (`atomic`, `request_token`, `marker`); fixed.
            history: how many changes to remember (`history`); fixed.
            max_tokens: how many changes to take in all (`set`); fixed.
            window_ms: for how long to remember a key (`marker`); fixed.
            regions: create its namespace for counters over regions, if it is new. An existing
                namespace decides by its kind, and must be of that kind if True is given.

        Raises:
            CounterExists: a counter has that name.
            BadSetting: a choice breaks its rule, is for another method, or cannot work over
                regions.
            BadBounds: bounds cross, or the opening value is outside of them.
            WrongKind: its namespace is of another kind.
            WrongRegion: it is not over regions, and this is not the home region.
            StackNotFound: it is over regions, and the stack has no table for that here.
            Unclear: no attempt got a clear answer; show the counter before you call again.
        """
        counter = keys.check_counter(counter)
        new = creation.NewCounter(
            counter,
            method,
            Bounds(lower, upper),
            opening,
            bins=bins,
            history=history,
            max_tokens=max_tokens,
            window_ms=window_ms,
        )
        # An invalid choice must not create a namespace.
        definition = new.definition(self.connection.ids.new_id(self.connection.clock.now_ms()))
        known = self.tables.for_new(definition, regions=regions)
        items = known.connection.run(creation.create(known.connection, new, definition))
        known.keep(definition)
        return created(definition, items)

    def change(
        self,
        counter: str,
        delta: Amount,
        *,
        key: str | IdempotencyKey | None = None,
        prefer: str | None = None,
        known: StrictState | None = None,
        note: Mapping[str, str] | None = None,
    ) -> StrictOutcome:
        """Change a counter, if its bounds allow it. The cost depends on the method.

        Args:
            counter: its name.
            delta: an int or an exact decimal, not zero.
            key: what a retry repeats; the method decides for how long it is recognized.
            prefer: `under` or `over`: which miscount to prefer after a lost answer (`atomic`).
            known: the state that the last change returned; saves a read (`occ`, `history`).
            note: the caller's short texts (`marker` stores them).

        Returns:
            See `outcome`.

        Raises:
            NoSuchCounter: no counter has that name.
            IdempotencyKeyReused: the key came with another delta before.
            KeyExpired, ClockSkew: the key is too old, or dated too far ahead.
            BadInput: another argument breaks its rule, or is for another method.
            Unreachable: nothing was sent.
        """
        change = make_change(
            counter,
            delta,
            key,
            note,
            now_ms=self.connection.clock.now_ms(),
            new_id=self.connection.ids.new_id,
        )

        def applied(
            connection: Connection, definition: Definition, item: Item | None
        ) -> Steps[StrictOutcome]:
            return applying.apply(connection, definition, item, change, prefer=prefer, known=known)

        return self._with_definition(counter, applied)

    def show(self, counter: str) -> StrictCounter:
        """A counter as of one moment: one read unit, with bins two more for each.

        Raises:
            NoSuchCounter: no counter has that name.
        """
        self.tables.of(counter).forget(counter)
        return self._with_definition(counter, read_counter)

    def set_bounds(
        self,
        counter: str,
        *,
        lower: Amount | Keep | None = KEEP,
        upper: Amount | Keep | None = KEEP,
        force: bool = False,
    ) -> StrictCounter:
        """Move bounds while the counter is in use: one write unit, with bins two for each.

        Over regions: one write unit in each region. A counter of many remembered changes costs a
        unit for each KB. A refusal after a request without an answer costs one unit more.

        Args:
            counter: its name.
            lower: the new lower bound; None removes it, `KEEP` leaves it.
            upper: the new upper bound, as `lower`.
            force: accept a bound that the value has already passed: changes towards it are refused
                until the value is back inside. Not with bins.

        Raises:
            BadBounds: they cross; or the value is outside of them and force is not given, or the
                counter has bins.
            NoSuchCounter: no counter has that name.
            Throttled: changes were in the way of every attempt.
        """
        if lower is KEEP and upper is KEEP:
            raise BadSetting("give a lower or an upper bound to set")

        def moved(
            connection: Connection, definition: Definition, _item: Item | None
        ) -> Steps[StrictCounter]:
            after = yield from creation.set_bounds(
                connection, definition, lower, upper, force=force
            )
            try:
                return (yield from read_counter(connection, definition, None))
            except (StaleDefinition, *PASSING):
                # It has moved them: an error of this read must not say that nothing was written.
                return created(
                    definition, [{**encode_definition(definition), **encode_state(after)}]
                )

        return self._with_definition(counter, moved)

    @property
    def transactions(self) -> StrictTransactions:
        """Changes of several counters in one transaction; a counter set exactly to a value.

        Not of counters over regions: their table has no transactions.
        """
        return StrictTransactions(self.connection, self.tables)

    def delete(self, counter: str) -> None:
        """Delete a counter: two write units for each of its items, and a read unit.

        A refusal after a request without an answer costs a write unit and a read unit more.

        Over regions: one write unit for each of its two items in each region. The call deletes the
        incarnation that it reads; one that another process creates meanwhile stays as it is.

        Raises:
            NoSuchCounter, OpenHolds: no counter has that name; some of it is held.
            Refused: it is over regions, and was created less than about 17 minutes ago.
            Unclear: no attempt got a clear answer; show the counter before you call again.
            Throttled: every attempt was refused.
        """
        known = self.tables.of(counter)
        definition, item = known.read(counter)
        check_age(known.connection, definition, item)
        known.forget(counter)
        known.connection.run(creation.delete(known.connection, definition, item))

    def list(
        self, namespace: str, *, on_corrupt: OnCorrupt | None = None
    ) -> Iterator[StrictCounter]:
        """The counters of a namespace by name; half a read unit for each, and for each bin.

        Args:
            namespace: of kind strict or strict-regions.
            on_corrupt: called with the error of each counter that cannot be read, which is left
                out; without it the first one ends the list.

        Raises:
            CorruptItem: a counter cannot be read, and `on_corrupt` is not given.
            NamespaceUnknown: the namespace does not exist.
            WrongKind: it is of another kind.
        """
        namespace = keys.check_namespace(namespace)
        known = self.tables.of(f"{namespace}:x")
        return list_counters(known.connection, namespace, on_corrupt)

    def withdraw(self, counter: str, key: str | IdempotencyKey) -> StrictOutcome:
        """Withdraw a change, or report that it was applied.

        Four write units (`marker`), two (`request_token`, for ten minutes), or one for each KB
        (`set`); and one read unit if the key was used before.

        Returns:
            `Withdrawn`: never applied. `Duplicate`: applied. `Unknown`, `Contended`:
            withdraw it again.

        Raises:
            BadSetting: the counter's method cannot do this.
            KeyExpired, ClockSkew: the key is so old that a change under it may be applied and
                forgotten, or dated too far ahead.
            NoSuchCounter: no counter has that name.
        """
        if not isinstance(key, IdempotencyKey):
            key = check_key(key)

        def withdrawn(
            connection: Connection, definition: Definition, _item: Item | None
        ) -> Steps[StrictOutcome]:
            return applying.withdraw(connection, definition, key)

        return self._with_definition(counter, withdrawn)

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

    def _with_definition(
        self, counter: str, act: Callable[[Connection, Definition, Item | None], Steps[_T]]
    ) -> _T:
        """Act by the counter's definition; again if the counter was recreated meanwhile."""
        counter = keys.check_counter(counter)
        known = self.tables.of(counter)
        for _ in range(_INCARNATIONS):
            definition, item = known.get(counter)
            try:
                return known.connection.run(act(known.connection, definition, item))
            except StaleDefinition:
                known.forget(counter)
        raise Throttled(f"strict counter {counter!r} keeps being recreated: try again later")

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
