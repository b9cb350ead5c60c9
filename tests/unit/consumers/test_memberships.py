"""A membership is deleted by its id: a late request takes none that was added since."""

import pytest

from countledger.ledger import keys
from countledger.ledger.errors import AlreadyRanked
from tests.unit.compaction.world import COUNTER, World

GROUP = "posts"
OTHER = "others"
_MEMBERSHIP = keys.member_key(GROUP, COUNTER)["part"]


def _world(*ranked: str) -> World:
    """A group that has no members, and ranked ones."""
    world = World()
    groups = world.groups()
    groups.add(GROUP, [])
    for group in ranked:
        groups.add(group, [])
        groups.switch_ranking(group, on=True)
    return world


@pytest.mark.parametrize("ranked", [(), (GROUP,)], ids=["a group", "a ranked group"])
def test_a_deletion_that_lands_late_takes_no_membership_that_was_added_since(
    ranked: tuple[str, ...],
) -> None:
    """The SDK sent it again, and was answered; then the counter was added again."""
    world = _world(*ranked)
    groups = world.groups()
    groups.add(GROUP, [COUNTER])

    def again() -> None:
        assert groups.remove(GROUP, [COUNTER]) == [COUNTER]
        assert groups.add(GROUP, [COUNTER]) == [COUNTER]

    world.before_delete(_MEMBERSHIP, again)
    groups.remove(GROUP, [COUNTER])

    assert [*groups.of(COUNTER)] == [GROUP]
    assert [one.counter for one in groups.top(GROUP)] == [COUNTER]


def test_an_addition_that_is_refused_takes_no_membership_of_somebody_else_back() -> None:
    """The counter left the other ranked group meanwhile, so that another call could add it."""
    world = _world(OTHER, GROUP)
    groups = world.groups()
    groups.add(OTHER, [COUNTER])

    def meanwhile() -> None:
        groups.remove(OTHER, [COUNTER])
        groups.add(GROUP, [COUNTER])

    world.before_delete(_MEMBERSHIP, meanwhile)
    with pytest.raises(AlreadyRanked):
        groups.add(GROUP, [COUNTER])

    assert [*groups.of(COUNTER)] == [GROUP]
    assert [one.counter for one in groups.top(GROUP)] == [COUNTER]


def test_deleting_what_is_no_member_deletes_nothing() -> None:
    assert _world().groups().remove(GROUP, [COUNTER]) == []
