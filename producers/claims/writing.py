"""Carries out writes that belong together: all of them or none, and a retry is told from a refusal.

An answer context:

    done                         all of it is written
    condition failed             refused: by another owner, or because an item is not as expected.
                                 If everything stands as it would be left, it was done before: by
                                 an earlier call, or by an attempt of this one without an answer
    throttle, conflict           nothing was written: sent again
    none (500, time-out, reset)  sent again, a transaction under the same token; all of these
                                 writes may come twice and change nothing the second time: a claim
                                 is deleted by its own id, so a claim taken since is another one
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from countledger.ledger.errors import (
    ConditionFailed,
    Throttled,
    TransactionCancelled,
)
from countledger.ledger.limits import TOKEN_LIFE_MS
from countledger.ledger.operations import Delete, Put, Update
from countledger.producers.last_word import raise_end
from countledger.producers.strict.context import (
    PASSING,
    POLICY,
    Attempts,
    RetryPeriodOver,
    check_passing,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from countledger.ledger.attributes import Item
    from countledger.ledger.errors import CountledgerError, Refused
    from countledger.ledger.operations import Write
    from countledger.producers.strict.context import MethodContext

_ADVICE: Final = "call again with the same arguments: what was done already counts as done"


class Step(Protocol):
    """One of the writes."""

    @property
    def place(self) -> tuple[str, Item]:
        """Table and key."""

    def write(self) -> Write:
        """The write."""

    def done(self, found: Item | None) -> bool:
        """Whether the item stands as the write would leave it."""

    def refused(self, found: Item | None) -> Refused:
        """Why the write was refused, by the item that was found."""


def carry_out(context: MethodContext, what: str, prepare: Callable[[], Sequence[Step]]) -> bool:
    """Write everything or nothing: one write unit for a single step, two each for several.

    A refusal costs the same, and one read unit for each step to see whether it was done before.

    Args:
        context: what to work with.
        what: what this is, for messages.
        prepare: makes the steps, at different items; it may read. Every attempt sends the steps
            that it made first, so that a retry names the identity of what this call saw.

    Returns:
        Whether this call did it; False: it was done before.

    Raises:
        Refused: of the step that was refused.
        Unclear: no attempt got a clear answer.
        Throttled: every attempt was refused for now.
    """
    begun_ms = context.clock.now_ms()
    until_ms = begun_ms + TOKEN_LIFE_MS - context.clock_skew_ms
    attempts = Attempts(context, POLICY, _ADVICE, until_ms=until_ms)
    token = context.new_id(begun_ms)
    steps: Sequence[Step] | None = None
    while True:
        failure: CountledgerError
        try:
            steps = prepare() if steps is None else steps
            with attempts.sending():
                met = _send(context, [step.write() for step in steps], token, steps)
            if not met:
                return True
            _refuse(met)
            if _all_done(context, steps):
                return False
            step, found = met[0]
            raise step.refused(found)
        except RetryPeriodOver as late:
            raise_end(attempts, what, late)
        except PASSING as error:
            failure = error
        if not attempts.again(failure):
            raise_end(attempts, what, failure)


def _send(
    context: MethodContext, writes: Sequence[Write], token: str, steps: Sequence[Step]
) -> list[tuple[Step, Item | None]]:
    """One attempt: the steps whose conditions failed, with what they met; none: done."""
    try:
        if len(writes) == 1:
            _send_alone(context, writes[0])
        else:
            context.dynamo.transact(writes, token)
    except ConditionFailed as failed:
        return [(steps[0], failed.item)]
    except TransactionCancelled as cancelled:
        pairs = zip(steps, cancelled.reasons, strict=True)
        met = [(step, reason.item) for step, reason in pairs if reason.condition_failed]
        if not met:
            check_passing(cancelled.reasons)
            raise Throttled(str(cancelled)) from cancelled
        return met
    return []


def _refuse(met: Sequence[tuple[Step, Item | None]]) -> None:
    """Refuse for what stands otherwise than this call would leave it; another owner first.

    Steps of claims come before those of an app's own items, and a claim is refused for its owner.

    Raises:
        Refused: of the step that met it.
    """
    for step, found in met:
        if not step.done(found):
            raise step.refused(found)


def _send_alone(context: MethodContext, write: Write) -> None:
    match write:
        case Put():
            context.dynamo.put(write)
        case Update():
            context.dynamo.update(write)
        case Delete():
            context.dynamo.delete(write)
        case _:
            raise AssertionError(f"{write!r} writes nothing")


def _all_done(context: MethodContext, steps: Sequence[Step]) -> bool:
    """Whether every item stands as it would be left: one read unit each, consistent."""
    for step in steps:
        table, key = step.place
        own: Any = key  # keys of an app's own may be numbers
        if not step.done(context.reads.get(table, own, consistent=True)):
            return False
    return True
