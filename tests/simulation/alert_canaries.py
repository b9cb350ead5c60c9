"""Wrong variants of the evaluator, each without one of its rules."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from countledger.consumers.alerts import evaluator as evaluator_module
from countledger.consumers.alerts import state_item
from countledger.consumers.alerts.chain import ChainEvaluator, ChainOutcome, Link, Notifier
from countledger.consumers.alerts.rule import Rule
from countledger.consumers.alerts.state import decide
from countledger.consumers.alerts.state_item import (
    AlertState,
    PublishFiring,
    WriteState,
    encode_state,
    published_write_of,
)
from countledger.ledger.errors import ConditionFailed
from countledger.ledger.expressions import Absent, AnyOf, Compare
from countledger.ledger.operations import Put
from tests.simulation.shape import COUNTERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from countledger.consumers.alerts.alert import Firing
    from countledger.consumers.alerts.crossing import TotalChange


class Hasty(ChainEvaluator):
    """Goes on behind a change that failed."""

    __slots__ = ()

    def evaluate(self, links: Sequence[Link]) -> ChainOutcome:
        """Each change for itself."""
        whole = ChainOutcome()
        for link in links:
            one = ChainEvaluator.evaluate(self, [link])
            if whole.error is None:
                whole.failed_at, whole.error = one.failed_at, one.error
        return whole


def next_alerts_do_not_wait(patch: pytest.MonkeyPatch) -> None:
    """A state is written whether the alerts of the last one have been told or not."""

    def write_of(table: str, write: WriteState) -> Put:
        if write.over is not None:  # beside a total that stood
            return state_item.write_of(table, write)
        before = AnyOf(Absent("version"), Compare("version", "<", write.state.version))
        return Put(table, encode_state(write.state), before)

    def decide_at_once(
        state: AlertState | None, change: TotalChange, rule: Rule
    ) -> PublishFiring | WriteState | None:
        passed = state is not None and state.version < change.version
        return decide(replace(state, published=True) if state and passed else state, change, rule)

    patch.setattr(
        evaluator_module, "ChainEvaluator", partial(Hasty, write_of=write_of, decide=decide_at_once)
    )


def evaluated_versions_are_evaluated_again(patch: pytest.MonkeyPatch) -> None:
    """A state is written whatever version scanned there."""

    def write_of(table: str, write: WriteState) -> Put:
        return Put(
            table,
            encode_state(write.state),
            AnyOf(Absent("published"), Compare("published", "=", True)),
        )

    def decide_anyway(
        state: AlertState | None, change: TotalChange, rule: Rule
    ) -> PublishFiring | WriteState | None:
        known = (
            state if state is None or state.version == change.version else replace(state, version=0)
        )
        return decide(known, change, rule)

    patch.setattr(
        evaluator_module,
        "ChainEvaluator",
        partial(ChainEvaluator, write_of=write_of, decide=decide_anyway),
    )


def marked_before_it_is_published(patch: pytest.MonkeyPatch) -> None:
    """The mark comes first, and a crash behind it loses the alerts."""
    publish = Notifier.publish

    def marked(notifier: Notifier, firing: Firing) -> int:
        # Of a total that stood it is another mark.
        with suppress(ConditionFailed):
            notifier.dynamo.update(published_write_of(COUNTERS, PublishFiring(firing)))
        return publish(notifier, firing)

    patch.setattr(Notifier, "publish", marked)


def evaluated_by_the_rules_of_today(patch: pytest.MonkeyPatch) -> None:
    """What is delivered late is evaluated by the revision that is in force by then."""
    patch.setattr(Rule, "is_effective_at", lambda rule, _at_ms: rule.effective_until_ms is None)


def levels_are_not_looked_up(patch: pytest.MonkeyPatch) -> None:
    """The evaluator of a rule with a re-arm level begins without its state."""
    patch.setattr(ChainEvaluator, "_read", lambda _judge, _link: None)
