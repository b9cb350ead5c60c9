"""Each policy of the stack allows its job and nothing else, with IAM enforced."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import pytest
from botocore.exceptions import ClientError

from countledger import (
    Admitted,
    Claim,
    Collection,
    CountLedger,
    Event,
    ItemChange,
    ItemDeletion,
    NewItem,
    Remedy,
)
from countledger.compaction.deletion import DeletionStage
from countledger.compaction.report import Retire, RunOutcome
from countledger.infra.cost import measure, parameters_of, regions_of, retire_of
from countledger.infra.local.stack import LocalStack
from countledger.infra.portability.export import Exporter
from countledger.infra.portability.importing import Importer, ImportResult
from countledger.infra.portability.lines import CounterLine, Line, NamespaceLine
from countledger.ledger import keys
from countledger.ledger.clock import SystemClock, to_datetime
from countledger.ledger.errors import AccessDenied, AlreadyClaimed
from countledger.ledger.limits import DAY_MS, HORIZON_DEFAULT_MS, HOUR_MS, SECOND_MS
from countledger.ledger.namespace import Kind
from countledger.ledger.total import windows_ids_in
from countledger.producers.strict.definition import SPREADABLE, Method
from tests.e2e.world import (
    age_mark,
    alter_total,
    client_of,
    edit,
    make_table,
    record_aged,
    total_item,
)

_MINE: Final = Collection("not-mine", ("id", "p"), "n")
# A policy, and what it does not allow: `c` is under it, `n` a namespace with a counter n:a.
_DENIED: Final[dict[str, Callable[[CountLedger, str], object]]] = {
    "Emit: read a total": lambda c, n: c.total(f"{n}:a"),
    "Emit: read an exact sum": lambda c, n: c.exact(f"{n}:a"),
    "Emit: read the stream's shards": lambda c, n: c.audit.verify(f"{n}:a"),
    "Emit: list namespaces": lambda c, _: list(c.namespaces.list()),
    "Emit: list alert rules": lambda c, _: c.alerts.list(),
    "Emit: create a schedule": lambda c, n: c.schedules.create(n, every_ms=HOUR_MS),
    "Read: record": lambda c, n: c.record(f"{n}:a", 1),
    "Read: create a namespace": lambda c, n: c.namespaces.create(f"{n}-new"),
    "Read: scan the totals": lambda c, n: list(c.names(f"{n}:")),
    "Read: read the stream": lambda c, n: c.audit.verify(f"{n}:a"),
    "Read: repair": lambda c, n: c.audit.repair(f"{n}:a"),
    "Read: change an alert rule": lambda c, n: c.alerts.rules.set(
        n, lambda rule: replace(rule, threshold=200)
    ),
    "Read: delete an alert rule": lambda c, n: c.alerts.rules.delete(n),
    "Read: add to a group": lambda c, n: c.groups.add(n, [f"{n}:a"]),
    "Read: rank a namespace": lambda c, n: c.rankings.switch_off(n),
    "Read: enable windows": lambda c, n: c.window_settings.enable(n, by="day"),
    "Read: create a schedule": lambda c, n: c.schedules.create(n, every_ms=HOUR_MS),
    "Operate: record": lambda c, n: c.record(f"{n}:a", 1),
    "Compact: create a schedule": lambda c, n: c.schedules.create(n, every_ms=HOUR_MS),
    "Delete: read a total": lambda c, n: c.total(f"{n}:a"),
    "Delete: read an exact sum": lambda c, n: c.exact(f"{n}:a"),
    "Delete: read the quarantine": lambda c, _: list(c.quarantine.list()),
    "Delete: list what is marked": lambda c, n: list(c.deletions.pending(n)),
    "Strict: record": lambda c, n: c.record(f"{n}:a", 1),
    "Strict: read an exact sum": lambda c, n: c.exact(f"{n}:a"),
    "Sequence: record": lambda c, n: c.record(f"{n}:a", 1),
    "Sequence: append to a table of others": lambda c, _: c.sequences.append(_MINE, {"a": 1}),
    "Claim: read a total": lambda c, n: c.total(f"{n}:a"),
    "Claim: draw a number": lambda c, n: c.sequences.draw(f"{n}-numbers:a"),
    "Claim: record": lambda c, n: c.record(f"{n}:a", 1),
    "Quota: read a total": lambda c, n: c.total(f"{n}:a"),
    "Quota: take a claim": lambda c, n: c.claims.take(Claim(n, "a", "u-1")),
    "Quota: record": lambda c, n: c.record(f"{n}:a", 1),
    "Status: record": lambda c, n: c.record(f"{n}:a", 1),
}


@pytest.fixture
def counter(auth_stack: LocalStack, root: CountLedger, name: str) -> str:
    """A counter of old entries and its total, in a group, with a rule of its namespace's name."""
    root.namespaces.create(name)
    record_aged(root, f"{name}:a", [5] * 10 + [7] * 10, 4 * DAY_MS)
    auth_stack.pump.drain()
    root.groups.add(f"{name}-group", [f"{name}:a"])
    return f"{name}:a"


