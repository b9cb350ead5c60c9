"""The look-up of rules by counter."""

import sys
from types import FrameType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from countledger.consumers.alerts.rule import Direction, Rule
from countledger.consumers.alerts.rule_index import RuleIndex

# Few letters, so that names meet, begin with each other and are equal.
NAMES = st.text("ab", min_size=1, max_size=5)


def _rule(n: int, *, counter: str | None = None, prefix: str | None = None) -> Rule:
    return Rule(
        name=f"r{n}",
        counter=counter,
        prefix=prefix,
        threshold=1,
        direction=Direction.RISING,
        evaluate_in="eu",
    )


@given(st.lists(NAMES), st.lists(NAMES | st.just("")), st.lists(NAMES, min_size=1))
def test_a_counters_rules_are_all_that_cover_it_and_no_other(
    counters: list[str], prefixes: list[str], asked: list[str]
) -> None:
    rules = [_rule(n, counter=counter) for n, counter in enumerate(counters)]
    rules += [_rule(n + 1_000, prefix=prefix) for n, prefix in enumerate(prefixes)]
    index = RuleIndex(rules)

    for counter in asked:
        found = [rule.name for rule in index.matching(counter)]
        assert sorted(found) == sorted(rule.name for rule in rules if rule.covers(counter))


def test_the_order_is_always_the_same() -> None:
    rules = [_rule(n, prefix="a" * (n % 3)) for n in range(9)] + [_rule(10, counter="aaa")]

    assert RuleIndex(rules).matching("aaa") == RuleIndex(reversed(rules)).matching("aaa")


def test_a_look_up_is_no_walk_over_the_rules() -> None:
    def steps(rules: int) -> int:
        index = RuleIndex(_rule(n, prefix=f"shop{n:06}:") for n in range(rules))
        lines = 0

        def count(_frame: FrameType, event: str, _argument: object) -> Any:  # noqa: ANN401 - of the interpreter
            nonlocal lines
            lines += event == "line"
            return count

        before = sys.gettrace()
        sys.settrace(count)
        try:
            found = index.matching(f"shop{rules // 2:06}:cart")
            assert index.matching("shop") == ()
        finally:
            sys.settrace(before)
        assert len(found) == 1
        return lines

    assert steps(10_000) == steps(100)
