"""Whose turn it is among the shards of a stream."""

from countledger.infra.local.shards import ListedShard, readable

PARENT = ListedShard("parent", None)
LEFT, RIGHT = ListedShard("left", "parent"), ListedShard("right", "parent")


def test_children_wait_for_their_parent() -> None:
    """A record of a child comes after all of its parent's."""
    assert readable([LEFT, PARENT, RIGHT], finished=[]) == [PARENT]
    assert readable([LEFT, PARENT, RIGHT], finished=["parent"]) == [LEFT, RIGHT]


def test_a_child_of_a_forgotten_parent_is_read() -> None:
    """The service forgets a shard 24 hours after it was closed."""
    assert readable([LEFT], finished=[]) == [LEFT]


def test_a_finished_shard_is_not_read_again() -> None:
    """Not even while the service still shows it."""
    assert readable([PARENT], finished=["parent"]) == []