@pytest.fixture(scope="module")
def denied_in(auth_stack: LocalStack) -> str:
    """A namespace with a counter and a rule."""
    root = client_of(auth_stack)
    root.record("denied:a", 1)
    root.alerts.create("denied", prefix="denied:", threshold=100, direction="rising")
    auth_stack.pump.drain()
    return "denied"


@pytest.mark.parametrize("denied", _DENIED)
def test_a_policy_does_not_allow_it(auth_stack: LocalStack, denied_in: str, denied: str) -> None:
    actor = client_of(auth_stack, f"{denied.partition(':')[0]}PolicyArn")

    with pytest.raises(AccessDenied):
        _DENIED[denied](actor, denied_in)


def test_who_emits_records_also_the_first_event_of_a_namespace(
    auth_stack: LocalStack, root: CountLedger, name: str
) -> None:
    emitter = client_of(auth_stack, "EmitPolicyArn")

    emitter.record(f"{name}:a", 5, key="k")
    assert all(
        getattr(one, "status", None) for one in emitter.record_many([Event(f"{name}:a", 1)] * 3)
    )
    assert root.exact(f"{name}:a").value == 8


def test_who_reads_sees_totals_entries_rules_and_groups(
    auth_stack: LocalStack, counter: str, name: str
) -> None:
    reader = client_of(auth_stack, "ReadPolicyArn")

    assert (reader.total(counter).value, reader.exact(counter).value) == (120, 120)
    assert reader.freshness().shards
    assert name in [one.name for one in reader.namespaces.list()]
    assert list(reader.groups.of(counter)) == [f"{name}-group"]
    assert list(reader.alerts.log(counter)) == []
    assert reader.snapshot([counter]).totals[counter].value == 120
    reader.alerts.list()


def test_who_operates_verifies_schedules_groups_ranks_and_exports(
    auth_stack: LocalStack, root: CountLedger, counter: str, name: str
) -> None:
    operator = client_of(auth_stack, "OperatePolicyArn")
    seats, bills = f"{name}-s:hall", f"{name}-q:bill"
    root.strict.create(seats, method="marker", lower=0, opening=40, bins=2)
    root.sequences.draw_block(bills, 7)

    operator.namespaces.create(f"{name}-new")
    alter_total(auth_stack, counter, 3)
    assert operator.audit.repair(counter).remedy is Remedy.REPAIRED
    assert operator.audit.verify(counter).verdict == "exact"
    assert counter in list(operator.names(f"{name}:"))
    operator.schedules.create(name, every_ms=HOUR_MS)
    operator.schedules.set(name, cron="0 3 * * ? *")
    assert retire_of(operator) in [*Retire]
    assert operator.schedules.state(name) == "enabled"
    assert operator.schedules.delete(name)
    operator.groups.switch_ranking(f"{name}-group", on=True)
    assert [one.value for one in operator.groups.top(f"{name}-group")] == [120]
    operator.rankings.switch_on(name)
    assert [one.value for one in operator.rankings.top(name)] == [120]
    operator.rankings.switch_off(name)
    operator.groups.delete(f"{name}-group")
    lines: list[Any] = list(Exporter(operator).lines([counter, seats, bills]))
    assert [one.value for one in lines] == [120, 40, 7]
    found: list[Any] = list(Exporter(operator, name).walk())
    assert [one.counter for one in found] == [counter]
    assert measure(operator, least_ms=1) is not None
    assert regions_of(operator) == 1
    assert parameters_of(operator)["BatchingWindowSeconds"]


