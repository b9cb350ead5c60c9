"""Rules as they are stored: each change takes effect later, and keeps what it follows."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from countledger.consumers.alerts.rule import Direction, Rule, Topic
from countledger.consumers.alerts.rule_index import RuleCache
from countledger.consumers.alerts.rules import Rules
from countledger.ledger import keys
from countledger.ledger.calendar import Per
from countledger.ledger.errors import (
    BadRule,
    CorruptItem,
    RuleExists,
    Throttled,
)
from countledger.ledger.limits import (
    ALERT_RULE_DELAY_MS,
    ALERT_RULE_SEND_MS,
    ALERT_RULES_AGE_MS,
    SECOND_MS,
    SIGNED_REQUEST_LIFE_MS,
    STREAM_RECORD_MAX_AGE_MS,
)
from tests.unit.connections import connection_on
from tests.unit.ledger.clocks import NOW_MS, ManualClock
from tests.unit.ledger.memory import (
    MemoryClient,
    meanwhile,
)

TABLE = "counters"
REGION = "eu-central-1"
RULE = Rule(
    name="r", counter="likes:1", threshold=100, direction=Direction.RISING, evaluate_in=REGION
)


@pytest.fixture
def clock() -> ManualClock:
    """It stands still."""
    return ManualClock()


@pytest.fixture
def rules(clock: ManualClock) -> Rules:
    """None yet."""
    return Rules(connection_on(MemoryClient(), clock, region=REGION))


def _dynamo(rules: Rules) -> MemoryClient:
    assert isinstance(rules.connection.retrying, MemoryClient)
    return rules.connection.retrying


def _raised(to: int) -> Callable[[Rule], Rule]:
    return lambda rule: replace(rule, threshold=to)


_CHANGES: dict[str, Callable[[Rules], object]] = {
    "create": lambda rules: rules.create(replace(RULE, name="other")),
    "set": lambda rules: rules.set("r", _raised(200)),
    "delete": lambda rules: rules.delete("r"),
}


@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES)
@pytest.mark.parametrize(("nap_ms", "tries"), [(ALERT_RULE_SEND_MS, 1), (3_600_000, 2)])
def test_a_change_does_not_leave_after_its_process_stood_still(
    change: Callable[[Rules], object], nap_ms: int, tries: int
) -> None:
    """It would be effective before any evaluator could know it; so it gets another time first."""
    clock, dynamo = ManualClock(), MemoryClient()
    rules = Rules(connection_on(dynamo, clock, region=REGION))
    rules.create(RULE)
    dynamo.plans.append(meanwhile(lambda: clock.sleep_ms(nap_ms), "transact"))
    new_ids = iter(range(100))

    of_ids = connection_on(dynamo, clock, region=REGION, new_id=lambda _ms: f"id-{next(new_ids)}")
    change(Rules(of_ids))

    known = [one for revisions in rules.read().revisions.values() for one in revisions]
    effective_ms = [one.effective_until_ms or one.effective_from_ms for one in known]
    assert max(effective_ms) >= clock.at_ms + ALERT_RULE_SEND_MS + ALERT_RULES_AGE_MS
    # The call, and for each attempt a token, and a revision if it writes one.
    assert next(new_ids) == 1 + tries * (1 if change is _CHANGES["delete"] else 2)


def test_a_change_that_never_leaves_in_time_is_refused_and_not_written() -> None:
    clock, dynamo = ManualClock(), MemoryClient()
    nap = partial(clock.sleep_ms, ALERT_RULE_SEND_MS + 1)
    dynamo.plans.append(meanwhile(nap, "transact", times=100))

    with pytest.raises(Throttled, match="suspended"):
        Rules(connection_on(dynamo, clock, region=REGION)).create(RULE)

    assert dynamo.items(TABLE) == []


def test_a_rule_is_read_back_as_it_was_made(rules: Rules) -> None:
    full = Rule(
        name="all",
        prefix="",
        threshold=7,
        direction=Direction.FALLING,
        rearm=9,
        target=Topic(f"arn:aws:sns:{REGION}:111122223333:alarms"),
        evaluate_in=REGION,
    )
    stepping = replace(RULE, name="by-hundred", step=100)
    windowed = replace(RULE, name="in-a-minute", window=Per.MINUTE)
    wanted = [RULE, full, stepping, windowed]

    made = [rules.create(rule) for rule in wanted]

    assert all(map(Rule.means_the_same_as, made, wanted))
    assert rules.list() == [made[1], made[2], made[3], made[0]]
    assert rules.get("all") == made[1]
    assert len({rule.revision for rule in made}) == 4
    assert rules.number() == 4


def test_every_evaluator_knows_of_a_change_before_it_takes_effect() -> None:
    assert ALERT_RULE_DELAY_MS > 2 * ALERT_RULES_AGE_MS


def test_the_revision_before_is_kept_until_no_stream_record_needs_it(
    rules: Rules, clock: ManualClock
) -> None:
    first = rules.create(RULE)
    clock.at_ms += 60 * SECOND_MS
    second = rules.set("r", _raised(200))

    until_ms = second.effective_from_ms
    past = replace(first, effective_until_ms=until_ms)
    assert rules.read().revisions == {"r": (past, second)}
    assert rules.list() == [second]
    assert second.threshold == 200

    clock.at_ms = until_ms + STREAM_RECORD_MAX_AGE_MS - 1
    third = rules.set("r", _raised(300))
    assert [one.threshold for one in rules.read().revisions["r"]] == [100, 200, 300]
    clock.at_ms += 1
    rules.set("r", _raised(400))
    assert [one.threshold for one in rules.read().revisions["r"]] == [200, 300, 400]
    assert third.effective_from_ms > until_ms


@pytest.mark.parametrize("corrupt", [False, True])
def test_a_deleted_rule_stays_until_no_stream_record_needs_it(
    rules: Rules, *, corrupt: bool
) -> None:
    rules.create(RULE)
    key = keys.rule_key("r")["counter"], keys.rule_key("r")["part"]
    if corrupt:
        _dynamo(rules).tables[TABLE][key]["revisions"] = ["corrupt"]

    assert rules.delete("r")

    item = _dynamo(rules).tables[TABLE][key]
    assert (item["revision"], len(item["revisions"])) == (2, 1 - corrupt)
    assert item["expires_at"] * SECOND_MS >= NOW_MS + STREAM_RECORD_MAX_AGE_MS
    assert not rules.delete("r")
    rules.create(RULE)
    item = _dynamo(rules).tables[TABLE][key]
    assert (item["revision"], item.get("expires_at")) == (3, None)


def test_a_name_whose_deleted_rule_has_expired_is_free(rules: Rules) -> None:
    rules.create(RULE)
    rules.delete("r")
    del _dynamo(rules).tables[TABLE][keys.ALERT_RULES, "rule#r"]

    assert rules.read().is_whole
    made = rules.create(RULE)

    assert rules.get("r") == made


def test_a_change_to_the_same_is_none(rules: Rules) -> None:
    made = rules.create(RULE)

    assert rules.set("r", lambda rule: rule) == made
    assert rules.number() == 1


def test_changes_take_effect_in_the_order_they_were_made(rules: Rules, clock: ManualClock) -> None:
    rules.create(RULE)
    clock.at_ms -= 3_600 * SECOND_MS
    rules.set("r", _raised(200))
    rules.delete("r")
    rules.create(RULE)

    known = rules.read().revisions["r"]

    for at_ms in range(NOW_MS - 4_000_000, NOW_MS + 20_000, SECOND_MS):
        assert sum(rule.is_effective_at(at_ms) for rule in known) <= 1
    assert sum(rule.is_effective_at(NOW_MS + 10_000) for rule in known) == 1


def test_a_rule_that_cannot_be_read_hides_no_other(rules: Rules) -> None:
    rules.create(RULE)
    rules.create(replace(RULE, name="corrupt"))
    key = keys.rule_key("corrupt")
    stored = _dynamo(rules).tables[TABLE][key["counter"], key["part"]]
    stored["revisions"][0]["threshold"] = "many"

    cache = RuleCache(rules)
    assert [rule.name for rule in cache.index().rules] == ["r"]
    assert list(cache.unreadable) == ["corrupt"]
    assert [rule.name for rule in rules.list()] == ["r"]
    assert "'many'" in rules.read().unreadable["corrupt"]
    with pytest.raises(CorruptItem, match="alert delete corrupt"):
        rules.get("corrupt")
    with pytest.raises(RuleExists):
        rules.create(replace(RULE, name="corrupt"))
    assert rules.delete("corrupt")
    assert rules.read().unreadable == {}


def test_rules_are_bounded(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("countledger.consumers.alerts.rules.ALERT_RULES_MAX", 2)
    rules.create(RULE)
    rules.set("r", _raised(200))

    with pytest.raises(BadRule, match="reach the limit of 2"):
        rules.create(replace(RULE, name="one-too-many"))
    assert rules.delete("r")


def test_the_kept_revisions_of_a_rule_are_bounded(
    rules: Rules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("countledger.consumers.alerts.rules.ALERT_RULE_REVISIONS_MAX", 2)
    rules.create(RULE)
    rules.set("r", _raised(200))

    with pytest.raises(BadRule, match="was changed 2 times in the last 30 hours"):
        rules.set("r", _raised(300))
    assert rules.delete("r")


@pytest.mark.parametrize("moved_ms", [ALERT_RULES_AGE_MS, -SECOND_MS, -3_600 * SECOND_MS])
def test_what_an_evaluator_knows_is_never_older_than_its_age(
    rules: Rules, clock: ManualClock, moved_ms: int
) -> None:
    cache = RuleCache(rules)
    assert cache.index().rules == ()
    made = rules.create(RULE)
    assert cache.index().rules == ()

    clock.at_ms += moved_ms

    assert cache.index().rules == (made,)


def test_an_evaluator_takes_the_rules_for_its_region_and_their_past(rules: Rules) -> None:
    """A table restored elsewhere brings rules that are not evaluated there."""
    rules.create(RULE)
    rules.create(replace(RULE, name="elsewhere", evaluate_in="us-east-1"))
    rules.set("r", _raised(200))

    known = RuleCache(rules).index().matching("likes:1")

    assert [(rule.name, rule.threshold) for rule in known] == [("r", 100), ("r", 200)]


_PARTLY: dict[str, Callable[[Rules], object]] = {
    "create": lambda rules: rules.create(replace(RULE, name="other")),
    "create again": lambda rules: rules.create(replace(RULE, name="deleted")),
    "set": lambda rules: rules.set("r", _raised(200)),
    "delete": lambda rules: rules.delete("r"),
}


@pytest.mark.parametrize("part", ["the rule", "the stamp"])
@pytest.mark.parametrize("followed", [False, True])
@pytest.mark.parametrize("change", _PARTLY.values(), ids=_PARTLY)
def test_an_evaluator_reads_again_until_it_has_seen_all_of_a_change(
    rules: Rules,
    clock: ManualClock,
    change: Callable[[Rules], object],
    part: str,
    *,
    followed: bool,
) -> None:
    """A read may show the items of a transaction one after the other, also after a later one."""
    rules.create(RULE)
    rules.create(replace(RULE, name="deleted"))
    rules.delete("deleted")
    table = _dynamo(rules).tables[TABLE]
    before = dict(table)
    change(rules)
    late = {key: table[key] for key in table if table[key] != before.get(key)}
    stamp = keys.ALERT_RULES, keys.RULES_STAMP
    missing = [key for key in late if (key == stamp) is (part == "the stamp")]
    for key in missing:
        if key in before:
            table[key] = before[key]
        else:
            del table[key]
    if followed and part == "the rule":
        rules.create(replace(RULE, name="later"))
    cache = RuleCache(rules)
    cache.index()

    table.update({key: late[key] for key in missing})
    clock.at_ms += ALERT_RULES_AGE_MS

    assert cache.index().rules == RuleCache(rules).index().rules


def test_rules_that_an_editor_changed_are_read_again_for_a_quarter_of_an_hour(
    rules: Rules, clock: ManualClock
) -> None:
    """As long as a request may be under way."""
    rules.create(RULE)
    rules.create(replace(RULE, name="other"))
    del _dynamo(rules).tables[TABLE][keys.ALERT_RULES, "rule#other"]
    cache = RuleCache(rules)
    assert [one.name for one in cache.index().rules] == ["r"]

    def reads() -> int:
        before = _dynamo(rules).calls.count("query")
        clock.at_ms += ALERT_RULES_AGE_MS
        cache.index()
        return _dynamo(rules).calls.count("query") - before

    assert reads() == 1
    clock.at_ms += SIGNED_REQUEST_LIFE_MS
    assert [reads(), reads()] == [1, 0]


@pytest.mark.parametrize("readable", [True, False])
def test_a_rule_is_not_created_over_another_one(rules: Rules, *, readable: bool) -> None:
    rules.create(RULE)
    if not readable:
        _dynamo(rules).tables[TABLE][keys.ALERT_RULES, "rule#r"]["revisions"] = "nonsense"
    before = _dynamo(rules).items(TABLE)

    with pytest.raises(RuleExists, match="'r' exists"):
        rules.create(replace(RULE, threshold=200))
    assert _dynamo(rules).items(TABLE) == before
