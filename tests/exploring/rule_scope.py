"""Alert rules: create, change, delete.

The state of the model is the threshold of the rule; 0: there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from countledger.consumers.alerts.rules import RuleSnapshot, snapshot_of
from countledger.infra.memory.tables import COUNTERS
from countledger.ledger import keys
from countledger.ledger.errors import NoSuchRule, RuleExists
from countledger.ledger.limits import MINUTE_MS
from tests.exploring.linear import Effect
from tests.exploring.scope import Beginnings, Capability
from tests.exploring.search import Bounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.client import CountLedger
    from tests.exploring.search import Situation
    from tests.exploring.world import Contents

_NAME: Final = "r"
_COUNTER: Final = "likes:a"
# What each call writes; 0: it deletes.
_THRESHOLD: Final = {"create 10": 10, "create 15": 15, "set 20": 20, "delete": 0}


def _model(threshold: int, call: str) -> Iterator[Effect]:
    wanted = _THRESHOLD[call]
    if call == "delete":
        yield Effect(threshold > 0, 0)
    elif call == "set 20":
        yield Effect(wanted, wanted) if threshold else Effect(NoSuchRule, 0)
    elif threshold:
        yield Effect(RuleExists, threshold)
    else:
        yield Effect(wanted, wanted)


def _rules(contents: Contents) -> RuleSnapshot:
    items = contents.tables[COUNTERS].items()
    return snapshot_of(dict(item) for key, item in sorted(items) if key[0] == keys.ALERT_RULES)


def _agrees(threshold: int, contents: Contents) -> bool:
    rule = _rules(contents).current.get(_NAME)
    return (0 if rule is None else rule.threshold) == threshold


def _holds(state: Situation) -> bool:
    """The checksum of the stamp fits the rules."""
    return _rules(state.contents).is_whole


def _create(ledger: CountLedger, threshold: int) -> int:
    rule = ledger.alerts.create(_NAME, counter=_COUNTER, threshold=threshold, direction="rising")
    return int(rule.threshold)


def _without(ledger: CountLedger) -> None:
    ledger.namespaces.create("likes")


def _with(ledger: CountLedger) -> None:
    _without(ledger)
    _create(ledger, 15)


RULES: Final = Capability(
    name="alert rules",
    calls={
        "create 10": lambda ledger: _create(ledger, 10),
        "create 15": lambda ledger: _create(ledger, 15),
        "set 20": lambda ledger: int(ledger.alerts.set(_NAME, threshold=20).threshold),
        "delete": lambda ledger: ledger.alerts.delete(_NAME),
    },
    scripts=(
        ("create 10",),
        ("delete", "create 15"),
        ("set 20",),
        ("delete",),
        ("create 10", "delete"),
    ),
    starts={"none": Beginnings(_without, 0), "a rule": Beginnings(_with, 15)},
    model=_model,
    agrees=_agrees,
    holds=_holds,
    prepare=lambda ledger: ledger.namespaces.get("likes"),
    bounds=Bounds(jumps_ms=(14 * MINUTE_MS,)),
)
