"""Windows of random histories agree with a recount of what was recorded."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countledger.consumers import window_audit, windows
from countledger.consumers.window_audit import WindowRebuilder
from countledger.consumers.windows import WindowSum, WindowSums, covered
from countledger.ledger import keys
from countledger.ledger.calendar import Window, rules_of
from countledger.ledger.errors import BadSetting, BadTime
from countledger.ledger.limits import DAY_MS, HOUR_MS
from countledger.ledger.operations import Delete
from countledger.ledger.total import new_windows_id
from countledger.ledger.windows import WindowSetting
from countledger.testing import MemoryStack

_AT: Final = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
_COUNTERS: Final = ("views:a", "views:b")
_THRESHOLD: Final = 10
_NONE: Final = timedelta(0)


class History:
    """A stack, and what was recorded in it since windows are on: counter, delta, business time."""

    def __init__(self) -> None:
        self.stack = MemoryStack(at=_AT)
        self.ledger = self.stack.ledger
        self.ledger.namespaces.create("views")
        self.recorded: list[tuple[str, int, datetime]] = []

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.stack.clock.now_ms() / 1_000, UTC)

    def record(self, counter: str, delta: int, ago: timedelta = _NONE) -> None:
        at = self.now - ago
        self.ledger.record(counter, delta, occurred_at=at)
        self.recorded.append((counter, delta, at))

    def recount(self, counter: str, start: datetime, end: datetime) -> int:
        ours = [one for one in self.recorded if one[0] == counter]
        return sum(delta for _, delta, at in ours if start <= at < end)

    def read(self, counter: str, per: str, since: datetime) -> list[WindowSum]:
        """The windows; what is complete is right."""
        found = self.ledger.windows(counter, per, since=since, prove=True)
        for one in found:
            assert not one.complete or one.value == self.recount(counter, one.start, one.end)
        return found


class Count(NamedTuple):
    """Something is recorded that happened some hours ago."""

    counter: str
    delta: int
    ago_hours: int = 0


class Loss(NamedTuple):
    """A total is lost, repaired, and its windows are rebuilt; something may come in between."""

    counter: str
    before_repair: int = 0
    before_rebuild: int = 0


_names = st.sampled_from(_COUNTERS)
_STEPS: Final = st.lists(
    st.builds(Count, _names, st.integers(1, 12), st.sampled_from([0, 1, 30]))
    | st.builds(Loss, _names, st.sampled_from([0, 7]), st.sampled_from([0, 5])),
    min_size=1,
    max_size=7,
)


class LossHistory(History):
    """Hours and ranked days, with an alert for each day that reaches a threshold."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger.window_settings.enable("views", by="hour", ranked=2)
        self.ledger.alerts.create("busy", prefix="views:", threshold=_THRESHOLD, window="day")
        self.stack.advance(days=3)
        self.others: set[str] = set()  # whose windows were not taken over: these may alert again

    def step(self, step: Count | Loss) -> None:
        if isinstance(step, Count):
            self.record(step.counter, step.delta, timedelta(hours=step.ago_hours))
        else:
            self._lose(step)
        self.stack.advance(minutes=20)

    def _lose(self, loss: Loss) -> None:
        if all(name != loss.counter for name, _, _ in self.recorded):
            return  # there is none
        connection = self.ledger.connection
        table, key = connection.setting("counters_table"), keys.total_key(loss.counter)
        connection.dynamo("none").delete(Delete(table, key))
        if loss.before_repair:
            self.record(loss.counter, loss.before_repair)
        if loss.before_repair or loss.before_rebuild:
            self.others.add(loss.counter)
        self.stack.advance(minutes=20)
        assert self.ledger.audit.repair(loss.counter).healthy
        repaired = self.now
        self.stack.advance(hours=2)
        if loss.before_rebuild:
            self.record(loss.counter, loss.before_rebuild)
            self.stack.advance(minutes=20)
        for per in ("hour", "day"):
            found = self.read(loss.counter, per, repaired - timedelta(days=2))
            assert not any(one.complete for one in found if one.start <= repaired)
        assert next(self.ledger.window_audit.rebuild([loss.counter])).healthy

    def check(self) -> None:
        """After all rebuilds: sums, rankings and alerts are those of a recount."""
        self.stack.advance(hours=1)
        for counter in _COUNTERS:
            for one in self.read(counter, "hour", self.now - timedelta(hours=60)):
                assert one.value == self.recount(counter, one.start, one.end)
                assert one.complete or one.end > self.now - timedelta(minutes=5)
        days = {at.date() for _, _, at in self.recorded}
        for day in days:
            top = self.ledger.rankings.top("views", day=day)
            assert [(one.counter, one.value) for one in top] == self._ranking(day)
        alerts = {one["id"]: (one["counter"], one["window"]["name"]) for one in self.stack.alerts}
        expected = {
            (counter, str(day))
            for day in days
            for counter, value in self._ranking(day)
            if value >= _THRESHOLD
        }
        once = [one for one in sorted(alerts.values()) if one[0] not in self.others]
        assert once == sorted(one for one in expected if one[0] not in self.others)
        assert set(alerts.values()) <= expected

    def _ranking(self, day: date) -> list[tuple[str, int]]:
        start = datetime(day.year, day.month, day.day, tzinfo=UTC)
        sums = [(name, self.recount(name, start, start + timedelta(days=1))) for name in _COUNTERS]
        return sorted((one for one in sums if one[1]), key=lambda one: (-one[1], one[0]))


