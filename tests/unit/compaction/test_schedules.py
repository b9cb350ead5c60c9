"""Schedules: made, changed, read and deleted; checked before anything is written."""

from __future__ import annotations

import pytest

from countledger.compaction.retire import Retire
from countledger.compaction.schedule import Schedule, decode_schedule, encode_schedule
from countledger.compaction.schedules import ScheduleChange
from countledger.compaction.trigger import trigger_name
from countledger.ledger import keys
from countledger.ledger.due import DueRule, rule_in
from countledger.ledger.errors import (
    BadSetting,
    CorruptItem,
    NamespaceUnknown,
    NewerFormat,
    NoSuchSchedule,
    ScheduleExists,
    ServiceFailed,
    WrongKind,
    WrongRegion,
)
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from countledger.ledger.namespace import Kind
from tests.unit.compaction.parts import COUNTERS, HOME, Stack

LIMIT_MS = DAY_MS + 15 * MINUTE_MS + MINUTE_MS + 15 * MINUTE_MS


@pytest.fixture
def stack() -> Stack:
    """A stack with one namespace."""
    made = Stack()
    made.namespace("likes")
    return made


def test_none_exists_until_a_user_makes_one(stack: Stack) -> None:
    """Reading finds none and makes none."""
    assert stack.schedules.find("likes") is None
    assert stack.schedules.list() == []
    with pytest.raises(NoSuchSchedule, match="schedule create likes"):
        stack.schedules.get("likes")
    assert stack.triggers.kept == {}


def test_a_schedule_is_an_item_and_a_trigger(stack: Stack) -> None:
    """With defaults for what is not said, and the age for the materializer."""
    made = stack.schedules.create("likes", every_ms=15 * MINUTE_MS)

    assert made == Schedule(namespace="likes", expression="rate(15 minutes)", region=HOME)
    assert (made.min_entries, made.retire, made.archive) == (100, Retire.TRANSACTION, None)
    assert stack.schedules.get("likes") == made
    assert stack.schedules.list() == [made]
    assert stack.triggers.kept == {"likes": "rate(15 minutes)"}
    item = stack.dynamo.tables[COUNTERS]["namespace#likes", "schedule"]
    assert rule_in(item) == DueRule(100, LIMIT_MS)


def test_the_same_again_is_no_error_and_another_is(stack: Stack) -> None:
    """As for namespaces; `set` is for changes."""
    made = stack.schedules.create("likes", every_ms=HOUR_MS)

    assert stack.schedules.create("likes", every_ms=60 * MINUTE_MS) == made
    with pytest.raises(ScheduleExists, match=r"rate\(1 hour\), min-entries 100"):
        stack.schedules.create("likes", every_ms=HOUR_MS, min_entries=5)
    assert stack.schedules.get("likes") == made


def test_set_changes_what_is_named_and_nothing_else(stack: Stack) -> None:
    """Also back to none."""
    stack.schedules.create("likes", every_ms=HOUR_MS, min_age_ms=30 * DAY_MS)

    first = stack.schedules.set("likes", retire=Retire.DELETE, archive="s3://bucket/a")
    second = stack.schedules.set("likes", cron="0 3 * * ? *", min_age_ms=None)

    assert (first.expression, first.min_age_ms) == ("rate(1 hour)", 30 * DAY_MS)
    assert (second.retire, second.archive) == (Retire.DELETE, "s3://bucket/a")
    assert (second.expression, second.min_age_ms) == ("cron(0 3 * * ? *)", None)
    assert stack.triggers.kept == {"likes": "cron(0 3 * * ? *)"}
    with pytest.raises(NoSuchSchedule):
        stack.schedules.set("other", every_ms=HOUR_MS)


