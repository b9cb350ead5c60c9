"""Windows are verified link by link, and rebuilt from entries."""

from dataclasses import replace
from typing import Any

import pytest

from countledger.consumers.verify import Judgement, Remedy, Repair, Verdict
from countledger.consumers.window_audit import WindowRebuilder
from countledger.consumers.window_verify import WindowEvidence, WindowVerifier, cells_in
from countledger.ledger import keys
from countledger.ledger.attributes import Item
from countledger.ledger.calendar import Per
from countledger.ledger.entry import Entry
from countledger.ledger.exact import Head, encode_head
from countledger.ledger.limits import DAY_MS, HOUR_MS
from countledger.ledger.operations import Delete, Put, Update
from countledger.ledger.total import windows_names
from countledger.ledger.windows import WindowSetting, encode_settings
from tests.unit.consumers.test_window_writing import setting, stored
from tests.unit.consumers.world import COUNTER, COUNTERS, LEDGER, World
from tests.unit.ledger.clocks import NOW_MS
from tests.unit.ledger.memory import meanwhile

ONE = setting(Per.MINUTE)


class Windows(World):
    """A counter with windows by the minute, whose entries came late."""

    def record(self, delta: int, ago_ms: int = 0) -> Item:
        item = self.write(delta, occurred_at_ms=self.clock.now_ms() - ago_ms)
        outcome = self.deliver([self.show(item=item)], windows=self.windows_of)
        assert outcome.retry_from is None
        return item

    def windows_of(self, counter: str) -> list[WindowSetting]:
        return [ONE] if counter.startswith("a:") else []

    def windows(self) -> WindowVerifier:
        return WindowVerifier(self.verifier())

    def verdict_on_windows(self) -> Verdict:
        return next(self.windows().verify([COUNTER]))

    def rebuild(self, *, dry_run: bool = False) -> Repair:
        return next(WindowRebuilder(self.windows(), dry_run).rebuild([COUNTER]))

    def rebuild_as_seen(self, evidence: WindowEvidence) -> Repair:
        """A process has seen this, and was suspended."""

        class Seen(WindowVerifier):
            def compare(self, counters: object) -> Any:  # noqa: ANN401, ARG002 - as seen before
                return iter([evidence])

        return next(WindowRebuilder(Seen(self.verifier())).rebuild([COUNTER]))

    def edit(self, kind: str, **attributes: object) -> None:
        """Edit the last item of a kind by hand."""
        items = [one for one in self.dynamo.items(COUNTERS) if f"#{kind}#" in one["part"]]
        self.dynamo.put(Put(COUNTERS, {**items[-1], **attributes}))


@pytest.fixture
def world() -> Windows:
    made = Windows()
    made.add_shard("s")
    made.dynamo.put(Put(COUNTERS, encode_settings("a", [ONE])))
    for delta, ago_ms in ((1, 0), (4, HOUR_MS), (16, DAY_MS), (64, 3 * DAY_MS), (256, 20 * DAY_MS)):
        made.record(delta, ago_ms)
    return made


def test_windows_that_add_up_are_exact(world: Windows) -> None:
    verdict = world.verdict_on_windows()

    assert (verdict.verdict, verdict.total, verdict.exact) == (Judgement.EXACT, 341, 341)
    assert world.rebuild().remedy is Remedy.NONE


def _cell(item: dict[str, Any]) -> str:
    return next(name[1:] for name in sorted(item) if name[0] == "s" and name[1:].isdigit())


@pytest.mark.parametrize(
    ("kind", "link"),
    [
        ("hour", "its minutes add up to"),
        ("day", "its hours add up to"),
        ("month", "days add up to"),
    ],
)
@pytest.mark.parametrize("gone", [False, True])
def test_the_link_that_breaks_is_named_and_mended(
    world: Windows, kind: str, link: str, *, gone: bool
) -> None:
    before = stored(world.dynamo, ONE)
    items = [one for one in world.dynamo.items(COUNTERS) if f"#{kind}#" in one["part"]]
    key = {"counter": COUNTER, "part": items[-1]["part"]}
    if gone:
        world.dynamo.delete(Delete(COUNTERS, key))
    else:
        cell = _cell(items[-1])
        changed = {f"s{cell}": items[-1][f"s{cell}"] + 7, "sum": items[-1]["sum"] + 7}
        world.dynamo.put(Put(COUNTERS, {**items[-1], **changed}))

    verdict = world.verdict_on_windows()
    assert verdict.verdict is Judgement.DRIFT
    assert link in verdict.proof
    assert world.rebuild(dry_run=True).remedy is Remedy.WOULD_REPAIR
    assert world.rebuild().remedy is Remedy.REPAIRED

    assert world.verdict_on_windows().verdict is Judgement.EXACT
    assert stored(world.dynamo, ONE) == before


