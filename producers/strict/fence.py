"""The fence of a strict counter: what keeps late requests of an answered call from being applied.

Each item of a counter has a number (`fence`, absent as long as it is 0). Every request of method
`request_token`, and every deletion, is conditional on the number that its process knows. A call
that had a request without a clear answer raises the number before it says its outcome, by method
`request_token` before it sends anything else: then that request cannot be applied any more, however
late it arrives. Raising costs one write unit. A call whose requests were all answered raises
nothing.

A process takes the number for 0 until it reads another one, in the counter or in the item that
refused a request. Only a raised fence costs another process one refused request.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final

from countledger.ledger.attempts import Done, Send, attempt, otherwise
from countledger.ledger.errors import ConditionFailed, CountledgerError
from countledger.ledger.operations import Add, Compare, Update, unchanged

if TYPE_CHECKING:
    from collections.abc import Iterable

    from countledger.ledger.attempts import Attempts, Reply, Steps, Verdict
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.operations import Condition

FENCE: Final = "fence"
# To find out what a token stands for: how many of the last numbers of a fence are tried, by one
# request each.
FENCES_ASKED: Final = 4
# The least recently used numbers beyond are taken for 0, until a refusal names them.
_KEPT: Final = 10_000


@dataclass(slots=True)
class KnownFences:
    """The numbers of raised fences that this process has read, by item and identity."""

    _known: OrderedDict[tuple[str, str, str], int] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def of(self, key: Key, identity: str) -> int:
        """The number of an item; 0: as far as this process knows, it was never raised."""
        with self._lock:
            return self._known.get((key["counter"], key["part"], identity), 0)

    def learn(self, key: Key, identity: str, item: Item) -> None:
        """Keep the number of an item that was read."""
        number = fence_of(item)
        with self._lock:
            place = key["counter"], key["part"], identity
            if number or place in self._known:
                self._known[place] = number
                self._known.move_to_end(place)
                if len(self._known) > _KEPT:
                    self._known.popitem(last=False)


def fence_of(item: Item) -> int:
    """The number in an item."""
    number: int = item.get(FENCE, 0)
    return number


def unraised(number: int) -> Condition:
    """The fence of the item was not raised since its number was this."""
    return unchanged(FENCE, number or None)


def raising(table: str, key: Key, incarnation: str) -> Update:
    """Raise the fence of an item of this incarnation; a repeated request raises it once more."""
    same = Compare("incarnation", "=", incarnation)
    raised = (Add(FENCE, 1), Add("version", 1))
    return Update(table, key, raised, same, returning="ALL_NEW")


def raise_fences(writes: Iterable[Update], attempts: Attempts) -> Steps[list[Item | None] | None]:
    """Raise fences, one write unit each.

    Args:
        writes: one for each item.
        attempts: beside those of the call, whose limits may be used up.

    Returns:
        The items afterwards; for one that is gone or has another identity None, because no request
        of the call can be applied to it either. None: a fence got no clear answer, so it is none.
    """
    items: list[Item | None] = []
    # Whatever error comes instead of an answer: a request of the call may be applied yet.
    attempts.maybe_applied = True

    def interpret(reply: Reply[Update]) -> Verdict[Update, list[Item | None] | None]:
        match reply.answer:
            case ConditionFailed():
                return Done([None])
            case CountledgerError():
                return otherwise(reply)
        return Done([reply.answer])

    for write in writes:
        raised = yield from attempt(write, Send, interpret, lambda _: None, attempts)
        if raised is None:
            return None
        items += raised
    return items
