"""Which region merges, decided over what each region shows."""

from dataclasses import replace

import pytest

from countledger.compaction.lease import (
    Epoch,
    HomeLease,
    LeaseHeld,
    LeaseTerms,
    MergeWait,
    Ruling,
    Shown,
    Take,
    decode_shown,
    epoch_of,
    lease_of,
    may_merge,
    next_epoch,
)
from countledger.ledger.operations import Absent, Compare

NOW = 1_000_000
TERMS = LeaseTerms(lease_ms=1_000, clock_skew_ms=10, request_life_ms=100)
EPOCH = Epoch(number=1, home="a", id="e1")
MINE = HomeLease(epoch="e1", home="a", id="l1", until_ms=NOW + 900)
THEIRS = HomeLease(epoch="e0", home="b", id="l0", until_ms=NOW - 50)


def _ruling(shown: dict[str, Shown], *, home: str = "a", now_ms: int = NOW) -> Ruling:
    return may_merge(shown, home, "a", now_ms, TERMS)


def _all(epoch: Epoch | None, lease: HomeLease | None) -> dict[str, Shown]:
    return {name: Shown(epoch, lease) for name in "abc"}


def test_a_lease_that_every_region_shows_is_held_until_its_end() -> None:
    assert _ruling(_all(EPOCH, MINE)) == LeaseHeld(MINE.until_ms)


@pytest.mark.parametrize("late", ["a", "b", "c"])
def test_a_lease_that_one_region_does_not_show_is_not_held(late: str) -> None:
    shown = _all(EPOCH, MINE) | {late: Shown(EPOCH, replace(MINE, id="before"))}

    ruling = _ruling(shown)

    assert isinstance(ruling, MergeWait)
    assert late == "a" or ruling.reason == f"the lease of a has not arrived in {late}"


@pytest.mark.parametrize("lease", [None, replace(MINE, until_ms=NOW + 499)])
def test_a_home_takes_its_lease_and_renews_it_at_half(lease: HomeLease | None) -> None:
    assert _ruling(_all(EPOCH, lease)) == Take("e1", lease)


def test_without_an_epoch_the_home_of_the_settings_merges() -> None:
    assert _ruling(_all(None, None)) == Take("", None)
    assert "the home region is b" in str(_ruling(_all(None, None), home="b"))


@pytest.mark.parametrize("where", ["a", "b", "c"])
def test_the_last_write_under_a_lease_of_another_home_is_waited_for(where: str) -> None:
    shown = _all(EPOCH, None) | {where: Shown(EPOCH, THEIRS)}
    over_ms = THEIRS.until_ms + TERMS.request_life_ms + TERMS.clock_skew_ms

    assert isinstance(_ruling(shown, now_ms=over_ms), MergeWait)
    assert isinstance(_ruling(shown, now_ms=over_ms + 1), Take)


def test_two_stacks_that_both_name_themselves_home_wait_for_each_other() -> None:
    theirs = replace(THEIRS, epoch="", until_ms=NOW + 500)

    assert "b" in str(_ruling(_all(None, theirs)))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (Epoch(number=2, home="b", id="e2"), "another epoch"),
        (None, "another epoch"),
    ],
)
def test_nothing_is_merged_while_a_promotion_is_on_its_way(other: Epoch | None, said: str) -> None:
    ruling = _ruling(_all(EPOCH, MINE) | {"c": Shown(other, MINE)})

    assert isinstance(ruling, MergeWait)
    assert said in ruling.reason


def test_nothing_is_merged_before_an_epoch_begins_or_while_a_lost_region_is_not_salvaged() -> None:
    assert "begins at" in str(_ruling(_all(replace(EPOCH, begins_ms=NOW + 1), MINE)))
    assert "region salvage b" in str(_ruling(_all(replace(EPOCH, lost="b"), MINE)))


def test_a_copy_whose_replicas_have_left_goes_on_only_after_a_promotion() -> None:
    """It may be the one that was cut off and taken out of its table."""
    assert isinstance(_ruling({"a": Shown(EPOCH, MINE)}), MergeWait)
    assert isinstance(_ruling({"a": Shown(None, replace(MINE, epoch=""))}), MergeWait)
    later = next_epoch(EPOCH, "a", "e2", NOW)
    after_ms = MINE.until_ms + TERMS.after_ms + 1
    assert isinstance(_ruling({"a": Shown(later, MINE)}, now_ms=after_ms), LeaseHeld)
    assert isinstance(_ruling({"a": Shown()}), LeaseHeld)


def test_the_right_of_a_single_copy_is_as_long_as_a_lease() -> None:
    """A region may join meanwhile: its promotion waits for a lease that nobody shows."""
    assert _ruling({"a": Shown()}) == LeaseHeld(NOW + TERMS.lease_ms)


def test_a_write_names_the_identity_that_it_replaces() -> None:
    assert lease_of("t", MINE, None).condition == Absent("entry")
    assert lease_of("t", MINE, THEIRS).condition == Compare("id", "=", "l0")
    assert epoch_of("t", EPOCH, None).condition == Absent("entry")
    assert epoch_of("t", EPOCH, replace(EPOCH, id="e0")).condition == Compare("id", "=", "e0")


def test_what_is_written_is_read_again() -> None:
    items = [
        {name: value for name, value in one.item.items() if value is not None}
        for one in (epoch_of("t", EPOCH, None), lease_of("t", MINE, None))
    ]

    assert decode_shown(items) == Shown(EPOCH, MINE)
    assert decode_shown([]) == Shown()
