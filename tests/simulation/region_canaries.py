"""Wrong variants of the home's lease, of a promotion, and of a salvage."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from countledger.compaction import regions, salvage
from countledger.compaction.lease import LeaseTerms
from countledger.compaction.regions import Regions
from countledger.compaction.salvage import Salvage, SalvageEvidence, SalvageFate
from countledger.ledger.attributes import Item
from tests.simulation.canary import Canary
from tests.simulation.shape import HOMES, LOSSES
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


CANARIES: Final = [
    Canary(
        "merging needs the lease",
        all_of(replaced(Regions, "hold_lease", lambda _self: None), _NO_CHECK),
        HOMES,
        seed=7,
    ),
    Canary("the lease is looked at as a request leaves", _NO_CHECK, HOMES, seed=48, rare=True),
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
        seed=1042,
        rare=True,
    ),
    Canary(
        "nothing is merged before the salvage",
        wrapped(regions, "next_epoch", _loss_forgotten),
        LOSSES,
        seed=155,
        rare=True,
    ),
    Canary(
        "salvage reads again what it brings in",
        replaced(Salvage, "_still_there", lambda _self, items: items),
        LOSSES,
        seed=64,
    ),
]
