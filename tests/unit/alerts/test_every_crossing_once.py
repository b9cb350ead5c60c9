"""P7: the alerts are those of a walk over the totals, whatever happens to the evaluator.

The world: two counters, rules of every kind that are changed meanwhile, and deliveries that come
again, in pieces, die at any write, meet targets and dead-letter queues that fail, or are overtaken
by another invocation at any write.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from countledger.consumers.record import sequence_of
from countledger.ledger.limits import SECOND_MS
from tests.unit.alerts.evaluating import START_MS, TABLE, InterruptedClient, World, history, rule
from tests.unit.alerts.walk import expected
from tests.unit.alerts.wrong_evaluators import (
    evaluated_by_the_rules_of_today,
    evaluated_versions_are_evaluated_again,
    levels_are_not_looked_up,
    marked_before_it_is_published,
    next_alerts_do_not_wait,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.consumers.alerts.rule import Rule


COUNTERS = ("a:one", "b:two")


class Died(BaseException):
    """The process ends here."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One invocation, and what happens to it.

    Attributes:
        back: how many handled records come again with it.
        size: how many records it brings.
        at: at which of its writes (before it, behind it, each counts) something happens.
        dies: whether it dies there; else another invocation runs there from end to end.
        refusals: how many calls the target refuses, and the dead letters.
    """

    back: int
    size: int
    at: int | None
    dies: bool
    refusals: tuple[int, int]


@dataclass(slots=True)
class Stream:
    """A shard, and how far its mapping has come."""

    world: World
    records: list[dict[str, Any]]
    handled: int = 0
    _writes: int = field(default=0)

    def deliver(self, one: Delivery) -> None:
        """Invoke the evaluator, and change the checkpoint by its answer."""
        begin = max(0, self.handled - one.back)
        batch = self.records[begin : begin + one.size]
        dynamo = InterruptedClient(tables=self.world.dynamo.tables, interrupt=self._interrupt(one))
        self._writes = 0
        self.world.targets.refuses, self.world.letters.refuses = one.refusals
        try:
            self._invoke(begin, batch, dynamo)
        except Died:
            return

    def finish(self) -> None:
        """Nothing fails any more; all that is left is delivered."""
        self.world.targets.refuses = self.world.letters.refuses = 0
        self._invoke(self.handled, self.records[self.handled :], self.world.dynamo)

    def _invoke(self, begin: int, batch: list[dict[str, Any]], dynamo: Any) -> None:  # noqa: ANN401
        outcome = self.world.evaluator(dynamo).apply(batch, "stream")
        done = begin + len(batch)
        if outcome.retry_from is not None:
            sequences = [sequence_of(record) for record in self.records]
            done = sequences.index(outcome.retry_from)
        self.handled = max(self.handled, done)

    def _interrupt(self, one: Delivery) -> Any:  # noqa: ANN401 - called by the client
        def happen(_when: str) -> None:
            self._writes += 1
            if self._writes != (one.at or 0):
                return
            if one.dies:
                raise Died
            begin = max(0, self.handled - one.back)
            self._invoke(begin, self.records[begin : begin + one.size + 3], self.world.dynamo)

        return happen


@st.composite
def _rules(draw: st.DrawFn) -> list[Rule]:
    """One or two rules, each followed by another revision at some time, or not."""
    found: list[Rule] = []
    for n in range(draw(st.integers(1, 2))):
        revisions = [_revision(draw, f"rule-{n}", f"r{n}.{k}") for k in range(2)]
        changed_ms = START_MS + draw(st.integers(0, 30)) * SECOND_MS
        first, second = revisions
        found.append(replace(first, effective_until_ms=changed_ms))
        if draw(st.booleans()):
            found.append(replace(second, effective_from_ms=changed_ms))
    return found


def _revision(draw: st.DrawFn, name: str, revision: str) -> Rule:
    threshold = draw(st.integers(-3, 3))
    direction = draw(st.sampled_from(["rising", "falling", "both"]))
    kind = draw(st.sampled_from(["plain", "step", "rearm"]))
    more: dict[str, Any] = {}
    if kind == "step":
        more = {"step": draw(st.integers(1, 4))}
    if kind == "rearm" and direction != "both":
        gap = draw(st.integers(1, 3))
        more = {"rearm": threshold - gap if direction == "rising" else threshold + gap}
    prefix = draw(st.sampled_from(["", "a:"]))
    return rule(threshold, direction, name=name, revision=revision, prefix=prefix, **more)


@st.composite
def _records(draw: st.DrawFn) -> list[dict[str, Any]]:
    """The updates of both totals, shuffled as a shard may show them."""
    left = [
        history(
            draw(st.lists(st.integers(-6, 6), min_size=3, max_size=9).filter(lambda t: t[0] != 0)),
            counter=counter,
            at_s=lambda version: 3 * version,
        )
        for counter in COUNTERS
    ]
    shown: list[dict[str, Any]] = []
    while any(left):
        feed = draw(st.sampled_from([one for one in left if one]))
        record = feed.pop(0)
        record["dynamodb"]["SequenceNumber"] = str(10**20 + len(shown))
        shown.append(record)
    return shown


_DELIVERIES = st.lists(
    st.builds(
        Delivery,
        back=st.integers(0, 5),
        size=st.integers(1, 8),
        at=st.none() | st.integers(1, 14),
        dies=st.booleans(),
        refusals=st.tuples(st.integers(0, 2), st.integers(0, 1)),
    ),
    min_size=1,
    max_size=8,
)


def check(records: list[dict[str, Any]], rules: list[Rule], deliveries: list[Delivery]) -> None:
    """The set of ids is that of the walk, told in its order for each counter and rule."""
    world = World(rules)
    stream = Stream(world, records)

    for one in deliveries:
        stream.deliver(one)
    stream.finish()

    wanted = expected(records, rules)
    first_told = list(dict.fromkeys(world.targets.journal))
    assert sorted(first_told) == sorted(wanted)
    for counter in COUNTERS:
        for name in {one.name for one in rules}:
            mine = [one for one in wanted if _is_of(one, counter, name)]
            assert [one for one in first_told if _is_of(one, counter, name)] == mine
    assert all(item["published"] for item in world.dynamo.items(TABLE) if "published" in item)
    assert world.quarantine.records == []


def _is_of(alert_id: str, counter: str, name: str) -> bool:
    return alert_id.endswith(f"/{counter}") and f"/{name}@" in alert_id


@settings(deadline=None, max_examples=250)
@given(_records(), _rules(), _DELIVERIES)
def test_p7_every_crossing_alerts_once_whatever_happens_to_the_evaluator(
    records: list[dict[str, Any]], rules: list[Rule], deliveries: list[Delivery]
) -> None:
    """As a walk over the totals says: none is lost, none is made that is not there."""
    check(records, rules, deliveries)


# ---- each rule of the protocol switched off: the same check must then fail ----


@pytest.mark.parametrize(
    "switch_off",
    [
        next_alerts_do_not_wait,
        evaluated_versions_are_evaluated_again,
        marked_before_it_is_published,
        evaluated_by_the_rules_of_today,
        levels_are_not_looked_up,
    ],
)
def test_without_one_of_its_rules_the_evaluator_is_wrong(
    switch_off: Callable[[pytest.MonkeyPatch], None],
) -> None:
    """Else the check above sees nothing of that rule."""
    search = settings(
        deadline=None,
        max_examples=3_000,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
    )
    with pytest.MonkeyPatch.context() as patch:
        switch_off(patch)
        with pytest.raises(AssertionError):
            search(given(_records(), _rules(), _DELIVERIES)(check))()
