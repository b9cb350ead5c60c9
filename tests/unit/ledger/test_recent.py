"""What was read is used again, for as long as it may be."""

from pickle import dumps

import pytest

from countledger.ledger.recent import Known, Recent


def test_a_value_is_known_for_its_life_from_before_it_was_read() -> None:
    recent: Recent[str, int] = Recent(1_000)

    recent.keep("a", 5, read_at_ms=10_000)

    assert recent.get("a", 10_999) == Known(10_000, 5)
    assert recent.get("a", 11_000) is None


def test_a_clock_that_was_set_back_ends_it() -> None:
    """Else a value would be used for as long as the clock was set back."""
    recent: Recent[str, int] = Recent(1_000)
    recent.keep("a", 5, read_at_ms=10_000)

    assert recent.get("a", 9_999) is None


def test_without_a_life_it_is_known_until_it_is_forgotten() -> None:
    recent: Recent[str, int] = Recent()
    recent.keep("a", 5)

    assert recent.get("a", 10**15) == Known(0, 5)
    recent.forget("a")
    assert recent.get("a") is None


def test_of_more_than_it_keeps_those_read_first_are_read_again() -> None:
    recent: Recent[str, int] = Recent(most=2)
    for name in ("a", "b", "a", "c"):
        recent.keep(name, 1)

    assert [recent.get(name) is None for name in ("a", "b", "c")] == [False, True, False]


def test_what_cannot_be_read_is_not_known() -> None:
    recent: Recent[str, int | None] = Recent(1_000)

    def fail(_: str) -> int:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        recent.of("a", 0, fail)

    assert recent.of("a", 0, lambda _: None) is None
    assert recent.of("a", 999, fail) is None  # nothing is a value, too


def test_it_is_of_one_process() -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        dumps(Recent[str, int]())
