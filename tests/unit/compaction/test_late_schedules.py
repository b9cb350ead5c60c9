"""A late request brings no schedule back, and a trigger without its schedule does nothing."""

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from countledger.compaction.dispatcher import Dispatcher
from countledger.compaction.schedule import Schedule
from countledger.compaction.schedules import Schedules
from countledger.infra.memory.stack import MemoryConnection
from countledger.ledger.errors import AccessDenied, NoSuchSchedule, ScheduleExists, Unclear
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS
from countledger.ledger.records import write_of
from countledger.testing import MemoryStack
from tests.unit.compaction.parts import Stack, dispatcher_in, scheduled


def _stack() -> MemoryStack:
    made = MemoryStack()
    made.ledger.namespaces.create("likes")
    return made


@pytest.fixture
def stack() -> MemoryStack:
    """A stack with the namespace `likes`."""
    return _stack()


def _schedules(stack: MemoryStack) -> Schedules:
    return stack.ledger.schedules


def _inputs(stack: MemoryStack) -> list[dict[str, str]]:
    """What each trigger sends to the dispatcher."""
    connection = stack.ledger.connection
    assert isinstance(connection, MemoryConnection)
    stored: list[dict[str, Any]] = [*connection.schedules.schedules.values()]
    return [json.loads(one["Target"]["Input"]) for one in stored]


def _hourly(stack: MemoryStack) -> Callable[[], object]:
    return partial(_schedules(stack).create, "likes", every_ms=HOUR_MS)


def _daily(stack: MemoryStack) -> Callable[[], object]:
    return partial(_schedules(stack).create, "likes", every_ms=DAY_MS)


@pytest.mark.parametrize("way", ["create", "again", "set", "apply", "get", "list"])
def test_a_schedule_that_was_read_is_not_read_again_for_its_state(
    stack: MemoryStack, way: str
) -> None:
    schedules = _schedules(stack)
    if way != "create":
        _daily(stack)()
    ways: dict[str, Callable[[], Schedule]] = {
        "create": lambda: schedules.create("likes", every_ms=DAY_MS),
        "again": lambda: schedules.create("likes", every_ms=DAY_MS),
        "set": lambda: schedules.set("likes", every_ms=HOUR_MS),
        "apply": lambda: next(schedules.apply({"likes": {"every_ms": DAY_MS}}))[0],
        "get": lambda: schedules.get("likes"),
        "list": lambda: schedules.list()[0],
    }
    schedule = ways[way]()
    before = stack.ledger.read_units

    state = schedules.state(schedule)

    assert (state, stack.ledger.read_units - before) == ("enabled", 0)
    assert (schedules.state("likes"), stack.ledger.read_units - before) == ("enabled", 1)


@pytest.mark.parametrize("since", ["changed", "deleted", "its trigger went"])
def test_the_state_of_a_schedule_is_that_of_the_one_that_is_stored_now(
    stack: MemoryStack, since: str
) -> None:
    """Else a change that is under way would be reported as a trigger that is missing."""
    schedules = _schedules(stack)
    _hourly(stack)()
    found = schedules.get("likes")
    if since == "changed":
        schedules.set("likes", every_ms=DAY_MS)
    elif since == "deleted":
        schedules.delete("likes")
    else:
        connection = stack.ledger.connection
        assert isinstance(connection, MemoryConnection)
        connection.schedules.schedules.clear()
    before = stack.ledger.read_units

    state = schedules.state(found)

    assert state == ("enabled" if since == "changed" else "missing")
    assert stack.ledger.read_units - before == 1


@pytest.mark.parametrize("minutes", [0, 12])
def test_a_late_creation_brings_no_deleted_schedule_back(stack: MemoryStack, minutes: int) -> None:
    stack.delay_next()
    _hourly(stack)()
    assert _schedules(stack).delete("likes")
    stack.advance(minutes=minutes)

    (refusal,) = stack.land()

    assert refusal is not None
    assert _schedules(stack).find("likes") is None
    assert _schedules(stack).list() == []
    assert _inputs(stack) == []


def test_a_late_creation_over_a_tombstone_brings_no_deleted_schedule_back(
    stack: MemoryStack,
) -> None:
    _daily(stack)()
    _schedules(stack).delete("likes")
    stack.delay_next()
    _hourly(stack)()
    _schedules(stack).delete("likes")

    stack.land()

    assert _schedules(stack).find("likes") is None


