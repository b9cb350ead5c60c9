"""Windows are switched on ahead, and read with what is known of each."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from countledger.consumers import windows
from countledger.consumers.total_writer import windows_of
from countledger.consumers.verify import Judgement, Remedy
from countledger.consumers.window_audit import WindowRebuilder, clear_with_windows
from countledger.consumers.window_verify import WindowVerifier
from countledger.consumers.windows import WindowSettings, WindowsReader, WindowSum, window_delay_ms
from countledger.ledger import keys
from countledger.ledger.calendar import rules_of
from countledger.ledger.clock import to_datetime, to_ms
from countledger.ledger.errors import (
    BadSetting,
    BadTime,
    CorruptItem,
    NamespaceUnknown,
    NoWindows,
    Throttled,
    Unclear,
)
from countledger.ledger.exact import Head, encode_head
from countledger.ledger.limits import (
    CLOCK_SKEW_DEFAULT_MS,
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    SECOND_MS,
    WINDOW_SETTINGS_MAX,
)
from countledger.ledger.namespace import Kind, Namespaces
from countledger.ledger.operations import Delete, Put
from countledger.ledger.total import windows_ids_in
from countledger.ledger.windows import encode_settings
from tests.unit.connections import connection_on
from tests.unit.consumers.world import COUNTER, COUNTERS, LEDGER, World, deletion_mark
from tests.unit.ledger.memory import LOST, Fault, afterwards, applied_then_lost, meanwhile
from tests.unit.ledger.window_settings import window_setting

START = datetime(2030, 3, 17, 12, tzinfo=UTC)
_DELAY_MS = window_delay_ms(CLOCK_SKEW_DEFAULT_MS)


class Windowed(World):
    """A world whose namespace `a` has windows, or may have."""

    def settings(self) -> WindowSettings:
        return WindowSettings(connection_on(self.dynamo, self.clock))

    def reader(self) -> WindowsReader:
        return WindowsReader(self.connection())

    def enable(self, by: str = "hour", **values: Any) -> None:  # noqa: ANN401 - any argument
        """Switch windows on, and wait until they are."""
        self.settings().enable("a", by=by, **values)
        self.clock.at_ms += _DELAY_MS

    def count(self, delta: int, occurred_at: datetime | None = None) -> None:
        """An entry of now, that is handled at once."""
        occurred_ms = None if occurred_at is None else int(occurred_at.timestamp() * 1_000)
        record = self.show(item=self.write(delta, occurred_at_ms=occurred_ms))
        windows = windows_of(connection_on(self.dynamo, self.clock))
        assert self.deliver([record], windows=windows).retry_from is None

    def window_verifier(self) -> WindowVerifier:
        return WindowVerifier(self.verifier())

    def read(self, per: str, hours: float, **values: Any) -> list[WindowSum]:  # noqa: ANN401 - any argument
        """The windows of the last hours."""
        since = to_datetime(self.clock.now_ms()) - timedelta(hours=hours)
        return self.reader().read(COUNTER, per, since, **values)


@pytest.fixture
def world() -> Windowed:
    made = Windowed()
    made.clock.at_ms = int(START.timestamp() * 1_000)
    made.add_shard("s")
    Namespaces(connection_on(made.dynamo)).create("a")
    return made


def sums(found: list[WindowSum]) -> list[tuple[str, object, int]]:
    """Start, sum and events of those with events."""
    return [(f"{one.start:%d %H:%M%z}", one.value, one.events) for one in found if one.events]


def test_windows_hold_what_was_recorded_since_they_are_on(world: Windowed) -> None:
    world.count(1)
    world.enable(time_zone="Asia/Kolkata")
    world.count(2)
    world.count(3, occurred_at=START - timedelta(hours=2))

    assert sums(world.read("hour", 6)) == [("17 15:00+0530", 3, 1), ("17 17:00+0530", 2, 1)]
    assert sums(world.read("day", 6)) == [("17 00:00+0530", 5, 2)]
    assert sums(world.read("month", 6)) == [("01 00:00+0530", 5, 2)]
    assert len(world.read("hour", 6)) == 7  # those without events, too


def test_a_window_is_complete_once_the_stream_was_handled_past_its_end(world: Windowed) -> None:
    world.enable()
    world.count(1)
    world.clock.at_ms += 2 * HOUR_MS
    before = [one.complete for one in world.read("hour", 2)]
    world.count(1)

    # The first began before windows were on.
    assert before == [False, False, False]
    world.clock.at_ms += 11 * SECOND_MS
    assert [one.complete for one in world.read("hour", 2)] == [False, True, False]
    assert not any(one.final for one in world.read("hour", 2))


def test_the_stream_shows_that_nothing_is_left(world: Windowed) -> None:
    """Progress stays where the last record was, however long nothing is recorded."""
    world.add_shard("quiet")
    world.enable()
    world.count(1)
    world.clock.at_ms += 3 * HOUR_MS

    assert [one.complete for one in world.read("hour", 2, prove=True)] == [True, True, False]
    assert not any(one.complete for one in world.read("hour", 2))


def test_a_record_that_waits_leaves_its_window_incomplete(world: Windowed) -> None:
    world.enable()
    world.count(1)
    world.clock.at_ms += 3 * HOUR_MS
    world.emit(1)  # nobody handles it
    world.clock.at_ms += 2 * HOUR_MS

    found = world.read("hour", 4, prove=True)
    assert [one.complete for one in found] == [True, True, False, False, False]


@pytest.mark.parametrize(("lateness_ms", "expected"), [(None, False), (HOUR_MS, True)])
def test_with_a_maximum_lateness_windows_become_final(
    world: Windowed, lateness_ms: int | None, *, expected: bool
) -> None:
    world.enable(max_lateness_ms=lateness_ms)
    world.count(1)
    world.clock.at_ms += 2 * HOUR_MS
    world.count(1)
    soon = world.read("hour", 1)[0]
    known = []
    # The horizon, replication, clock skew and the life of a request: as long an entry may be late.
    for later_ms in (DAY_MS + 31 * MINUTE_MS, HOUR_MS):
        world.clock.at_ms += later_ms
        world.count(1)
        known += world.reader().read(COUNTER, "hour", soon.start, soon.end)

    assert (soon.complete, soon.final) == (True, False)
    assert [one.complete for one in known] == [True, True]
    assert [one.final for one in known] == [False, expected]


def test_a_change_begins_where_the_setting_before_ends(world: Windowed) -> None:
    """So windows of one zone are those of both settings, and complete through the change."""
    world.enable("day")
    world.clock.at_ms += HOUR_MS
    world.count(1)
    world.enable("hour")
    first, second = world.settings().of("a")
    world.count(2)
    world.clock.at_ms += DAY_MS
    world.count(4)

    assert first.ended_ms == second.from_ms
    assert sums(world.read("day", 30)) == [("17 00:00+0000", 3, 2), ("18 00:00+0000", 4, 1)]
    assert sums(world.read("hour", 30)) == [("17 13:00+0000", 2, 1), ("18 13:00+0000", 4, 1)]
    assert [one.complete for one in world.read("hour", 24)][:3] == [False, True, True]


def test_another_zone_begins_again(world: Windowed) -> None:
    world.enable("hour")
    world.count(1)
    world.enable("hour", time_zone="Asia/Kolkata")
    world.count(2)

    assert sums(world.read("hour", 2)) == [("17 17:00+0530", 2, 1)]


def test_switched_off_windows_stay_readable(world: Windowed) -> None:
    world.enable("hour")
    world.count(1)
    ended = world.settings().disable("a")
    world.clock.at_ms += 2 * HOUR_MS
    world.count(2)

    assert ended is not None
    assert ended.ended_ms is not None
    assert sums(world.read("hour", 3)) == [("17 12:00+0000", 1, 1)]
    assert not any(one.complete for one in world.read("hour", 2))
    assert world.settings().disable("a") is None
    assert [name for name, _ in world.settings().list()] == ["a"]


def test_the_same_again_changes_nothing(world: Windowed) -> None:
    world.enable(max_lateness_ms=HOUR_MS)
    before = world.settings().of("a")
    world.enable(max_lateness_ms=HOUR_MS)

    assert world.settings().of("a") == before
    assert world.dynamo.calls.count("put") == 2  # with that of the namespace
    world.enable()
    assert len(world.settings().of("a")) == 2


def test_windows_that_were_ever_on_are_not_switched_on_for_the_first_time(world: Windowed) -> None:
    world.enable("day", first=True)
    for _ in range(2):
        (made,) = world.settings().of("a")
        assert made == world.settings().enable("a", by="hour", first=True)
        world.settings().disable("a")


def test_switching_on_again_leaves_the_end_of_the_setting_before(world: Windowed) -> None:
    """What was recorded in between is in no window."""
    world.enable("day")
    ended = world.settings().disable("a")
    world.clock.at_ms += HOUR_MS
    world.enable("day")

    first, second = world.settings().of("a")
    assert first == ended
    assert second.from_ms == world.clock.now_ms()


@pytest.mark.parametrize("ended", [False, True])
def test_a_setting_does_not_begin_before_the_one_before_has_ended(
    world: Windowed, *, ended: bool
) -> None:
    """This clock is behind that of who made the change before."""
    world.enable("day")
    if ended:
        world.settings().disable("a")
    world.clock.at_ms -= HOUR_MS
    world.settings().enable("a", by="hour")

    first, second = world.settings().of("a")
    assert first.ended_ms is not None
    assert first.from_ms <= first.ended_ms == second.from_ms


def test_what_another_call_has_switched_off_meanwhile_keeps_its_end(world: Windowed) -> None:
    world.enable("day")

    def other() -> None:
        world.settings().disable("a")
        world.clock.at_ms += SECOND_MS

    world.dynamo.plans.append(meanwhile(other, "put"))
    switched_off_ms = world.clock.now_ms() + _DELAY_MS
    ended = world.settings().disable("a")

    assert ended is not None
    assert ended.ended_ms == switched_off_ms
    assert world.settings().of("a") == (ended,)


def test_the_number_of_changes_is_limited(world: Windowed) -> None:
    """Each is read with every batch, and all are one item."""
    for number in range(WINDOW_SETTINGS_MAX):
        world.enable("day" if number % 2 else "hour")

    with pytest.raises(
        BadSetting, match=rf"changed {WINDOW_SETTINGS_MAX} times, which is the most"
    ):
        world.enable("minute")
    assert len(world.settings().of("a")) == WINDOW_SETTINGS_MAX
    assert world.settings().disable("a") is not None


@pytest.mark.parametrize(("version", "changes"), [("2000a", True), ("2999a", False)])
def test_newer_rules_of_the_zone_hold_from_the_next_setting_on(
    world: Windowed, version: str, *, changes: bool
) -> None:
    """Stored rules are replaced by newer ones only, and only by a call."""
    world.enable()
    (made,) = world.settings().of("a")
    object.__setattr__(made, "rules", rules_of("Asia/Kolkata"))
    object.__setattr__(made, "rules_version", version)
    own = {"incarnation": "i", "revision": 1}
    world.dynamo.put(Put(COUNTERS, {**encode_settings("a", [made]), **own}))
    world.enable()

    assert len(world.settings().of("a")) == 1 + changes


def test_a_change_is_effective_once_every_materializer_knows_it(world: Windowed) -> None:
    made = world.settings().enable("a", by="day")

    assert made.from_ms - world.clock.now_ms() == _DELAY_MS
    assert _DELAY_MS > MINUTE_MS + 10 * SECOND_MS


def suspended(world: Windowed) -> None:
    world.clock.at_ms += MINUTE_MS


def test_a_process_that_was_suspended_does_not_send(world: Windowed) -> None:
    world.dynamo.plans.append(meanwhile(lambda: suspended(world), "put"))
    made = world.settings().enable("a", by="day")

    (waited_ms,) = world.clock.slept_ms
    decided_ms = world.clock.now_ms() - round(waited_ms)
    assert made.from_ms == decided_ms + _DELAY_MS


def test_a_change_that_took_too_long_is_reported(world: Windowed) -> None:
    """It is stored, and some materializer may have worked without it."""
    world.dynamo.plans.append(afterwards(lambda: suspended(world), "put"))

    with pytest.raises(Unclear, match="windows of that time may be wrong until"):
        world.settings().enable("a", by="day")
    assert len(world.settings().of("a")) == 1


@pytest.mark.parametrize("lost", [LOST, Throttled("too much")])
def test_a_lost_answer_makes_no_second_setting(world: Windowed, lost: Exception) -> None:
    """The service's client repeats the write; here the caller does."""
    world.dynamo.faults.append(Fault(lost, applied=True))
    try:
        world.settings().enable("a", by="day")
    except Unclear:
        world.settings().enable("a", by="day")

    assert len(world.settings().of("a")) == 1


