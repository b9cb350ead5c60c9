"""Several strict counters at once, under one key: transfer, change together, set to a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.amount import parse_delta
from countledger.ledger.entry import check_note
from countledger.ledger.errors import BadBounds, BadDelta, BadSetting, Throttled
from countledger.ledger.ids import IdempotencyKey, check_key, id_of_key
from countledger.ledger.namespace import Kind
from countledger.producers.strict import exact_value, keyed_write, multi_update
from countledger.producers.strict.bounds import check_amount
from countledger.producers.strict.context import PASSING, StaleDefinition
from countledger.producers.strict.incarnations import check_counters
from countledger.producers.strict.keyed_write import KeyedRequest, KeyedWrite
from countledger.producers.strict.outcome import Duplicate, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.namespace import Namespaces
    from countledger.producers.strict.context import MethodContext
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.definitions import Definitions
    from countledger.producers.strict.outcome import StrictOutcome
    from countledger.producers.strict.placement import Placed

# How often counters may be made again under the hands of one call.
_MAKINGS = 3


@dataclass(frozen=True, slots=True)
class StrictTransactions:
    """Strict counters changed in one transaction, under one key: all or none.

    The key stands for all of it together and is remembered for a day, whatever the counters'
    methods are: the same key and the same changes again answer `Duplicate`.

    Attributes:
        context: clients, table, clock and randomness.
        namespaces: tell which namespace is of kind strict.
        definitions: of the counters.
        placed: where the table lies.
        region: where this process works.
        home_region: where strict counters live.
    """

    context: MethodContext
    namespaces: Namespaces
    definitions: Definitions
    placed: Placed
    region: str
    home_region: str

    def change(
        self,
        changes: Mapping[str, Amount],
        *,
        key: str | IdempotencyKey,
        note: Mapping[str, str] | None = None,
    ) -> StrictOutcome:
        """StrictChange up to 99 counters: two write units each, and two for each KB of the marker.

        A counter with bins may need to be split: two write units for each further bin, and two read
        units for each of its bins. A refusal costs the same, and a read unit.

        Args:
            changes: what to add to which counter; none of method set.
            key: what a retry repeats, remembered for a day.
            note: own short texts, kept with the key.

        Returns:
            `Applied`, `Duplicate`: all of them are in. `BoundReached`: none is, and this counter
            has refused. `Withdrawn`, `Contended`: none is. `Unknown`: ask again with the same key.

        Raises:
            TooManyCounters: one transaction does not take so many.
            NoSuchCounter: one of them does not exist.
            IdempotencyKeyReused: the key was used for something else, or before one of the
                counters was deleted and recreated.
            KeyExpired, ClockSkew: the key's time lies too far back, or ahead.
            BadInput: another argument breaks its rule, or a counter takes no part in this.
        """
        multi_update.check_number(changes)
        exact = {keys.check_counter(one): parse_delta(delta) for one, delta in changes.items()}
        request = self._request(tuple(exact), {"changes": exact}, key, note)

        def changed(definitions: Sequence[Definition]) -> StrictOutcome:
            legs = multi_update.legs_of(definitions, exact, self.context.random)
            sending = KeyedWrite.begin(self.context, request, definitions)
            return multi_update.carry_out(self.context, legs, sending)

        return self._with_definitions(request.counters, changed)

    def transfer(
        self,
        source: str,
        target: str,
        amount: Amount,
        *,
        key: str | IdempotencyKey,
        note: Mapping[str, str] | None = None,
    ) -> StrictOutcome:
        """Move an amount from one counter to another, or nothing. Six write units, as `change`.

        Args:
            source: the counter that gives.
            target: the counter that gets.
            amount: how much, more than zero.
            key: what a retry repeats, remembered for a day.
            note: own short texts, kept with the key.

        Returns:
            As `change`.

        Raises:
            BadDelta: the amount is not above zero.
            BadInput: as `change`.
        """
        moved = parse_delta(amount)
        if moved < 0:
            raise BadDelta(f"amount {moved} is below zero: transfer it the other way round")
        return self.change(multi_update.transfer_of(source, target, moved), key=key, note=note)

    def set_value(
        self,
        counter: str,
        value: Amount,
        *,
        key: str | IdempotencyKey,
        note: Mapping[str, str] | None = None,
    ) -> StrictOutcome:
        """Set a counter to a value exactly: four write units and a read unit.

        With bins two write units for each and two for the marker, and two read units for each. A
        counter of many remembered changes costs two write units for each KB.

        Args:
            counter: its name.
            value: what it is at that moment; later changes count from there.
            key: what a retry repeats, remembered for a day.
            note: own short texts, kept with the key.

        Returns:
            `Applied`, `Duplicate`: it was set. `BoundReached`: the value lies outside of the
            bounds. `Contended`: others were always faster. `Unknown`: ask again with the same key.

        Raises:
            NoSuchCounter: there is none of that name.
            BadInput: as `change`.
        """
        exact = check_amount("value", value)
        if exact is None:
            raise BadBounds("a value of None: give a number")
        facts = {"set": {keys.check_counter(counter): exact}}
        request = self._request((counter,), facts, key, note, exact)

        def assigned(definitions: Sequence[Definition]) -> StrictOutcome:
            sending = KeyedWrite.begin(self.context, request, definitions)
            return exact_value.carry_out(self.context, definitions[0], exact, sending)

        return self._with_definitions((counter,), assigned)

    def withdraw(self, key: str | IdempotencyKey) -> StrictOutcome:
        """Make sure that nothing under a key is in and never will be, or learn that it is.

        For a day, as long as a key is remembered. One write unit; a read unit for the marker and
        one for each counter where the key was used.

        Returns:
            `Withdrawn`: not in. `Duplicate`: it is in. `Unknown`, `Contended`: ask again.

        Raises:
            KeyExpired, ClockSkew: the key's time lies so far back that changes under it may be in
                and forgotten, or ahead.
            IdempotencyKeyReused: it is in, but one of the counters was deleted or recreated,
                since.
        """
        self._refuse_elsewhere("a key of several changes")
        if not isinstance(key, IdempotencyKey):
            check_key(key)
        until_ms = keyed_write.remembered_until(self.context, key, "several changes")
        change_id, what = id_of_key(key), "(all under this key)"
        outcome = keyed_write.withdraw(self.context, change_id, what, until_ms)
        if isinstance(outcome, Duplicate):
            text = key.key if isinstance(key, IdempotencyKey) else key
            try:
                check_counters(self.context, change_id, text)
            except PASSING:
                return Unknown(what, "it could not be read whether it is in: ask again")
        return outcome

    def _request(
        self,
        counters: tuple[str, ...],
        facts: Mapping[str, Mapping[str, Amount]],
        key: str | IdempotencyKey,
        note: Mapping[str, str] | None,
        value: Amount | None = None,
    ) -> KeyedRequest:
        if not isinstance(key, IdempotencyKey):
            check_key(key)
        noted = None if note is None else check_note(note)
        return KeyedRequest(counters, facts, key, self.context.clock.now_ms(), noted, value)

    def _with_definitions(
        self, counters: Sequence[str], act: Callable[[Sequence[Definition]], StrictOutcome]
    ) -> StrictOutcome:
        """Act on counters as they were made; again if one was recreated meanwhile."""
        self._refuse_elsewhere(", ".join(counters))
        for counter in counters:
            self.namespaces.expect(counter, Kind.STRICT)
        for _ in range(_MAKINGS):
            definitions = [self.definitions.get(counter)[0] for counter in counters]
            try:
                return act(definitions)
            except StaleDefinition:
                for counter in counters:
                    self.definitions.forget(counter)
        raise Throttled(f"of {', '.join(counters)}, one is being deleted and recreated all along")

    def _refuse_elsewhere(self, what: str) -> None:
        placement = self.placed.get()
        placement.check_region(what, self.region, self.home_region)
        if placement.strong:
            raise BadSetting(
                f"{what}: the table has multi-region strong consistency and takes no transactions: "
                "change each counter by itself"
            )