def test_a_total_that_was_lost_gets_its_windows_again(world: Windows) -> None:
    before = stored(world.dynamo, ONE)
    world.dynamo.delete(Delete(COUNTERS, keys.total_key(COUNTER)))
    assert world.rebuild().reason == "it has no total: repair it first"
    world.repair()

    assert world.rebuild().remedy is Remedy.REPAIRED

    assert stored(world.dynamo, ONE) == before
    assert world.total()[windows_names("one")[1]] == 341


def test_nothing_that_comes_again_counts_twice_after_a_rebuild(world: Windows) -> None:
    """An invocation that began before the progress was stored still sends its writes."""
    before = stored(world.dynamo, ONE)
    world.edit("month", sum=0)
    for item in world.dynamo.items(COUNTERS):
        if "#day#" in item["part"] or "#hour#" in item["part"]:
            world.dynamo.delete(Delete(COUNTERS, {"counter": COUNTER, "part": item["part"]}))
    assert world.rebuild().remedy is Remedy.REPAIRED

    progress = world.dynamo.get(COUNTERS, keys.progress_key("label/s"), consistent=True)
    zero = {"sequence": "0", "position": "0" * 40}
    world.dynamo.put(Put(COUNTERS, {**(progress or {}), **zero}))
    world.deliver(world.stream.records["s"], windows=world.windows_of)

    assert stored(world.dynamo, ONE) == before


def test_merged_entries_are_counted_from_the_archive_or_not_at_all(world: Windows) -> None:
    """Without it the windows are compared with each other alone, and not rebuilt."""
    entries = [one for one in world.dynamo.items(LEDGER) if one["entry"].startswith("e#")]
    merged = entries[:3]
    for one in merged:
        world.dynamo.delete(Delete(LEDGER, {"counter": COUNTER, "entry": one["entry"]}))
    total = sum(one["delta"] for one in merged)
    head = Head(
        generation=1,
        run="run",
        incarnation="inc",
        sum=total,
        events=3,
        entries=3,
        from_at_ms=NOW_MS,
        to_at_ms=NOW_MS,
    )
    world.dynamo.put(Put(LEDGER, encode_head(COUNTER, head)))
    assert "not counted again: 3 of its entries were merged" in world.verdict_on_windows().proof
    before = stored(world.dynamo, ONE)
    world.edit("month", sum=0)

    refused = world.rebuild()
    assert (refused.remedy, refused.healthy) == (Remedy.SKIPPED, False)
    assert "give the archive that has them" in refused.reason

    archived = [
        Entry(
            counter=COUNTER,
            id=one["entry"][2:],
            delta=one["delta"],
            at_ms=one["at"],
            origin="r",
            occurred_at_ms=one["occurred_at"],
        )
        for one in merged
    ]
    short = replace(world.windows(), archived=lambda _counter, _incarnation: archived[1:])
    assert "the archive has 2" in next(WindowRebuilder(short).rebuild([COUNTER])).reason
    whole = replace(world.windows(), archived=lambda _counter, _incarnation: archived)
    assert next(WindowRebuilder(whole).rebuild([COUNTER])).remedy is Remedy.REPAIRED
    assert stored(world.dynamo, ONE) == before


def test_cells_that_are_wrong_with_a_right_sum_are_mended(world: Windows) -> None:
    before = stored(world.dynamo, ONE)
    found = [one for one in world.dynamo.items(COUNTERS) if "#month#" in one["part"]]
    item = next(one for one in found if len(cells_in(one)) > 1)
    one, other, *_ = cells_in(item)
    swapped = {f"s{one}": item[f"s{other}"], f"s{other}": item[f"s{one}"]}
    world.dynamo.put(Put(COUNTERS, {**item, **swapped}))

    assert world.rebuild().remedy is Remedy.REPAIRED
    assert stored(world.dynamo, ONE) == before


