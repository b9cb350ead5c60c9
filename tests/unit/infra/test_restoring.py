"""What of restored tables becomes content of the new stack, and that each of it does so once."""

from collections.abc import Callable
from typing import Any

import pytest

from countledger import CountLedger
from countledger.compaction.schedules import Schedules
from countledger.consumers.alerts.rules import Rules
from countledger.consumers.windows import WindowSettings
from countledger.infra.memory.tables import COUNTERS, LEDGER
from countledger.infra.portability.restore import RestoredTables, Restorer, is_copied
from countledger.ledger import keys
from countledger.ledger.attributes import Item
from countledger.testing import MemoryStack

_MINE = "likes:a"


@pytest.mark.parametrize(
    "item",
    [
        {**keys.total_key("seats:hall"), "method": "marker"},
        {**keys.total_key("bills:2030"), "method": "sequence"},
        keys.bin_key("seats:hall", 1),
        keys.marker_key("seats:hall", 1, "id"),
        keys.strict_key("seats:hall"),
        keys.keyed_key("id"),
        keys.claim_key("mail", ("ann",)),
        keys.group_key("g"),
        keys.member_key("g", _MINE),
        keys.ranking_key("likes"),
        keys.import_key("opening"),
        keys.quarantine_key("kinesis", "0-1"),
        *keys.alert_log_keys(_MINE, "rule", 1, 1),
    ],
    ids=lambda item: f"{item['counter']},{item['part']}",
)
def test_what_no_ledger_has_is_copied(item: dict[str, Any]) -> None:
    assert is_copied(item)


@pytest.mark.parametrize(
    "item",
    [
        keys.total_key(_MINE),
        keys.alert_state_key(_MINE, "rule"),
        keys.rule_key("rule"),
        keys.rules_stamp_key(),
        keys.schedule_key("likes"),
        keys.taken_over_key("likes"),
        keys.run_key("likes"),
        keys.windows_key("likes"),
        keys.window_key(_MINE, "id", "month#2026-11"),
        keys.progress_key("stream/shard"),
        keys.known_shard_key("stream", "shard"),
        keys.bookmark_key("verify"),
        keys.import_key("#restore"),
    ],
    ids=lambda item: f"{item['counter']},{item['part']}",
)
def test_what_belongs_to_the_lost_stack_is_not(item: dict[str, Any]) -> None:
    """Its streams, its triggers, and what follows from the ledger."""
    assert not is_copied(item)


_TABLES = RestoredTables("restored-ledger", "restored-counters")


def _lost() -> MemoryStack:
    """A stack with an entry, a schedule, a rule, and the epoch of a promotion."""
    lost = MemoryStack()
    lost.ledger.record(_MINE, 5)
    lost.ledger.window_settings.enable("likes", by="day")
    lost.ledger.schedules.create("likes", every_ms=3_600_000)
    lost.ledger.alerts.create("many", prefix="likes:", threshold=50, direction="rising")
    tables = lost._memory.tables
    epoch = {"epoch": 1, "home": "eu-west-1", "id": "x", "begins_at": 0}
    tables[LEDGER].store((keys.REGION_HOME, "epoch"), keys.region_home_key("epoch") | epoch)
    return lost


def _restorer(new: MemoryStack, lost: MemoryStack) -> Restorer:
    """Of a new stack beside which the tables of a lost one are restored."""
    for name, source, sort in zip(
        (_TABLES.ledger, _TABLES.counters), (LEDGER, COUNTERS), ("entry", "part"), strict=True
    ):
        table = new._memory.add(name, "counter", sort)
        for key, item in lost._memory.tables[source].items.items():
            table.store(key, dict(item))
    return Restorer(new.ledger, _TABLES)


def _restore(restorer: Restorer) -> list[str]:
    """One call; what it created again."""
    if not restorer.begin():
        list(restorer.copy())
    assert all(one.healthy for one in restorer.rebuild())
    return [what for what, error in restorer.recreate() if error is None]


def _items(stack: MemoryStack) -> list[Item]:
    return list(stack._memory.tables[LEDGER].items.values())


def test_what_was_deleted_since_the_restore_is_not_created_again() -> None:
    """A call after the end of the restore, or one that was suspended until then."""
    new, lost = MemoryStack(), _lost()
    restorer = _restorer(new, lost)
    assert _restore(restorer) == [
        "windows of namespace likes",
        "schedule of namespace likes",
        "alert rule many",
    ]
    new.ledger.schedules.delete("likes")
    new.ledger.alerts.delete("many")

    assert _restore(restorer) == []

    assert new.ledger.schedules.find("likes") is None
    assert new.ledger.alerts.list() == []
    assert new.ledger.total(_MINE).value == new.ledger.exact(_MINE).value == 5


