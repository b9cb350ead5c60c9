"""Wrong variants of the evaluator and of the rules of alerts."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from countledger.consumers.alerts import evaluator, message, service, state
from countledger.consumers.alerts import evaluator as evaluator_module
from countledger.consumers.alerts.crossing import TotalChange
from countledger.consumers.alerts.delivery import QueueDeadLetters
from countledger.consumers.alerts.evaluator import ChainEvaluator, ChainOutcome, Link, Notifier
from countledger.consumers.alerts.message import Firing
from countledger.consumers.alerts.rule import Rule
from countledger.consumers.alerts.rules import RecentRules, Rules
from countledger.consumers.alerts.state import (
    AlertState,
    PublishFiring,
    WriteState,
    decide,
    encode_state,
    published_write_of,
)
from countledger.infra.template import mapping_settings
from countledger.ledger.calendar import Per, Window, window_of, zone_of
from countledger.ledger.errors import ConditionFailed
from countledger.ledger.operations import Absent, AnyOf, Compare, Put
from tests.simulation import evaluating, transactions
from tests.simulation.canary import Canary
from tests.simulation.shape import COUNTERS, WINDOW_ALERTS
from tests.simulation.world import BEGIN_MS
from tests.switches import all_of, replaced, wrapped


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


def _write_over_unpublished(table: str, write: WriteState) -> Put:
    """A state is written whether the alerts of the last one have been published or not."""
    if write.over is not None:  # beside the total of an initial scan
        return state.write_of(table, write)
    before = AnyOf(Absent("version"), Compare("version", "<", write.state.version))
    return Put(table, encode_state(write.state), before)


def _decide_at_once(
    state: AlertState | None, change: TotalChange, rule: Rule
) -> PublishFiring | WriteState | None:
    passed = state is not None and state.version < change.version
    return decide(replace(state, published=True) if state and passed else state, change, rule)


def _write_any_version(table: str, write: WriteState) -> Put:
    published = AnyOf(Absent("published"), Compare("published", "=", True))
    return Put(table, encode_state(write.state), published)


def _decide_any_version(
    state: AlertState | None, change: TotalChange, rule: Rule
) -> PublishFiring | WriteState | None:
    known = state if state is None or state.version == change.version else replace(state, version=0)
    return decide(known, change, rule)


def _marked(publish: Any, notifier: Notifier, firing: Firing) -> Any:  # noqa: ANN401 - handed on
    """The mark comes first, and a crash after it loses the alerts."""
    # A firing of an initial scan has another mark.
    with suppress(ConditionFailed):
        notifier.connection.retrying.update(published_write_of(COUNTERS, PublishFiring(firing)))
    return publish(notifier, firing)


def _chain(of: type[ChainEvaluator], write_of: object, decide: object) -> partial[ChainEvaluator]:
    parts: Any = {"write_of": write_of, "decide": decide}
    return partial(of, **parts)


def _of_arrival(_setting: object, item: str, _cell: str) -> tuple[Per, Window]:
    """The window of the alert is that of the day on which it is evaluated."""
    per = Per.DAY if item.startswith("month") else Per.HOUR
    return per, window_of(int(BEGIN_MS), per, zone_of("UTC"))


CANARIES: Final = [
    Canary(
        "alerts of windows: each window has a state of its own",
        all_of(
            replaced(message, "state_name", lambda rule, _window: rule),
            replaced(evaluator, "state_name", lambda rule, _window: rule),
        ),
        WINDOW_ALERTS,
        seed=3,
        rare=True,
    ),
    Canary(
        "alerts of windows: the window is that of business time",
        replaced(evaluator, "_named", _of_arrival),
        WINDOW_ALERTS,
        seed=0,
    ),
    Canary(
        "alerts: batches are not halved",
        replaced(
            evaluating,
            "mapping_settings",
            lambda _id: replace(mapping_settings("EvaluatorMapping"), bisect=True),
        ),
        "alerts",
        seed=58,
    ),
    Canary(
        "alerts: versions",
        replaced(
            evaluator_module,
            "ChainEvaluator",
            _chain(ChainEvaluator, _write_any_version, _decide_any_version),
        ),
        "alerts",
        seed=30,
        rare=True,
    ),
    Canary(
        "alerts: the next change waits for the last",
        replaced(
            evaluator_module,
            "ChainEvaluator",
            _chain(Hasty, _write_over_unpublished, _decide_at_once),
        ),
        "alerts",
        seed=126,
        rare=True,
    ),
    Canary(
        "alerts: published, then marked", wrapped(Notifier, "publish", _marked), "alerts", seed=2
    ),
    # What is delivered late is evaluated by the revision that is effective by then.
    Canary(
        "alerts: the time of a record",
        replaced(Rule, "is_effective_at", lambda rule, _at_ms: rule.effective_until_ms is None),
        "alerts",
        seed=0,
    ),
    # The evaluator of a rule with a re-arm level begins without its state.
    Canary(
        "alerts: re-arm levels",
        replaced(ChainEvaluator, "_read", lambda *_: None),
        "alerts",
        seed=65,
        rare=True,
    ),
    # The items of a transaction land far apart here, so that a query meets half of one more often.
    Canary(
        "alerts: no half change of a rule",
        all_of(
            replaced(RecentRules, "_is_final", lambda *_: True),
            replaced(transactions, "_SPREAD_MS", (300,)),
        ),
        "alerts",
        seed=207,
        rare=True,
    ),
    Canary(
        "alerts: a change leaves in time",
        replaced(Rules, "refuse_late", lambda *_: None),
        "alerts",
        seed=34,
        rare=True,
    ),
    Canary(
        "alerts: an initial scan waits until the rule is effective",
        replaced(service, "wait_until_effective", lambda *_: None),
        "alerts",
        seed=23,
    ),
    Canary(
        "alerts: an initial scan keeps the state before it",
        replaced(state, "state_before", lambda known, _change: known),
        "alerts",
        seed=11,
    ),
    Canary(
        "alerts: dead letters", replaced(QueueDeadLetters, "put", lambda *_: None), "alerts", seed=0
    ),
]