def test_two_changes_at_once_come_one_after_the_other(world: Windowed) -> None:
    other = world.settings()
    world.dynamo.plans.append(meanwhile(lambda: other.enable("a", by="hour"), "put"))
    world.settings().enable("a", by="day")

    assert [one.finest for one in world.settings().of("a")] == ["hour", "day"]


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"by": "year"}, BadSetting, "windows by 'year' do not exist: give minute, hour, day"),
        ({"time_zone": "Mars/Olympus"}, BadSetting, "Mars/Olympus"),
        ({"time_zone": "+01:00"}, BadSetting, "not in the IANA database"),
        ({"keep_ms": 1}, BadSetting, "1 ms is out of range: give 1 h to 3660 d"),
        ({"max_lateness_ms": -1}, BadSetting, "max lateness"),
        ({"namespace": "none"}, NamespaceUnknown, "none"),
        ({"namespace": "s"}, NoWindows, "of kind strict: only entries of a ledger have times"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    world: Windowed, values: dict[str, Any], error: type[Exception], message: str
) -> None:
    world.settings().namespaces.create("s", kind=Kind.STRICT)
    given = {"namespace": "a", "by": "day"} | values

    with pytest.raises(error, match=message):
        world.settings().enable(given.pop("namespace"), **given)
    assert world.settings().of("a") == ()


