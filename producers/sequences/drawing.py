"""Draws by ADD: one write, whatever the size of the block; the service counts.

An answer context:

    done                         the numbers up to the new value are this call's
    condition failed             the sequence has not so many left
    throttle, conflict           nothing was drawn: sent again
    none (500, time-out, reset)  sent again: whatever the lost request drew is never given out

So a number is never given out twice, and a lost answer costs the numbers that it carried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from countledger.ledger.attributes import require
from countledger.ledger.errors import ConditionFailed, CorruptItem, SequenceExists
from countledger.producers.last_word import raise_end
from countledger.producers.sequences.sequence import exhausted, plan_draw, plan_making
from countledger.producers.strict.context import PASSING, POLICY, Attempts

if TYPE_CHECKING:
    from countledger.producers.strict.context import MethodContext

_GAP: Final = (
    "numbers may be lost, but none is given out twice: draw again, and leave the gap as it is"
)
_MADE: Final = "make it again: one that exists under that name is then your own, or somebody's"


def draw(context: MethodContext, sequence: str, size: int) -> range:
    """The next numbers of a sequence: one write unit.

    Raises:
        SequenceExhausted: it has not so many left.
        Unclear: no attempt got a clear answer; numbers may be lost.
        Throttled: every attempt was refused.
    """
    now_ms = context.clock.now_ms()
    attempts = Attempts(context, POLICY, _GAP)
    while True:
        try:
            # Each request has an id of its own: if it lands late and begins a new sequence, that
            # is no sequence that was there before.
            new_id = context.new_id(now_ms)
            item = context.dynamo.update(plan_draw(context.table, sequence, size, new_id, now_ms))
        except ConditionFailed:
            raise exhausted(sequence) from None
        except PASSING as error:
            if not attempts.again(error):
                raise_end(attempts, f"a draw from sequence {sequence!r}", error)
        else:
            if item is None:
                raise CorruptItem(f"sequence {sequence!r}: the service did not tell its value")
            last = require(item, "total", int)
            return range(last - size + 1, last + 1)


def make(context: MethodContext, sequence: str, first: int) -> None:
    """Make a sequence: one write unit.

    Raises:
        SequenceExists: somebody made or used one of that name before.
    """
    now_ms = context.clock.now_ms()
    tags: set[str] = set()
    attempts = Attempts(context, POLICY, _MADE)
    while True:
        try:
            # One for each request: one that lands late, after a deletion, makes another sequence.
            tag = context.new_id(now_ms)
            tags.add(tag)
            context.dynamo.put(plan_making(context.table, sequence, first, tag, now_ms))
        except ConditionFailed as failed:
            found = failed.item or {}
            if found.get("incarnation") in tags:
                return  # by an attempt that got no answer
            raise SequenceExists(
                f"sequence {sequence!r} exists, its last number is {found.get('total')}: "
                "take another name"
            ) from None
        except PASSING as error:
            if not attempts.again(error):
                raise_end(attempts, f"to make sequence {sequence!r}", error)
        else:
            return
