"""Draws by ADD: one write, whatever the size of the block; the service counts.

A number is never given out twice, and a lost answer costs the numbers that it carried.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from countledger.ledger.attempts import Again, Attempts, Done, GiveUp, Send, attempt, otherwise
from countledger.ledger.attributes import require
from countledger.ledger.errors import (
    ConditionFailed,
    CorruptItem,
    CountledgerError,
    SequenceExists,
    Unclear,
)
from countledger.ledger.processes import SuspendableLock, clock_offset_s, has_jumped, this_copy
from countledger.producers.sequences.sequence import exhausted, plan_draw, plan_making
from countledger.producers.strict.context import POLICY, raise_exhausted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from countledger.ledger.attempts import Reply, Verdict
    from countledger.producers.strict.context import MethodContext


_GAP: Final = "numbers may be lost, but none is given out twice: draw again, and accept the gap"
_MADE: Final = "create it again: if it exists by then, this call or another one has created it"


def draw(context: MethodContext, sequence: str, size: int) -> range:
    """The next numbers of a sequence: one write unit.

    The answers mean:

        done                 the numbers up to the new value are this call's
        condition failed     the sequence has fewer numbers left
        throttle, conflict   nothing was drawn: again
        no answer            again: the numbers that the lost request drew are never given out

    Raises:
        SequenceExhausted: it has fewer numbers left.
        Unclear: no attempt got a clear answer; numbers may be lost.
        Throttled: every attempt was refused.
    """
    now_ms = context.clock.now_ms()

    def request(_: None) -> Send:
        # Each request has an id of its own: one that is applied late and begins a new sequence
        # must not look like a sequence that existed before.
        new_id = context.new_id(now_ms)
        return Send(plan_draw(context.table, sequence, size, new_id, now_ms))

    def interpret(reply: Reply[None]) -> Verdict[None, range]:
        match reply.answer:
            case ConditionFailed():
                raise exhausted(sequence) from None
            case CountledgerError():
                return otherwise(reply)
            case None:
                raise CorruptItem(f"sequence {sequence!r}: the service did not answer its value")
        last = require(reply.answer, "total", int)
        return Done(range(last - size + 1, last + 1))

    attempts = Attempts(context.clock, context.random, POLICY)
    what = f"a draw from sequence {sequence!r}"
    return context.run(
        attempt(None, request, interpret, lambda e: raise_exhausted(e, what, _GAP), attempts)
    )


def make(context: MethodContext, sequence: str, first: int) -> None:
    """Make a sequence: one write unit.

    The answers mean:

        done                       made
        condition failed           made by an attempt without an answer, if the sequence that exists
                                   has the id of one; else it exists. Unclear, if an attempt got no
                                   answer: once the other sequence is deleted it may be applied
        throttle, conflict, none   again, under another id: a request that is applied late, after a
                                   deletion, makes another sequence

    Raises:
        SequenceExists: a sequence of that name was created or used before.
        Unclear: no attempt got a clear answer, or one did not and a sequence of that name exists.
    """
    now_ms = context.clock.now_ms()

    def request(tags: tuple[str, ...]) -> Send:
        return Send(plan_making(context.table, sequence, first, tags[-1], now_ms))

    def interpret(reply: Reply[tuple[str, ...]]) -> Verdict[tuple[str, ...], None]:
        match reply.answer:
            case ConditionFailed(item=found):
                found = found or {}
                if found.get("incarnation") in reply.state:
                    return Done(None)
                if reply.maybe_applied:
                    return GiveUp(Unclear("a sequence of that name exists"))
                raise SequenceExists(
                    f"sequence {sequence!r} exists, its last number is {found.get('total')}: "
                    "take another name"
                ) from None
            case CountledgerError():
                verdict = otherwise(reply)
                if isinstance(verdict, Again):
                    return Again((*reply.state, context.new_id(now_ms)), verdict.error)
                return verdict
        return Done(None)

    attempts = Attempts(context.clock, context.random, POLICY)
    tags: tuple[str, ...] = (context.new_id(now_ms),)
    what = f"to make sequence {sequence!r}"
    context.run(
        attempt(tags, request, interpret, lambda e: raise_exhausted(e, what, _MADE), attempts)
    )


@dataclass(slots=True)
class _Block:
    """The rest of a block, the lock under which threads draw from it, and the clock then."""

    left: Iterator[int] = field(default_factory=lambda: iter(()))
    offset_s: float = field(default_factory=clock_offset_s)
    lock: SuspendableLock = field(default_factory=SuspendableLock)


class Lease:
    """Draws numbers out of a block, and takes another block when it is empty.

    Safe to share between threads, which get growing numbers in the order in which they are given.
    A block belongs to one process: a child that was forked off takes a block of its own, and so
    does a copy of a memory image that is seen (see `Sequences.lease`). What is left when the
    process ends is never given out.
    """

    def __init__(self, take: Callable[[], range]) -> None:
        """Nothing taken yet.

        Args:
            take: draws a block.
        """
        self._take = take
        self._blocks: dict[object, _Block] = {this_copy(): _Block()}

    def draw(self) -> int:
        """The next number: one write unit for each block.

        Raises:
            ServiceFailed, SetupError, SequenceExhausted: no block could be drawn.
        """
        copy = this_copy()
        block = self._blocks.get(copy) or self._in_a_copy(copy)
        with block.lock:
            offset_s = clock_offset_s()
            if has_jumped(offset_s, block.offset_s):
                # Perhaps of a copy: what the block had left may be another one's.
                block.left, block.offset_s = iter(()), offset_s
            number = next(block.left, None)
            if number is None:
                block.left = iter(self._take())
                number = next(block.left)
            return number

    def _in_a_copy(self, copy: object) -> _Block:
        """The block of a child or a copy: others draw from the one before, and may hold its lock.

        Of several threads the first one decides (`setdefault` is one step), so none of them throws
        away what another one has taken.
        """
        block = self._blocks.setdefault(copy, _Block())
        for other in set(self._blocks) - {copy}:
            self._blocks.pop(other, None)
        return block