def test_who_operates_enables_verifies_and_rebuilds_windows_that_who_reads_sees(
    auth_stack: LocalStack, root: CountLedger, name: str
) -> None:
    operator, counter = client_of(auth_stack, "OperatePolicyArn"), f"{name}:a"
    operator.namespaces.create(name)
    replace(operator.window_settings, at_once=True).enable(name, by="hour")
    root.record(counter, 5)
    auth_stack.pump.drain()
    (windows_id,) = windows_ids_in(total_item(root, counter))
    month = f"month#{to_datetime(SystemClock().now_ms()):%Y-%m}"
    key = keys.window_key(counter, str(windows_id), month)

    found = [next(operator.window_audit.verify([counter])).verdict]
    edit(root, "counters_table", key, sum=6)
    found += [next(operator.window_audit.verify([counter])).verdict]
    done = [one.remedy for one in operator.window_audit.rebuild_all(name)]
    found += [one.verdict for one in operator.window_audit.verify_all(name)]

    assert (found, done) == (["exact", "drift", "exact"], ["repaired"])
    since = to_datetime(SystemClock().now_ms() - HOUR_MS)
    reader = client_of(auth_stack, "ReadPolicyArn")
    assert sum(one.value for one in reader.windows(counter, "hour", since=since)) == 5


def test_who_operates_changes_rules_tries_targets_and_sends_alerts_again(
    auth_stack: LocalStack, counter: str, name: str
) -> None:
    alerts = client_of(auth_stack, "OperatePolicyArn").alerts
    topic = auth_stack.client("sns").create_topic(Name=name)["TopicArn"]

    alerts.create(name, prefix=f"{name}:", threshold=100, direction="rising", to=topic)
    alerts.test(name, counter)
    changed = alerts.set(name, to="bus", threshold=110)
    alerts.test(name, counter)
    assert alerts.initial_scan(changed) == 1
    assert [logged.alert.threshold for logged in alerts.log(counter)] == [110]
    assert all(resent.dead_letter for resent in alerts.resend())  # of other tests, if any
    assert changed in alerts.list()
    assert alerts.delete(name)


def test_who_operates_reaches_no_schedule_function_or_total_of_others(
    auth_stack: LocalStack,
) -> None:
    credentials = auth_stack.credentials_for("OperatePolicyArn")
    function = auth_stack.outputs["MaterializerFunctionName"]
    key = {name: {"S": value} for name, value in keys.total_key("denied:a").items()}
    table = auth_stack.outputs["CountersTableName"]

    calls: tuple[Callable[[], object], ...] = (
        lambda: auth_stack.client("scheduler", credentials).get_schedule(Name="other"),
        lambda: auth_stack.client("lambda", credentials).delete_function(FunctionName=function),
        lambda: auth_stack.client("dynamodb", credentials).delete_item(TableName=table, Key=key),
    )
    for call in calls:
        with pytest.raises(ClientError, match="AccessDenied"):
            call()


def test_who_compacts_by_hand_needs_one_policy(
    auth_stack: LocalStack, root: CountLedger, counter: str, name: str
) -> None:
    root.schedules.create(name, every_ms=HOUR_MS, min_entries=10)
    record_aged(root, counter, [1] * 10, 2 * DAY_MS)
    auth_stack.pump.drain()
    age_mark(auth_stack, counter)
    by_hand = client_of(auth_stack, "CompactPolicyArn")

    assert [one.namespace for one in by_hand.schedules.list() if one.namespace == name]
    worker = by_hand.compactor()
    assert list(by_hand.due(name)) == [counter]
    assert worker.plan(counter).entries == 30
    report = worker.compact(counter)

    assert (report.outcome, report.merged) == (RunOutcome.MERGED, 30)
    assert "due_at" not in total_item(root, counter)
    assert root.exact(counter).value == 130


@pytest.mark.parametrize("policy", ["EmitPolicyArn", "ReadPolicyArn", "OperatePolicyArn"])
def test_nobody_else_compacts(
    auth_stack: LocalStack, root: CountLedger, counter: str, policy: str
) -> None:
    report = client_of(auth_stack, policy).compactor().compact(counter)

    assert report.outcome is RunOutcome.FAILED
    assert isinstance(report.error, AccessDenied)
    assert root.exact(counter).entries_read == 20


_THREE: Final = ("DeletePolicyArn", "OperatePolicyArn", "CompactPolicyArn")


def _deleter(stack: LocalStack, *policies: str) -> CountLedger:
    # A proof waits for as long as clocks may differ while the stream is never still.
    return client_of(stack, *policies, clock_skew_ms=SECOND_MS)


