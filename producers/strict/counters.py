"""Strict counters: create, change, read, bound, list and delete them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.errors import BadSetting, Throttled
from countledger.ledger.ids import IdempotencyKey, check_key
from countledger.producers.strict import applying, creation
from countledger.producers.strict.change import make_change
from countledger.producers.strict.definition import (
    KEEP,
    Bounds,
    Keep,
    StaleDefinition,
    encode_definition,
    encode_state,
)
from countledger.producers.strict.holds import HoldCalls
from countledger.producers.strict.reader import (
    StrictCounter,
    StrictTables,
    check_age,
    created,
    list_counters,
    read_counter,
)
from countledger.producers.strict.transaction import StrictTransactions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeVar

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Steps
    from countledger.ledger.attributes import Item, OnCorrupt
    from countledger.ledger.connection import Connection
    from countledger.producers.strict.definition import Definition, StrictState
    from countledger.producers.strict.outcome import StrictOutcome

    _T = TypeVar("_T")

# How often a counter may be recreated during one call.
_INCARNATIONS: Final = 3


@dataclass(frozen=True, slots=True)
class StrictCounters(HoldCalls):
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
            except StaleDefinition:
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