@pytest.mark.parametrize(
    ("per", "since", "until", "error", "message"),
    [
        ("year", START, None, BadSetting, "windows by 'year' do not exist"),
        ("minute", START, None, BadSetting, "has windows by hour, not by minute: .* enable a"),
        ("day", START.replace(tzinfo=None), None, BadTime, "has no offset"),
        ("day", START, START, BadTime, "and a later one"),
        ("day", START, START - timedelta(days=1), BadTime, "and a later one"),
        ("hour", START - timedelta(days=500), None, BadTime, "12000 windows by hour; .* by day"),
        ("hour", START - timedelta(days=100), None, BadTime, "kept for 90 d .* or windows by day"),
    ],
)
def test_reads_that_make_no_sense_are_refused(  # noqa: PLR0917 - a table
    world: Windowed,
    per: str,
    since: datetime,
    until: datetime | None,
    error: type[Exception],
    message: str,
) -> None:
    world.enable("hour")

    with pytest.raises(error, match=message):
        world.reader().read(COUNTER, per, since, until)


def test_a_namespace_without_windows_is_named(world: Windowed) -> None:
    with pytest.raises(NoWindows, match="windows enable a --by day"):
        world.read("day", 24)


@pytest.mark.parametrize(("per", "hours"), [("minute", 40), ("hour", 720), ("day", 8_760)])
def test_a_read_is_one_query_beside_the_total(world: Windowed, per: str, hours: int) -> None:
    """The setting and the progress are known for ten seconds."""
    world.enable("minute")
    world.count(1)
    world.clock.at_ms += DAY_MS
    reader, since = world.reader(), to_datetime(world.clock.now_ms()) - timedelta(hours=hours)
    reader.read(COUNTER, per, since)
    before = len(world.dynamo.calls)

    reader.read(COUNTER, per, since)

    assert sorted(world.dynamo.calls[before:]) == ["get", "query"]


