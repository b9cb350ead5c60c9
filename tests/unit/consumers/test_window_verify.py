"""A verdict on windows is of one moment, and says what it could not compare."""

from dataclasses import replace
from typing import Any

import pytest

from countledger.consumers.verify import Judgement
from countledger.consumers.window_verify import WindowEvidence, verdict_of
from countledger.ledger import keys
from countledger.ledger.attributes import Item
from countledger.ledger.exact import Covered, Head, encode_head
from countledger.ledger.limits import HOUR_MS, SECOND_MS
from countledger.ledger.operations import Put, Query
from countledger.ledger.total import windows_names
from countledger.ledger.windows import encode_settings
from tests.unit.consumers.test_window_rebuild import ONE, Windows
from tests.unit.consumers.world import COUNTER, COUNTERS, LEDGER, deletion_mark
from tests.unit.ledger.memory import afterwards

BUSY = "no verdict: its total changed, or the stream has not been handled that far; try again"


@pytest.fixture
def world() -> Windows:
    made = Windows()
    made.add_shard("s")
    made.dynamo.put(Put(COUNTERS, encode_settings("a", [ONE])))
    for delta, ago_ms in ((1, 0), (4, HOUR_MS)):
        made.record(delta, ago_ms)
    return made


def _evidence(world: Windows) -> WindowEvidence:
    return next(world.windows().compare([COUNTER]))


def _merged(to_at_ms: int | None = None, **values: Any) -> Item:  # noqa: ANN401 - any field
    """A head whose entries are gone."""
    head = Head(generation=1, run="run", incarnation="inc", sum=64, events=1, entries=1)
    return encode_head(COUNTER, replace(head, to_at_ms=to_at_ms, **values))


@pytest.mark.parametrize("attribute", ["version", "updated_at"])
def test_there_is_no_verdict_on_reads_of_several_moments(world: Windows, attribute: str) -> None:
    """Even if they agree: items may have been read before and after the same change."""
    found = _evidence(world)
    other = {**found.before, attribute: found.before[attribute] - 1}
    moments = [found, replace(found, before=other), replace(found, proof=None)]

    verdicts = [verdict_of(one, world.clock.now_ms()) for one in moments]

    assert [one.verdict for one in verdicts] == [Judgement.EXACT, Judgement.BUSY, Judgement.BUSY]
    assert verdicts[1].proof == verdicts[2].proof == BUSY
    assert [one.is_decided for one in moments] == [True, False, False]


def test_what_cannot_be_compared_is_not_waited_for(world: Windows) -> None:
    """A namespace without windows, settings that cannot be read, an item of a later release."""
    world.dynamo.put(Put(COUNTERS, {**keys.windows_key("c"), "settings": 5}))
    without, unreadable = world.windows().compare(["b:1", "c:1"])
    newer = replace(_evidence(world), proof=None, flaw="a later release wrote it")

    now_ms = world.clock.now_ms()
    assert [one.is_decided for one in (without, unreadable, newer)] == [True] * 3
    assert (without.proof, unreadable.proof, world.clock.slept_ms) == (None, None, [])
    assert verdict_of(without, now_ms).verdict is Judgement.EXACT
    assert verdict_of(unreadable, now_ms).verdict is Judgement.UNREADABLE
    assert verdict_of(newer, now_ms).proof == "a later release wrote it"


def test_windows_that_differ_are_compared_again_after_a_pause(world: Windows) -> None:
    """Those that differ still are wrong; those that add up are not waited for."""
    assert world.verdict_on_windows().verdict is Judgement.EXACT
    before = sum(world.clock.slept_ms)
    world.edit("month", sum=99)

    assert world.verdict_on_windows().verdict is Judgement.DRIFT

    assert sum(world.clock.slept_ms) - before >= world.verifier().settle_ms


def test_windows_that_no_total_names_are_found_unless_a_deletion_explains_them(
    world: Windows,
) -> None:
    """Those of a lost total would stay in a ranking; those of a deleted counter go with it."""
    world.dynamo.put(Put(COUNTERS, {**keys.window_key(COUNTER, "other", "month#2030-03"), "s": 5}))

    found = world.verdict_on_windows()

    assert found.verdict is Judgement.DRIFT
    assert "1 item(s) of windows 'other', which its total does not name" in found.proof
    head = Head(generation=1, run="mark", incarnation="mark", to_at_ms=1)
    world.dynamo.put(Put(LEDGER, encode_head(COUNTER, head)))
    world.dynamo.put(deletion_mark(COUNTER, "mark"))
    assert world.verdict_on_windows().verdict is Judgement.EXACT


def test_expired_items_are_left_out(world: Windows) -> None:
    """What TTL has not removed yet."""
    month = next(one for one in world.dynamo.items(COUNTERS) if "#month#" in one["part"])
    own = month["part"].removesuffix(month["part"].partition("#month#")[2])
    expired: Item = {
        "counter": COUNTER,
        "part": f"{own.removesuffix('#month#')}#hour#2030-01-01T00:00",
        "s00": 5,
        "n00": 1,
        "sum": 9,
        "events": 9,
        "expires_at": world.clock.now_ms() // SECOND_MS - 1,
    }
    world.dynamo.put(Put(COUNTERS, expired))

    assert world.verdict_on_windows().verdict is Judgement.EXACT

    world.dynamo.put(Put(COUNTERS, {**expired, "expires_at": expired["expires_at"] + 60}))
    assert world.verdict_on_windows().verdict is Judgement.DRIFT


def test_entries_that_are_being_merged_are_not_counted(world: Windows) -> None:
    """Some of them may have been read, and some not."""
    world.dynamo.put(Put(LEDGER, _merged(covers={"e#1": Covered(64, 1)})))
    assert "a compaction of it is running" in world.verdict_on_windows().proof

    def publish() -> None:
        world.dynamo.put(Put(LEDGER, _merged(run="another")))

    world.dynamo.put(Put(LEDGER, _merged()))
    entries = afterwards(publish, "query", where=_reads_entries)
    world.dynamo.plans.append(entries)
    assert "a compaction of it is running" in str(_evidence(world).entries)


def _reads_entries(read: Query) -> bool:
    return read.table == LEDGER


@pytest.mark.parametrize(
    ("to_at_ms", "counted"),
    [(ONE.from_ms - 1, True), (ONE.from_ms, False), (ONE.from_ms + 1, False), (None, False)],
)
def test_entries_that_were_merged_count_if_they_can_be_in_a_window(
    world: Windows, to_at_ms: int | None, *, counted: bool
) -> None:
    """Of those that were made before the windows began no archive is needed."""
    world.dynamo.put(Put(LEDGER, _merged(to_at_ms)))

    entries = _evidence(world).entries

    assert isinstance(entries, list) is counted
    assert counted or "give the archive that has them" in entries


def test_of_many_differences_the_first_ones_are_named(world: Windows) -> None:
    for kind in ("month", "day", "hour"):
        world.edit(kind, sum=7)
    three = world.verdict_on_windows().proof
    names = windows_names(ONE.id)
    world.dynamo.put(Put(COUNTERS, {**world.total(), names[1]: 7}))
    five = world.verdict_on_windows().proof

    assert (three.count(" says 7 "), "more" in three) == (3, False)
    assert five == f"{three}; and 2 more"
