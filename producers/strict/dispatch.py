"""Which method carries a change out, and which of a call's choices it knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countledger.ledger.errors import BadKey, BadNote, BadSetting
from countledger.ledger.ids import IdempotencyKey, id_of_key
from countledger.producers.strict import crt, marker, spread, token_set
from countledger.producers.strict.atomic import AtomicChange, Prefer
from countledger.producers.strict.change import make_change
from countledger.producers.strict.crt import CrtChange
from countledger.producers.strict.definition import Method
from countledger.producers.strict.history import LastTags
from countledger.producers.strict.marker import MarkerChange
from countledger.producers.strict.occ import LastTag
from countledger.producers.strict.optimistic import OptimisticChange
from countledger.producers.strict.state import StrictState, decode_state
from countledger.producers.strict.token_set import SetChange
from countledger.producers.strict.tokens import life_ms

if TYPE_CHECKING:
    from countledger.ledger.attributes import Item
    from countledger.producers.strict.change import StrictChange
    from countledger.producers.strict.context import MethodContext
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.fate import Memory
    from countledger.producers.strict.outcome import StrictOutcome
    from countledger.producers.strict.sending import PendingChange


def carry_out(
    context: MethodContext,
    definition: Definition,
    item: Item | None,
    change: StrictChange,
    *,
    prefer: str | None,
    known: StrictState | None,
) -> StrictOutcome:
    """Carry a change out by the counter's method.

    Args:
        context: what to work with.
        definition: of the counter.
        item: its main item, if it was read just now.
        change: what to do.
        prefer: which miscount to risk (`atomic`).
        known: the state that a former change answered with (`occ`, `history`).

    Raises:
        BadInput: a choice is for another method.
        StaleDefinition: the counter is not the one that was read.
    """
    _check_choices(definition, change, prefer, known)
    if definition.method in {Method.OCC, Method.HISTORY}:
        return _optimistic(context, definition, change, known, item)
    return spread.carry_out(
        context, definition, change, _begin(context, definition, change, prefer)
    )


def withdraw(
    context: MethodContext, definition: Definition, key: str | IdempotencyKey
) -> StrictOutcome:
    """Make sure that a change is not in and never will be, or learn that it is.

    Raises:
        BadSetting: the counter's method cannot do this.
        KeyExpired, ClockSkew: the key was made so long ago that the method may have forgotten a
            change that is in, or lies ahead.
        StaleDefinition: the counter is not the one that was read.
    """
    change_id = id_of_key(key)
    match definition.method:
        case Method.MARKER:
            until_ms = _until_ms(context, definition, key, marker.window_ms(definition))
            return marker.withdraw(context, definition, change_id, until_ms)
        case Method.CRT:
            until_ms = _until_ms(context, definition, key, life_ms(context))
            return crt.withdraw(context, definition, change_id, until_ms)
        case Method.SET:
            return token_set.withdraw(context, definition, change_id)
        case _:
            raise BadSetting(
                f"counter {definition.counter!r} is of method {definition.method}, which keeps no "
                "place for a key to be given up: marker, crt and set do"
            )


def _until_ms(
    context: MethodContext, definition: Definition, key: str | IdempotencyKey, life_ms: int
) -> int | None:
    """Until when a key with its time is surely remembered; None: a bare one does not tell."""
    if not isinstance(key, IdempotencyKey):
        return None
    now_ms = context.clock.now_ms()
    # Its delta means nothing here.
    change = make_change(definition.counter, 1, key, None, now_ms=now_ms, new_id=context.new_id)
    change.check_age(now_ms, life_ms, context.clock_skew_ms)
    return change.remembered_until(life_ms)


def _begin(
    context: MethodContext, definition: Definition, change: StrictChange, prefer: str | None
) -> PendingChange:
    match definition.method:
        case Method.CRT:
            return CrtChange.begin(context, definition, change)
        case Method.MARKER:
            return MarkerChange.begin(context, definition, change)
        case Method.SET:
            return SetChange.begin(context, definition, change)
        case _:
            chosen = Prefer(prefer or Prefer.UNDER)
            return AtomicChange.begin(context, definition, change, chosen)


def _optimistic(
    context: MethodContext,
    definition: Definition,
    change: StrictChange,
    known: StrictState | None,
    item: Item | None,
) -> StrictOutcome:
    memory: Memory = LastTag()
    if definition.method is Method.HISTORY:
        memory = LastTags(definition.history or memory.length)
    if known is None or known.incarnation != definition.incarnation:
        known = None if item is None else decode_state(item)
    begun = OptimisticChange.begin(context, definition, change, memory)
    return begun.carry_out(known, read=item is not None)


def _check_choices(
    definition: Definition, change: StrictChange, prefer: str | None, known: StrictState | None
) -> None:
    """Refuse what the method would ignore, for a caller relies on it.

    Raises:
        BadKey, BadNote, BadSetting: naming it.
    """
    counter, method = definition.counter, definition.method
    if method is Method.ATOMIC and change.key is not None:
        raise BadKey(
            f"counter {counter!r} is of method atomic, which remembers no keys: leave the key out, "
            "or make the counter with another method"
        )
    if change.note is not None and method is not Method.MARKER:
        raise BadNote(f"counter {counter!r} is of method {method}; only marker keeps notes")
    if prefer is not None and (method is not Method.ATOMIC or prefer not in list(Prefer)):
        raise BadSetting(
            f"prefer {prefer!r} for counter {counter!r} of method {method}: it is `under` or "
            "`over`, and for method atomic, which alone cannot find out"
        )
    if known is not None and method not in {Method.OCC, Method.HISTORY}:
        raise BadSetting(f"counter {counter!r} is of method {method}, which needs no known state")