def test_a_schedule_is_created_again_as_soon_as_it_is_deleted(stack: MemoryStack) -> None:
    _hourly(stack)()
    _schedules(stack).delete("likes")

    assert _schedules(stack).create("likes", every_ms=DAY_MS).expression == "rate(1 day)"
    assert _schedules(stack).get("likes").expression == "rate(1 day)"
    assert _schedules(stack).state("likes") == "enabled"
    assert len(_inputs(stack)) == 1


def test_a_tombstone_goes_once_no_request_can_be_late(stack: MemoryStack) -> None:
    _hourly(stack)()
    _schedules(stack).delete("likes")
    table = stack.ledger.connection.setting("counters_table")

    def stored() -> list[str]:
        return [one["part"] for one in stack.items(table) if one["part"] == "schedule"]

    stack.advance(minutes=14)
    assert stored() == ["schedule"]
    stack.advance(hours=1)
    assert stored() == []
    assert not _schedules(stack).delete("likes")
    _hourly(stack)()
    assert _schedules(stack).state("likes") == "enabled"


def test_a_late_trigger_of_a_deleted_schedule_does_nothing_and_is_deleted(
    stack: MemoryStack,
) -> None:
    # The item is read and put; the next request creates the trigger.
    stack.before_next_request(stack.delay_next, skip=2)
    _hourly(stack)()
    assert _schedules(stack).delete("likes")

    assert stack.land() == [None]
    assert _schedules(stack).state("likes") == "missing"
    (left,) = _inputs(stack)
    done = Dispatcher(stack.ledger.connection).dispatch(left["namespace"], left["revision"])

    assert (done.sent, done.detail) == (0, "it has no schedule")
    assert _inputs(stack) == []


def test_a_late_change_meets_the_schedule_that_was_created_since(stack: MemoryStack) -> None:
    _hourly(stack)()
    stack.delay_next()
    _schedules(stack).set("likes", min_entries=7)
    _schedules(stack).delete("likes")
    _daily(stack)()

    (refusal,) = stack.land()

    assert refusal is not None
    assert _schedules(stack).get("likes").min_entries == 100
    assert len(_inputs(stack)) == 1


def test_a_late_deletion_spares_the_schedule_that_was_created_since(stack: MemoryStack) -> None:
    _hourly(stack)()
    stack.delay_next()
    assert _schedules(stack).delete("likes")
    _daily(stack)()

    (refusal,) = stack.land()

    assert refusal is not None
    assert _schedules(stack).get("likes").expression == "rate(1 day)"
    assert _schedules(stack).state("likes") == "enabled"


def _between_attempts(stack: MemoryStack, call: Callable[[], object]) -> None:
    """The next write of the app gets no answer; then another call runs; then the SDK repeats."""
    stack.delay_next()
    stack.before_next_request(call)


def test_a_creation_that_another_one_overtook_is_not_refused(stack: MemoryStack) -> None:
    """Its first request may have been applied, and replaced."""
    _between_attempts(stack, _daily(stack))

    with pytest.raises(Unclear, match="look, and call again"):
        _hourly(stack)()

    _schedules(stack).delete("likes")
    (refusal,) = stack.land()
    assert refusal is not None
    assert _schedules(stack).find("likes") is None


@pytest.mark.parametrize("late", ["set", "delete"])
def test_a_change_that_another_one_overtook_is_decided_again(stack: MemoryStack, late: str) -> None:
    """The next revision is the other call's: the request without an answer was not applied."""
    _hourly(stack)()
    _between_attempts(stack, partial(_schedules(stack).set, "likes", every_ms=DAY_MS))

    if late == "delete":
        assert _schedules(stack).delete("likes")
    else:
        changed = _schedules(stack).set("likes", min_entries=7)
        assert (changed.expression, changed.min_entries) == ("rate(1 day)", 7)

    (refusal,) = stack.land()
    assert refusal is not None
    assert len(_inputs(stack)) == (late == "set")


def test_one_of_two_deletions_says_that_it_deleted(stack: MemoryStack) -> None:
    _hourly(stack)()
    told: list[bool] = []
    delete = partial(_schedules(stack).delete, "likes")
    stack.before_next_request(lambda: told.append(delete()), skip=1)
    assert (delete(), told) == (False, [True])

    _hourly(stack)()
    _between_attempts(stack, lambda: told.append(delete()))
    assert (delete(), told) == (False, [True, True])
    stack.land()

    _hourly(stack)()
    stack.lose_next_answer()
    assert delete()