def _run_losses(steps: Sequence[Count | Loss]) -> None:
    history = LossHistory()
    for step in steps:
        history.step(step)
    history.check()
    assert history.stack.failures == []


@settings(max_examples=25)
@given(_STEPS)
def test_lost_totals_leave_sums_ranks_and_alerts_as_a_recount_has_them(
    steps: list[Count | Loss],
) -> None:
    _run_losses(steps)


_LOST: Final = [Count("views:a", 12), Loss("views:a")]


@pytest.mark.parametrize(
    ("owner", "name", "off", "steps"),
    [
        pytest.param(WindowSums, "_is_doubtful", lambda *_: False, _LOST, id="doubt"),
        pytest.param(
            window_audit,
            "_id_of",
            lambda found, setting, now_ms: new_windows_id(setting.id, found.counter, now_ms),
            _LOST,
            id="take over",
        ),
        pytest.param(
            WindowRebuilder,
            "_delete_unnamed",
            lambda *_: 0,
            [Count("views:a", 12), Loss("views:a", before_repair=7)],
            id="delete the rest",
        ),
    ],
)
def test_a_history_with_losses_finds_each_rule_that_is_off(
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    name: str,
    off: object,
    steps: list[Count | Loss],
) -> None:
    _run_losses(steps)
    monkeypatch.setattr(owner, name, off)

    with pytest.raises(AssertionError):
        _run_losses(steps)


# Rules of before and of after a change: offsets that move either way, and a summer time that ends.
_ZONES: Final = ("Asia/Omsk", "Asia/Almaty", "Asia/Kolkata", "Asia/Dubai")
_CHANGES: Final = st.tuples(st.sampled_from(_ZONES), st.sampled_from(_ZONES)) | st.sampled_from(
    [("Europe/Berlin", "Africa/Lagos"), ("Africa/Lagos", "Europe/Berlin")]
)
_ZONE: Final = "Asia/Almaty"
_HOURS: Final = st.sets(st.integers(0, 95), min_size=5, max_size=25)
_OLDER: Final[dict[str, dict[str, Any]]] = {
    "ranked": {"by": "day", "ranked": 3},
    "keep": {"by": "day", "keep_ms": 40 * DAY_MS},
    "by": {"by": "hour"},
}


