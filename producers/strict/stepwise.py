"""Making, bounding and deleting counters where there are no transactions: write by write.

    make      the directory's entry, then the item, if there is none of its name
    delete    the item, if it has the incarnation, then the directory's entry, likewise
    bounds    one update of the one item

What a crash between two writes leaves is an entry of the directory without its item, which `list`
skips. There are no bins here, so there is one item.

A request that got no answer is sent again, for some minutes, and finds by the item's `incarnation`
whether the first one was applied. No token keeps the first one from landing later, though: a bound
may move once more if it was moved back meanwhile, a counter may appear again if it was deleted
meanwhile. Both need a request that stays on its way until a person has thought again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from countledger.ledger.errors import ConditionFailed
from countledger.ledger.operations import Delete, Put
from countledger.producers.last_word import raise_end
from countledger.producers.strict.context import (
    PASSING,
    POLICY,
    Attempts,
    MethodContext,
    RetryPeriodOver,
)
from countledger.producers.strict.tokens import life_ms

if TYPE_CHECKING:
    from countledger.ledger.errors import CountledgerError
    from countledger.ledger.operations import Update


_ADVICE: Final = "it may have been done: look at the counter before you call again"


def make(context: MethodContext, listed: Put, main: Put) -> ConditionFailed | None:
    """Write a counter's items: one write unit each, and one read unit.

    Returns:
        None: made. Else the refusal, with the item that has the name.
    """
    # Looked at first, so that who asks for a name that is taken does not touch its entry.
    key = {name: main.item[name] for name in ("counter", "part")}
    there = context.reads.get(context.table, key, consistent=True)
    if there is not None:
        return ConditionFailed(there)
    _write(context, listed)
    return _write(context, main)[0]


def remove(context: MethodContext, main: Delete, listed: Delete) -> None:
    """Delete a counter's items: one write unit for each KB of each. One that is gone stays so.

    Args:
        context: what to work with.
        main: on condition of the incarnation.
        listed: on the same condition: the entry may be that of a new incarnation by now.
    """
    refused, maybe_applied = _write(context, main)
    if refused is None or maybe_applied:
        _write(context, listed)


def move(context: MethodContext, update: Update) -> bool:
    """Move bounds: one write unit for each KB of the item. Whether the condition held."""
    return _write(context, update)[0] is None


def _write(
    context: MethodContext, write: Put | Update | Delete
) -> tuple[ConditionFailed | None, bool]:
    """Carry one write out: why its condition refused it, and whether an earlier attempt may be in.

    Raises:
        Unclear: an attempt may have been carried out.
        Throttled, Unreachable: no attempt went through.
    """
    until_ms = context.clock.now_ms() + life_ms(context)
    attempts = Attempts(context, POLICY, _ADVICE, until_ms=until_ms)
    what = f"a write of a strict counter in table {write.table!r}"
    while True:
        failure: CountledgerError
        try:
            with attempts.sending():
                _carry_out(context, write)
        except RetryPeriodOver as late:
            raise_end(attempts, what, late)
        except ConditionFailed as refused:
            return refused, attempts.maybe_applied
        except PASSING as error:
            failure = error
        else:
            return None, attempts.maybe_applied
        if not attempts.again(failure):
            raise_end(attempts, what, failure)


def _carry_out(context: MethodContext, write: Put | Update | Delete) -> None:
    if isinstance(write, Put):
        context.dynamo.put(write)
    elif isinstance(write, Delete):
        context.dynamo.delete(write)
    else:
        context.dynamo.update(write)
