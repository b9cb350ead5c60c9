"""The names of differences stay true: none is left that no engine has."""

from tests.engines.differences import DYNOXIDE, MINISTACK, MOTO, Difference


def test_every_difference_is_some_engines() -> None:
    """A name that no engine carries any more says nothing and goes."""
    assert frozenset(Difference) == MOTO | MINISTACK | DYNOXIDE
