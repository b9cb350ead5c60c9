"""Windows of many counters are verified and rebuilt, with a position that survives."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from countledger.consumers.audit import RepairCounter
from countledger.consumers.quarantine import quarantined_of
from countledger.consumers.verify import Judgement, Remedy
from countledger.consumers.window_audit import WindowAuditor
from countledger.ledger import keys
from countledger.ledger.attributes import Item
from countledger.ledger.entry import Entry
from countledger.ledger.errors import BadSetting, NoWindows, WrongKind
from countledger.ledger.limits import FORMAT
from countledger.ledger.namespace import Kind, Namespaces
from countledger.ledger.operations import Assign, Put, Update
from countledger.ledger.quarantine import QuarantineSource
from countledger.ledger.windows import encode_settings
from tests.unit.connections import connection_on
from tests.unit.consumers.test_window_rebuild import ONE, Windows
from tests.unit.consumers.world import COUNTERS
from tests.unit.ledger.clocks import NOW_MS

NAMES = [f"a:{n}" for n in range(12)]
PLACE = "s3://bucket/archive"


class Audited(Windows):
    """Counters of namespace `a`, which has windows, and of `b`, which has none."""

    def namespaces(self) -> Namespaces:
        return Namespaces(connection_on(self.dynamo))

    def auditor(self) -> WindowAuditor:
        return WindowAuditor(self.connection(), self.archive_at)

    def archive_at(self, place: str) -> Callable[[str, str], Iterable[Entry]]:
        assert place == PLACE

        def entries(_counter: str, _incarnation: str) -> Iterable[Entry]:
            return ()

        return entries

    def item_of(self, counter: str, kind: str) -> Item:
        """The one item of windows of a kind that a counter has."""
        items = (one for one in self.dynamo.items(COUNTERS) if one["counter"] == counter)
        (item,) = (one for one in items if f"#{kind}#" in one["part"])
        return item

    def add_to(self, counter: str, delta: int) -> None:
        """A cell and its item's sum are edited by hand."""
        item = self.item_of(counter, "month")
        cell = next(name for name in item if name[0] == "s" and name[1:].isdigit())
        changed = {cell: item[cell] + delta, "sum": item["sum"] + delta}
        self.dynamo.put(Put(COUNTERS, {**item, **changed}))


@pytest.fixture
def world() -> Audited:
    made = Audited()
    made.add_shard("s")
    for name in "ab":
        made.namespaces().create(name)
    made.namespaces().create("s", kind=Kind.STRICT)
    made.dynamo.put(Put(COUNTERS, encode_settings("a", [ONE])))
    records = [made.emit(n + 1, counter=name) for n, name in enumerate([*NAMES, "b:1"])]
    assert made.deliver(records, windows=made.windows_of).retry_from is None
    return made


def test_counters_by_name_have_a_verdict_each_and_are_rebuilt(world: Audited) -> None:
    world.add_to(NAMES[3], 7)
    audit = world.auditor()

    verdicts = list(audit.verify([*NAMES[2:4], "b:1"], archived=PLACE))
    planned = list(audit.rebuild(NAMES[2:4], dry_run=True))
    done = list(audit.rebuild(NAMES[2:4]))

    assert [one.verdict for one in verdicts] == ["exact", "drift", "exact"]
    assert verdicts[2].proof == "its namespace has no windows"
    assert [one.remedy for one in planned] == [Remedy.NONE, Remedy.WOULD_REPAIR]
    assert [one.remedy for one in done] == [Remedy.NONE, Remedy.REPAIRED]
    assert next(audit.verify([NAMES[3]])).verdict is Judgement.EXACT
    with pytest.raises(WrongKind):
        list(audit.verify(["s:1"]))


def test_all_counters_of_a_namespace_are_rebuilt_also_after_an_interruption(
    world: Audited, tmp_path: Path
) -> None:
    for name in NAMES:
        world.add_to(name, 7)
    place = tmp_path / "place.json"
    first = world.auditor().rebuild_all("a", resume=place, segments=3)
    first.walker = replace(first.walker, page_size=2)
    rounds = first.rounds()
    found = next(islice((one for one in rounds if one), 1))
    next(rounds)  # the position after the first ones is stored
    rounds.close()  # type: ignore[attr-defined]  # a generator

    again = world.auditor().rebuild_all("a", resume=place)
    found += list(again)

    assert {one.counter for one in found} == set(NAMES)
    assert again.counts["repaired"] + again.counts["none"] == len(NAMES)
    assert not place.exists()
    verdicts = list(world.auditor().verify_all())
    assert {one.counter for one in verdicts} == set(NAMES)
    assert {one.verdict for one in verdicts} == {Judgement.EXACT}


