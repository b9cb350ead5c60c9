"""`countledger status` on the deployed stack: what it tells, and what it finds."""

from __future__ import annotations

from threading import Barrier
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ReadTimeoutError

from countledger import CountLedger, Settings
from countledger.consumers.audit import ForeignItems, ItemBookmarks
from countledger.infra.local.mappings import MAPPINGS, PUMPED_TAG
from countledger.infra.local.stack import LocalStack, session_of
from countledger.infra.status.findings import findings
from countledger.infra.status.gathering import Gathering
from countledger.ledger import keys
from countledger.ledger.clock import SystemClock
from countledger.ledger.errors import AccessDenied, Unclear
from countledger.ledger.limits import DAY_MS, HOUR_MS
from countledger.ledger.quarantine import QuarantinedRecord, QuarantineSource, QuarantineStore
from tests.e2e.command import Command, eventually
from tests.e2e.world import age_mark, client_of, record_aged, tick

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def own() -> Iterator[LocalStack]:
    """A stack of these tests alone: what is wrong with it is their doing."""
    with LocalStack(name="shown", pumping=False) as running:
        yield running


@pytest.fixture
def client(own: LocalStack) -> CountLedger:
    """Someone who may do everything."""
    return client_of(own)


def told(client: CountLedger) -> set[str]:
    """What something is found about."""
    return {one.subject for one in findings(Gathering(client).facts())}


def test_a_rule_whose_counter_had_crossed_before_is_named_and_needs_no_action(
    own: LocalStack, client: CountLedger, name: str
) -> None:
    client.record(f"{name}:a", 150)
    own.drain()
    client.alerts.create(name, counter=f"{name}:a", threshold=100, direction="rising")
    command = Command(own.environment())
    try:
        shown, read = command("status"), command("status", "--json")
    finally:
        client.alerts.delete(name)

    assert f"{name}\t{name}:a\t150\t100\t" in shown.out
    assert f"countledger alert set {name} --now" in shown.out
    (silent,) = read.json["silent"]
    assert (silent["rule"], silent["value"], silent["passed"]) == (name, "150", "100")
    assert "alert rules" not in told(client)


def test_what_does_not_depend_on_each_other_is_read_at_the_same_time(own: LocalStack) -> None:
    """Each of these requests leaves only once the other is on its way, too."""
    session, both = session_of(), Barrier(2, timeout=20)

    def meet(**_: object) -> None:
        both.wait()

    for one in ("cloudwatch.DescribeAlarms", "lambda.GetAccountSettings"):
        session.events.register(f"before-send.{one}", meet)
    client = CountLedger(Settings(stack_name=own.name), session=session, endpoint_url=own.url)

    facts = Gathering(client).facts()

    assert facts.alarms
    assert facts.quotas.concurrency
    assert not both.broken


def test_after_a_failure_no_other_request_leaves_and_the_failure_is_raised(
    own: LocalStack,
) -> None:
    """So the wait ends with the requests that are under way, each of which has its time-out."""
    session, left = session_of(), list[str]()

    def fail(**_: object) -> None:
        raise ReadTimeoutError(endpoint_url=own.url)

    def outlast(event_name: str, **_: object) -> None:
        left.append(event_name)
        deadline_s = monotonic() + 20
        while not gathering.failures and monotonic() < deadline_s:
            sleep(0.01)

    session.events.register("before-send.cloudwatch.DescribeAlarms", fail)
    session.events.register("before-send.lambda.GetEventSourceMapping", outlast)
    settings = Settings(stack_name=own.name, max_attempts=1)
    gathering = Gathering(CountLedger(settings, session=session, endpoint_url=own.url))

    with pytest.raises(Unclear, match="DescribeAlarms"):
        gathering.facts()

    assert left == ["before-send.lambda.GetEventSourceMapping"], "there are three mappings"


