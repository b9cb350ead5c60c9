"""The table of months in docs/costs.md is what `countledger cost` says."""

from tools.guide.costs import COSTS, cost_tables
from tools.guide.marked import with_tables


def test_the_page_of_costs_has_the_months_that_the_command_says() -> None:
    text = COSTS.read_text()

    assert text == with_tables(text, cost_tables())
