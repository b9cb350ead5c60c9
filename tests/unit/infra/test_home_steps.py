"""Which step of a promotion follows who is home, from what is observed."""

from dataclasses import replace

import pytest

from countledger.infra.deploy.home_change import HomeSeen, HomeStep, following_home, next_of_home
from countledger.infra.deploy.region_checks import staying_in
from countledger.infra.deploy.stack_operation import DeployFailed
from countledger.infra.template import load_template
from countledger.producers.claims.claim import Claim
from countledger.testing import MemoryStack

BEFORE = HomeSeen(
    home="eu", named={"eu": "us", "us": "us", "ap": "us"}, schedules={"us": ("likes",), "ap": ()}
)


def test_the_home_before_keeps_its_compactor_until_its_schedules_have_moved() -> None:
    """Its dispatcher would else miss the trigger's schedule, or the schedules their group."""
    made = replace(BEFORE, named={**BEFORE.named, "eu": "eu"})
    moved = replace(made, schedules={"us": (), "ap": ()})

    steps = [next_of_home(one) for one in (BEFORE, made, moved)]

    assert steps == [HomeStep.COMPACTOR, HomeStep.SCHEDULES, HomeStep.STACKS]
    assert next_of_home(replace(moved, named=dict.fromkeys(BEFORE.named, "eu"))) is None


def test_a_region_without_a_stack_becomes_no_home() -> None:
    with pytest.raises(DeployFailed, match="region add eu"):
        next_of_home(replace(BEFORE, named={"us": "us"}))


def test_what_only_the_home_has_follows_it_and_no_table_does() -> None:
    """A promotion may delete these in the home before; anything else it refuses to delete."""
    following = following_home(load_template())

    assert {"Compactor", "CompactionQueue", "Releaser", "ProbeFunction"} <= following
    assert not following & {"Ledger", "Counters", "Strict", "Materializer"}


def test_a_claim_that_was_released_keeps_no_region_its_home() -> None:
    stack, claim = MemoryStack(), Claim("mail", "ann@example.org", "u-1")
    stack.ledger.claims.take(claim)
    before = staying_in(stack.ledger.connection)
    stack.ledger.claims.release(claim)

    assert [before, staying_in(stack.ledger.connection)] == [["unique claims"], []]
