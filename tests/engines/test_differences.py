"""The names of differences stay true: none is left that no engine has, each has its source."""

from tests.engines.differences import DYNOXIDE, MINISTACK, MOTO, SOURCES, Difference


def test_every_difference_is_some_engines() -> None:
    """A name that no engine carries any more says nothing and goes."""
    assert frozenset(Difference) == MOTO | MINISTACK | DYNOXIDE


def test_every_difference_has_a_source() -> None:
    """That it is the engine that differs is told by DynamoDB's documentation, not by us."""
    assert frozenset(Difference) == SOURCES.keys()
