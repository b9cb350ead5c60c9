"""Judges without one of their rules, each of which must be noticed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from countledger.consumers.alerts import judge as judge_module
from countledger.consumers.alerts import state_item
from countledger.consumers.alerts.chain import ChainJudge, Judged, Link
from countledger.consumers.alerts.rule import Rule
from countledger.consumers.alerts.state import State, Tell, Write, decide, told
from countledger.consumers.alerts.state_item import encode_state, settle_of
from countledger.consumers.alerts.teller import Teller
from countledger.ledger.errors import ConditionFailed
from countledger.ledger.expressions import Absent, AnyOf, Compare
from countledger.ledger.operations import Put
from tests.unit.alerts.judging import TABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from countledger.consumers.alerts.alert import Firing
    from countledger.consumers.alerts.total_change import Move


class Hasty(ChainJudge):
    """Goes on behind a move that failed."""

    __slots__ = ()

    def judge(self, links: Sequence[Link]) -> Judged:
        """Each move for itself."""
        whole = Judged()
        for link in links:
            one = ChainJudge.judge(self, [link])
            if whole.error is None:
                whole.failed_at, whole.error = one.failed_at, one.error
        return whole


def next_alerts_do_not_wait(patch: pytest.MonkeyPatch) -> None:
    """A state is written whether the alerts of the last one have been told or not."""

    def write_of(table: str, write: Write) -> Put:
        if write.over is not None:  # beside a total that stood
            return state_item.write_of(table, write)
        before = AnyOf(Absent("version"), Compare("version", "<", write.state.version))
        return Put(table, encode_state(write.state), before)

    def decide_at_once(state: State | None, move: Move, rule: Rule) -> Tell | Write | None:
        passed = state is not None and state.version < move.version
        return decide(told(state) if state is not None and passed else state, move, rule)

    patch.setattr(
        judge_module, "ChainJudge", partial(Hasty, write_of=write_of, decide=decide_at_once)
    )


def judged_versions_are_judged_again(patch: pytest.MonkeyPatch) -> None:
    """A state is written whatever version stands there."""

    def write_of(table: str, write: Write) -> Put:
        return Put(
            table, encode_state(write.state), AnyOf(Absent("told"), Compare("told", "=", True))
        )

    def decide_anyway(state: State | None, move: Move, rule: Rule) -> Tell | Write | None:
        known = (
            state if state is None or state.version == move.version else replace(state, version=0)
        )
        return decide(known, move, rule)

    patch.setattr(
        judge_module, "ChainJudge", partial(ChainJudge, write_of=write_of, decide=decide_anyway)
    )


def marked_before_it_is_told(patch: pytest.MonkeyPatch) -> None:
    """The mark comes first, and a crash behind it loses the alerts."""
    tell = Teller.tell

    def marked(teller: Teller, firing: Firing) -> int:
        # Of a total that stood it is another mark.
        with suppress(ConditionFailed):
            teller.dynamo.update(settle_of(TABLE, Tell(firing)))
        return tell(teller, firing)

    patch.setattr(Teller, "tell", marked)


def judged_by_the_rules_of_today(patch: pytest.MonkeyPatch) -> None:
    """What is delivered late is judged by the revision that is in force by then."""
    patch.setattr(Rule, "in_force_at", lambda rule, _at_ms: rule.effective_until_ms is None)


def levels_are_not_looked_up(patch: pytest.MonkeyPatch) -> None:
    """The judge of a rule with a re-arm level begins without its state."""
    patch.setattr(ChainJudge, "_read", lambda _judge, _link: None)
