"""Several strict counters in one transaction, under one key: change, transfer, set to a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.amount import parse_delta
from countledger.ledger.attempts import PASSING
from countledger.ledger.entry import check_note
from countledger.ledger.errors import BadBounds, BadDelta, Throttled
from countledger.ledger.ids import IdempotencyKey, check_key, id_of_key
from countledger.producers.strict import multi_update
from countledger.producers.strict.change import KeyedRequest, remembered_until
from countledger.producers.strict.definition import StaleDefinition, check_amount
from countledger.producers.strict.multi_update import ExactWrite, KeyedWrite
from countledger.producers.strict.outcome import Duplicate, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Steps
    from countledger.ledger.connection import Connection
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.outcome import StrictOutcome
    from countledger.producers.strict.reader import StrictTables

# How often counters may be recreated during one call.
_INCARNATIONS: Final = 3


@dataclass(frozen=True, slots=True)
class StrictTransactions:
    """Strict counters changed in one transaction, under one key: all or none.

    The key stands for all changes together and is remembered for a day, whatever the counters'
    methods are: the same key with the same changes returns `Duplicate`.
    """

    connection: Connection
    tables: StrictTables

    def change(
        self,
        changes: Mapping[str, Amount],
        *,
        key: str | IdempotencyKey,
        note: Mapping[str, str] | None = None,
    ) -> StrictOutcome:
        """Change up to 99 counters: two write units each, and two for each KB of the marker.

        A counter with bins may need to be split: two write units for each further bin, and two read
        units for each of its bins. A refusal costs the same, and a read unit.

        Args:
            changes: what to add to which counter; none of method set.
            key: what a retry repeats, remembered for a day.
            note: own short texts, kept with the key.

        Returns:
            `Applied`, `Duplicate`: all of them are applied. `BoundReached`: none is, and this
            counter refused. `Withdrawn`, `Contended`: none is. `Unknown`: repeat it with the same
            key.

        Raises:
            TooManyCounters: one transaction does not take so many.
            NoSuchCounter: one of them does not exist.
            IdempotencyKeyReused: the key was used for something else, or before one of the
                counters was deleted and recreated.
            KeyExpired, ClockSkew: the key is too old, or dated too far ahead.
            BadInput: another argument breaks its rule, or a counter takes no part in this.
        """
        multi_update.check_number(changes)
        exact = {keys.check_counter(one): parse_delta(delta) for one, delta in changes.items()}
        request = self._request(tuple(exact), {"changes": exact}, key, note)

        def changed(definitions: Sequence[Definition]) -> Steps[StrictOutcome]:
            legs = multi_update.legs_of(definitions, exact, self.connection.random)
            write = KeyedWrite.begin(self.connection, request, definitions)
            return multi_update.apply_legs(self.connection, legs, write)

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
            raise BadDelta(f"amount {moved} is below zero: swap source and target")
        source, target = keys.check_counter(source), keys.check_counter(target)
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
            value: the value at that moment; later changes count from there.
            key: what a retry repeats, remembered for a day.
            note: own short texts, kept with the key.

        Returns:
            `Applied`, `Duplicate`: it was set. `BoundReached`: the value is outside of the bounds.
            `Contended`: others were always faster. `Unknown`: repeat it with the same key.

        Raises:
            NoSuchCounter: no counter has that name.
            BadInput: as `change`.
        """
        exact = check_amount("value", value)
        if exact is None:
            raise BadBounds("a value of None: give a number")
        counter = keys.check_counter(counter)
        facts = {"set": {counter: exact}}
        request = self._request((counter,), facts, key, note, exact)

        def assigned(definitions: Sequence[Definition]) -> Steps[StrictOutcome]:
            write = KeyedWrite.begin(self.connection, request, definitions)
            return ExactWrite(definitions[0], exact, write).apply()

        return self._with_definitions((counter,), assigned)

    def withdraw(self, key: str | IdempotencyKey) -> StrictOutcome:
        """Withdraw all changes under a key, or report that they were applied.

        For a day, as long as a key is remembered. One write unit; a read unit for the marker and
        one for each counter if the key was used.

        Returns:
            `Withdrawn`: not applied. `Duplicate`: applied. `Unknown`, `Contended`: withdraw again.

        Raises:
            KeyExpired, ClockSkew: the key is so old that changes under it may be applied and
                forgotten, or dated too far ahead.
            IdempotencyKeyReused: they are applied, but one of the counters was deleted or recreated
                since.
        """
        self.tables.at_home("a key of several changes")
        if not isinstance(key, IdempotencyKey):
            key = check_key(key)
        until_ms = remembered_until(self.connection, key, multi_update.WINDOW_MS, "several changes")
        return self.connection.run(self._withdrawing(key, until_ms))

    def _withdrawing(self, key: str | IdempotencyKey, until_ms: int | None) -> Steps[StrictOutcome]:
        change_id, what = id_of_key(key), "(all under this key)"
        outcome = yield from multi_update.withdraw(self.connection, change_id, what, until_ms)
        if isinstance(outcome, Duplicate):
            text = key.key if isinstance(key, IdempotencyKey) else key
            try:
                yield from multi_update.check_counters(self.connection, change_id, text)
            except PASSING:
                return Unknown(what, "the marker of the key could not be read: withdraw it again")
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
            key = check_key(key)
        noted = None if note is None else check_note(note)
        return KeyedRequest(counters, facts, key, self.connection.clock.now_ms(), noted, value)

    def _with_definitions(
        self, counters: Sequence[str], act: Callable[[Sequence[Definition]], Steps[StrictOutcome]]
    ) -> StrictOutcome:
        """Act by the counters' definitions; again if one was recreated meanwhile."""
        known = self.tables.together(counters)
        for _ in range(_INCARNATIONS):
            definitions = [known.get(counter)[0] for counter in counters]
            try:
                return self.connection.run(act(definitions))
            except StaleDefinition:
                for counter in counters:
                    known.forget(counter)
        raise Throttled(f"one of {', '.join(counters)} keeps being recreated: try again later")
