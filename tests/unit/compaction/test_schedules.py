"""Schedules: made, changed, read and deleted; checked before anything is written."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from countledger.compaction.lease import Epoch
from countledger.compaction.report import Retire
from countledger.compaction.schedule import (
    Schedule,
    ScheduleSpec,
    decode_schedule,
    encode_schedule,
    trigger_name,
)
from countledger.compaction.schedules import Schedules
from countledger.ledger.attributes import Item
from countledger.ledger.errors import (
    BadSetting,
    CorruptItem,
    NamespaceUnknown,
    NewerFormat,
    NoSuchSchedule,
    Reason,
    ScheduleExists,
    TransactionCancelled,
    Unclear,
    WrongKind,
    WrongRegion,
)
from countledger.ledger.indexes import DueRule, rule_in
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from countledger.ledger.namespace import Kind
from countledger.ledger.operations import Absent, Put
from countledger.ledger.settings import SettingChange
from tests.unit.compaction.parts import COUNTERS, HOME, Stack
from tests.unit.ledger.memory import LOST, afterwards, meanwhile, refuses, sent_twice

_EPOCH = Epoch(number=2, home=HOME, id="promotion")
_HOURLY: ScheduleSpec = {"every_ms": HOUR_MS}
LIMIT_MS = DAY_MS + 15 * MINUTE_MS + MINUTE_MS + 15 * MINUTE_MS


@pytest.fixture
def stack() -> Stack:
    """A stack with one namespace."""
    made = Stack()
    made.namespace("likes")
    return made


def test_a_schedule_is_an_item_and_a_trigger(stack: Stack) -> None:
    made = stack.schedules.create("likes", every_ms=15 * MINUTE_MS)

    assert made == Schedule(namespace="likes", expression="rate(15 minutes)", region=HOME)
    assert (made.min_entries, made.retire, made.archive) == (100, Retire.TRANSACTION, None)
    assert stack.schedules.get("likes") == made
    assert stack.schedules.list() == [made]
    assert stack.scheduler.kept == {"likes": "rate(15 minutes)"}
    item = stack.schedule
    assert rule_in(item) == DueRule(100, LIMIT_MS)


def test_the_same_again_is_no_error_and_another_is(stack: Stack) -> None:
    made = stack.schedules.create("likes", every_ms=HOUR_MS)

    assert stack.schedules.create("likes", every_ms=60 * MINUTE_MS) == made
    with pytest.raises(ScheduleExists, match=r"rate\(1 hour\), min-entries 100"):
        stack.schedules.create("likes", every_ms=HOUR_MS, min_entries=5)
    assert stack.schedules.get("likes") == made


def test_a_schedule_describes_all_that_it_sets() -> None:
    every = Schedule(
        namespace="likes",
        expression="rate(1 hour)",
        region=HOME,
        min_age_ms=2 * HOUR_MS,
        archive="s3://bucket/prefix",
    )

    assert every.describe() == (
        "rate(1 hour), min-entries 100, min-age 2 h, retire transaction, archive s3://bucket/prefix"
    )


def test_set_changes_what_is_named_and_nothing_else(stack: Stack) -> None:
    stack.schedules.create("likes", every_ms=HOUR_MS, min_age_ms=30 * DAY_MS)

    first = stack.schedules.set("likes", retire=Retire.DELETE, archive="s3://bucket/a")
    second = stack.schedules.set("likes", cron="0 3 * * ? *", min_age_ms=None)

    assert (first.expression, first.min_age_ms) == ("rate(1 hour)", 30 * DAY_MS)
    assert (second.retire, second.archive) == (Retire.DELETE, "s3://bucket/a")
    assert (second.expression, second.min_age_ms) == ("cron(0 3 * * ? *)", None)
    assert stack.scheduler.kept == {"likes": "cron(0 3 * * ? *)"}
    with pytest.raises(NoSuchSchedule):
        stack.schedules.set("other", every_ms=HOUR_MS)


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
    with pytest.raises(BadSetting, match=reason):
        stack.schedules.create("likes", **spec)  # type: ignore[arg-type]

    assert stack.schedules.find("likes") is None
    assert stack.scheduler.kept == {}


@pytest.mark.parametrize(
    ("namespace", "error", "text"),
    [
        ("no-such", NamespaceUnknown, "no-such"),
        ("clients", WrongKind, "kind strict"),
        ("a#b", BadSetting, "namespace 'a#b'"),
    ],
)
def test_only_a_namespace_of_a_ledger_has_a_schedule(
    stack: Stack, namespace: str, error: type[Exception], text: str
) -> None:
    stack.namespace("clients", Kind.STRICT)

    with pytest.raises(error, match=text):
        stack.schedules.create(namespace, every_ms=HOUR_MS)
    with pytest.raises(error, match=text):
        list(stack.schedules.apply({"likes": _HOURLY, namespace: _HOURLY}))
    assert stack.schedules.list() == []


@pytest.mark.parametrize(
    "change",
    [
        lambda schedules: schedules.create("likes", every_ms=HOUR_MS),
        lambda schedules: schedules.set("likes", every_ms=HOUR_MS),
        lambda schedules: list(schedules.apply({"likes": _HOURLY})),
        lambda schedules: schedules.delete("likes"),
    ],
    ids=["create", "set", "apply", "delete"],
)
def test_elsewhere_than_at_home_schedules_are_read_and_not_changed(
    stack: Stack, change: Callable[[Schedules], object]
) -> None:
    stack.schedules.create("likes", every_ms=HOUR_MS)
    abroad = Stack(region="abroad-1", dynamo=stack.dynamo, scheduler=stack.scheduler)

    assert abroad.schedules.get("likes").region == HOME
    with pytest.raises(WrongRegion, match="home region home-1"):
        change(abroad.schedules)
    assert stack.scheduler.kept == {"likes": "rate(1 hour)"}


def test_a_schedule_for_another_region_is_not_taken_over(stack: Stack) -> None:
    """A table that was restored elsewhere brings the old region's schedules."""
    stack.schedules.create("likes", every_ms=HOUR_MS)
    stack.schedule["region"] = "far-1"

    with pytest.raises(WrongRegion, match="for region far-1"):
        stack.schedules.set("likes", every_ms=MINUTE_MS)
    assert stack.schedules.delete("likes")


