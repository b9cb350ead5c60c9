"""Strict counters: make, change, read, bound, list and delete them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.errors import BadSetting, Throttled
from countledger.ledger.ids import IdempotencyKey, check_key
from countledger.ledger.namespace import Kind, Namespaces
from countledger.producers.strict import creator, dispatch
from countledger.producers.strict.bounds import KEEP, Bounds, Keep
from countledger.producers.strict.change import make_change
from countledger.producers.strict.context import MethodContext, StaleDefinition
from countledger.producers.strict.definitions import Definitions
from countledger.producers.strict.placement import ONE_REGION, Placed
from countledger.producers.strict.reader import StrictCounter, list_counters, read_counter
from countledger.producers.strict.transaction import StrictTransactions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeVar

    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item, OnCorrupt
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.outcome import StrictOutcome
    from countledger.producers.strict.state import StrictState

    _T = TypeVar("_T")

# How often a counter may be made again under the hands of one call.
_MAKINGS: Final = 3


@dataclass(frozen=True, slots=True)
class StrictCounters:
    """The strict counters of a stack. Safe to share between threads.

    Attributes:
        context: clients, table, clock and randomness.
        namespaces: tell which namespace is of kind strict.
        region: where this process works.
        home_region: where strict counters live.
    """

    context: MethodContext
    namespaces: Namespaces
    region: str
    home_region: str
    _definitions: Definitions = field(init=False, repr=False)
    _placed: Placed = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Nothing known yet."""
        object.__setattr__(self, "_definitions", Definitions(self.context))
        object.__setattr__(self, "_placed", Placed(self.context))

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
    ) -> StrictCounter:
        """Make a counter: two write units for it, two for its place in the list, two for each bin.

        On a table with multi-region strong consistency one write unit for it and one for its place.

        Args:
            counter: its name; its namespace must be of kind strict, and is made so if it is new.
            method: `atomic`, `occ`, `history`, `crt`, `marker` or `set`; fixed.
            lower: the least that its value may be; None for no such bound.
            upper: the most that it may be; None for no such bound.
            opening: its first value.
            bins: over how many items to spread it (`atomic`, `crt`, `marker`); fixed.
            history: how many changes to remember (`history`); fixed.
            max_tokens: how many changes to take in all (`set`); fixed.
            window_ms: for how long to remember a key (`marker`); fixed.

        Raises:
            CounterExists: there is one of that name.
            BadSetting: a choice breaks its rule, is for another method, or needs what the table
                does not have.
            BadBounds: bounds cross, or the opening value lies outside of them.
            WrongKind: its namespace is of another kind.
            WrongRegion: this is not the home region (nor a region of a table whose consistency
                spans several).
        """
        self._refuse_elsewhere(counter)
        order = creator.NewCounter(
            keys.check_counter(counter),
            method,
            Bounds(lower, upper),
            opening,
            bins=bins,
            history=history,
            max_tokens=max_tokens,
            window_ms=window_ms,
        )
        # What is wrong with the order must not leave a namespace behind.
        definition = order.definition("unmade")
        placement = self._placed.get()
        placement.check_definition(definition)
        self.namespaces.for_use(counter, Kind.STRICT)
        creator.create(self.context, order, placement)
        self._definitions.forget(counter)
        return self.show(counter)

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
        """StrictChange a counter, if its bounds allow it. What that costs is its method's matter.

        Args:
            counter: its name.
            delta: an int or an exact decimal, not zero.
            key: what a retry repeats; for how long it is recognised is its method's matter.
            prefer: `under` or `over`: which miscount to risk after a lost answer (`atomic`).
            known: the state that the last change answered with; saves a read (`occ`, `history`).
            note: own short texts (`marker` keeps them).

        Returns:
            What became of it (see `outcome`).

        Raises:
            NoSuchCounter: there is none of that name.
            IdempotencyKeyReused: the key came with another delta before.
            KeyExpired, ClockSkew: the key's time lies too far back, or ahead.
            BadInput: another argument breaks its rule, or is for another method.
            Unreachable: nothing was sent.
        """
        change = make_change(
            counter,
            delta,
            key,
            note,
            now_ms=self.context.clock.now_ms(),
            new_id=self.context.new_id,
        )

        def carried_out(definition: Definition, item: Item | None) -> StrictOutcome:
            return dispatch.carry_out(
                self.context, definition, item, change, prefer=prefer, known=known
            )

        return self._with_definition(counter, carried_out)

    def show(self, counter: str) -> StrictCounter:
        """A counter as of one moment: one read unit, with bins two more for each.

        Raises:
            NoSuchCounter: there is none of that name.
        """

        def shown(definition: Definition, item: Item | None) -> StrictCounter:
            main = self.context.read(definition.main) if item is None else item
            return read_counter(self.context, definition, main)

        self._definitions.forget(counter)
        return self._with_definition(counter, shown)

    def set_bounds(
        self,
        counter: str,
        *,
        lower: Amount | Keep | None = KEEP,
        upper: Amount | Keep | None = KEEP,
        force: bool = False,
    ) -> StrictCounter:
        """Move bounds while the counter is in use: two write units, with bins two for each.

        Args:
            counter: its name.
            lower: the new lower bound; None takes it away, `KEEP` leaves it.
            upper: the new upper bound, likewise.
            force: accept a bound that the value has passed already: changes towards it are refused
                until the value is back inside. Not with bins.

        Raises:
            BadBounds: they cross; or the value lies outside of them and force is not given, or
                there are bins.
            NoSuchCounter: there is none of that name.
            Throttled: changes were in the way of every attempt.
        """
        if lower is KEEP and upper is KEEP:
            raise BadSetting("give a lower or an upper bound to set")

        def rebound(definition: Definition, _item: Item | None) -> StrictCounter:
            placement = self._placed.get()
            creator.set_bounds(
                self.context, definition, lower, upper, force=force, placement=placement
            )
            return read_counter(self.context, definition, self.context.read(definition.main))

        return self._with_definition(counter, rebound)

    @property
    def transactions(self) -> StrictTransactions:
        """Several counters in one transaction, under one key; a counter set to a value exactly."""
        return StrictTransactions(
            self.context,
            self.namespaces,
            self._definitions,
            self._placed,
            self.region,
            self.home_region,
        )

    def delete(self, counter: str) -> None:
        """Delete a counter: two write units for each of its items, and a read unit.

        The incarnation is deleted that has the name when the call reads it. If somebody deletes it
        meanwhile, and makes a counter of that name again, the new one is left as it is.

        Raises:
            NoSuchCounter: there is none of that name.
            Unclear: no attempt got a clear answer; look at it.
            Throttled: every attempt was refused.
        """
        self._refuse_elsewhere(counter)
        self.namespaces.expect(keys.check_counter(counter), Kind.STRICT)
        definition, _ = self._definitions.read(counter)
        self._definitions.forget(counter)
        creator.delete(self.context, definition, self._placed.get())

    def list(
        self, namespace: str, *, on_corrupt: OnCorrupt | None = None
    ) -> Iterator[StrictCounter]:
        """The counters of a namespace by name; half a read unit for each, and for each bin.

        Args:
            namespace: of kind strict.
            on_corrupt: called with the error of each counter that cannot be read, which is left
                out; without it the first one ends the list.

        Raises:
            CorruptItem: a counter cannot be read, and `on_corrupt` is not given.
            NamespaceUnknown: there is no such namespace.
            WrongKind: it is of another kind.
        """
        self._refuse_elsewhere(namespace)
        self.namespaces.expect(f"{keys.check_namespace(namespace)}:x", Kind.STRICT)
        return list_counters(self.context, namespace, on_corrupt)

    def withdraw(self, counter: str, key: str | IdempotencyKey) -> StrictOutcome:
        """Make sure that a change is not in and never will be, or learn that it is.

        Four write units (`marker`), two (`crt`, for ten minutes), or one for each KB (`set`);
        and one read unit where the key was used before.

        Returns:
            `Withdrawn`: not in, for good. `Duplicate`: it is in. `Unknown`, `Contended`: ask again.

        Raises:
            BadSetting: the counter's method cannot do this.
            KeyExpired, ClockSkew: the key's time lies so far back that a change under it may be in
                and forgotten, or ahead.
            NoSuchCounter: there is none of that name.
        """
        if not isinstance(key, IdempotencyKey):
            check_key(key)

        def withdrawn(definition: Definition, _item: Item | None) -> StrictOutcome:
            return dispatch.withdraw(self.context, definition, key)

        return self._with_definition(counter, withdrawn)

    def _with_definition(self, counter: str, act: Callable[[Definition, Item | None], _T]) -> _T:
        """Act on a counter as it was made; again if it was recreated meanwhile."""
        self._refuse_elsewhere(counter)
        self.namespaces.expect(keys.check_counter(counter), Kind.STRICT)
        for _ in range(_MAKINGS):
            definition, item = self._definitions.get(counter)
            try:
                return act(definition, item)
            except StaleDefinition:
                self._definitions.forget(counter)
        raise Throttled(f"strict counter {counter!r} is being deleted and recreated all the time")

    def _refuse_elsewhere(self, what: str) -> None:
        # At home the table need not be asked.
        placement = ONE_REGION if self.region == self.home_region else self._placed.get()
        placement.check_region(what, self.region, self.home_region)