def test_a_minimum_age_below_the_limit_is_refused_with_the_arithmetic(stack: Stack) -> None:
    """A late retry of a merged entry would count twice; at the limit it is taken."""
    with pytest.raises(BadSetting) as refused:
        stack.schedules.create("likes", every_ms=HOUR_MS, min_age_ms=LIMIT_MS - 1)

    text = str(refused.value)
    for part in ("horizon 24 h", "replication bound 15 min", "clock skew 1 min", "15 min"):
        assert part in text
    assert stack.schedules.find("likes") is None
    assert stack.triggers.kept == {}
    made = stack.schedules.create("likes", every_ms=HOUR_MS, min_age_ms=LIMIT_MS)
    assert made.min_age_ms == LIMIT_MS


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({}, "needs an interval"),
        ({"min_entries": 5}, "needs an interval"),
        ({"every_ms": HOUR_MS, "cron": "0 3 * * ? *"}, "not both"),
        ({"every_ms": SECOND_MS}, "whole minutes"),
        ({"cron": "0 3 * * * *"}, "exactly one"),
        ({"every_ms": HOUR_MS, "min_entries": 1}, "a minimum of 1 entries"),
        ({"every_ms": HOUR_MS, "min_entries": 10**10}, "a minimum of 10000000000 entries"),
        ({"every_ms": HOUR_MS, "min_age_ms": 0}, "not above zero"),
        ({"every_ms": HOUR_MS, "min_age_ms": -5}, "not above zero"),
        ({"every_ms": HOUR_MS, "retire": "burn"}, "'burn' is not one of"),
        ({"every_ms": HOUR_MS, "archive": "here/x"}, "'here/x' is not a location in S3"),
        ({"every_ms": HOUR_MS, "archive": "s3://A"}, "'s3://A' is not a location in S3"),
    ],
)
def test_what_no_schedule_can_be_is_refused(
    stack: Stack, spec: dict[str, object], reason: str
) -> None:
    """Naming the value and the rule; nothing is written."""
    with pytest.raises(BadSetting, match=reason):
        stack.schedules.create("likes", **spec)  # type: ignore[arg-type]

    assert stack.schedules.find("likes") is None
    assert stack.triggers.kept == {}


def test_only_a_namespace_of_a_ledger_has_a_schedule(stack: Stack) -> None:
    """One that does not exist, or is of another kind, is refused."""
    stack.namespace("clients", Kind.STRICT)

    with pytest.raises(NamespaceUnknown, match="no-such"):
        stack.schedules.create("no-such", every_ms=HOUR_MS)
    with pytest.raises(WrongKind, match="kind strict"):
        stack.schedules.create("clients", every_ms=HOUR_MS)
    with pytest.raises(BadSetting, match="namespace 'a#b'"):
        stack.schedules.create("a#b", every_ms=HOUR_MS)


def test_elsewhere_than_at_home_nothing_is_changed(stack: Stack) -> None:
    """Reading is for everybody."""
    stack.schedules.create("likes", every_ms=HOUR_MS)
    abroad = Stack(region="abroad-1", dynamo=stack.dynamo, triggers=stack.triggers)

    assert abroad.schedules.get("likes").region == HOME
    for change in (
        lambda: abroad.schedules.create("likes", every_ms=HOUR_MS),
        lambda: abroad.schedules.set("likes", every_ms=HOUR_MS),
        lambda: list(abroad.schedules.apply({"likes": {"every_ms": HOUR_MS}})),
        lambda: abroad.schedules.delete("likes"),
    ):
        with pytest.raises(WrongRegion, match="home region home-1"):
            change()
    assert stack.triggers.kept == {"likes": "rate(1 hour)"}


def test_a_schedule_for_another_region_is_not_taken_over(stack: Stack) -> None:
    """A table that was restored elsewhere brings the old region's schedules."""
    stack.schedules.create("likes", every_ms=HOUR_MS)
    stack.dynamo.tables[COUNTERS]["namespace#likes", "schedule"]["region"] = "far-1"

    with pytest.raises(WrongRegion, match="for region far-1"):
        stack.schedules.set("likes", every_ms=MINUTE_MS)
    assert stack.schedules.delete("likes")


def test_a_crash_in_between_is_finished_by_the_same_call(stack: Stack) -> None:
    """The item first, the trigger then; deleted the other way round."""
    stack.triggers.crashes.append(ServiceFailed("gone"))
    with pytest.raises(ServiceFailed):
        stack.schedules.create("likes", every_ms=HOUR_MS)
    assert stack.schedules.state("likes") == "missing"

    stack.schedules.create("likes", every_ms=HOUR_MS)
    assert stack.schedules.state("likes") == "enabled"

    stack.triggers.crashes.append(ServiceFailed("gone"))
    with pytest.raises(ServiceFailed):
        stack.schedules.delete("likes")
    assert stack.schedules.delete("likes")
    assert not stack.schedules.delete("likes")
    assert (stack.schedules.list(), stack.triggers.kept) == ([], {})


def test_two_who_change_it_at_once_leave_one_schedule(stack: Stack) -> None:
    """Item and trigger say the same, whoever was later."""
    stack.schedules.create("likes", every_ms=HOUR_MS)
    stack.triggers.meanwhile.append(lambda: stack.schedules.set("likes", every_ms=DAY_MS))

    stack.schedules.set("likes", every_ms=MINUTE_MS)

    assert stack.schedules.get("likes").expression == "rate(1 day)"
    assert stack.triggers.kept == {"likes": "rate(1 day)"}