@pytest.mark.parametrize(
    ("meanwhile", "kept"),
    [
        (lambda schedules: schedules.set("likes", every_ms=DAY_MS), {"likes": "rate(1 day)"}),
        (lambda schedules: schedules.delete("likes"), {}),
    ],
    ids=["changed meanwhile", "deleted meanwhile"],
)
def test_of_two_changes_at_once_item_and_trigger_show_the_later(
    stack: Stack, meanwhile: Callable[[Schedules], object], kept: dict[str, str]
) -> None:
    stack.scheduler.meanwhile.append(lambda: meanwhile(stack.schedules))

    stack.schedules.create("likes", every_ms=HOUR_MS)

    assert {one.namespace: one.expression for one in stack.schedules.list()} == kept
    assert stack.scheduler.kept == kept


@pytest.mark.parametrize("late", ["set", "delete"])
def test_a_call_that_was_suspended_decides_again_on_what_was_created_since(
    stack: Stack, late: str
) -> None:
    """A process reads the schedule and is suspended, and another one deletes it meanwhile."""
    stack.schedules.create("likes", every_ms=HOUR_MS)
    again: ScheduleSpec = {"every_ms": DAY_MS, "archive": "s3://bucket/a"}

    def recreate() -> None:
        stack.schedules.delete("likes")
        stack.schedules.create("likes", **again)

    stack.dynamo.plans.append(meanwhile(recreate, "put"))
    if late == "delete":
        assert stack.schedules.delete("likes")
        assert stack.schedules.find("likes") is None
        assert stack.scheduler.kept == {}
        return
    found = stack.schedules.set("likes", retire=Retire.DELETE)

    assert found == stack.schedules.get("likes")
    assert (found.expression, found.archive) == ("rate(1 day)", "s3://bucket/a")
    assert found.retire is Retire.DELETE
    assert stack.scheduler.kept == {"likes": "rate(1 day)"}


def test_a_deletion_whose_answer_was_lost_spares_a_schedule_created_since(stack: Stack) -> None:
    stack.schedules.create("likes", every_ms=HOUR_MS)

    def recreate() -> None:
        stack.schedules.create("likes", every_ms=DAY_MS)
        raise LOST

    stack.dynamo.plans.append(afterwards(recreate, "put"))
    with pytest.raises(Unclear, match="look, and call again"):
        stack.schedules.delete("likes")

    assert stack.schedules.get("likes").expression == "rate(1 day)"
    assert stack.scheduler.kept == {"likes": "rate(1 day)"}


