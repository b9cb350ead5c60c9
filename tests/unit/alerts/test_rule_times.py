"""Which revision evaluates a record, by whomever and whenever: the same one, always."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from countledger.consumers.alerts.rule import Direction, Rule
from countledger.consumers.alerts.rule_index import RuleCache, RuleIndex
from countledger.consumers.alerts.rules import Rules
from countledger.ledger.limits import ALERT_RULE_DELAY_MS, SECOND_MS
from tests.unit.connections import connection_on
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import MemoryClient

COUNTER: Final = "likes:1"
RULE: Final = Rule(
    name="r", counter=COUNTER, threshold=1, direction=Direction.RISING, evaluate_in="eu"
)

# What happens, so many milliseconds after what happened before.
Happening = tuple[int, str]
HAPPENINGS = st.lists(
    st.tuples(
        st.integers(0, 9_000),
        st.sampled_from(["create", "set", "delete", "record", "evaluator", "evaluator"]),
    ),
    max_size=40,
)


@dataclass
class World:
    """Rules that change while an evaluator that keeps what it knows meets records."""

    delay_ms: int = ALERT_RULE_DELAY_MS
    clock: ManualClock = field(default_factory=ManualClock)
    dynamo: MemoryClient = field(default_factory=MemoryClient)
    changes: int = 0
    waiting: list[int] = field(default_factory=list)
    evaluated: dict[int, list[set[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rules = Rules(connection_on(self.dynamo, self.clock, region="eu"), self.delay_ms)
        self.cache = RuleCache(self.rules)

    def run(self, happenings: Sequence[Happening]) -> None:
        """All of it, one after the other; in the end every record comes again."""
        for after_ms, what in happenings:
            self.clock.at_ms += after_ms
            getattr(self, what)()
        self.evaluated_late()

    def create(self) -> None:
        if not self.rules.list():
            self.rules.create(RULE)

    def set(self) -> None:
        """Let another revision follow, if there is one to follow."""
        self.changes += 1
        threshold = self.changes
        if self.rules.list():
            self.rules.set("r", lambda rule: replace(rule, threshold=threshold + 1))

    def delete(self) -> None:
        self.rules.delete("r")

    def record(self) -> None:
        """The stream makes a record; nobody has met it yet."""
        self.waiting.append(self.clock.at_ms // SECOND_MS * SECOND_MS)

    def evaluator(self) -> None:
        """The records that wait come to the evaluator, which may know older rules."""
        self._judge(self.cache.index())

    def evaluated_late(self) -> None:
        """All records come (again), to an evaluator that reads the rules anew."""
        self.waiting += self.evaluated
        self._judge(RuleCache(self.rules).index())

    def _judge(self, index: RuleIndex) -> None:
        for at_ms in self.waiting:
            by = {rule.revision for rule in index.matching(COUNTER) if rule.is_effective_at(at_ms)}
            self.evaluated.setdefault(at_ms, []).append(by)
        self.waiting.clear()


@given(HAPPENINGS)
def test_a_record_is_evaluated_by_the_same_revision_whenever_it_comes(
    happenings: list[Happening],
) -> None:
    """By one evaluator that may not have looked for changes just now, and by one that has.

    And never by two revisions at once, however fast they follow each other.
    """
    world = World()

    world.run(happenings)

    for met in world.evaluated.values():
        assert all(by == met[0] for by in met)
        assert len(met[0]) <= 1


def test_without_the_delay_a_record_would_be_evaluated_in_two_ways() -> None:
    world = World(delay_ms=0)

    # The evaluator has just looked; the change holds from the next whole second, which it still
    # meets with what it knows.
    world.run([(1, "evaluator"), (1, "create"), (998, "record"), (0, "evaluator")])

    assert any(met[0] != met[-1] for met in world.evaluated.values())
