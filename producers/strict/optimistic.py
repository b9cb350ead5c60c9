"""Carries out the changes of `occ` and `history`, which differ in how many tags they keep."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from countledger.ledger.attempts import Backoff
from countledger.ledger.errors import ConditionFailed, Throttled, Unclear
from countledger.producers.strict.context import PASSING, Attempts, MethodContext, StaleDefinition
from countledger.producers.strict.fate import Fate, applied_to, fate, plan_change, plan_fence
from countledger.producers.strict.outcome import Applied, Contended, Duplicate
from countledger.producers.strict.state import StrictState, decode_state, refusal

if TYPE_CHECKING:
    from countledger.ledger.attributes import Item
    from countledger.ledger.errors import CountledgerError
    from countledger.producers.strict.change import StrictChange
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.fate import Memory
    from countledger.producers.strict.outcome import StrictOutcome

# Writers that meet each other wait longer each time, so contention does not feed on itself.
_POLICY: Final = Backoff(attempts=14, base_ms=10, cap_ms=1_000)
_ADVICE: Final = (
    "a request got no clear answer, and so many others changed the counter since that its own tag "
    "may have been overwritten: compare with your own records; keep a longer history, or take "
    "method marker"
)


@dataclass(slots=True)
class OptimisticChange:
    """A change on its way by method occ or history."""

    context: MethodContext
    definition: Definition
    change: StrictChange
    memory: Memory
    attempts: Attempts

    @classmethod
    def begin(
        cls, context: MethodContext, definition: Definition, change: StrictChange, memory: Memory
    ) -> OptimisticChange:
        """Nothing sent yet."""
        return cls(context, definition, change, memory, Attempts(context, _POLICY, _ADVICE))

    def carry_out(self, known: StrictState | None, *, read: bool = False) -> StrictOutcome:
        """Read, unless the state is known; write; find out.

        Args:
            known: the state to begin with, or None.
            read: whether that was read by this call; a refusal must not rest on an older one.

        Raises:
            IdempotencyKeyReused: the key was used with another delta.
            StaleDefinition: the counter is not the one that was read.
        """
        state = self._read() if known is None else known
        read = read or known is None
        while True:
            if self.change.remembered_in(state.tags):
                return self._found(state)
            refused = refusal(self.change.counter, state, self.change.delta)
            if refused is None:
                next_ = self._write(state)
                if not isinstance(next_, StrictState):
                    return next_
                state, read = next_, True
            elif read:
                return refused
            else:
                state, read = self._read(), True

    def _found(self, state: StrictState) -> StrictOutcome:
        """Its tag is there, though no request is in doubt: a retry of the key, or by the SDK.

        An id that was made for this call can only be there by this call.
        """
        if self.change.key is None:
            return Applied(self.change.counter, state.total, state)
        return Duplicate(self.change.counter, state.total)

    def _write(self, state: StrictState) -> StrictOutcome | StrictState:
        """One attempt: the outcome, or the state from which to try again."""
        write = plan_change(self.context.table, self.definition, state, self.change, self.memory)
        try:
            self.context.dynamo.update(write)
        except ConditionFailed as failed:
            return self._overtaken(self._state_of(failed.item))
        except Unclear as error:
            return self._find_out(state, error)
        except PASSING as error:
            again = self.attempts.again(error)
            return state if again else self.attempts.end(self.change.counter, error)
        after = applied_to(state, self.change, self.memory)
        return Applied(self.change.counter, after.total, after)

    def _overtaken(self, found: StrictState) -> StrictOutcome | StrictState:
        """Somebody else was faster. What came back is old after a longer wait."""
        if self.change.remembered_in(found.tags):
            return found
        busy = Throttled("others changed the counter each time before this change could")
        if not self.attempts.again(busy):
            return Contended(self.change.counter, self.attempts.made, str(busy))
        return found if self.attempts.made == 1 else self._read()

    def _find_out(
        self, based_on: StrictState, error: CountledgerError
    ) -> StrictOutcome | StrictState:
        """After no answer: the outcome, or the state to go on from behind a final refusal."""
        while self.attempts.again(error):
            try:
                found = self._read()
                if self._fate(based_on, found) is Fate.NOT_YET:
                    found = self._fence(found)
            except StaleDefinition:
                break
            except PASSING as failure:
                error = failure
                continue
            # One version on at the least: the fence, or whoever was faster.
            what = self._fate(based_on, found)
            if what is Fate.APPLIED:
                return Applied(self.change.counter, found.total, found)
            if what is Fate.UNKNOWN:
                break
            self.attempts.maybe_applied = False
            return found
        return self.attempts.unknown(self.change.counter)

    def _fate(self, based_on: StrictState, found: StrictState) -> Fate:
        return fate(self.change, based_on, found, self.memory.length)

    def _fence(self, state: StrictState) -> StrictState:
        """The state behind a fence, or the one that was faster."""
        try:
            self.context.dynamo.update(plan_fence(self.context.table, self.definition, state))
        except ConditionFailed as failed:
            return self._state_of(failed.item)
        return replace(state, version=state.version + 1)

    def _read(self) -> StrictState:
        return self._state_of(self.context.read(self.definition.main))

    def _state_of(self, item: Item | None) -> StrictState:
        if item is None or item.get("incarnation") != self.definition.incarnation:
            raise StaleDefinition(
                f"strict counter {self.change.counter!r} was deleted or recreated"
            )
        return decode_state(item)