def test_who_changes_what_has_changed_meanwhile_is_told(stack: Stack) -> None:
    """The item is replaced only as it was read."""
    stack.schedules.create("likes", every_ms=HOUR_MS)
    item = dict(stack.dynamo.tables[COUNTERS]["namespace#likes", "schedule"])
    stack.schedules.set("likes", every_ms=DAY_MS)

    with pytest.raises(ScheduleExists, match="just now"):
        stack.schedules._write(decode_schedule(item), item)

    assert stack.schedules.get("likes").expression == "rate(1 day)"


def test_one_deleted_while_it_is_made_leaves_no_trigger(stack: Stack) -> None:
    """What has no item has no trigger either."""
    stack.triggers.meanwhile.append(lambda: stack.schedules.delete("likes"))

    stack.schedules.create("likes", every_ms=HOUR_MS)

    assert stack.triggers.kept == {}


def test_a_file_makes_and_changes_and_leaves_others_alone(stack: Stack) -> None:
    """Again nothing changes; what is left out of one has its default."""
    for name in ("a", "b", "c"):
        stack.namespace(name)
    stack.schedules.create("a", every_ms=HOUR_MS, min_entries=7)
    stack.schedules.create("b", every_ms=HOUR_MS, min_entries=7)
    specs = {"b": {"every_ms": HOUR_MS}, "c": {"cron": "0 3 * * ? *"}}

    first = list(stack.schedules.apply(specs))  # type: ignore[arg-type]
    again = list(stack.schedules.apply(specs))  # type: ignore[arg-type]

    assert [change for _, change in first] == [ScheduleChange.CHANGED, ScheduleChange.CREATED]
    assert [change for _, change in again] == [ScheduleChange.UNCHANGED, ScheduleChange.UNCHANGED]
    assert [one.min_entries for one in stack.schedules.list()] == [7, 100, 100]


def test_a_file_with_one_bad_schedule_changes_nothing(stack: Stack) -> None:
    """All are checked first."""
    specs = {"likes": {"every_ms": HOUR_MS}, "no-such": {"every_ms": HOUR_MS}}

    with pytest.raises(NamespaceUnknown):
        list(stack.schedules.apply(specs))  # type: ignore[arg-type]

    assert stack.schedules.list() == []


def test_a_sweep_is_owed_where_counters_may_be_missing_in_the_index(stack: Stack) -> None:
    """For a new schedule, and a lower minimum number; not for anything else."""

    def since() -> object:
        return stack.dynamo.tables[COUNTERS]["namespace#likes", "schedule"].pop(
            "unswept_since", None
        )

    stack.schedules.create("likes", every_ms=HOUR_MS)
    assert since() == stack.clock.at_ms
    stack.schedules.set("likes", every_ms=DAY_MS, retire=Retire.DELETE)
    stack.schedules.set("likes", min_entries=200)
    assert since() is None
    stack.schedules.set("likes", min_entries=50)
    stack.schedules.set("likes", every_ms=HOUR_MS)
    assert since() == stack.clock.at_ms


@pytest.mark.parametrize(
    "corrupt",
    [
        {"expression": "sometimes"},
        {"expression": 5},
        {"retire": "burn"},
        {"min_entries": None},
        {"archive": "nowhere"},
    ],
)
def test_an_item_that_was_corrupt_by_hand_is_told(corrupt: dict[str, object]) -> None:
    """As corrupt, whatever is wrong with it."""
    schedule = Schedule(namespace="likes", expression="rate(1 hour)", region=HOME)
    item = {**encode_schedule(schedule, LIMIT_MS, 1), **corrupt}

    with pytest.raises(CorruptItem, match="likes"):
        decode_schedule(item)
    with pytest.raises(NewerFormat):
        decode_schedule({**item, "v": 2})


def test_triggers_have_names_that_the_service_takes() -> None:
    """And no two namespaces share one."""
    names = ["likes", "likes/a", "likes a", "Ä" * 200, "x" * 500, "a.b-c_d"]

    made = [trigger_name(name) for name in names]

    assert len(set(made)) == len(names)
    assert made[0].startswith("likes-")
    for name in made:
        assert len(name) <= 64
        assert name.replace("-", "").replace("_", "").replace(".", "").isalnum()
        assert name.isascii()


def test_schedules_are_kept_where_no_counter_can_be() -> None:
    """Their key holds a '#'."""
    assert keys.schedule_key("likes") == {"counter": "namespace#likes", "part": "schedule"}
