"""A membership is deleted by its id: a late request takes none that was added since."""

from __future__ import annotations

import pytest

from countledger.consumers.groups import Groups
from countledger.consumers.totals import TotalsReader
from countledger.ledger import keys
from countledger.ledger.errors import AlreadyRanked
from tests.unit.compaction.parts import COUNTERS
from tests.unit.compaction.test_deletion import COUNTER
from tests.unit.compaction.test_reused_names import Reusing

GROUP = "posts"
OTHER = "others"


class Grouped(Reusing):
    """A counter that has a total, groups, and a client at which somebody else acts."""

    @property
    def groups(self) -> Groups:
        """Of a process of its own."""
        totals = TotalsReader(self.dynamo, COUNTERS)
        return Groups(totals, self.stack.namespaces, self.stack.clock)

    def ranked(self, *groups: str) -> None:
        """Groups that are ranked, without members."""
        for group in groups:
            self.groups.add(group, [])
            self.groups.switch_ranking(group, on=True)


@pytest.mark.parametrize("ranked", [False, True], ids=["a group", "a ranked group"])
def test_a_deletion_that_lands_late_takes_no_membership_that_was_added_since(
    *, ranked: bool
) -> None:
    """The SDK sent it again, and was answered; then the counter was added again."""
    grouped = Grouped()
    grouped.groups.add(GROUP, [])
    if ranked:
        grouped.ranked(GROUP)
    grouped.groups.add(GROUP, [COUNTER])

    def again() -> None:
        assert grouped.groups.remove(GROUP, [COUNTER]) == [COUNTER]
        assert grouped.groups.add(GROUP, [COUNTER]) == [COUNTER]

    part = keys.member_key(GROUP, COUNTER)["part"]
    grouped.interrupted.before_delete[part] = again
    grouped.groups.remove(GROUP, [COUNTER])

    assert [*grouped.groups.of(COUNTER)] == [GROUP]
    assert [one.counter for one in grouped.groups.top(GROUP)] == [COUNTER]


def test_an_addition_that_is_refused_takes_no_membership_of_somebody_else_back() -> None:
    """The counter left the other ranked group meanwhile, so that another call could add it."""
    grouped = Grouped()
    grouped.ranked(OTHER, GROUP)
    grouped.groups.add(OTHER, [COUNTER])

    def meanwhile() -> None:
        grouped.groups.remove(OTHER, [COUNTER])
        grouped.groups.add(GROUP, [COUNTER])

    part = keys.member_key(GROUP, COUNTER)["part"]
    grouped.interrupted.before_delete[part] = meanwhile
    with pytest.raises(AlreadyRanked):
        grouped.groups.add(GROUP, [COUNTER])

    assert [*grouped.groups.of(COUNTER)] == [GROUP]
    assert [one.counter for one in grouped.groups.top(GROUP)] == [COUNTER]


def test_an_addition_that_is_refused_leaves_no_member() -> None:
    """Of a group in which it cannot be ranked."""
    grouped = Grouped()
    grouped.ranked(OTHER, GROUP)
    grouped.groups.add(OTHER, [COUNTER])
    with pytest.raises(AlreadyRanked):
        grouped.groups.add(GROUP, [COUNTER])

    assert [*grouped.groups.of(COUNTER)] == [OTHER]


def test_deleting_what_is_no_member_deletes_nothing() -> None:
    """And is no error."""
    grouped = Grouped()
    grouped.groups.add(GROUP, [])

    assert grouped.groups.remove(GROUP, [COUNTER]) == []
