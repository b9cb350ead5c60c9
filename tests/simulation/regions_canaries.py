"""Wrong variants of strict counters over regions."""

from collections.abc import Callable
from typing import Any, Final

from countledger.ledger.attempts import Done, GiveUp, Reply
from countledger.producers.strict import applying, counters, optimistic, token
from countledger.producers.strict.outcome import Applied
from tests.simulation.canary import Canary
from tests.simulation.strong import RegionConflict
from tests.switches import all_of, replaced, wrapped

# The answer tables of the methods that work over regions.
_TABLES: Final = (applying, optimistic, token)


def _applied(otherwise: Callable[..., Any], reply: Reply[Any]) -> Any:  # noqa: ANN401 - a verdict
    """A conflict of regions is taken for a change that was applied."""
    if isinstance(reply.answer, RegionConflict):
        return Done(Applied("taken for granted", None))
    return otherwise(reply)


def _final(otherwise: Callable[..., Any], reply: Reply[Any]) -> Any:  # noqa: ANN401 - a verdict
    """A conflict of regions ends the call."""
    if isinstance(reply.answer, RegionConflict):
        return GiveUp(reply.answer)
    return otherwise(reply)


CANARIES: Final = [
    Canary(
        "a conflict of regions was not applied",
        all_of(*(wrapped(one, "otherwise", _applied) for one in _TABLES)),
        "regions",
        seed=3,
    ),
    Canary(
        "a conflict of regions is tried again",
        all_of(*(wrapped(one, "otherwise", _final) for one in _TABLES)),
        "regions",
        seed=3,
    ),
    Canary(
        "no counter is deleted before its creation's requests have expired",
        replaced(counters, "check_age", lambda *_: None),
        "regions",
        seed=34,
    ),
]