def test_a_deletion_of_the_trigger_that_is_late_leaves_that_of_a_schedule_created_since(
    stack: Stack,
) -> None:
    stack.schedules.create("likes", every_ms=HOUR_MS)

    recreate = partial(stack.schedules.create, "likes", every_ms=DAY_MS)
    stack.dynamo.plans.append(afterwards(recreate, "put"))

    assert stack.schedules.delete("likes")
    assert stack.schedules.get("likes").expression == "rate(1 day)"
    assert stack.scheduler.kept == {"likes": "rate(1 day)"}


_MARK = Put(COUNTERS, {"counter": "import##restore", "part": "made#schedule#likes"}, Absent("part"))


def _restored() -> Item:
    """A schedule as the table of a lost stack in another region has it."""
    there = Stack()
    there.namespace("likes")
    there.schedules.create("likes", cron="0 3 * * ? *", min_entries=7)
    return {**there.schedule, "region": "us-west-2"}


def test_a_schedule_with_a_mark_is_created_once(stack: Stack) -> None:
    """A process is suspended before its request; another creates it, and a person deletes it."""

    def meanwhile_deleted() -> None:
        stack.schedules.create_once("likes", _restored(), _MARK)
        assert stack.schedules.delete("likes")

    stack.dynamo.plans.append(meanwhile(meanwhile_deleted, "transact"))

    stack.schedules.create_once("likes", _restored(), _MARK)

    assert stack.schedules.find("likes") is None
    assert stack.scheduler.kept == {}


def test_a_creation_with_a_mark_that_the_sdk_repeats_is_one(stack: Stack) -> None:
    stack.dynamo.plans.append(sent_twice("transact"))

    stack.schedules.create_once("likes", _restored(), _MARK)

    found = stack.schedules.get("likes")
    assert (found.expression, found.min_entries, found.region) == ("cron(0 3 * * ? *)", 7, HOME)
    assert stack.scheduler.kept == {"likes": "cron(0 3 * * ? *)"}


def test_a_creation_with_a_mark_that_meets_another_transaction_is_sent_again(
    stack: Stack,
) -> None:
    conflict = TransactionCancelled((Reason("None"), Reason("TransactionConflict")))
    stack.dynamo.plans.append(refuses(conflict, "transact"))

    stack.schedules.create_once("likes", _restored(), _MARK)

    assert stack.schedules.find("likes") is not None


def test_a_schedule_that_exists_is_marked_and_stays(stack: Stack) -> None:
    """Once a person has deleted it, a late request creates no other one in its place."""
    stack.schedules.create("likes", every_ms=HOUR_MS)

    stack.schedules.create_once("likes", _restored(), _MARK)

    assert stack.schedules.get("likes").expression == "rate(1 hour)"
    stack.schedules.delete("likes")
    stack.schedules.create_once("likes", _restored(), _MARK)
    assert stack.schedules.find("likes") is None


def test_a_file_creates_and_changes_schedules_and_leaves_the_others(stack: Stack) -> None:
    """What it leaves out of a schedule has its default; applied again it changes nothing."""
    for name in ("a", "b", "c"):
        stack.namespace(name)
    stack.schedules.create("a", every_ms=HOUR_MS, min_entries=7)
    stack.schedules.create("b", every_ms=HOUR_MS, min_entries=7)
    specs: dict[str, ScheduleSpec] = {"b": _HOURLY, "c": {"cron": "0 3 * * ? *"}}

    first, again = ([change for _, change in stack.schedules.apply(specs)] for _ in range(2))

    assert first == [SettingChange.CHANGED, SettingChange.CREATED]
    assert again == [SettingChange.UNCHANGED, SettingChange.UNCHANGED]
    assert [one.min_entries for one in stack.schedules.list()] == [7, 100, 100]
    assert stack.schedules.state("c") == "enabled"