def test_a_healthy_stack_is_shown_whole(own: LocalStack, client: CountLedger, name: str) -> None:
    counter = f"{name}:a"
    client.record(counter, 1)
    waiting = Gathering(client).facts().freshness
    own.drain()
    command = Command(own.environment())

    shown, read = command("status"), command("status", "--json")

    assert (shown.code, read.code) == (0, 0), shown.out + shown.err
    assert waiting is not None
    assert waiting.waiting_since_ms is not None, "the stream itself says what waits"
    assert "no action required" in shown.out
    assert "up to date" in shown.out
    assert "played by a pump here" in shown.out
    assert read.json["healthy"]
    assert read.json["stack"]["status"] == "CREATE_COMPLETE"
    assert read.json["freshness"]["waiting_since"] is None
    assert {one["name"]: one["played"] for one in read.json["mappings"]} == {
        "CompactorMapping": False,
        "EvaluatorMapping": True,
        "MaterializerMapping": True,
    }
    assert {one["name"] for one in read.json["queues"]} == {
        "AlertDeadLetters",
        "CompactionFailures",
        "CompactionQueue",
        "Quarantine",
    }
    assert len(read.json["alarms"]) >= 12


def test_a_part_that_does_not_exist_is_named_and_the_rest_is_shown(own: LocalStack) -> None:
    facts = Gathering(client_of(own, counters_table="no-such-table")).facts()
    found = {one.subject: one.says for one in findings(facts)}

    assert {"freshness", "holds"} <= set(facts.unseen)
    assert "no-such-table" in found["freshness"]
    assert facts.stack is not None
    assert facts.queues
    assert facts.mappings


def test_a_stack_that_is_not_there_is_told(own: LocalStack) -> None:
    gone = Command(own.environment())("status", "--stack-name", "no-such", "--json")

    assert (gone.code, gone.json) == (1, {"stack_name": "no-such", "running": False})