def test_a_difference_that_is_gone_after_a_pause_is_none(world: Windows) -> None:
    """The record of an entry may show a moment after the entry."""
    right = [one for one in world.dynamo.items(COUNTERS) if "#month#" in one["part"]][-1]
    world.edit("month", sum=99)
    world.clock.on_sleep = lambda _now_ms: world.dynamo.put(Put(COUNTERS, right))

    assert world.verdict_on_windows().verdict is Judgement.EXACT


def test_an_item_that_changes_before_the_write_is_left_as_it_is(world: Windows) -> None:
    world.edit("month", s01=99, n01=1, sum=99)
    evidence = next(world.windows().compare([COUNTER]))
    world.record(1_024)

    skipped = world.rebuild_as_seen(evidence)

    assert skipped.remedy is Remedy.SKIPPED
    assert "changed meanwhile" in skipped.reason
    assert [one for one in world.dynamo.items(COUNTERS) if one.get("sum") == 99 + 1_024]
    assert world.total()[windows_names("one")[1]] == 1_365
    assert world.rebuild().remedy is Remedy.REPAIRED
    assert world.verdict_on_windows().total == 1_365


def test_a_namespace_without_windows_has_nothing_to_verify() -> None:
    world = Windows()
    world.add_shard("s")

    assert world.verdict_on_windows().proof == "its namespace has no windows"
    assert world.rebuild().remedy is Remedy.NONE


def _items(world: Windows, *left_out: str) -> dict[str, Item]:
    """The items of windows by their key, without some of their attributes."""
    found = (one for one in world.dynamo.items(COUNTERS) if one["part"].startswith("w#"))
    kept = [{n: v for n, v in one.items() if n not in left_out and n[:2] != "w-"} for one in found]
    return {one["part"]: one for one in kept}


def _contents(world: Windows) -> dict[str, Item]:
    """What items say, without what refuses late writes."""
    marks = {n for one in world.dynamo.items(COUNTERS) for n in one if isinstance(one[n], bytes)}
    return _items(world, "version", *marks)


def test_what_is_right_is_not_written(world: Windows) -> None:
    before = _items(world)
    item = [one for one in before.values() if "#day#" in one["part"]][-1]
    world.edit("day", s23=5, n23=1)
    world.dynamo.calls.clear()

    assert world.rebuild().remedy is Remedy.REPAIRED

    after = _items(world)
    assert world.dynamo.calls.count("update") == 2  # with that of the total
    assert [part for part in before if before[part] != after[part]] == [item["part"]]
    assert "s23" not in after[item["part"]]
    assert after[item["part"]]["version"] == item["version"] + 1


def test_an_item_that_no_entry_has_is_emptied(world: Windows) -> None:
    before = _items(world)
    part = next(part for part in before if "#hour#" in part)
    part = f"{part.partition('#hour#')[0]}#hour#2030-03-01T00:00"
    extra = {"counter": COUNTER, "part": part, "s05": 5, "n05": 1, "sum": 5, "events": 1}
    world.dynamo.put(Put(COUNTERS, extra))

    assert world.rebuild().remedy is Remedy.REPAIRED

    after = _items(world)
    assert (after[part]["sum"], after[part]["events"], "s05" in after[part]) == (0, 0, False)
    assert world.verdict_on_windows().verdict is Judgement.EXACT


def test_items_that_were_lost_come_again_with_their_time_to_live(world: Windows) -> None:
    before = _contents(world)
    for part in before:
        world.dynamo.delete(Delete(COUNTERS, {"counter": COUNTER, "part": part}))

    assert world.rebuild().remedy is Remedy.REPAIRED

    assert _contents(world) == before
    kinds = {part.split("#")[2]: "expires_at" in one for part, one in before.items()}
    assert kinds == {"month": False, "day": True, "hour": True}


def test_items_that_have_expired_do_not_come_again(world: Windows) -> None:
    for part in _items(world):
        world.dynamo.delete(Delete(COUNTERS, {"counter": COUNTER, "part": part}))
    world.clock.at_ms += 60 * DAY_MS

    assert world.rebuild().remedy is Remedy.REPAIRED

    assert {part.split("#")[2] for part in _items(world)} == {"month"}
    assert world.verdict_on_windows().verdict is Judgement.EXACT


