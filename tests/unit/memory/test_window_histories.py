"""Windows of random histories agree with a recount of what was recorded."""

from collections.abc import Collection, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countledger.consumers import window_rebuild, window_settings, window_sums
from countledger.consumers.window_rebuild import WindowRebuilder
from countledger.consumers.window_sums import WindowSum, WindowSums
from countledger.ledger import keys
from countledger.ledger.calendar import rules_of
from countledger.ledger.errors import BadSetting
from countledger.ledger.limits import DAY_MS
from countledger.ledger.operations import Delete
from countledger.ledger.total import new_windows_id
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
            window_rebuild,
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
        self.patch.setattr(window_settings, "rules_version", lambda: version)
        self.patch.setattr(window_settings, "rules_of", lambda _: rules_of(zone))

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
        pytest.param(window_sums, "_middle_ms", lambda day: day.start_ms, _WEST, id="middle"),
        pytest.param(window_sums, "is_torn", lambda *_: False, _WEST, id="torn, west"),
        pytest.param(window_sums, "is_torn", lambda *_: False, _EAST, id="torn, east"),
        pytest.param(window_settings, "_check_rules", lambda *_: None, _WEST, id="forward"),
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
