"""P9: what an alert costs, in write and read units; a total without a rule costs nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import pytest

from countledger.consumers.alerts.delivery import AlertLog, DeadLetter
from countledger.consumers.alerts.evaluator import Evaluator
from countledger.consumers.alerts.message import Alert, FailedAlert
from countledger.consumers.alerts.rule import Rule, Target
from countledger.consumers.alerts.rule_index import RuleIndex
from countledger.consumers.total_writer import windows_of
from countledger.ledger import keys
from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.operations import Put
from countledger.ledger.windows import encode_settings
from tests.engines.store import KeptRecords, Record, Store
from tests.unit.alerts.evaluating import history, rule
from tests.unit.alerts.test_window_rules import record, setting
from tests.unit.connections import through
from tests.unit.ledger.clocks import ManualClock


@dataclass
class Heard:
    """Takes every alert."""

    alerts: list[Alert] = field(default_factory=list)

    def publish(self, alerts: Sequence[Alert], target: Target) -> list[FailedAlert]:
        """Take them."""
        assert str(target) == "bus"
        self.alerts += alerts
        return []

    def put(self, letter: DeadLetter) -> None:
        """Nothing is refused here."""
        raise AssertionError(letter)


@dataclass
class Evaluating:
    """An evaluator on an engine, whose units are counted."""

    store: Store
    rules: list[Rule]
    dynamo: DynamoClient
    heard: Heard = field(default_factory=Heard)

    def index(self) -> RuleIndex:
        """The rules, looked up as the product does."""
        return RuleIndex(self.rules)

    def spent(self, records: Sequence[Record]) -> tuple[float, float]:
        """Evaluate a batch: write and read units."""
        dynamo = self.dynamo.metered()
        evaluator = Evaluator(
            through(self.store.connection, dynamo, dynamo, ManualClock()),
            self,
            self.heard,
            self.heard,
            KeptRecords(),
            windows_of(self.store.process(dynamo=dynamo)),
        )
        assert evaluator.apply(records, "stream").retry_from is None
        return dynamo.meter.write_units, dynamo.meter.read_units


@pytest.fixture
def evaluating(store: Store) -> Evaluating:
    """With one rule."""
    return Evaluating(store, [rule(10)], store.dynamo())


def test_p9_a_total_without_a_rule_costs_nothing(evaluating: Evaluating, counter: str) -> None:
    """No write and no read, whatever it does."""
    evaluating.rules[:] = [rule(10, prefix="another")]

    assert evaluating.spent(history([5, 15, 5], counter=counter)) == (0, 0)


def test_p9_an_update_that_crosses_nothing_costs_nothing(
    evaluating: Evaluating, counter: str
) -> None:
    assert evaluating.spent(history([5, 6, 7], counter=counter)) == (0, 0)


def test_p9_an_alert_costs_four_write_units(evaluating: Evaluating, counter: str) -> None:
    """State, mark, and two for the log; no read."""
    assert evaluating.spent(history([15], counter=counter)) == (4, 0)
    assert evaluating.spent(history([5, 15], counter=f"{counter}/2")) == (4, 0)


def test_p9_an_alert_that_comes_again_costs_one_refused_write(
    evaluating: Evaluating, counter: str
) -> None:
    batch = history([15], counter=counter)
    evaluating.spent(batch)

    assert evaluating.spent(batch) == (1, 0)


def test_p9_an_alert_of_a_window_costs_the_same_and_its_setting_a_read(
    evaluating: Evaluating, counter: str
) -> None:
    """Half an hour of minutes, one of which crosses; the others, and what follows, cost nothing."""
    table, item = evaluating.store.counters, "hour#2026-11-22T13:30"
    settings = encode_settings(keys.namespace_of(counter), [setting()])
    evaluating.dynamo.put(Put(table, settings))
    evaluating.rules[:] = [rule(10, window="minute")]
    first = [record(1, None, {"30": 9, "31": 9}, item=item, counter=counter)]
    second = [record(2, {"30": 9, "31": 9}, {"30": 12, "31": 9}, item=item, counter=counter)]
    third = [record(3, {"30": 12, "31": 9}, {"30": 15, "31": 9}, item=item, counter=counter)]

    assert evaluating.spent(first) == (0, 0)
    assert evaluating.spent(second) == (4, 1)
    assert evaluating.spent(third) == (0, 0)


def test_p9_a_rearm_level_costs_a_read_for_each_batch(evaluating: Evaluating, counter: str) -> None:
    evaluating.rules[:] = [rule(10, rearm=5)]
    batch = history([15, 4, 3], counter=counter)

    assert evaluating.spent(batch[:1]) == (4, 1)
    assert evaluating.spent(batch[1:]) == (1, 1)
    assert evaluating.spent(history([1, 2, 3], counter=f"{counter}/2")) == (0, 1)


def test_p9_many_thresholds_at_once_cost_by_the_length_of_their_numbers(
    evaluating: Evaluating, counter: str
) -> None:
    """They lie in one state: a hundred short ones as one alert; longest ones four times that."""
    evaluating.rules[:] = [rule(1, step=1)]

    assert evaluating.spent(history([100], counter=counter)) == (4, 0)
    assert len(evaluating.heard.alerts) == 100

    evaluating.rules[:] = [rule(10**30, step=Decimal("0.1"), name="long")]
    assert evaluating.spent(history([10**30 + 9], counter=counter)) == (16, 0)


def test_p9_the_log_lists_newest_first_for_half_a_unit(
    evaluating: Evaluating, counter: str
) -> None:
    """Of one counter, or of all; what one update sets off stands together, last threshold first."""
    evaluating.rules[:] = [rule(10, step=10)]
    evaluating.spent(history([25, 35], counter=counter))
    evaluating.spent(history([15], counter=f"{counter}/2"))
    dynamo = evaluating.dynamo.metered()
    log = AlertLog(through(evaluating.store.connection, dynamo, dynamo, ManualClock()))

    mine = [(one.alert.version, one.alert.threshold) for one in log.newest(counter)]

    assert mine == [(2, 30), (1, 20), (1, 10)]
    assert dynamo.meter.read_units == 0.5
    newest = [one.alert.threshold for one in log.newest(counter, limit=2)]
    assert newest == [30, 20]
    assert [one.alert.threshold for one in log.newest(counter, limit=1)] == [30]
    everything = {(one.alert.counter, one.alert.threshold) for one in log.newest()}
    assert {(counter, 30), (f"{counter}/2", 10)} <= everything
