"""Draws by expectation: the next number is taken only if the last is the one that was seen.

One item for each kind of things that are numbered, all in one table. An answer context:

    done                         the number is this call's
    condition failed             another draw was faster, and the item came back: tried from there.
                                 After a longer wait that is old: the item is read again
    throttle, conflict           nothing was drawn: tried again
    none (500, time-out, reset)  the item is read. Its tag is this call's: the number is. The last
                                 number is as it was: the same request is sent again (it can be
                                 carried out once). Else somebody drew meanwhile, and who drew which
                                 cannot be told: this call goes on from there, maybe over a gap

A number is never given out twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.attempts import Backoff
from countledger.ledger.attributes import optional, require
from countledger.ledger.errors import ConditionFailed, Throttled, Unclear
from countledger.ledger.limits import SEQUENCE_LAST
from countledger.producers.last_word import raise_end
from countledger.producers.sequences.sequence import exhausted, plan_expected
from countledger.producers.strict.context import PASSING, Attempts

if TYPE_CHECKING:
    from countledger.ledger.attributes import Item
    from countledger.ledger.errors import CountledgerError
    from countledger.producers.strict.context import MethodContext

# Among many that draw at once each round has one winner, so there are more rounds than elsewhere.
CROWDED: Final = Backoff(attempts=24, base_ms=10, cap_ms=1_000)
_GAP: Final = (
    "one number may be lost, but none is given out twice: draw again, and leave the gap as it is"
)


@dataclass(slots=True)
class Expecting:
    """A draw on its way.

    Attributes:
        context: what it works with.
        sequence: its name.
        attempts: those of this call.
        last: the number behind which it would draw.
        incarnation: of the sequence that was read, or None.
        tag: of the draw of exactly that number.
    """

    context: MethodContext
    sequence: str
    attempts: Attempts
    last: int = 0
    incarnation: str | None = None
    tag: str = ""

    @classmethod
    def begin(cls, context: MethodContext, sequence: str) -> Expecting:
        """Nothing read or sent yet."""
        return cls(context, sequence, Attempts(context, CROWDED, _GAP))

    def draw(self, known: int | None) -> int:
        """The next number: one write unit, and a read unit unless the last is known.

        Raises:
            SequenceExhausted: there is none.
            Unclear: no attempt got a clear answer; one number may be lost.
            Throttled: others were faster every time, or the service was busy.
        """
        # That nothing is left is not believed, but looked at.
        found = None if known == SEQUENCE_LAST else known
        incarnation: str | None = None
        in_doubt = False
        while True:
            failure: CountledgerError
            try:
                if found is None:
                    item = self._read()
                    if in_doubt and item.get("tag") == self.tag:
                        return self.last + 1
                    found, incarnation = self._seen(item)
                    in_doubt = in_doubt and self._still(found, incarnation)
                self._aim(found, incarnation)
                self._write()
            except ConditionFailed as failed:
                if failed.item is not None and failed.item.get("tag") == self.tag:
                    return self.last + 1
                in_doubt = False
                # After a longer wait what came back is old.
                found, incarnation = self._seen(failed.item or {})
                found = found if self.attempts.made == 0 else None
                failure = Throttled("others drew each time before this call could")
            except PASSING as error:
                in_doubt = in_doubt or isinstance(error, Unclear)
                found = None if in_doubt else found
                failure = error
            else:
                return self.last + 1
            if not self.attempts.again(failure):
                raise_end(self.attempts, f"a draw from sequence {self.sequence!r}", failure)

    def _seen(self, item: Item) -> tuple[int, str | None]:
        """The last number of the sequence that was met, and its incarnation."""
        if not item:
            return 0, None
        return require(item, "total", int), optional(item, "incarnation", str)

    def _aim(self, last: int, incarnation: str | None) -> None:
        """Go for the number behind the last: under the same tag as long as that is the same."""
        if last >= SEQUENCE_LAST:
            raise exhausted(self.sequence)
        if not (self.tag and self._still(last, incarnation)):
            self.last, self.tag = last, self.context.new_id(self.context.clock.now_ms())
        self.incarnation = incarnation

    def _still(self, last: int, incarnation: str | None) -> bool:
        """Whether the number aimed at is the next one of the same sequence still.

        By a last number that the caller knew, the sequence had not been read when it was aimed at.
        """
        return last == self.last and self.incarnation in (None, incarnation)

    def _read(self) -> Item:
        key = keys.total_key(self.sequence)
        return self.context.reads.get(self.context.table, key, consistent=True) or {}

    def _write(self) -> None:
        now_ms = self.context.clock.now_ms()
        self.context.dynamo.update(
            plan_expected(
                self.context.table,
                self.sequence,
                self.last,
                incarnation=self.incarnation,
                tag=self.tag,
                new_id=self.context.new_id(now_ms),
                now_ms=now_ms,
            )
        )