def test_a_sweep_is_owed_where_counters_may_be_missing_in_the_index(stack: Stack) -> None:
    def since() -> object:
        return stack.schedule.pop("unswept_since", None)

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
def test_a_corrupt_schedule_is_named(corrupt: dict[str, object]) -> None:
    schedule = Schedule(namespace="likes", expression="rate(1 hour)", region=HOME)
    item = {**encode_schedule(schedule, LIMIT_MS), **corrupt}

    with pytest.raises(CorruptItem, match="likes"):
        decode_schedule(item)
    with pytest.raises(NewerFormat):
        decode_schedule({**item, "v": 2})


def test_triggers_have_names_that_the_service_takes() -> None:
    names = ["likes", "likes/a", "likes a", "Ä" * 200, "x" * 500, "a.b-c_d"]

    made = [trigger_name(name, "0190-r") for name in names]

    assert len(set(made)) == len(names)
    assert trigger_name("likes", "0190-s") != made[0]
    assert made[0].startswith("likes-")
    for name in made:
        assert len(name) <= 64
        assert name.replace("-", "").replace("_", "").replace(".", "").isalnum()
        assert name.isascii()


def test_a_schedule_of_the_home_before_is_taken_over_once_with_a_sweep(stack: Stack) -> None:
    stored = encode_schedule(
        Schedule(namespace="likes", expression="rate(1 hour)", region="before-1"), LIMIT_MS
    )

    taken = stack.schedules.take_over("likes", stored, _EPOCH)

    assert taken is not None
    assert (taken.region, taken.expression) == (HOME, "rate(1 hour)")
    assert stack.scheduler.kept == {"likes": "rate(1 hour)"}
    assert "unswept_since" in stack.schedule
    stack.schedule.pop("unswept_since")
    changed = stack.schedules.set("likes", every_ms=DAY_MS)
    stack.scheduler.schedules.clear()
    # Another run of the same promotion: what was changed here since stays, and it runs.
    assert stack.schedules.take_over("likes", stored, _EPOCH) == changed
    assert stack.scheduler.kept == {"likes": "rate(1 day)"}
    assert "unswept_since" not in stack.schedule
    # In another promotion the home before decides, and what is due is looked for again.
    later = stack.schedules.take_over("likes", stored, replace(_EPOCH, number=3, id="later"))
    assert later is not None
    assert later.expression == "rate(1 hour)"
    assert stack.schedule["unswept_since"] == stack.clock.at_ms


def test_a_schedule_that_was_taken_over_and_deleted_is_not_taken_over_again(stack: Stack) -> None:
    stored = _restored()
    stack.schedules.take_over("likes", stored, _EPOCH)
    stack.schedules.delete("likes")

    assert stack.schedules.take_over("likes", stored, _EPOCH) is None
    # Nor by a promotion before it, which was suspended until now.
    assert stack.schedules.take_over("likes", stored, replace(_EPOCH, number=1)) is None

    assert stack.schedules.find("likes") is None
    assert stack.scheduler.kept == {}


def test_a_suspended_promotion_takes_no_schedule_over_that_was_deleted_since(stack: Stack) -> None:
    """A process is suspended before its request; another takes it over, and a person deletes it."""

    def meanwhile_deleted() -> None:
        stack.schedules.take_over("likes", _restored(), _EPOCH)
        assert stack.schedules.delete("likes")

    stack.dynamo.plans.append(meanwhile(meanwhile_deleted, "transact"))

    assert stack.schedules.take_over("likes", _restored(), _EPOCH) is None

    assert stack.schedules.find("likes") is None
    assert stack.scheduler.kept == {}


def test_a_schedule_that_is_created_while_one_is_taken_over_gives_way(stack: Stack) -> None:
    """The home before decides."""
    create = partial(stack.schedules.create, "likes", every_ms=DAY_MS)
    stack.dynamo.plans.append(meanwhile(create, "transact"))

    taken = stack.schedules.take_over("likes", _restored(), _EPOCH)

    assert taken == stack.schedules.get("likes")
    assert taken is not None
    assert taken.min_entries == 7
    assert stack.scheduler.kept == {"likes": "cron(0 3 * * ? *)"}


def test_taking_over_that_the_sdk_repeats_is_done_once(stack: Stack) -> None:
    stack.dynamo.plans.append(sent_twice("transact"))

    assert stack.schedules.take_over("likes", _restored(), _EPOCH) is not None

    assert stack.scheduler.kept == {"likes": "cron(0 3 * * ? *)"}