class RulesHistory(History):
    """Days whose zone gets other rules; each entry is of the date that its own rules give it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.patch = patch
        self.dates: list[date] = []

    def install(self, zone: str, version: str) -> None:
        """From now on `tzdata` has these rules."""
        self.rules = ZoneInfo(zone)
        self.patch.setattr(windows, "rules_version", lambda: version)
        self.patch.setattr(windows, "rules_of", lambda _: rules_of(zone))

    def enable(self, **values: Any) -> None:  # noqa: ANN401 - handed on
        self.ledger.window_settings.enable("views", time_zone=_ZONE, **values)
        self.stack.advance(minutes=2)

    def record_hours(self, hours: Collection[int], since: datetime) -> None:
        """Something of each of these hours, of a worth that tells them apart."""
        for hour in sorted(hours):
            at = since + timedelta(hours=hour)
            self.record(_COUNTERS[0], 1 + len(self.recorded) ** 4, self.now - at)
            self.dates.append(at.astimezone(self.rules).date())

    def check(self, per: str, since: datetime) -> None:
        for one in self.read(_COUNTERS[0], per, since):
            of_name = (
                worth
                for (_, worth, _), day in zip(self.recorded, self.dates, strict=True)
                if str(day).startswith(one.name)
            )
            assert one.value == sum(of_name), one.name


def _run_rules(before: str, after: str, at: datetime, hours: Collection[int], read: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        history = RulesHistory(patch)
        history.install(before, "2024a")
        history.enable(by="day")
        history.stack.advance(seconds=(at - history.now).total_seconds())
        history.record_hours(hours, at - timedelta(hours=96))
        history.install(after, "2024b")
        history.enable(by="day")
        history.stack.advance(hours=60)
        history.record_hours(hours, at - timedelta(hours=40))
        history.stack.advance(hours=30)
        since = at - timedelta(hours=96 - read)
        for per in ("day", "month"):
            history.check(per, since)
        last = history.read(_COUNTERS[0], "day", at + timedelta(hours=30))
        assert [one.complete for one in last][1:] == [True] * (len(last) - 2) + [False]
        if rules_of(before) != rules_of(after):
            _refuses_older(history, before)


def _refuses_older(history: RulesHistory, before: str) -> None:
    known = history.ledger.window_settings.of("views")
    history.install(before, "2024a")
    for values in _OLDER.values():
        with pytest.raises(BadSetting, match="only move forward"):
            history.enable(**values)
    assert history.ledger.window_settings.of("views") == known


_MOMENTS: Final = st.integers(4 * 24, 60 * 24).map(lambda hours: _AT + timedelta(hours=hours))


@settings(max_examples=15)
@given(_CHANGES, _MOMENTS, _HOURS, st.integers(0, 95))
def test_rules_that_change_leave_each_entry_on_its_date(
    change: tuple[str, str], at: datetime, hours: set[int], read: int
) -> None:
    _run_rules(*change, at, hours, read)


_WEST: Final = ("Asia/Omsk", "Asia/Almaty")
_EAST: Final = ("Asia/Almaty", "Asia/Omsk")


@pytest.mark.parametrize(
    ("owner", "name", "off", "change"),
    [
        # A day that moved west begins in the day before.
        pytest.param(windows, "_middle_ms", lambda day: day.start_ms, _WEST, id="middle"),
        pytest.param(windows, "is_torn", lambda *_: False, _WEST, id="torn, west"),
        pytest.param(windows, "is_torn", lambda *_: False, _EAST, id="torn, east"),
        pytest.param(windows, "_check_rules", lambda *_: None, _WEST, id="forward"),
    ],
)
def test_a_history_of_rules_finds_each_rule_that_is_off(
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    name: str,
    off: object,
    change: tuple[str, str],
) -> None:
    history = (*change, _AT + timedelta(days=20), range(96), 0)
    _run_rules(*history)
    monkeypatch.setattr(owner, name, off)

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        _run_rules(*history)


class Switch(NamedTuple):
    """Other windows, or none; then something is recorded after some seconds, dated ahead."""

    by: str | None
    recorded: Sequence[tuple[int, int]] = ()


class Pass(NamedTuple):
    """Time passes."""

    hours: int


class Placed(NamedTuple):
    """What was recorded: worth, business time, when, and the period of the settings."""

    delta: int
    at: datetime
    recorded: datetime
    period: int
    by: str | None


class SettingHistory(History):
    """Windows that are switched on, off and to others, and an alert for each full hour."""

    def __init__(self, first: str) -> None:
        super().__init__()
        self.periods: list[tuple[datetime, str | None]] = []
        self.placed: list[Placed] = []
        self.switch(Switch(first))

    def switch(self, step: Switch) -> None:
        if not self.periods or self.periods[-1][1] != step.by:
            made, changes = None, self.ledger.window_settings
            if step.by is None:
                made = changes.disable("views")
                assert made is not None
                from_ms = made.ended_ms or 0
            else:
                ranked = int(step.by == "day")
                from_ms = changes.enable(
                    "views", by=step.by, ranked=ranked, max_lateness_ms=40 * HOUR_MS
                ).from_ms
            self.periods.append((datetime.fromtimestamp(from_ms / 1_000, UTC), step.by))
        for seconds, ahead in step.recorded:
            self.stack.advance(seconds=seconds)
            self.place(1 + len(self.placed) ** 4, timedelta(seconds=-ahead))
        self.stack.advance(minutes=3)

    def place(self, delta: int, ago: timedelta) -> None:
        self.record(_COUNTERS[0], delta, ago)
        _, delta, at = self.recorded[-1]
        begun = [number for number, one in enumerate(self.periods) if one[0] <= self.now]
        period = begun[-1] if begun else -1
        by = self.periods[period][1] if begun else None
        self.placed.append(Placed(delta, at, self.now, period, by))

    def is_all_days(self, start: datetime, end: datetime) -> bool:
        """Whether only days were counted in the whole of a time."""
        ends = [*(one[0] for one in self.periods[1:]), datetime.max.replace(tzinfo=UTC)]
        others = [
            (begin, until)
            for (begin, by), until in zip(self.periods, ends, strict=True)
            if by != "day"
        ]
        others.append((datetime.min.replace(tzinfo=UTC), self.periods[0][0]))
        return not any(begin < end and start < until for begin, until in others)

    def check(self, per: str, since: datetime, until: datetime) -> None:
        """A window has what the settings with its kind counted; a complete one lacks nothing."""
        found = self.ledger.windows(_COUNTERS[0], per, since=since, until=until, prove=True)
        for one in found:
            mine = [entry for entry in self.placed if one.start <= entry.at < one.end]
            assert one.value == sum(entry.delta for entry in mine if entry.by == per)
            before = [entry for entry in mine if entry.recorded < one.end or one.final]
            assert not one.complete or all(entry.by == per for entry in before)

    def check_hours(self, begun: datetime) -> None:
        start = begun.replace(minute=0, second=0, microsecond=0)
        while start < self.now:
            end = start + timedelta(hours=1)
            if self.is_all_days(start, end):
                with pytest.raises(BadTime, match="were not counted"):
                    self.check("hour", start, end)
            else:
                self.check("hour", start, end)
            start = end

    def check_alerts(self) -> None:
        """Each hour that is full by what one setting counted in it, once."""
        sums: Counter[tuple[int, datetime]] = Counter()
        for one in self.placed:
            if one.by == "hour":
                hour = one.at.replace(minute=0, second=0, microsecond=0)
                sums[one.period, hour] += one.delta
        expected = sorted(hour for (_, hour), value in sums.items() if value >= _THRESHOLD)
        alerts = {one["id"]: one["window"] for one in self.stack.alerts}
        assert {one["per"] for one in alerts.values()} <= {"hour"}
        starts = (datetime.fromisoformat(one["start"]) for one in alerts.values())
        assert sorted(starts) == expected


_CHANGING: Final = st.lists(
    st.builds(Switch, st.sampled_from(["hour", "day", "day", None]), st.just(()))
    | st.builds(Pass, st.integers(1, 3))
    | st.builds(Count, st.just(_COUNTERS[0]), st.integers(1, 12), st.sampled_from([0, 1, 5])),
    max_size=12,
)


def _run_settings(steps: Sequence[Switch | Pass | Count]) -> None:
    history = SettingHistory("hour")
    begun = history.now - timedelta(hours=6)
    history.ledger.alerts.create(
        "full", prefix="views:", threshold=_THRESHOLD, window="hour", wait=True
    )
    for step in steps:
        if isinstance(step, Switch):
            history.switch(step)
        elif isinstance(step, Pass):
            history.stack.advance(hours=step.hours)
        else:
            history.place(step.delta, timedelta(hours=step.ago_hours))
            history.stack.advance(minutes=1)
    history.stack.advance(minutes=5)
    history.check_alerts()
    history.check_hours(begun)
    assert history.stack.failures == []


@settings(max_examples=25)
@given(_CHANGING)
def test_hours_are_those_of_settings_with_hours(steps: list[Switch | Pass | Count]) -> None:
    _run_settings(steps)


_AHEAD: Final = st.lists(
    st.builds(
        Switch,
        st.sampled_from(["minute", None]),
        st.lists(st.tuples(st.integers(1, 40), st.integers(0, 58)), max_size=6),
    ),
    min_size=1,
    max_size=5,
)


def _run_ahead(steps: Sequence[Switch]) -> None:
    history = SettingHistory("day")
    begun = history.now
    for step in steps:
        history.switch(step)
    history.stack.advance(minutes=5)
    until = history.now
    if any(by == "minute" for _, by in history.periods):
        for hours in (0, 70):  # before any is final, and when all are
            history.stack.advance(hours=hours)
            for number in range(int((until - begun) / timedelta(minutes=1))):
                start = (begun + timedelta(minutes=number)).replace(second=0, microsecond=0)
                if not history.is_all_days(start, start + timedelta(minutes=1)):
                    history.check("minute", start, start + timedelta(minutes=1))


@settings(max_examples=25)
@given(_AHEAD)
def test_a_complete_minute_lacks_nothing_that_was_dated_ahead(steps: list[Switch]) -> None:
    _run_ahead(steps)


def _covered_without_skew(window: Window, known: Sequence[WindowSetting]) -> bool:
    return covered(window, [replace(one, skew_ms=0) for one in known])


_DAYS_ONLY: Final[list[Switch | Pass | Count]] = [
    Switch("day"),
    Pass(3),
    Count(_COUNTERS[0], 12),
    Pass(1),
]


@pytest.mark.parametrize(
    ("owner", "name", "off", "run"),
    [
        pytest.param(
            windows,
            "check_counted",
            lambda *_: None,
            lambda: _run_settings(_DAYS_ONLY),
            id="counted",
        ),
        pytest.param(
            windows,
            "covered",
            _covered_without_skew,
            lambda: _run_ahead([Switch("minute", [(70, 55)])]),
            id="skew",
        ),
    ],
)
def test_a_history_of_settings_finds_each_rule_that_is_off(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, off: object, run: Callable[[], None]
) -> None:
    run()
    monkeypatch.setattr(owner, name, off)

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        run()
