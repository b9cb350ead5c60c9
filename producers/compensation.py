"""Setting a ledger counter to a value: one compensating entry under a key.

The entry carries the difference between the value and the exact sum at that time, and says in its
note which value was set. So the ledger stays a log of changes: nothing is overwritten, and what
others record meanwhile is kept and counts as well. A retry finds the entry by its key and does not
compute the difference again, because the sum may have changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from countledger.ledger import amount, keys
from countledger.ledger.attributes import require_amount
from countledger.ledger.entry import check_note
from countledger.ledger.errors import BadDelta, BadNote, IdempotencyKeyReused
from countledger.ledger.ids import IdempotencyKey, check_key, id_of_key
from countledger.ledger.namespace import Kind
from countledger.producers.event import Event, Status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item
    from countledger.ledger.exact import ExactReader
    from countledger.producers.recorder import Recorder

# The name in an entry's note of the value that the counter is set to.
_NOTE: Final = "set"


class Became(StrEnum):
    """The result of a call that sets a counter."""

    RECORDED = "recorded"
    DUPLICATE = "duplicate"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Correction:
    """How a ledger counter was brought to a value.

    Attributes:
        counter: its name.
        value: what it was set to.
        delta: what the compensating entry adds; 0 where none was needed.
        became: `recorded` by this call, `duplicate` of one recorded before under this key, or
        `unchanged`: the sum was that value already; then the key is not stored.
    """

    counter: str
    value: Amount
    delta: Amount
    became: Became


@dataclass(frozen=True, slots=True)
class Compensator:
    """Sets ledger counters to values.

    Attributes:
        recorder: records the compensating entries.
        exact: reads what they are to compensate.
    """

    recorder: Recorder
    exact: ExactReader

    def set_value(
        self,
        counter: str,
        value: Amount,
        key: str | IdempotencyKey,
        note: Mapping[str, str] | None,
    ) -> Correction:
        """Bring a counter to a value: a write unit, an exact read, and a read unit for the key.

        Raises:
            IdempotencyKeyReused: the key was used for another value, or another entry.
            Unacknowledged: no clear answer came; repeat it with the same key.
            BadInput: an argument breaks its rule; nothing was written.
        """
        wanted = amount.check_exact("value", value, BadDelta)
        counter = keys.check_counter(counter)
        if not isinstance(key, IdempotencyKey):
            key = check_key(key)
        noted = check_note(note or {})
        if _NOTE in noted:
            raise BadNote(
                f"the note's name {_NOTE!r} is reserved for the value that the call sets: "
                "take another name"
            )
        there = self._there(counter, key)
        if there is not None:
            return _judged(counter, wanted, there)
        delta = amount.add(wanted, amount.negated(self.exact.read(counter).value))
        if delta == 0:
            return Correction(counter, wanted, 0, Became.UNCHANGED)
        if not amount.may_be_added(delta):
            raise BadDelta(
                f"counter {counter!r} cannot be set to {amount.to_text(wanted)} by one entry: the "
                f"difference from its exact sum, {amount.short(delta)}, {amount.TOO_LONG}; record "
                "it as several changes"
            )
        event = Event(counter, delta, key, note={**noted, _NOTE: amount.to_text(wanted)})
        try:
            receipt = self.recorder.record(event)
        except IdempotencyKeyReused:
            # Another call with the same key was faster, and read another sum.
            there = self._there(counter, key)
            if there is None:
                raise
            return _judged(counter, wanted, there)
        recorded = receipt.status is Status.RECORDED
        became = Became.RECORDED if recorded else Became.DUPLICATE
        return Correction(counter, wanted, delta, became)

    def _there(self, counter: str, key: str | IdempotencyKey) -> Item | None:
        """The entry under the key, if there is one: one read unit."""
        spread = self.recorder.sender.namespaces.for_use(counter, Kind.LEDGER).spread
        entry = {"counter": counter, "entry": keys.entry_key(id_of_key(key), spread)}
        return self.exact.dynamo.get(self.exact.table, entry, consistent=True)


def _judged(counter: str, wanted: Amount, there: Item) -> Correction:
    """The outcome when an entry with this key exists."""
    was = (there.get("note") or {}).get(_NOTE)
    if was != amount.to_text(wanted):
        used = "another entry" if was is None else f"setting it to {was}"
        raise IdempotencyKeyReused(
            f"idempotency key {there.get('key')!r} of counter {counter!r} was used for {used}, and "
            f"now comes to set it to {amount.to_text(wanted)}: give another call another key"
        )
    return Correction(counter, wanted, require_amount(there, "delta"), Became.DUPLICATE)