def _of_total(update: Update) -> bool:
    return update.key == keys.total_key(COUNTER)


def test_a_total_that_is_deleted_before_the_write_stays_deleted(world: Windows) -> None:
    world.edit("month", sum=0)
    total = keys.total_key(COUNTER)
    delete = meanwhile(
        lambda: world.dynamo.delete(Delete(COUNTERS, total)), "update", where=_of_total
    )
    world.dynamo.plans.append(delete)

    skipped = world.rebuild()

    assert (skipped.remedy, "changed meanwhile" in skipped.reason) == (Remedy.SKIPPED, True)
    assert world.dynamo.get(COUNTERS, total, consistent=True) is None


def test_windows_get_no_items_before_their_total_names_them(world: Windows) -> None:
    """Nobody would ever find them."""
    named = {n: v for n, v in world.total().items() if n not in windows_names("one")}
    world.dynamo.put(Put(COUNTERS, named))
    before = _items(world)
    changes = meanwhile(
        lambda: world.dynamo.put(Put(COUNTERS, {**named, "version": 99})),
        "update",
        where=_of_total,
    )
    world.dynamo.plans.append(changes)

    assert world.rebuild().remedy is Remedy.SKIPPED
    assert _items(world) == before

    assert world.rebuild().remedy is Remedy.REPAIRED
    assert world.verdict_on_windows().verdict is Judgement.EXACT
    assert world.total()[windows_names("one")[1]] == 341


def test_a_total_that_counted_windows_which_no_entry_has_is_mended() -> None:
    """It was edited by hand; a counter whose windows hold nothing needs no name for them."""
    world = Windows()
    world.add_shard("s")
    world.dynamo.put(Put(COUNTERS, encode_settings("a", [replace(ONE, from_ms=NOW_MS + DAY_MS)])))
    world.record(1)
    later, total, events = windows_names("one")
    named = {n: v for n, v in world.total().items() if n not in {later, total, events}}
    world.dynamo.put(Put(COUNTERS, named))
    assert world.rebuild().remedy is Remedy.REPAIRED
    assert world.total() == named
    assert world.rebuild().remedy is Remedy.NONE
    world.dynamo.put(Put(COUNTERS, {**named, total: 5, events: 1}))

    assert world.rebuild().remedy is Remedy.REPAIRED

    assert (world.total()[total], world.total()[events]) == (0, 0)
    assert world.verdict_on_windows().verdict is Judgement.EXACT


def test_the_rank_of_a_day_is_set_with_its_sum() -> None:
    class Ranked(Windows):
        def windows_of(self, counter: str) -> list[WindowSetting]:
            return [replace(one, ranked=1) for one in super().windows_of(counter)]

    world = Ranked()
    world.add_shard("s")
    world.dynamo.put(Put(COUNTERS, encode_settings("a", world.windows_of(COUNTER))))
    world.record(4)
    before = _contents(world)
    world.edit("day", total=99)

    assert "is ranked by 99, and its sum is 4" in world.verdict_on_windows().proof
    assert world.rebuild().remedy is Remedy.REPAIRED
    assert _contents(world) == before


def test_the_total_of_a_busy_counter_is_left_as_it_is(world: Windows) -> None:
    """Its entries were read before a change of it that the last read shows."""
    total = windows_names("one")[1]
    right = _contents(world)
    world.dynamo.put(Put(COUNTERS, {**world.total(), total: 7}))
    world.edit("month", sum=0)
    found = next(world.windows().compare([COUNTER]))
    version = found.before["version"]

    skipped = world.rebuild_as_seen(replace(found, before={**found.before, "version": version - 1}))

    assert (skipped.remedy, "changed meanwhile" in skipped.reason) == (Remedy.SKIPPED, True)
    assert world.total()[total] == 7
    assert _contents(world) == right  # items are decided by their own versions
    assert world.rebuild().remedy is Remedy.REPAIRED
    assert world.total()[total] == 341


def test_a_setting_without_entries_is_not_named_by_a_total(world: Windows) -> None:
    later = replace(ONE, id="later", from_ms=NOW_MS + DAY_MS)
    world.dynamo.put(Put(COUNTERS, encode_settings("a", [ONE, later])))
    world.edit("month", sum=0)

    assert world.rebuild().remedy is Remedy.REPAIRED

    assert not {*world.total()} & {*windows_names("later")}