def _days_pass(root: CountLedger, counter: str, days: int) -> None:
    """As if the mark, the last change of the total and the deletion were so old."""
    then_ms = SystemClock().now_ms() - days * DAY_MS
    place, ledger = keys.deletion_key(counter), root.connection.setting("ledger_table")
    mark = root.connection.dynamo("standard").get(ledger, place) or {}
    if "deleted_at" in mark:
        edit(root, "ledger_table", place, deleted_at=then_ms)
        return
    membership = keys.member_key(f"{keys.namespace_of(counter)}-group", counter)
    edit(root, "ledger_table", place, at=then_ms)
    edit(root, "counters_table", membership, at=then_ms)
    edit(root, "counters_table", keys.total_key(counter), updated_at=then_ms)


def test_three_policies_delete_a_counter_from_the_mark_to_its_name(
    auth_stack: LocalStack, root: CountLedger, counter: str
) -> None:
    deleter = _deleter(auth_stack, *_THREE)
    stages = [deleter.deletions.delete(counter).stage]
    for days in (3, 2):
        _days_pass(root, counter, days)
        stages.append(deleter.deletions.delete(counter).stage)

    assert stages == [DeletionStage.MARKED, DeletionStage.DELETED, DeletionStage.FORGOTTEN]
    assert (total_item(root, counter), root.exact(counter).value) == ({}, 0)
    assert list(root.groups.of(counter)) == []


@pytest.mark.parametrize("left_out", ["DeletePolicyArn", "OperatePolicyArn"])
def test_nobody_deletes_under_less(auth_stack: LocalStack, counter: str, left_out: str) -> None:
    root = _deleter(auth_stack, *_THREE)
    root.deletions.delete(counter)
    _days_pass(root, counter, 3)
    deleter = _deleter(auth_stack, *(one for one in _THREE if one != left_out))

    try:
        stage = deleter.deletions.delete(counter).stage
    except AccessDenied:
        stage = DeletionStage.SKIPPED

    assert stage is DeletionStage.SKIPPED
    assert root.exact(counter).value == 120


@pytest.mark.parametrize("method", list(Method))
def test_who_changes_strict_counters_does_so_by_every_method(
    auth_stack: LocalStack, name: str, method: Method
) -> None:
    seller, counter = client_of(auth_stack, "StrictPolicyArn"), f"{name}:a"
    bins = 3 if method in SPREADABLE else 1
    seller.strict.create(counter, method=method, lower=0, upper=5, opening=2, bins=bins)
    seller.strict.change(counter, -1)
    # With bins this one is split, and the next one refused after all bins were read.
    if method is not Method.SET:
        seller.strict.change(counter, 3)
        seller.strict.change(counter, 5)
    if method in {Method.REQUEST_TOKEN, Method.MARKER, Method.SET}:
        seller.strict.withdraw(counter, "order-1")
    seller.strict.set_bounds(counter, upper=9)

    assert seller.strict.show(counter).value == (1 if method is Method.SET else 4)
    assert [one.counter for one in seller.strict.list(name)] == [counter]
    assert seller.total(counter).value == (1 if method is Method.SET else 4)
    seller.strict.delete(counter)
    assert list(seller.strict.list(name)) == []


def test_who_changes_strict_counters_moves_and_sets_them_together(
    auth_stack: LocalStack, name: str
) -> None:
    seller = client_of(auth_stack, "StrictPolicyArn")
    a, b = f"{name}:a", f"{name}:b"
    for one in (a, b):
        seller.strict.create(one, method="atomic", lower=0, opening=5)
    seller.strict.transactions.transfer(a, b, 2, key=f"{name}-1")
    seller.strict.transactions.set_value(b, 6, key=f"{name}-2")

    assert [seller.strict.show(one).value for one in (a, b)] == [3, 6]