def test_queues_and_alarms_are_found(own: LocalStack, client: CountLedger) -> None:
    sqs, watch = own.client("sqs"), own.client("cloudwatch")
    url = own.outputs["AlertDeadLetterQueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="dead")
    dimensions = [{"Name": "QueueName", "Value": url.rpartition("/")[2]}]
    metric = {"MetricName": "ApproximateAgeOfOldestMessage", "Value": 7200.0}
    watch.put_metric_data(Namespace="AWS/SQS", MetricData=[{**metric, "Dimensions": dimensions}])
    alarm = next(
        one["AlarmName"]
        for one in watch.describe_alarms()["MetricAlarms"]
        if "-EvaluatorLagAlarm-" in one["AlarmName"]
    )
    watch.set_alarm_state(AlarmName=alarm, StateValue="ALARM", StateReason="tried")

    facts = Gathering(client).facts()

    assert {one.subject for one in findings(facts)} == {"AlertDeadLetters", "EvaluatorLagAlarm"}
    (queue,) = [one for one in facts.queues if one.name == "AlertDeadLetters"]
    assert (queue.waiting, queue.oldest_ms) == (1, 2 * HOUR_MS)
    sqs.purge_queue(QueueUrl=url)
    watch.set_alarm_state(AlarmName=alarm, StateValue="OK", StateReason="tried")
    assert told(client) == set()


def test_what_waits_in_quarantine_is_told_without_a_message(client: CountLedger) -> None:
    """Its queue forgets after fourteen days; it is told until somebody has handled it."""
    kept_at_ms = SystemClock().now_ms() - 20 * DAY_MS
    copy = QuarantinedRecord(
        source=QuarantineSource.LEDGER,
        place=keys.quarantine_place(kept_at_ms, "1"),
        where="label/shard",
        reason="no delta",
        kind="malformed",
        content=b"{}",
        counter="shown:a",
        kept_at_ms=kept_at_ms,
    )
    QuarantineStore(client.connection).keep(copy)

    facts = Gathering(client).facts()

    assert [(one.source, one.waiting) for one in facts.quarantined] == [("ledger", 1)]
    assert facts.quarantined[0].oldest_ms >= 20 * DAY_MS
    assert {one.subject for one in findings(facts)} == {"quarantine of ledger"}
    assert all(one.resolved for one in client.quarantine.discard([copy.id], by="ann"))
    assert told(client) == set()


def test_the_last_compaction_is_told(own: LocalStack, client: CountLedger, name: str) -> None:
    namespace, counter = name, f"{name}:a"
    client.namespaces.create(namespace)
    client.schedules.create(namespace, every_ms=HOUR_MS, min_entries=3)
    record_aged(client, counter, [1] * 5, 2 * DAY_MS)
    own.drain()
    age_mark(own, counter)
    (before,) = Gathering(client).facts().schedules

    tick(own, namespace)
    eventually(lambda: _last(client).work.merged == 5)

    assert (before.due, before.last, before.state) == (1, None, "enabled")
    last = _last(client)
    assert (last.due, last.sent, last.work.counters, last.work.failed) == (1, 1, 1, 0)
    assert told(client) == set()
    client.schedules.delete(namespace)


def _last(client: CountLedger) -> Any:  # noqa: ANN401 - a run that there is
    (schedule,) = Gathering(client).facts().schedules
    return schedule.last


def test_foreign_items_are_those_of_the_audit_that_the_stack_runs(client: CountLedger) -> None:
    """What an audit of another mode once found may have been deleted since."""
    for mode, found in (("repair", ForeignItems(7, "b old")), ("verify", ForeignItems(2, "a b"))):
        ItemBookmarks(client.connection, mode).clear(found)
    assert Gathering(client).facts().foreign == ForeignItems(2, "a b")
    assert told(client) == {"ledger"}

    ItemBookmarks(client.connection, "verify").clear(ForeignItems())
    assert told(client) == set()


def test_a_mapping_that_is_off_or_gone_is_found(own: LocalStack, client: CountLedger) -> None:
    functions = own.client("lambda")
    facts = Gathering(client).facts()
    (mapping,) = [one for one in facts.mappings if not one.played]
    functions.update_event_source_mapping(UUID=mapping.id, Enabled=False)
    assert told(client) == {"CompactorMapping"}
    functions.update_event_source_mapping(UUID=mapping.id, Enabled=True)
    assert told(client) == set()


def test_the_stack_itself_says_which_mappings_are_played(own: LocalStack) -> None:
    (found,) = own.client("cloudformation").describe_stacks(StackName=own.name)["Stacks"]

    tags = {one["Key"]: one["Value"] for one in found["Tags"]}
    assert tags[PUMPED_TAG].split() == [one.logical_id for one in MAPPINGS]


def test_the_status_policy_is_what_is_needed(
    auth_stack: LocalStack, root: CountLedger, name: str
) -> None:
    root.namespaces.create(name)
    root.schedules.create(name, every_ms=HOUR_MS)
    guarded = client_of(auth_stack, "StatusPolicyArn")

    facts = Gathering(guarded).facts()

    # This engine knows no resource but `*` for DescribeAlarms; the service knows alarms.
    assert set(facts.unseen) <= {"alarms"}
    assert facts.stack is not None
    assert name in {one.schedule.namespace for one in facts.schedules}
    assert (len(facts.mappings), len(facts.queues)) == (3, 4)
    assert facts.silent is None, "it shows no value of a counter"
    with pytest.raises(AccessDenied):
        guarded.record(f"{name}:a", 1)
    with pytest.raises(AccessDenied):
        guarded.schedules.delete(name)
    root.schedules.delete(name)


def test_rules_that_may_not_be_read_are_said_to_be_unseen(auth_stack: LocalStack) -> None:
    """The policy of status shows no values, so it cannot show which counters had crossed."""
    user = auth_stack.credentials_for("StatusPolicyArn")
    command = Command(auth_stack.environment(user))

    shown, read = command("status"), command("status", "--json")

    assert "not looked at: these credentials may not read rules and totals" in shown.out
    assert read.json["silent"] is None
    both = client_of(auth_stack, "StatusPolicyArn", "ReadPolicyArn")
    assert Gathering(both).facts().silent == ()


def test_who_may_see_nothing_is_told_so(auth_stack: LocalStack) -> None:
    """What is not seen is a finding: blindness is no health."""
    facts = Gathering(client_of(auth_stack, "ReadPolicyArn")).facts()

    assert {"resources", "freshness"} <= set(facts.unseen)
    assert findings(facts)
