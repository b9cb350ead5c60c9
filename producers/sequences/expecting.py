"""Draws by expectation: the next number is taken only if the last is the one that was seen.

One item for each kind of things that are numbered, all in one table. A number is never given out
twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from countledger.ledger import keys
from countledger.ledger.attempts import (
    Again,
    Attempts,
    Done,
    Recheck,
    Reply,
    Send,
    attempt,
    otherwise,
)
from countledger.ledger.attributes import optional, require
from countledger.ledger.clock import Backoff
from countledger.ledger.errors import ConditionFailed, CountledgerError, Throttled, Unclear
from countledger.ledger.limits import SEQUENCE_LAST
from countledger.ledger.operations import Get
from countledger.producers.sequences.sequence import exhausted, plan_expected
from countledger.producers.strict.context import raise_exhausted

if TYPE_CHECKING:
    from countledger.ledger.attempts import Exhausted, Verdict
    from countledger.ledger.attributes import Item
    from countledger.producers.strict.context import MethodContext

# If many draw at the same time, one of them wins each round, so more rounds are needed here.
CROWDED: Final = Backoff(attempts=24, base_ms=10, cap_ms=1_000)
_GAP: Final = "one number may be lost, but none is given out twice: draw again, and accept the gap"


@dataclass(frozen=True, slots=True)
class NumberAimedAt:
    """The number that a draw tries to take.

    Attributes:
        last: the number before it.
        incarnation: of the sequence that was read, or None.
        tag: of the draw of exactly that number.
        in_doubt: whether a request for it got no answer.
    """

    last: int
    incarnation: str | None
    tag: str
    in_doubt: bool = False


@dataclass(frozen=True, slots=True)
class ReadLast:
    """The sequence must be read; then the draw tries a number, after this one if it is given."""

    before: NumberAimedAt | None = None


DrawState: TypeAlias = NumberAimedAt | ReadLast


@dataclass(slots=True)
class ExpectedDraw:
    """A draw of the next number, on condition that the last is the one that was seen.

    Attributes:
        context: what it works with.
        sequence: its name.
        attempts: those of this call.
    """

    context: MethodContext
    sequence: str
    attempts: Attempts

    @classmethod
    def begin(cls, context: MethodContext, sequence: str) -> ExpectedDraw:
        """Nothing read or sent yet."""
        return cls(context, sequence, Attempts(context.clock, context.random, CROWDED))

    def draw(self, known: int | None) -> int:
        """The next number: one write unit, and a read unit unless the last is known.

        The answers to the write mean:

            done                 the number is this call's
            condition failed     another draw was faster, and the item came back: again from that
                                 item. After a longer wait it is old: again after a read
            throttle, conflict   nothing was drawn: again
            no answer            read: with this call's tag, the number is this call's; with the
                                 same last number, the same request again (it can be applied once);
                                 else another draw was faster, and which draw took which number
                                 is unknown: this call tries the next one, maybe after a gap

        Raises:
            SequenceExhausted: there is none.
            Unclear: no attempt got a clear answer; one number may be lost.
            Throttled: others were faster every time, or the service was busy.
        """
        begin: DrawState = ReadLast()
        if known is not None and known != SEQUENCE_LAST:  # else: the caller may be wrong
            begin = self._aim(known, None, None)
        what = f"a draw from sequence {self.sequence!r}"

        def give_up(exhausted: Exhausted[DrawState]) -> int:
            raise_exhausted(exhausted, what, _GAP)

        steps = attempt(begin, self._request, self._interpret, give_up, self.attempts)
        return self.context.run(steps)

    def _request(self, state: DrawState) -> Send:
        if isinstance(state, ReadLast):
            return Send(Get(self.context.table, keys.total_key(self.sequence)))
        now_ms = self.context.clock.now_ms()
        return Send(
            plan_expected(
                self.context.table,
                self.sequence,
                state.last,
                incarnation=state.incarnation,
                tag=state.tag,
                new_id=self.context.new_id(now_ms),
                now_ms=now_ms,
            )
        )

    def _interpret(self, reply: Reply[DrawState]) -> Verdict[DrawState, int]:
        if isinstance(reply.state, NumberAimedAt):
            return self._interpret_write(reply, reply.state)
        if isinstance(reply.answer, CountledgerError):
            return otherwise(reply)
        found, before = reply.answer, reply.state.before
        if before and before.in_doubt and found and found.get("tag") == before.tag:
            return Done(before.last + 1)
        return Recheck(self._next(found, before))

    def _interpret_write(
        self, reply: Reply[DrawState], aimed: NumberAimedAt
    ) -> Verdict[DrawState, int]:
        match reply.answer:
            case ConditionFailed(item=found) if found is None or found.get("tag") != aimed.tag:
                aimed = replace(aimed, in_doubt=False)
                again = ReadLast(aimed) if self.attempts.made else self._next(found, aimed)
                return Again(again, Throttled("others drew each time before this call could"))
            case CountledgerError() as error if not isinstance(error, ConditionFailed):
                verdict = otherwise(reply)
                in_doubt = aimed.in_doubt or isinstance(error, Unclear)
                if isinstance(verdict, Again) and in_doubt:
                    return Again(ReadLast(replace(aimed, in_doubt=True)), verdict.error)
                return verdict
        return Done(aimed.last + 1)

    def _next(self, found: Item | None, before: NumberAimedAt | None) -> NumberAimedAt:
        """The number after the last one of the sequence that was read."""
        if not found:
            return self._aim(0, None, before)
        incarnation = optional(found, "incarnation", str)
        return self._aim(require(found, "total", int), incarnation, before)

    def _aim(
        self, last: int, incarnation: str | None, before: NumberAimedAt | None
    ) -> NumberAimedAt:
        """Try the number after the last one: with the same tag as long as the number is the same.

        If the caller gave the last number, the sequence was not read for the first try.
        """
        if last >= SEQUENCE_LAST:
            raise exhausted(self.sequence)
        if before and before.last == last and before.incarnation in (None, incarnation):
            return replace(before, incarnation=incarnation)
        return NumberAimedAt(last, incarnation, self.context.new_id(self.context.clock.now_ms()))