@pytest.mark.parametrize(
    ("suspended", "at"),
    [(Schedules, "_checked"), (Rules, "create_once"), (WindowSettings, "enable")],
)
def test_a_call_that_is_suspended_before_it_creates_creates_nothing_that_was_deleted_since(
    suspended: type, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has seen that there is none; another call ends the restore; then a person deletes."""
    new, lost = MemoryStack(), _lost()
    restorer = _restorer(new, lost)
    real, before = getattr(suspended, at), iter([lambda: _restore_and_delete(restorer, new.ledger)])

    def resumed(*args: object, **named: object) -> object:
        next(before, lambda: None)()
        return real(*args, **named)

    monkeypatch.setattr(suspended, at, resumed)
    _restore(restorer)

    assert new.ledger.schedules.find("likes") is None
    assert new.ledger.alerts.list() == []
    assert new.ledger.window_settings.of("likes")[-1].ended_ms is not None
    assert _restore(restorer) == []


def _restore_and_delete(restorer: Restorer, ledger: CountLedger) -> None:
    assert _restore(restorer)
    ledger.schedules.delete("likes")
    ledger.alerts.delete("many")
    ledger.window_settings.disable("likes")


def test_what_was_deleted_before_the_end_of_the_restore_is_not_created_again() -> None:
    """Another rule could not be created yet, so the restore is called again."""
    new, lost = MemoryStack(), _lost()
    lost.ledger.alerts.create("more", prefix="likes:", threshold=60, direction="rising")
    restorer = _restorer(new, lost)
    first = iter(restorer.recreate())
    restorer.begin()
    list(restorer.copy())
    assert [next(first)[0] for _ in range(3)][-2:] == [
        "schedule of namespace likes",
        "alert rule many",
    ]
    new.ledger.schedules.delete("likes")
    new.ledger.alerts.delete("many")

    assert _restore(restorer)

    assert new.ledger.schedules.find("likes") is None
    assert [one.name for one in new.ledger.alerts.list()] == ["more"]


def test_what_a_person_created_before_the_restore_did_is_theirs() -> None:
    """It stays, and once they have deleted it nothing takes its place."""
    new, lost = MemoryStack(), _lost()
    restorer = _restorer(new, lost)
    restorer.begin()
    list(restorer.copy())
    new.ledger.schedules.create("likes", every_ms=60_000)
    new.ledger.alerts.create("many", prefix="likes:", threshold=7, direction="rising")

    _restore(restorer)

    found = new.ledger.schedules.get("likes")
    assert (found.expression, new.ledger.schedules.state("likes")) == ("rate(1 minute)", "enabled")
    assert [one.threshold for one in new.ledger.alerts.list()] == [7]


def test_a_trigger_that_a_killed_call_did_not_write_is_written_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    new, lost = MemoryStack(), _lost()
    restorer = _restorer(new, lost)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(Schedules, "_follow", killed)
        with pytest.raises(KeyboardInterrupt):
            _restore(restorer)
    assert new.ledger.schedules.state("likes") == "missing"

    _restore(restorer)

    assert new.ledger.schedules.state("likes") == "enabled"


def test_a_restored_stack_is_the_home_of_its_own_ledger() -> None:
    """Nothing could be merged there, if the promotion of another region was copied."""
    new, lost = MemoryStack(), _lost()

    _restore(_restorer(new, lost))

    assert not [one for one in _items(new) if one["counter"] == keys.REGION_HOME]
    assert new.ledger.compactor().compact(_MINE).detail == "no entry is old enough"


def test_a_restore_that_begins_with_a_lost_answer_begins() -> None:
    new, lost = MemoryStack(), _lost()
    restorer = _restorer(new, lost)
    new.lose_next_answer()

    assert _restore(restorer)
    assert restorer.unsettled_until_ms() is None


def _switch_off(windows: WindowSettings) -> None:
    windows.disable("likes")


def _make_coarser(windows: WindowSettings) -> None:
    windows.enable("likes", by="day")


@pytest.mark.parametrize("change", [_switch_off, _make_coarser])
def test_a_rule_on_windows_that_are_off_or_coarser_is_reported_once_with_the_way_out(
    change: Callable[[WindowSettings], None],
) -> None:
    new, lost = MemoryStack(), _lost()
    lost.ledger.window_settings.enable("likes", by="hour")
    lost.advance(minutes=5)
    lost.ledger.alerts.create("busy", prefix="likes:", threshold=60, window="hour")
    change(lost.ledger.window_settings)
    lost.advance(minutes=5)
    restorer = _restorer(new, lost)
    restorer.begin()
    list(restorer.copy())

    (problem,) = [error for _, error in restorer.recreate() if error is not None]

    assert "not tried again: switch such windows on" in str(problem)
    assert "countledger alert create busy" in str(problem)
    assert _restore(restorer) == []
    assert [one.name for one in new.ledger.alerts.list()] == ["many"]
