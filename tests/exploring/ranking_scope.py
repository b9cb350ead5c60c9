"""The ranking of a namespace: two calls switch it on and off, beside a strict counter of it.

The state of the model is whether it is on, how many partitions it has, and whether a call that
ended without a clear answer may have left a sweep undone. Else the total is on the board if the
ranking is on, and only then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from countledger.infra.memory.tables import COUNTERS
from countledger.ledger import keys
from countledger.ledger.errors import BadSetting
from countledger.ledger.indexes import is_on, kept_partitions, namespace_board
from countledger.ledger.limits import MINUTE_MS
from tests.exploring.linear import Effect, Masked, certainty_of_several, is_number, never
from tests.exploring.scope import Beginnings, Capability, fewer_beside_more
from tests.exploring.search import Bounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.client import CountLedger
    from countledger.ledger.attributes import Item
    from tests.exploring.scope import Script
    from tests.exploring.world import Contents

_NAMESPACE: Final = "s"
_NAME: Final = "s:x"
_FEW: Final = 4
_MORE: Final = 8

UNSWEPT: Final = Masked(
    "a sweep that did not end",
    "groups.md",
    "A switch that ends early may leave some totals as they were: switch again.",
)


class _Ranking(NamedTuple):
    """The state of the model.

    Attributes:
        on: whether totals are ranked.
        partitions: how many the ranking has.
        loose: whether the position of the total may be anything.
    """

    on: bool = False
    partitions: int = _FEW
    loose: bool = False


def _model(ranking: _Ranking, call: str) -> Iterator[Effect]:
    if call == "on with 4" and ranking.partitions > _FEW:
        yield Effect(BadSetting, ranking)
        return
    partitions = _MORE if call == "on with 8" else ranking.partitions
    after = ranking._replace(on=call != "off", partitions=partitions)
    yield Effect(is_number, after)
    yield Effect(never, after._replace(loose=True), UNSWEPT)


def _agrees(ranking: _Ranking, contents: Contents) -> bool:
    def item(key: Item) -> Item | None:
        found = contents.tables[COUNTERS].get((key["counter"], key["part"]))
        return None if found is None else dict(found)

    rule, total = item(keys.ranking_key(_NAMESPACE)), item(keys.total_key(_NAME)) or {}
    if (bool(is_on(rule)), kept_partitions(rule)) != ranking[:2]:
        return False
    place = total.get("ranked")
    if ranking.loose or not ranking.on:
        return ranking.loose or place is None
    return place in namespace_board(_NAMESPACE, ranking.partitions).buckets


def _switch_on(ledger: CountLedger, partitions: int | None = None) -> int:
    return ledger.rankings.switch_on(_NAMESPACE, wait=False, partitions=partitions)


def _begun(ledger: CountLedger) -> None:
    ledger.strict.create(_NAME, method="occ", opening=5)


def _begun_and_on(ledger: CountLedger) -> None:
    _begun(ledger)
    _switch_on(ledger)


def _faults(scripts: tuple[Script, ...]) -> int | None:
    """Two calls beside two others without a fault; of three at once none adds partitions."""
    if len(scripts) == 3 and ("on with 8",) in scripts:
        return None
    return 0 if sum(map(len, scripts)) > 3 else fewer_beside_more(scripts)


RANKINGS: Final = Capability(
    name="rankings",
    calls={
        "on": _switch_on,
        "on with 4": lambda ledger: _switch_on(ledger, _FEW),
        "on with 8": lambda ledger: _switch_on(ledger, _MORE),
        "off": lambda ledger: ledger.rankings.switch_off(_NAMESPACE),
    },
    scripts=(("on",), ("on with 8",), ("off",), ("on", "off"), ("on with 8", "on with 4")),
    starts={
        "off": Beginnings(_begun, _Ranking()),
        "on": Beginnings(_begun_and_on, _Ranking(on=True)),
    },
    model=_model,
    agrees=_agrees,
    masks=(UNSWEPT,),
    certainty=certainty_of_several,
    faults=_faults,
    prepare=lambda ledger: ledger.namespaces.get(_NAMESPACE),
    bounds=Bounds(jumps_ms=(14 * MINUTE_MS,)),
)
