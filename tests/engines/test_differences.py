"""The names of differences stay true: none is left that no engine has, each has its source."""

import pytest

from tests.engines.differences import (
    DYNOXIDE,
    EXTENDDB,
    MINISTACK,
    MOTO,
    SOURCES,
    Difference,
    declared,
)


def test_every_difference_is_some_engines() -> None:
    """A name that no engine carries any more says nothing and goes."""
    # An endpoint without streams is the user's to name.
    named_only = frozenset({Difference.HAS_NO_STREAMS})
    assert frozenset(Difference) == MOTO | MINISTACK | DYNOXIDE | EXTENDDB | named_only


def test_every_difference_has_a_source() -> None:
    """That it is the engine that differs is told by DynamoDB's documentation, not by us."""
    assert frozenset(Difference) == SOURCES.keys()


def test_an_endpoint_is_declared_by_names_and_by_engines() -> None:
    """Spaces and empty names mean nothing; an unknown name is refused, not ignored."""
    assert declared("extenddb, HAS_NO_STREAMS,") == EXTENDDB | {Difference.HAS_NO_STREAMS}
    assert declared("") == frozenset()
    with pytest.raises(KeyError, match="NO_SUCH"):
        declared("NO_SUCH")
