"""Which step of a promotion follows who is home, from what is observed."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from countledger.compaction.lease import Epoch
from countledger.infra.deploy.home_change import (
    HomeChange,
    HomeSeen,
    HomeStep,
    following_home,
    next_of_home,
)
from countledger.infra.deploy.region_checks import staying_in
from countledger.infra.deploy.stack_operation import DeployFailed
from countledger.infra.template import load_template
from countledger.ledger.limits import DAY_MS, HOUR_MS
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


def _changed(there: MemoryStack) -> None:
    there.ledger.schedules.set("likes", every_ms=DAY_MS)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (MemoryStack.lose_next_answer, "schedule of likes moved from there: rate(1 hour)"),
        (
            lambda there: there.before_next_request(lambda: _changed(there), skip=4),
            "the schedule of likes was changed in there just now",
        ),
    ],
    ids=["answer lost", "changed"],
)
def test_a_schedule_whose_deletion_got_no_answer_has_moved(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[MemoryStack], object], says: str
) -> None:
    """The SDK sends the request again, and it meets the tombstone of the first one."""
    home, there, said = MemoryStack(), MemoryStack(), list[str]()
    for stack in (home, there):
        stack.ledger.namespaces.create("likes")
    there.ledger.schedules.create("likes", every_ms=HOUR_MS)
    # The step reads the parameters of the stack alone.
    deployment = SimpleNamespace(stack=SimpleNamespace(describe=lambda: {"Parameters": []}))
    stack_of = cast("Any", lambda _: deployment)
    target = home.ledger.connection
    moved = HomeChange(target=target, regions=("there",), deployment=stack_of, say=said.append)
    connections = {target.region: target, "there": there.ledger.connection}
    monkeypatch.setattr(HomeChange, "_in", lambda _, region: connections[region])
    fault(there)

    moved.take(HomeStep.SCHEDULES, Epoch(number=2, home=target.region, id="promotion"))

    assert [one.split(",")[0] for one in said] == [says]
    assert home.ledger.schedules.get("likes").expression == "rate(1 hour)"
    assert (there.ledger.schedules.find("likes") is None) == ("moved" in says)
