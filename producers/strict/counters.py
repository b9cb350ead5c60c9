"""Strict counters: create, change, read, bound, list and delete them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.errors import BadSetting, Throttled
from countledger.ledger.ids import IdempotencyKey, check_key
from countledger.ledger.namespace import Kind, Namespaces
from countledger.producers.strict import bounds, creation, methods
from countledger.producers.strict.change import make_change
from countledger.producers.strict.definition import StaleDefinition
from countledger.producers.strict.holds import HoldCalls
from countledger.producers.strict.known import ONE_REGION, Definitions, KnownPlacement
from countledger.producers.strict.reader import StrictCounter, list_counters, read_counter
from countledger.producers.strict.state import KEEP, Bounds, Keep
from countledger.producers.strict.transaction import StrictTransactions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeVar

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Steps
    from countledger.ledger.attributes import Item, OnCorrupt
    from countledger.producers.strict.context import MethodContext
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.outcome import StrictOutcome
    from countledger.producers.strict.state import StrictState

    _T = TypeVar("_T")

# How often a counter may be recreated during one call.
_INCARNATIONS: Final = 3


@dataclass(frozen=True, slots=True)
class StrictCounters(HoldCalls):
    """The strict counters of a stack. Safe to share between threads.

    Attributes:
        context: clients, table, clock and randomness.
        namespaces: the kind of each namespace.
        region: where this process works.
        home_region: where strict counters work.
    """

    context: MethodContext
    namespaces: Namespaces
    region: str
    home_region: str
    _definitions: Definitions = field(init=False, repr=False)
    _placement: KnownPlacement = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Nothing known yet."""
        object.__setattr__(self, "_definitions", Definitions(self.context))
        object.__setattr__(self, "_placement", KnownPlacement(self.context))

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
        """Create a counter: two write units for it, two for its list entry, two for each bin.

        On a table with multi-region strong consistency: one write unit for each, no bins.

        Args:
            counter: its name; its namespace must be of kind strict; created if it is new.
            method: `atomic`, `occ`, `history`, `crt`, `marker` or `set`; fixed.
            lower: the least that its value may be; None for no such bound.
            upper: the most that it may be; None for no such bound.
            opening: its first value.
            bins: over how many items to spread it (`atomic`, `crt`, `marker`); fixed.
            history: how many changes to remember (`history`); fixed.
            max_tokens: how many changes to take in all (`set`); fixed.
            window_ms: for how long to remember a key (`marker`); fixed.

        Raises:
            CounterExists: a counter has that name.
            BadSetting: a choice breaks its rule, is for another method, or needs what the table
                does not support.
            BadBounds: bounds cross, or the opening value is outside of them.
            WrongKind: its namespace is of another kind.
            WrongRegion: not the home region (nor one of a table of multi-region consistency).
        """
        self._refuse_elsewhere(counter)
        new = creation.NewCounter(
            keys.check_counter(counter),
            method,
            Bounds(lower, upper),
            opening,
            bins=bins,
            history=history,
            max_tokens=max_tokens,
            window_ms=window_ms,
        )
        # An invalid choice must not create a namespace.
        definition = new.definition(self.context.new_id(self.context.clock.now_ms()))
        placement = self._placement.get()
        placement.check_definition(definition)
        self.namespaces.for_use(counter, Kind.STRICT)
        self.context.run(creation.create(self.context, new, definition, placement))
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
            now_ms=self.context.clock.now_ms(),
            new_id=self.context.new_id,
        )

        def applied(definition: Definition, item: Item | None) -> Steps[StrictOutcome]:
            return methods.apply(self.context, definition, item, change, prefer=prefer, known=known)

        return self._with_definition(counter, applied)

    def show(self, counter: str) -> StrictCounter:
        """A counter as of one moment: one read unit, with bins two more for each.

        Raises:
            NoSuchCounter: no counter has that name.
        """

        def shown(definition: Definition, item: Item | None) -> Steps[StrictCounter]:
            return read_counter(self.context, definition, item)

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

        def moved(definition: Definition, _item: Item | None) -> Steps[StrictCounter]:
            placement = self._placement.get()
            yield from bounds.set_bounds(
                self.context, definition, lower, upper, force=force, placement=placement
            )
            return (yield from read_counter(self.context, definition, None))

        return self._with_definition(counter, moved)

    @property
    def transactions(self) -> StrictTransactions:
        """Changes of several counters in one transaction; a counter set exactly to a value."""
        return StrictTransactions(
            self.context,
            self.namespaces,
            self._definitions,
            self._placement,
            self.region,
            self.home_region,
        )

    def delete(self, counter: str) -> None:
        """Delete a counter: two write units for each of its items, and a read unit.

        The call deletes the incarnation that it reads. If another process deletes that one
        meanwhile and recreates the counter, the new incarnation stays as it is.

        Raises:
            NoSuchCounter, OpenHolds: no counter has that name; some of it is held.
            Unclear: no attempt got a clear answer; show the counter before you call again.
            Throttled: every attempt was refused.
        """
        self._refuse_elsewhere(counter)
        self.namespaces.expect(keys.check_counter(counter), Kind.STRICT)
        definition, _ = self._definitions.read(counter)
        self._definitions.forget(counter)
        placement = self._placement.get()
        self.context.run(creation.delete(self.context, definition, placement))

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
            NamespaceUnknown: the namespace does not exist.
            WrongKind: it is of another kind.
        """
        self._refuse_elsewhere(namespace)
        self.namespaces.expect(f"{keys.check_namespace(namespace)}:x", Kind.STRICT)
        return list_counters(self.context, namespace, on_corrupt)

    def withdraw(self, counter: str, key: str | IdempotencyKey) -> StrictOutcome:
        """Withdraw a change, or report that it was applied.

        Four write units (`marker`), two (`crt`, for ten minutes), or one for each KB (`set`);
        and one read unit if the key was used before.

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
            check_key(key)

        def withdrawn(definition: Definition, _item: Item | None) -> Steps[StrictOutcome]:
            return methods.withdraw(self.context, definition, key)

        return self._with_definition(counter, withdrawn)

    def _with_definition(
        self, counter: str, act: Callable[[Definition, Item | None], Steps[_T]]
    ) -> _T:
        """Act by the counter's definition; again if the counter was recreated meanwhile."""
        self._refuse_elsewhere(counter)
        self.namespaces.expect(keys.check_counter(counter), Kind.STRICT)
        for _ in range(_INCARNATIONS):
            definition, item = self._definitions.get(counter)
            try:
                return self.context.run(act(definition, item))
            except StaleDefinition:
                self._definitions.forget(counter)
        raise Throttled(f"strict counter {counter!r} keeps being recreated: try again later")

    def _refuse_elsewhere(self, what: str) -> None:
        # In the home region the table's description is not needed.
        placement = ONE_REGION if self.region == self.home_region else self._placement.get()
        placement.check_region(what, self.region, self.home_region)