def test_a_counter_that_does_not_exist_has_windows_of_nothing(world: Windowed) -> None:
    world.enable("hour")

    found = world.reader().read("a:none", "hour", START, to_datetime(world.clock.now_ms()))

    assert [(one.value, one.events) for one in found] == [(0, 0)]


def test_a_corrupt_item_is_named(world: Windowed) -> None:
    world.enable()
    world.count(1)
    (item,) = [
        one for one in world.dynamo.items(COUNTERS) if one["part"].endswith("#month#2030-03")
    ]
    world.dynamo.put(Put(COUNTERS, {**item, "s17": "x"}))

    with pytest.raises(CorruptItem, match="2030-03"):
        world.read("day", 24)


def test_rules_that_changed_leave_each_entry_on_the_day_of_its_date(world: Windowed) -> None:
    """Almaty went from +06 to +05 on 2024-03-01; the newer rules came three days later."""
    changed = datetime(2024, 3, 4, 12, tzinfo=UTC)
    old = window_setting("Asia/Almaty", rules=rules_of("Asia/Omsk"), ended_ms=to_ms(changed))
    new = window_setting("Asia/Almaty", id="new", from_ms=to_ms(changed))
    world.dynamo.put(Put(COUNTERS, encode_settings("a", [old, new])))
    world.clock.at_ms = to_ms(datetime(2024, 2, 29, 12, tzinfo=UTC))
    world.count(10)
    world.clock.at_ms = to_ms(datetime(2024, 3, 1, 12, tzinfo=UTC))
    world.count(100)
    world.clock.at_ms = to_ms(datetime(2024, 4, 2, tzinfo=UTC))
    world.count(1_000)

    def read(per: str, since: datetime) -> list[tuple[str, object, bool]]:
        until = datetime(2024, 3, 3, tzinfo=UTC)
        found = world.reader().read(COUNTER, per, since, until)
        return [(one.name, one.value, one.complete) for one in found if one.value]

    first, second = ("2024-02-29", 10, False), ("2024-03-01", 100, False)
    assert read("day", datetime(2024, 2, 28, tzinfo=UTC)) == [first, second]
    # A read that begins in the middle of what the old rules counted.
    assert read("day", datetime(2024, 2, 29, 19, tzinfo=UTC)) == [second]
    months = read("month", datetime(2024, 2, 28, tzinfo=UTC))
    assert months == [("2024-02", 10, False), ("2024-03", 100, False)]


