"""Reading strict counters: one as of one moment, or all of a namespace."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from countledger.ledger import amount, keys
from countledger.ledger.attempts import Done, Reply, Send, attempt, otherwise
from countledger.ledger.attributes import decoded, optional_time
from countledger.ledger.clock import Backoff, to_datetime
from countledger.ledger.errors import CorruptItem, CountledgerError, Throttled
from countledger.ledger.operations import Compare, Get, Query, TransactGet
from countledger.ledger.tombstones import removed_id
from countledger.producers.strict.change import refusal
from countledger.producers.strict.definition import (
    Definition,
    Method,
    StrictState,
    decode_definition,
    decode_state,
    split,
    whole_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Exhausted, Steps, Verdict
    from countledger.ledger.attributes import Item, OnCorrupt
    from countledger.producers.strict.change import MethodContext
    from countledger.producers.strict.definition import Part
    from countledger.producers.strict.outcome import BoundReached

_READS: Final = Backoff(attempts=10, base_ms=10, cap_ms=500)
_KB: Final = 1_024
_UNITS_EACH_KB: Final = {Method.REQUEST_TOKEN: 2, Method.MARKER: 2}
_UNITS_OF_A_MARKER: Final = 2


@dataclass(frozen=True, slots=True)
class StrictCounter:
    """A strict counter as it was created and as it is.

    Attributes:
        counter: its name.
        method: how changes are written.
        value: its current value.
        lower: the least that the value may be, or None.
        upper: the most that the value may be, or None.
        version: grows with every write.
        bins: over how many items it is spread; 1 = only its own.
        history: how many changes it remembers (`history`), or None.
        max_tokens: how many changes it takes in its life (`set`), or None.
        remembered: how many changes its item holds (`occ`, `history`, `set`).
        window_ms: for how long a key is remembered (`marker`), or None.
        updated_at: when it was last changed; method `request_token` cannot store that.
        held: what open holds reserve of the value, also those that are over but not released yet.
        write_units: what one change costs now. A marker with a long key or a note costs more, and a
            split over bins two units more for each further one.
    """

    counter: str
    method: Method
    value: Amount
    lower: Amount | None
    upper: Amount | None
    version: int
    bins: int
    history: int | None
    max_tokens: int | None
    remembered: int
    window_ms: int | None
    updated_at: datetime | None
    write_units: int
    held: Amount = 0

    @property
    def available(self) -> Amount:
        """The value without what is held."""
        return amount.add(self.value, amount.negated(self.held))


def read_of(context: MethodContext, definition: Definition) -> Get | TransactGet:
    """The read of the items that hold the value, as of one moment.

    One read unit for each 4 KB of the one item; with bins two read units each.
    """
    if definition.bins == 1:
        return Get(context.table, definition.main)
    return TransactGet(context.table, definition.places)


def states_of(
    definition: Definition, answer: Item | Sequence[Item | None] | None
) -> list[StrictState]:
    """The states in the answer to `read_of`.

    Raises:
        StaleDefinition: an item is gone, or belongs to another incarnation of the counter.
    """
    items = [answer] if answer is None or isinstance(answer, dict) else answer
    return [decode_state(definition.expect(item)) for item in items]


def read_bins(context: MethodContext, definition: Definition) -> Steps[list[Item]]:
    """The bins as of one moment, as they are stored: two read units each.

    Raises:
        StaleDefinition: one is gone, or belongs to another incarnation of the counter.
        Throttled: no attempt succeeded, because of writes to the bins or other errors.
    """

    def interpret(reply: Reply[None]) -> Verdict[None, list[Item]]:
        if isinstance(reply.answer, CountledgerError):
            return otherwise(reply)
        return Done([definition.expect(item) for item in reply.answer])

    def give_up(exhausted: Exhausted[None]) -> list[Item]:
        raise Throttled(
            f"bins of {definition.counter!r} not read: {exhausted.error}"
        ) from exhausted.error

    request = Send(TransactGet(context.table, definition.places))
    return attempt(None, lambda _: request, interpret, give_up, context.attempts(policy=_READS))


def split_over_bins(
    context: MethodContext, definition: Definition, delta: Amount
) -> Steps[list[Part] | BoundReached]:
    """A change over as few bins as have the headroom, or why all have not: two read units each.

    Raises:
        StaleDefinition, Throttled: as `read_bins`.
        CorruptItem: the bins contradict their sum.
    """
    states = states_of(definition, (yield from read_bins(context, definition)))
    parts = split(list(zip(definition.places, states, strict=True)), delta)
    if parts is not None:
        return parts
    refused = refusal(definition.counter, whole_of(states), delta)
    if refused is None:
        raise CorruptItem(
            f"strict counter {definition.counter!r}: the headrooms of its bins contradict their "
            "sums; an item was changed by hand"
        )
    return refused


def read_counter(
    context: MethodContext, definition: Definition, main: Item | None
) -> Steps[StrictCounter]:
    """A counter as of one moment: one read unit, unless its main item is given; two for each bin.

    Raises:
        StaleDefinition: the counter was deleted or recreated.
        CorruptItem: an item cannot be read.
    """
    if main is None:
        main = yield Send(Get(context.table, definition.main))
    if main is None:
        raise definition.stale()
    if definition.bins == 1:
        return _shown(definition, decode_state(main), main)
    bins = yield from read_bins(context, definition)
    return _shown(definition, whole_of([decode_state(item) for item in bins]), main, bins)


def created(definition: Definition, items: Sequence[Item]) -> StrictCounter:
    """A counter as it was created, by its main item and its bins."""
    main, *bins = ({name: one for name, one in item.items() if one is not None} for item in items)
    states = [decode_state(item) for item in bins or [main]]
    return _shown(definition, whole_of(states) if bins else states[0], main, bins)


def list_counters(
    context: MethodContext, namespace: str, on_corrupt: OnCorrupt | None = None
) -> Iterator[StrictCounter]:
    """The counters of a namespace by name; half a read unit for each and for each bin.

    Args:
        context: what to read with.
        namespace: whose counters.
        on_corrupt: called with the error of each counter that cannot be read, which is left out.

    Raises:
        CorruptItem: an item cannot be read, and `on_corrupt` is not given.
    """
    condition = Compare("counter", "=", keys.STRICT_PREFIX + namespace)
    for page in context.reads.pages(Query(context.table, condition)):
        names = [item["part"] for item in page if removed_id(item) is None]
        wanted = [keys.total_key(name) for name in names]
        found = {item["counter"]: item for item in context.reads.get_many(context.table, wanted)}
        # A counter that was deleted since the page was read is missing.
        items = [found[name] for name in names if name in found]
        for shown in decoded(items, partial(_listed, context), on_corrupt):
            if shown is not None:
                yield shown


def _listed(context: MethodContext, main: Item) -> StrictCounter | None:
    definition = decode_definition(main)
    if definition.bins == 1:
        return _shown(definition, decode_state(main), main)
    bins = context.reads.get_many(context.table, definition.places)
    if not bins:
        return None
    return _shown(definition, whole_of([decode_state(item) for item in bins]), main, bins)


def _shown(
    definition: Definition, state: StrictState, main: Item, bins: Sequence[Item] = ()
) -> StrictCounter:
    stamps = [optional_time(item, "updated_at") for item in (main, *bins)]
    known = [stamp for stamp in stamps if stamp is not None]
    return StrictCounter(
        counter=definition.counter,
        method=definition.method,
        value=state.total,
        lower=state.lower,
        upper=state.upper,
        version=state.version,
        bins=definition.bins,
        history=definition.history,
        max_tokens=definition.max_tokens,
        remembered=len(state.tags) or max(len(state.tokens) - 1, 0),  # the seed is one of them
        window_ms=definition.window_ms,
        updated_at=to_datetime(max(known)) if known else None,
        write_units=_write_units(definition.method, bins[0] if bins else main),
        held=state.held,
    )


def _write_units(method: Method, item: Item) -> int:
    kilobytes = -(-sum(len(name) + _size(value) for name, value in item.items()) // _KB)
    units: int = kilobytes * _UNITS_EACH_KB.get(method, 1)
    return units + (_UNITS_OF_A_MARKER if method is Method.MARKER else 0)


def _size(value: object) -> int:
    """What a value takes in an item, in bytes, as the service counts."""
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, set | list):
        # A list has a few bytes of its own, and one for each of its values.
        own = 3 + len(value) if isinstance(value, list) else 0
        return own + sum(_size(one) for one in value)
    return len(str(value)) // 2 + 2
