"""Setting a strict counter to a value: exactly, at one moment, under a key.

The value is read and written back as what is wanted, on condition that no change came in between;
if one did, it is read again. So the counter stood at that value at that moment, no change was
overwritten that nobody looked at, and later ones count from there. With bins, value and rooms are
dealt out anew over all of them in the same transaction.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from countledger.ledger import amount
from countledger.ledger.expressions import Add, Assign, Compare
from countledger.ledger.operations import Update
from countledger.producers.strict.bins import deal_state, whole_of
from countledger.producers.strict.bounds import Bounds
from countledger.producers.strict.context import PASSING, POLICY, StaleDefinition
from countledger.producers.strict.definition import Method
from countledger.producers.strict.outcome import Contended
from countledger.producers.strict.spread import read_states
from countledger.producers.strict.state import encode_state, of, refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.amount import Amount
    from countledger.producers.strict.context import MethodContext
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.keyed_write import KeyedWrite, Reasons
    from countledger.producers.strict.outcome import StrictOutcome
    from countledger.producers.strict.state import StrictState

_MOVED: Final = ("total", "headroom_up", "headroom_down")
_DEALT: Final = ("lower", "upper")


def plan_value(
    table: str,
    definition: Definition,
    states: Sequence[StrictState],
    value: Amount,
    now_ms: int | None,
) -> list[Update]:
    """The writes that bring a counter to a value, if it is still as it was read. Pure."""
    wanted = replace(whole_of(states), total=value)
    shares = [wanted] if definition.bins == 1 else deal_state(wanted, definition.bins)
    names = _MOVED if definition.bins == 1 else _MOVED + _DEALT
    stamp = () if now_ms is None else (Assign("updated_at", now_ms),)
    writes = []
    for place, read, share in zip(definition.places, states, shares, strict=True):
        item = encode_state(share)
        moved = (Assign(name, item[name]) for name in names if item[name] is not None)
        unmoved = of(read.incarnation, Compare("version", "=", read.version))
        writes.append(Update(table, place, (*moved, *stamp, Add("version", 1)), unmoved))
    return writes


def carry_out(
    context: MethodContext, definition: Definition, value: Amount, sending: KeyedWrite
) -> StrictOutcome:
    """Set it: two write units for each KB of each item, two for the marker; and the reading.

    Raises:
        BadBounds: value and bounds lie further apart than a number can tell.
        StaleDefinition: the counter is not the one that was read, and nothing is in doubt.
    """
    now_ms = None if definition.method is Method.CRT else sending.request.at_ms
    waits_ms = POLICY.waits_ms(context.random)
    attempts = 0
    while True:
        attempts += 1
        try:
            states = read_states(context, definition)
        except PASSING as error:
            return sending.confirm_refusal(Contended(definition.counter, attempts, str(error)))
        except StaleDefinition:
            return _gone(sending)
        whole = whole_of(states)
        refused = refusal(definition.counter, whole, amount.add(value, amount.negated(whole.total)))
        if refused is not None:
            return sending.confirm_refusal(refused)
        Bounds(whole.lower, whole.upper).check_inside(value)
        answer = sending.at(plan_value(context.table, definition, states, value, now_ms))
        if not isinstance(answer, tuple):
            return answer
        if _redefined(definition, answer):
            return _gone(sending)
        wait_ms = next(waits_ms, None)
        if wait_ms is None:
            busy = "others changed the counter each time before it could be set"
            return sending.confirm_refusal(Contended(definition.counter, attempts, busy))
        context.clock.sleep_ms(wait_ms)


def _redefined(definition: Definition, reasons: Reasons) -> bool:
    failed = [reason for reason in reasons if reason.condition_failed]
    return any(
        one.item is None or one.item.get("incarnation") != definition.incarnation for one in failed
    )


def _gone(sending: KeyedWrite) -> StrictOutcome:
    if sending.attempts.maybe_applied:
        return sending.unknown()
    raise StaleDefinition(f"strict counter {sending.request.what!r} was deleted or recreated")