def test_a_repeated_deletion_deletes_the_trigger_that_the_first_one_left(
    stack: MemoryStack,
) -> None:
    _hourly(stack)()
    stack.before_next_request(lambda: stack.fail_next(AccessDenied("no permission")), skip=2)
    with pytest.raises(Unclear, match="is written, but not its trigger: no permission; then call"):
        _schedules(stack).delete("likes")
    assert len(_inputs(stack)) == 1

    assert not _schedules(stack).delete("likes")

    assert _inputs(stack) == []


def test_a_repeated_creation_creates_the_trigger_that_the_first_one_did_not(
    stack: MemoryStack,
) -> None:
    stack.before_next_request(lambda: stack.fail_next(AccessDenied("no permission")), skip=2)
    with pytest.raises(Unclear, match="is written, but not its trigger: no permission; then call"):
        _hourly(stack)()
    assert _schedules(stack).state("likes") == "missing"

    _hourly(stack)()

    assert _schedules(stack).state("likes") == "enabled"


@pytest.mark.parametrize("mine", ["create", "again", "set", "delete"])
@pytest.mark.parametrize("other", ["create", "set", "delete", "delete, create"])
def test_whenever_another_call_runs_there_is_one_trigger_or_none(mine: str, other: str) -> None:
    for skip in range(8):
        stack = _stack()
        schedules = _schedules(stack)
        ways: dict[str, Callable[[], object]] = {
            "create": _hourly(stack),
            "again": _hourly(stack),
            "set": partial(schedules.set, "likes", every_ms=MINUTE_MS),
            "delete": partial(schedules.delete, "likes"),
        }

        def run(*calls: str, ways: dict[str, Callable[[], object]] = ways) -> None:
            for one in calls:
                with suppress(ScheduleExists, NoSuchSchedule):
                    ways[one]()

        if mine != "create":
            run("create")
        stack.before_next_request(partial(run, *other.split(", ")), skip=skip)
        run(mine)
        if stack.planned_faults:
            break  # the call has fewer requests
        found = schedules.find("likes")
        assert schedules.state("likes") == ("missing" if found is None else "enabled")
        assert len(_inputs(stack)) == (found is not None)
    assert skip >= 3


@pytest.mark.parametrize("completes", [True, False])
def test_a_change_completes_the_one_that_replaced_it(
    stack: MemoryStack, *, completes: bool
) -> None:
    """The call that replaced it failed before it created a trigger."""
    _hourly(stack)()

    def other() -> None:
        stack.before_next_request(lambda: stack.fail_next(AccessDenied("no permission")), skip=2)
        with pytest.raises(Unclear, match="is written, but not its trigger"):
            _schedules(stack).set("likes", every_ms=MINUTE_MS)
        if not completes:
            stack.before_next_request(refuse, skip=3)

    def refuse() -> None:
        stack.fail_next(AccessDenied("no permission"))

    # The item is read and put; the next request creates the trigger.
    stack.before_next_request(other, skip=2)
    if completes:
        _schedules(stack).set("likes", every_ms=DAY_MS)
    else:
        with pytest.raises(Unclear, match="is written, but not its trigger"):
            _schedules(stack).set("likes", every_ms=DAY_MS)

    assert _schedules(stack).get("likes").expression == "rate(1 minute)"
    assert _schedules(stack).state("likes") == ("enabled" if completes else "missing")
    assert len(_inputs(stack)) == 1


# ---- ticks ----


def _dispatch(stack: Stack, revision: str) -> str:
    return dispatcher_in(stack).dispatch("likes", revision).detail


def test_a_trigger_of_an_earlier_revision_sends_nothing_and_is_deleted() -> None:
    stack = scheduled()
    stack.due("likes:a")
    before = write_of(stack.schedule)
    stack.schedules.set("likes", every_ms=DAY_MS)
    stack.schedules.triggers.put("likes", before, "rate(1 hour)")  # its creation was late

    assert _dispatch(stack, before) == "its schedule was changed since: another trigger serves it"

    assert stack.queue.sent == []
    assert stack.scheduler.kept == {"likes": "rate(1 day)"}
    assert not _dispatch(stack, write_of(stack.schedule))
    assert len(stack.queue.sent) == 1


def test_a_trigger_serves_until_the_changed_schedule_has_its_own() -> None:
    """The change ended after its item was written."""
    stack = scheduled()
    stack.due("likes:a")
    before = write_of(stack.schedule)
    stack.schedules.set("likes", every_ms=DAY_MS)
    stack.schedules.triggers.delete("likes", write_of(stack.schedule))
    stack.schedules.triggers.put("likes", before, "rate(1 hour)")

    assert not _dispatch(stack, before)

    assert len(stack.queue.sent) == 1
    assert stack.scheduler.kept == {"likes": "rate(1 hour)"}
