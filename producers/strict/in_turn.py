"""Making, bounding and deleting counters where there are no transactions: write by write.

    make      the directory's entry, then the item, if there is none of its name
    delete    the item, if it is that making of it, then the directory's entry, if it is its own
    bounds    one update of the one item

What a crash between two writes leaves is an entry of the directory without its item, which `list`
skips. There are no bins here, so there is one item.

A request that got no answer is sent again, and finds by the item's `made` whether it was there. No
token keeps the first one from landing later, though: a bound may move once more if it was moved
back meanwhile, a counter may appear again if it was deleted meanwhile. Both need a request that
stays on its way until a person has thought again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from countledger.ledger.errors import ConditionFailed, Unclear
from countledger.ledger.operations import Delete, Put
from countledger.producers.strict.means import PASSING, POLICY, Means

if TYPE_CHECKING:
    from countledger.ledger.errors import CountledgerError
    from countledger.ledger.operations import Update


def make(means: Means, listed: Put, main: Put) -> ConditionFailed | None:
    """Write a counter's items: one write unit each, and one read unit.

    Returns:
        None: made. Else the refusal, with the item that has the name.
    """
    # Looked at first, so that who asks for a name that is taken does not touch its entry.
    key = {name: main.item[name] for name in ("counter", "part")}
    there = means.reads.get(means.table, key, consistent=True)
    if there is not None:
        return ConditionFailed(there)
    _write(means, listed)
    return _write(means, main)[0]


def remove(means: Means, main: Delete, listed: Delete) -> bool:
    """Delete a counter's items: one write unit for each KB of each.

    Args:
        means: what to work with.
        main: on condition of the making.
        listed: on the same condition: the entry may be that of a new making by now.

    Returns:
        Whether this call, or one at the same time, deleted it.
    """
    refused, doubtful = _write(means, main)
    if refused is not None and not doubtful:
        return False
    _write(means, listed)
    return True


def move(means: Means, update: Update) -> bool:
    """Move bounds: one write unit for each KB of the item. Whether the condition held."""
    return _write(means, update)[0] is None


def _write(means: Means, write: Put | Update | Delete) -> tuple[ConditionFailed | None, bool]:
    """Carry one write out: why its condition refused it, and whether an earlier attempt may be in.

    Raises:
        ServiceFailed, Unreachable: no attempt went through.
    """
    waits_ms = POLICY.waits_ms(means.random)
    doubtful = False
    while True:
        failure: CountledgerError
        try:
            _carry_out(means, write)
        except ConditionFailed as refused:
            return refused, doubtful
        except PASSING as error:
            doubtful = doubtful or isinstance(error, Unclear)
            failure = error
        else:
            return None, doubtful
        wait_ms = next(waits_ms, None)
        if wait_ms is None:
            raise failure
        means.clock.sleep_ms(wait_ms)


def _carry_out(means: Means, write: Put | Update | Delete) -> None:
    if isinstance(write, Put):
        means.door.put(write)
    elif isinstance(write, Delete):
        means.door.delete(write)
    else:
        means.door.update(write)