def test_hours_are_refused_where_only_days_were_counted(world: Windowed) -> None:
    """By the setting of that time, in whichever order they were on."""
    world.enable("hour")
    world.clock.at_ms += 2 * HOUR_MS
    world.count(1)
    world.clock.at_ms += HOUR_MS
    world.enable("day")
    world.clock.at_ms += 3 * HOUR_MS
    world.count(2)
    world.clock.at_ms += HOUR_MS

    with pytest.raises(
        BadTime, match=r"by hour of namespace 'a' were not counted in 2030-03-17T16"
    ):
        world.read("hour", 7)
    before = to_datetime(world.clock.now_ms()) - timedelta(hours=4)
    assert [one.value for one in world.read("hour", 7, until=before)][-2:] == [1, 0]
    assert [one.value for one in world.read("day", 1)] == [3]


def test_a_window_lacks_what_was_dated_ahead_before_windows_began(world: Windowed) -> None:
    """It was recorded in the minute before, by a clock that is late."""
    world.settings().enable("a", by="minute")
    delay_ms = _DELAY_MS
    begin_ms = world.clock.now_ms() + delay_ms
    world.clock.at_ms += delay_ms - 10 * SECOND_MS
    world.count(1, occurred_at=to_datetime(begin_ms + MINUTE_MS - 20 * SECOND_MS))
    world.clock.at_ms += HOUR_MS
    world.count(1)

    found = world.read("minute", 1, until=to_datetime(begin_ms + 4 * MINUTE_MS))

    begun = [(one.value, one.complete) for one in found if to_ms(one.start) >= begin_ms]
    assert begun[0] == (0, False)
    assert begun[-1] == (0, True)


@pytest.mark.parametrize("per", ["minute", "hour", "day", "month"])
def test_windows_of_the_last_years_of_the_calendar_are_refused(world: Windowed, per: str) -> None:
    world.enable("minute")
    for since, until in (
        (datetime(9999, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, 0, 5, tzinfo=UTC)),
        (datetime(9999, 12, 31, 23, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)),
        (datetime(9998, 12, 31, 23, 59, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)),
    ):
        with pytest.raises(BadTime, match="up to 9998"):
            world.reader().read(COUNTER, per, since, until)
    last = datetime(9998, 12, 30, tzinfo=UTC)
    assert len(world.reader().read(COUNTER, per, last, last + timedelta(seconds=1))) == 1


