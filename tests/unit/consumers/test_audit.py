"""Audits: every counter there is, once, also after an interruption."""

import json
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from countledger.consumers.audit import (
    Audit,
    Bookmarks,
    FileBookmarks,
    ItemBookmarks,
    NoBookmarks,
    WalkedTable,
    Walker,
    WalkPosition,
    WalkSegment,
    start,
)
from countledger.consumers.verify import Judgement, Verdict
from countledger.ledger import keys
from countledger.ledger.errors import BadSetting
from countledger.ledger.operations import Assign, Put, Scan, Update
from tests.unit.consumers.world import COUNTERS, LEDGER, World
from tests.unit.ledger.memory import at

PURPOSE = "verify of ledger and counters in here"
_TOTAL = (Assign("total", 3), Assign("events", 1), Assign("entries", 1), Assign("version", 1))


def _audit(
    world: World,
    *,
    segments: int = 3,
    bookmarks: Bookmarks | None = None,
    is_wanted: Callable[[str], bool] = lambda _: True,
) -> Audit[Verdict]:
    return Audit(
        Walker(world.connection(), page_size=2),
        world.verifier().verify,
        lambda one: str(one.verdict),
        is_wanted,
        segments,
        bookmarks or NoBookmarks(),
    )


def _fill(world: World, count: int = 40) -> list[str]:
    names = [f"a:{n}" for n in range(count)]
    for name in names:
        world.handle(world.emit(1, counter=name), 1)
    return names


@pytest.mark.parametrize("segments", [1, 2, 7, 64])
def test_every_counter_with_a_total_an_entry_or_a_head_is_evaluated(
    world: World, segments: int
) -> None:
    names = _fill(world)
    world.pass_over(world.emit(5, counter="b:entry"))
    world.dynamo.update(Update(COUNTERS, keys.total_key("c:total"), _TOTAL))
    numbers = {"sum": 7, "events": 1, "entries": 1, "covers": {}}
    head = {"generation": 1, "run": "r", "incarnation": "r", **numbers}
    world.dynamo.put(Put(LEDGER, {**keys.head_key("d:head"), **head}))
    world.dynamo.put(Put(LEDGER, {**keys.namespace_key("a"), "kind": "ledger"}))
    world.dynamo.put(Put(COUNTERS, {**keys.total_key("no#counter"), "total": 1}))
    world.handle(world.emit(5, counter="strict:a"), 5)
    audit = _audit(world, segments=segments, is_wanted=lambda name: name != "strict:a")
    begun: list[object] = []

    def note(_kind: str, read: Scan, request: Callable[[], Any]) -> Any:  # noqa: ANN401
        begun.append(read.after)
        return request()

    world.dynamo.plans.append(at(note, "scan"))

    verdicts = list(audit)

    assert sorted(one.counter for one in verdicts) == sorted(
        [*names, "b:entry", "c:total", "d:head"]
    )
    drifts = {one.counter: one.drift for one in verdicts if one.verdict is Judgement.DRIFT}
    assert drifts == {"b:entry": -5, "c:total": 3, "d:head": -7}
    assert audit.counts == {"exact": 40, "drift": 3}
    assert audit.done
    assert begun.count(None) == 2 * segments


@pytest.mark.parametrize("keep", ["file", "item"])
def test_an_interrupted_audit_goes_on_where_it_ended(
    world: World, tmp_path: Path, keep: str
) -> None:
    names = _fill(world)
    bookmarks: Bookmarks = (
        FileBookmarks(tmp_path / "place.json", PURPOSE)
        if keep == "file"
        else ItemBookmarks(world.connection(), PURPOSE)
    )
    judged: list[str] = []
    rounds = _audit(world, bookmarks=bookmarks).rounds()
    judging = (outcomes for outcomes in rounds if outcomes)
    for outcomes in islice(judging, 2):
        judged += [one.counter for one in outcomes]  # the place of the second is not kept
    rounds.close()  # type: ignore[attr-defined]  # a generator
    first = len(judged)
    again = _audit(world, bookmarks=bookmarks)

    judged += [one.counter for one in again]

    assert 0 < first < len(names)
    assert set(judged) == set(names)
    assert len(judged) < 2 * len(names)
    assert sum(again.counts.values()) == len(names)
    assert bookmarks.load() is None


def test_a_crash_in_a_round_has_it_done_again(world: World, tmp_path: Path) -> None:
    """The place moves only once all outcomes were taken."""
    names = _fill(world)
    bookmarks = FileBookmarks(tmp_path / "place.json", PURPOSE)
    verdicts = iter(_audit(world, bookmarks=bookmarks))
    taken = next(verdicts).counter
    verdicts.close()  # type: ignore[attr-defined]  # a generator

    again = [one.counter for one in _audit(world, bookmarks=bookmarks)]

    assert taken in again
    assert sorted(again) == sorted(names)