def test_a_walk_is_of_one_task(world: Audited, tmp_path: Path) -> None:
    """A namespace without windows is refused, and a position of another namespace."""
    place = tmp_path / "place.json"
    next(world.auditor().verify_all("a", resume=place).rounds())

    with pytest.raises(BadSetting, match="verify windows of a of ledger"):
        list(world.auditor().rebuild_all("a", resume=place))
    with pytest.raises(NoWindows, match="windows enable b --by day"):
        world.auditor().verify_all("b")


@pytest.mark.parametrize("where", ["an item", "the total", "the setting"])
def test_what_a_later_release_wrote_is_left_alone(world: Audited, where: str) -> None:
    world.add_to(NAMES[0], 7)
    key = {
        "an item": {"counter": NAMES[0], "part": world.item_of(NAMES[0], "day")["part"]},
        "the total": keys.total_key(NAMES[0]),
        "the setting": keys.windows_key("a"),
    }[where]
    world.dynamo.update(Update(COUNTERS, key, (Assign("v", FORMAT + 1),)))
    before = world.dynamo.items(COUNTERS)

    (done,) = world.auditor().rebuild(NAMES[:1])

    assert (done.remedy, done.verdict.verdict) == (Remedy.SKIPPED, Judgement.UNREADABLE)
    assert f"this release reads up to {FORMAT}" in done.reason
    assert world.dynamo.items(COUNTERS) == before


@pytest.mark.parametrize("attribute", ["cell", "sum", "version", "total"])
def test_what_was_edited_into_nonsense_is_replaced(world: Audited, attribute: str) -> None:
    counter = NAMES[2]
    item = world.item_of(counter, "month")
    cell = next(name for name in item if name[0] == "s" and name[1:].isdigit())
    name = {"cell": cell, "total": f"windowed#{ONE.id}"}.get(attribute, attribute)
    key = keys.total_key(counter) if attribute == "total" else item
    where = {"counter": counter, "part": key["part"]}
    world.dynamo.update(Update(COUNTERS, where, (Assign(name, "nonsense"), Assign("sum", 9))))

    (done,) = world.auditor().rebuild([counter])

    assert done.remedy is Remedy.REPAIRED
    assert next(world.auditor().verify([counter])).verdict is Judgement.EXACT


def test_a_record_that_its_windows_lack_is_resolved_by_a_rebuild(world: Audited) -> None:
    """The total contains it; an item of windows had been edited, so its update was refused."""
    counter = NAMES[1]
    item = world.item_of(counter, "day")
    world.dynamo.put(Put(COUNTERS, {**item, "sum": "nonsense"}))
    record = world.emit(5, counter=counter)
    outcome = world.deliver([record], windows=world.windows_of)
    audit = world.auditor()
    redrive = RepairCounter(audit.auditor, audit.rebuild)
    kept = quarantined_of(record, "windows", "b/s", QuarantineSource.LEDGER, NOW_MS)

    answers = [redrive(kept, even_if_counted=False) for _ in range(2)]

    assert (outcome.retry_from, len(world.quarantine.records)) == (None, 1)
    assert [one.resolved for one in answers] == [True, True]
    assert "windows: repaired" in answers[0].detail
    assert next(audit.verify([counter])).total == 2 + 5
    assert next(audit.verify([counter])).verdict is Judgement.EXACT


def test_a_dry_run_says_what_would_be_done_and_does_nothing(world: Audited) -> None:
    world.add_to(NAMES[3], 7)
    before = world.dynamo.items(COUNTERS)

    done = world.auditor().rebuild_all("a", dry_run=True)

    assert {one.counter for one in done if one.remedy is Remedy.WOULD_REPAIR} == {NAMES[3]}
    assert [one for one in world.dynamo.items(COUNTERS) if one["part"][:6] != "audit#"] == before


def test_a_walk_of_one_namespace_leaves_the_others(world: Audited) -> None:
    """A walk of all leaves out those without windows, and those of strict counters."""
    world.dynamo.put(Put(COUNTERS, encode_settings("b", [ONE])))
    world.dynamo.put(Put(COUNTERS, {**keys.total_key("s:1"), "method": "atomic", "total": 1}))

    of_b, of_all = (list(world.auditor().verify_all(one)) for one in ("b", None))

    assert [one.counter for one in of_b] == ["b:1"]
    assert {one.counter for one in of_all} == {*NAMES, "b:1"}