def test_rules_of_a_zone_never_go_back(world: Windowed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with an older tzdata changes only what has nothing to do with them."""
    monkeypatch.setattr(windows, "rules_version", lambda: "2026b")
    world.enable("day", time_zone="Asia/Almaty")
    monkeypatch.setattr(windows, "rules_version", lambda: "2023c")
    monkeypatch.setattr(windows, "rules_of", lambda _: rules_of("Asia/Omsk"))

    for values in ({"ranked": 4}, {"keep_ms": DAY_MS}):
        with pytest.raises(BadSetting, match=r"2023c.*2026b.*only move forward"):
            world.enable("day", time_zone="Asia/Almaty", **values)

    world.enable("day", time_zone="Asia/Almaty")
    assert [one.rules_version for one in world.settings().of("a")] == ["2026b"]


def test_after_a_repair_no_window_of_before_is_complete_until_the_rebuild(world: Windowed) -> None:
    """The total was lost; its windows are there, and get their names back."""
    world.enable("hour")
    world.clock.at_ms += 2 * HOUR_MS
    world.count(5)
    world.clock.at_ms += HOUR_MS
    world.dynamo.delete(Delete(COUNTERS, keys.total_key(COUNTER)))
    assert world.repair().remedy is Remedy.MADE
    world.clock.at_ms += 2 * HOUR_MS
    world.count(7)
    hours = world.read("hour", 4, prove=True)

    assert [one.complete for one in hours] == [False, False, False, True, False]
    assert next(world.window_verifier().verify([COUNTER])).verdict is Judgement.DRIFT
    assert next(WindowRebuilder(world.window_verifier()).rebuild([COUNTER])).healthy
    rebuilt = world.read("hour", 4, prove=True)
    assert [(one.value, one.complete) for one in rebuilt[1:]] == [
        (5, True),
        (0, True),
        (0, True),
        (7, False),
    ]


def test_a_lost_total_takes_its_windows_over_again(world: Windowed) -> None:
    """So they are the same windows: none is ranked twice, or alerts again."""
    world.enable("hour", ranked=1)
    world.count(5)

    def windows() -> list[dict[str, Any]]:
        return [one for one in world.dynamo.items(COUNTERS) if one["part"].startswith("w#")]

    before = windows()
    world.dynamo.delete(Delete(COUNTERS, keys.total_key(COUNTER)))
    assert world.repair().remedy is Remedy.MADE

    assert next(WindowRebuilder(world.window_verifier()).rebuild([COUNTER])).healthy

    assert windows() == before
    assert "repaired_at" not in world.total()
    assert next(world.window_verifier().verify([COUNTER])).verdict is Judgement.EXACT


def test_windows_that_a_lost_total_left_go_where_it_has_others(world: Windowed) -> None:
    """An entry came between the loss and the rebuild, so the total names other windows."""
    world.enable("hour", ranked=1)
    world.count(5)
    world.dynamo.delete(Delete(COUNTERS, keys.total_key(COUNTER)))
    world.count(7)
    assert world.repair().healthy
    verdict = next(world.window_verifier().verify([COUNTER]))
    assert "which its total does not name" in verdict.proof

    assert next(WindowRebuilder(world.window_verifier()).rebuild([COUNTER])).healthy

    ranked = [one["total"] for one in world.dynamo.items(COUNTERS) if "ranked" in one]
    assert ranked == [12]
    assert next(world.window_verifier().verify([COUNTER])).verdict is Judgement.EXACT


def test_a_name_used_again_before_its_old_total_is_cleared_has_all_its_windows(
    world: Windowed,
) -> None:
    """In another region than the deletion; the windows of the deleted counter stay its own."""
    world.enable("hour")
    world.count(5)
    for item in world.dynamo.items(LEDGER):
        if str(item.get("entry", "")).startswith(keys.ENTRY_PREFIX):
            key = {name: str(item[name]) for name in ("counter", "entry")}
            world.dynamo.delete(Delete(LEDGER, key))
    head = Head(generation=1, run="mark", incarnation="mark", to_at_ms=1)
    world.dynamo.put(Put(LEDGER, encode_head(COUNTER, head)))
    world.dynamo.put(deletion_mark(COUNTER, "mark"))
    world.count(7)  # of the next counter: the old total takes it
    old = set(windows_ids_in(world.total()))

    assert clear_with_windows(world.verifier(), COUNTER) is None
    assert clear_with_windows(world.verifier(), COUNTER) is None
    world.count(11)

    assert [one.value for one in world.read("day", 1)] == [18]
    assert not old & windows_ids_in(world.total())


def test_windows_whose_answer_was_lost_are_said_as_they_are_stored(world: Windowed) -> None:
    """The attempt that was applied had another id and another time than the one after it."""
    world.dynamo.plans.append(applied_then_lost("put"))

    made = world.settings().enable("a", by="day")

    assert world.settings().of("a") == (made,)


def test_windows_that_were_stored_too_late_are_reported_though_the_answer_was_lost(
    world: Windowed,
) -> None:
    """The next attempt was in time, and is not the one that was applied."""

    def too_late() -> None:
        suspended(world)
        raise LOST

    world.dynamo.plans.append(afterwards(too_late, "put"))

    with pytest.raises(Unclear, match="windows of that time may be wrong until"):
        world.settings().enable("a", by="day")