def test_a_place_survives_its_file(tmp_path: Path) -> None:
    bookmarks = FileBookmarks(tmp_path / "place.json", PURPOSE)
    lanes = start(2).lanes
    moved = (WalkSegment(WalkedTable.LEDGER, 0, {"counter": "ä:1", "entry": "s#head"}), *lanes[1:])
    place = WalkPosition(type(start(2))(moved), {"exact": 7})
    assert bookmarks.load() is None

    bookmarks.save(place)

    assert bookmarks.load() == place
    assert [path.name for path in tmp_path.iterdir()] == ["place.json"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not valid"),
        ("[]", "is not valid"),
        ('{"format": 2, "purpose": "p", "lanes": [], "counts": {}}', "is not valid"),
        (
            json.dumps(
                {
                    "format": 1,
                    "purpose": PURPOSE,
                    "lanes": [{"source": "totals", "segment": 0, "after": None, "done": True}],
                    "counts": {},
                }
            ),
            "segments are missing",
        ),
        (json.dumps({"format": 1, "purpose": "repair", "lanes": [], "counts": {}}), "'repair'"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str, says: str) -> None:
    """Going on with it would leave counters out."""
    (tmp_path / "place.json").write_text(text)

    with pytest.raises(BadSetting, match=says):
        FileBookmarks(tmp_path / "place.json", PURPOSE).load()


def test_a_file_that_cannot_be_written_is_said(world: World, tmp_path: Path) -> None:
    _fill(world)
    bookmarks = FileBookmarks(tmp_path / "no" / "place.json", PURPOSE)

    with pytest.raises(BadSetting, match="cannot be written"):
        next(iter(_audit(world, bookmarks=bookmarks)))

    assert "scan" not in world.dynamo.calls


@pytest.mark.parametrize("segments", [0, -1, 65])
def test_so_many_segments_cannot_be(segments: int) -> None:
    with pytest.raises(BadSetting, match=f"{segments} segments"):
        start(segments)


def test_a_counter_that_gets_its_total_during_the_walk_is_named_once(world: World) -> None:
    _fill(world, 3)
    late = world.emit(5, counter="late:a")
    named: list[str] = []
    for one in Walker(world.connection()).rounds(start(1)):
        named += one.counters
        if late and any(lane.done for lane in one.bookmark.lanes):
            world.handle(late, 5)  # one table was read, and the other one was not
            late = {}

    assert sorted(named).count("late:a") == 1


_FOREIGN = [
    {"counter": "a:0", "entry": "mine"},
    {"counter": "a:0", "entry": "e#mine"},
    {"counter": "weird#name", "entry": "e#k" + "0" * 32},
    {"counter": "namespace#a", "entry": "mine"},
    {"counter": "region#home", "entry": "mine"},
    {"counter": "deletion#a", "entry": "b:0"},
    {"counter": "deletion#a", "entry": "a#0"},
]


def test_items_that_no_part_of_countledger_writes_are_found(world: World, tmp_path: Path) -> None:
    """Each once, also over an interruption; those that countledger writes are not reported."""
    _fill(world, 9)
    ours = (
        keys.head_key("b:head"),
        keys.archived_key("b:head"),
        keys.namespace_key("a"),
        keys.region_home_key(keys.EPOCH),
        keys.region_home_key(keys.LEASE),
        keys.deletion_key("a:0"),
        keys.deletion_key("plain"),
    )
    for key in (*ours, *_FOREIGN):
        world.dynamo.put(Put(LEDGER, dict(key)))
    found: list[Mapping[str, str]] = []
    bookmarks = FileBookmarks(tmp_path / "walk", PURPOSE)
    first, second = (_audit(world, segments=1, bookmarks=bookmarks) for _ in range(2))
    first.has_time = lambda: False
    for audit in (first, second):
        audit.on_foreign = found.extend
        list(audit)

    assert (first.done, second.done) == (False, True)
    assert second.foreign.count == len(_FOREIGN)
    assert second.foreign.first == "{} {}".format(*_key_of(found[0]))
    assert sorted(map(_key_of, found)) == sorted(map(_key_of, _FOREIGN))


def _key_of(item: Mapping[str, str]) -> tuple[str, str]:
    return item["counter"], item["entry"]


def test_the_number_of_foreign_items_stays_in_the_bookmark_of_a_walk(world: World) -> None:
    """There `countledger status` finds it until the next walk ends."""
    world.dynamo.put(Put(LEDGER, dict(_FOREIGN[0])))
    key = keys.bookmark_key(PURPOSE)
    list(_audit(world, bookmarks=ItemBookmarks(world.connection(), PURPOSE)))
    stored = world.dynamo.tables[COUNTERS][key["counter"], key["part"]]
    assert stored["foreign"] == 1
    assert stored["foreign_first"] == "{} {}".format(*_key_of(_FOREIGN[0]))
