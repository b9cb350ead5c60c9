"""Wrong variants of the home's lease, a promotion, a salvage, and strict counters over regions."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from countledger.compaction import regions, salvage
from countledger.compaction.lease import LeaseTerms
from countledger.compaction.regions import Regions
from countledger.compaction.salvage import Salvage, SalvageEvidence, SalvageFate
from countledger.ledger.attempts import Done, GiveUp, Reply
from countledger.ledger.attributes import Item
from countledger.producers.strict import applying, counters, optimistic, token
from countledger.producers.strict.outcome import Applied
from tests.simulation.canary import Canary
from tests.simulation.shape import HOMES, LOSSES
from tests.simulation.strong import RegionConflict
from tests.switches import all_of, replaced, wrapped

_NO_CHECK: Final = replaced(Regions, "check_lease", lambda _self: None)


def _merged_ones_too(
    fate_of: Callable[..., SalvageFate],
    item: Item,
    found: Item | None,
    evidence: SalvageEvidence,
) -> SalvageFate:
    fate = fate_of(item, found, evidence)
    return SalvageFate.BROUGHT if fate is SalvageFate.MERGED else fate


def _loss_forgotten(next_epoch: Any, before: Any, *given: Any) -> Any:  # noqa: ANN401 - handed on
    """The epoch after a loss says nothing of it, so merging goes on at once."""
    return replace(next_epoch(before, *given), lost="")


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
        "merging needs the lease",
        all_of(replaced(Regions, "hold_lease", lambda _self: None), _NO_CHECK),
        HOMES,
        seed=6,
    ),
    Canary("the lease is looked at as a request leaves", _NO_CHECK, HOMES, seed=831, rare=True),
    Canary(
        "a lease of another home is waited for",
        replaced(LeaseTerms, "after_ms", property(lambda _self: -(10**12))),
        HOMES,
        seed=19,
    ),
    Canary(
        "salvage leaves out what was merged",
        wrapped(salvage, "fate_of", _merged_ones_too),
        "merges",
        seed=108,
        rare=True,
    ),
    Canary(
        "nothing is merged before the salvage",
        wrapped(regions, "next_epoch", _loss_forgotten),
        LOSSES,
        seed=35,
        rare=True,
    ),
    Canary(
        "salvage reads again what it brings in",
        replaced(Salvage, "_still_there", lambda _self, items: items),
        LOSSES,
        seed=17,
    ),
    Canary(
        "a conflict of regions was not applied",
        all_of(*(wrapped(one, "otherwise", _applied) for one in _TABLES)),
        "regions",
        seed=4,
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
        seed=16,
    ),
]
