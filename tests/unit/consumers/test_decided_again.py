"""A setting is not decided again after an attempt without an answer that others built upon.

The attempt may have been effective, and another call has changed the setting since: deciding again
would undo that call.
"""

from datetime import UTC, datetime

import pytest

from countledger import errors
from countledger.consumers.memberships import Membership
from countledger.testing import MemoryStack

_AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def stack() -> MemoryStack:
    """A stack with a counter."""
    made = MemoryStack(at=_AT)
    made.ledger.record("likes:a", 1)
    return made


def test_windows_stay_off_that_were_switched_off_after_a_lost_answer(stack: MemoryStack) -> None:
    windows = stack.ledger.window_settings
    stack.lose_next_answer()
    stack.before_next_request(lambda: windows.disable("likes"))

    assert windows.enable("likes", by="hour").finest == "hour"

    assert windows.of("likes")[-1].ended_ms is not None


def test_windows_stay_on_that_were_switched_on_after_a_lost_answer(stack: MemoryStack) -> None:
    windows = stack.ledger.window_settings
    windows.enable("likes", by="hour")
    stack.lose_next_answer()
    stack.before_next_request(lambda: windows.enable("likes", by="day"))

    with pytest.raises(errors.Unclear, match="look, and call again"):
        windows.disable("likes")

    assert windows.of("likes")[-1].ended_ms is None


def test_windows_are_decided_again_where_nothing_was_in_doubt(stack: MemoryStack) -> None:
    windows = stack.ledger.window_settings
    stack.before_next_request(lambda: windows.enable("likes", by="day"), skip=1)

    assert str(windows.enable("likes", by="hour").finest) == "hour"


def test_a_change_of_windows_knows_its_own_attempt(stack: MemoryStack) -> None:
    windows = stack.ledger.window_settings
    stack.lose_next_answer()

    windows.enable("likes", by="hour")

    assert len(windows.of("likes")) == 1


def test_a_late_description_replaces_no_later_one(stack: MemoryStack) -> None:
    namespaces = stack.ledger.namespaces
    stack.delay_next()
    namespaces.describe("likes", "first")
    namespaces.describe("likes", "second")

    (refused,) = stack.land()

    assert isinstance(refused, errors.ConditionFailed)
    assert [one.description for one in namespaces.list()] == ["second"]


def test_a_description_is_not_written_over_another_after_a_lost_answer(stack: MemoryStack) -> None:
    namespaces = stack.ledger.namespaces
    stack.lose_next_answer()
    stack.before_next_request(lambda: namespaces.describe("likes", "of another"))

    with pytest.raises(errors.Unclear, match="look, and call again"):
        namespaces.describe("likes", "of this call")

    assert [one.description for one in namespaces.list()] == ["of another"]


def test_a_description_meets_another_and_is_written(stack: MemoryStack) -> None:
    namespaces = stack.ledger.namespaces
    stack.before_next_request(lambda: namespaces.describe("likes", "first"))

    assert namespaces.describe("likes", "second").description == "second"
    assert [one.description for one in namespaces.list()] == ["second"]


def test_a_description_costs_two_write_units(stack: MemoryStack) -> None:
    meter = stack.ledger.connection.meter
    stack.ledger.namespaces.find("likes")
    before = (meter.read_units, meter.write_units)

    stack.ledger.namespaces.describe("likes", "of posts")

    assert (meter.read_units - before[0], meter.write_units - before[1]) == (0, 2)


def test_a_membership_that_others_replaced_does_not_come_back(stack: MemoryStack) -> None:
    """It was written by an attempt without an answer, which the next one knows by its id."""
    groups, found = stack.ledger.groups, list[Membership]()

    def renew() -> None:
        for _ in range(2):
            found.extend(groups.memberships.of("likes:a"))
            groups.add("top", ["likes:a"])

    groups.add("top", [])
    stack.lose_next_answer()
    stack.before_next_request(renew)
    assert groups.add("top", ["likes:a"]) == ["likes:a"]

    assert len(found) == 2
    assert groups.memberships.of("likes:a")[0] not in found