def test_an_import_takes_the_policies_of_what_it_creates(
    auth_stack: LocalStack, root: CountLedger, name: str
) -> None:
    lines: list[Line] = [
        NamespaceLine(namespace=name, kind=Kind.LEDGER, horizon_ms=HORIZON_DEFAULT_MS),
        CounterLine(counter=f"{name}:a", value=5),
        CounterLine(
            counter=f"{name}-s:hall", kind=Kind.STRICT, value=3, method="marker", lower=0, bins=1
        ),
        CounterLine(counter=f"{name}-q:bill", kind=Kind.SEQUENCE, value=9),
    ]
    operator = Importer.begin(client_of(auth_stack, "OperatePolicyArn"), name)
    with pytest.raises(AccessDenied):
        list(operator.outcomes(lines))
    four = ("OperatePolicyArn", "EmitPolicyArn", "StrictPolicyArn", "SequencePolicyArn")

    assert list(Importer.begin(client_of(auth_stack, *four), name).outcomes(lines)) == [
        ImportResult.EXISTS,
        ImportResult.RECORDED,
        ImportResult.MADE,
        ImportResult.MADE,
    ]
    assert root.exact(f"{name}:a").value == 5


@contextmanager
def own_table(stack: LocalStack, policy: str, name: str, *actions: str) -> Iterator[str]:
    """A table of an app's own, which an actor may use by these actions."""
    client: Any = stack.client("dynamodb")
    arn = make_table(stack, name, id="S", n="N")
    stack.credentials_for(policy)
    statement = {
        "Effect": "Allow",
        "Action": [f"dynamodb:{one}" for one in actions],
        "Resource": arn,
    }
    document = {"Version": "2012-10-17", "Statement": [statement]}
    iam: Any = stack.client("iam")
    user = f"only-{policy.removesuffix('PolicyArn')}"
    iam.put_user_policy(UserName=user, PolicyName=name, PolicyDocument=json.dumps(document))
    try:
        yield name
    finally:
        iam.delete_user_policy(UserName=user, PolicyName=name)
        client.delete_table(TableName=name)


def test_who_draws_numbers_also_numbers_items_of_an_own_table(
    auth_stack: LocalStack, name: str
) -> None:
    sequences = client_of(auth_stack, "SequencePolicyArn").sequences
    assert sequences.draw(f"{name}:a") == 1
    sequences.create(f"{name}:b", first=7)
    assert sequences.draw_expected(f"{name}:b") == 7
    assert sequences.lease(f"{name}:b", 5).draw() == 8
    assert sequences.show(f"{name}:b").last == 12

    # As the guide says: what an app needs at its own table, besides a policy of the stack.
    actions = ("Query", "GetItem", "PutItem")
    with own_table(auth_stack, "SequencePolicyArn", name, *actions) as table:
        collection = Collection(table, ("id", "p"), "n")
        assert [sequences.append(collection, {"a": n}).number for n in (1, 2)] == [1, 2]


def test_who_uses_quotas_creates_changes_and_deletes_them(
    auth_stack: LocalStack, name: str
) -> None:
    quotas = client_of(auth_stack, "QuotaPolicyArn").quotas
    counter = f"{name}:a"
    quotas.create(f"{name}:", limit=10, per="day", method="request_token")
    quotas.set_limit(f"{name}:", 20)
    quotas.override(counter, 30)

    assert isinstance(quotas.acquire(counter, 1), Admitted)
    keyed = quotas.acquire(counter, 2, key="k")
    assert isinstance(keyed, Admitted)
    assert keyed.remaining == 27
    for resolve in (quotas.commit, quotas.release):
        held = quotas.reserve(counter, 4)
        assert isinstance(held, Admitted)
        resolve(held)
    assert (quotas.show(counter)[0].used, quotas.show(counter)[0].limit) == (7, 30)
    assert [one.used for one in quotas.usage(f"{name}:")] == [7]
    assert quotas.overrides(next(q for q in quotas.list() if q.prefix == f"{name}:"))
    quotas.delete(f"{name}:")


def test_who_claims_also_writes_items_of_an_own_table(auth_stack: LocalStack, name: str) -> None:
    claims = client_of(auth_stack, "ClaimPolicyArn").claims
    ann, key = Claim(name, "a", "u-1"), {"id": "u-1", "n": 0}
    actions = ("GetItem", "PutItem", "UpdateItem", "DeleteItem")

    with own_table(auth_stack, "ClaimPolicyArn", name, *actions) as table:
        assert claims.take(ann, own=[NewItem(table, {**key, "mail": "a"}, ("id", "n"))])
        with pytest.raises(AlreadyClaimed, match="u-1"):
            claims.take(replace(ann, owner="u-2"))
        assert claims.change(ann, "b", own=[ItemChange(table, key, {"mail": "b"})])
        assert claims.owner(name, "b") == "u-1"
        assert claims.release(Claim(name, "b", "u-1"), own=[ItemDeletion(table, key)])