def test_a_member_is_not_added_over_the_removal_of_another_after_a_lost_answer(
    stack: MemoryStack,
) -> None:
    """The lost attempt may have added it, and others have removed it since."""
    groups = stack.ledger.groups

    def others() -> None:
        groups.remove("top", ["likes:a"])
        groups.add("top", ["likes:a"])
        groups.remove("top", ["likes:a"])

    groups.add("top", [])
    stack.lose_next_answer()
    stack.before_next_request(others)
    with pytest.raises(errors.Unclear, match="look, and call again"):
        groups.add("top", ["likes:a"])

    assert list(groups.of("likes:a")) == []


def test_a_member_that_another_removed_after_a_lost_answer_was_added(stack: MemoryStack) -> None:
    groups = stack.ledger.groups
    groups.add("top", [])
    stack.lose_next_answer()
    stack.before_next_request(lambda: groups.remove("top", ["likes:a"]))

    assert groups.add("top", ["likes:a"]) == ["likes:a"]

    assert list(groups.of("likes:a")) == []


def test_a_removal_knows_its_own_attempt(stack: MemoryStack) -> None:
    groups = stack.ledger.groups
    groups.add("top", ["likes:a"])
    stack.lose_next_answer()

    assert groups.remove("top", ["likes:a"]) == ["likes:a"]

    assert [*groups.of("likes:a")] == []


def test_a_member_that_another_added_after_a_lost_removal_stays(stack: MemoryStack) -> None:
    groups = stack.ledger.groups
    groups.add("top", ["likes:a"])
    stack.lose_next_answer()
    stack.before_next_request(lambda: groups.add("top", ["likes:a"]))

    with pytest.raises(errors.Unclear, match="look, and call again"):
        groups.remove("top", ["likes:a"])

    assert [*groups.of("likes:a")] == ["top"]


def test_a_member_that_another_renews_while_it_is_removed_is_removed(stack: MemoryStack) -> None:
    groups = stack.ledger.groups
    groups.add("top", ["likes:a"])
    stack.before_next_request(lambda: groups.add("top", ["likes:a"]), skip=1)

    assert groups.remove("top", ["likes:a"]) == ["likes:a"]

    assert [*groups.of("likes:a")] == []


def test_a_removal_does_not_claim_that_of_another(stack: MemoryStack) -> None:
    """Its attempt was lost before it was applied."""
    groups = stack.ledger.groups
    groups.add("top", ["likes:a"])
    stack.before_next_request(stack.fail_next, skip=1)
    stack.before_next_request(lambda: groups.remove("top", ["likes:a"]))

    assert groups.remove("top", ["likes:a"]) == []


def test_a_deletion_of_a_group_knows_its_own_attempt(stack: MemoryStack) -> None:
    groups = stack.ledger.groups
    groups.add("top", [])
    seen = groups._items.existing("top")
    stack.lose_next_answer()

    assert groups._items.delete("top", seen)
    assert not groups._items.delete("top", seen)


def test_a_group_stays_unranked_that_was_switched_off_after_a_lost_answer(
    stack: MemoryStack,
) -> None:
    groups = stack.ledger.groups
    groups.add("top", ["likes:a"])
    stack.lose_next_answer()
    stack.before_next_request(lambda: groups.switch_ranking("top", on=False))

    with pytest.raises(errors.Unclear, match="look, and call again"):
        groups.switch_ranking("top", on=True)

    assert not groups.get("top").ranked


def test_a_namespace_stays_unranked_that_was_switched_off_after_a_lost_answer(
    stack: MemoryStack,
) -> None:
    rankings = stack.ledger.rankings
    stack.lose_next_answer()
    stack.before_next_request(lambda: rankings.switch_off("likes"))

    rankings.switch_on("likes", wait=False)

    assert not rankings.is_on("likes")
