"""Disasters, each tried as docs/recovery.md describes it: what is lost, and what counts once.

The engine's backups stand for those of AWS Backup and of point-in-time recovery: each restores a
new table with the items of one instant. A stack beside the lost one stands for another region.
"""

import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, cast

import pytest

from countledger import Claim, CountLedger, Event, IdempotencyKey, Judgement, Kind, outcomes
from countledger.infra.deploy.deployment import deploy
from countledger.infra.local.engine import Engine
from countledger.infra.local.pump import PumpStalled
from countledger.infra.local.stack import Credentials, LocalStack
from countledger.infra.portability.restore import RestoredTables, Restorer
from countledger.infra.template import mapping_settings, template_text
from countledger.ledger import keys
from countledger.ledger.clock import SystemClock, to_datetime
from countledger.ledger.errors import AccessDenied, BadInput, BadSetting, NamespaceUnknown
from countledger.ledger.limits import DAY_MS
from tests.e2e.command import Command, Finished
from tests.e2e.world import bundle_of, client_of, record_aged, record_all, user_with

_PAGE = (Path(__file__).parents[2] / "docs/recovery.md").read_text()
_TABLES = ("LedgerTableName", "CountersTableName")


class _RunningEngine:
    """An engine that another stack started and stops."""

    def __init__(self, engine: Engine) -> None:
        self.url = engine.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave it running."""

    def keep(self) -> None:
        """Its memory is kept nowhere."""


def beside(stack: LocalStack, *, pumping: bool = True, **parameters: str) -> LocalStack:
    """A new, empty stack on the engine of another one."""
    name = f"new-{uuid.uuid4().hex[:8]}"
    new = LocalStack(name=name, pumping=pumping, parameters=parameters)
    new.engine = cast("Engine", _RunningEngine(stack.engine))
    return new


def backed_up(stack: LocalStack, output: str) -> str:
    """A backup of a table as it is now: its ARN."""
    made = stack.client("dynamodb").create_backup(
        TableName=stack.outputs[output], BackupName="daily"
    )
    return str(made["BackupDetails"]["BackupArn"])


def restored(stack: LocalStack, backup: str) -> str:
    """A new table with what a backup has: its name."""
    name = f"restored-{uuid.uuid4().hex[:8]}"
    stack.client("dynamodb").restore_table_from_backup(TargetTableName=name, BackupArn=backup)
    return name


def now_key(key: str) -> IdempotencyKey:
    return IdempotencyKey(key, to_datetime(SystemClock().now_ms()))


@dataclass
class Shop:
    """A stack with one of everything, and what its apps know of it."""

    stack: LocalStack
    client: CountLedger
    kept: Event
    lost: Event
    tables: RestoredTables


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    """A stack, a backup of both tables, and an entry that was acknowledged after it."""
    with LocalStack(name="shop", auth=True) as stack:
        client = client_of(stack)
        kept = Event("likes:a", 5, now_key("order-1"))
        _fill(stack, client, kept)
        backups = [backed_up(stack, output) for output in _TABLES]
        lost = Event("likes:a", 7, now_key("order-2"))
        for outcome in client.record_many([lost]):
            assert not isinstance(outcome, Exception)
        tables = RestoredTables(*(restored(stack, one) for one in backups))
        yield Shop(stack, client, kept, lost, tables)


def _fill(stack: LocalStack, client: CountLedger, kept: Event) -> None:
    client.namespaces.create("likes", spread=16, horizon_ms=DAY_MS // 2)
    for outcome in client.record_many([kept]):
        assert not isinstance(outcome, Exception)
    record_aged(client, "likes:old", [2] * 30, 3 * DAY_MS)
    client.record("likes:old", 3)
    stack.drain()
    assert client.compactor().compact("likes:old").merged == 30
    client.strict.create("seats:hall", method="marker", lower=0, opening=9)
    client.strict.create("seats:bins", method="atomic", lower=0, opening=9, bins=3)
    assert isinstance(client.strict.change("seats:hall", -4, key="seat"), outcomes.Applied)
    client.sequences.draw_block("bills:2030", 41)
    client.claims.take(Claim("mail", "ann@example.org", "user-1"))
    client.groups.add("favourites", ["likes:a", "likes:old"])
    client.groups.switch_ranking("favourites", on=True)
    client.rankings.switch_on("likes", wait=False)
    client.schedules.create("likes", every_ms=3_600_000, min_entries=10)
    client.alerts.create("many", prefix="likes:", threshold=50, direction="rising")
    stack.drain()


def restorer_of(new: LocalStack, tables: RestoredTables) -> Credentials:
    """A user with the policies that docs/recovery.md names."""
    user, iam = f"restorer-{uuid.uuid4().hex[:8]}", new.client("iam")
    actions = re.findall(r"`(dynamodb:\w+)`", _PAGE.partition("The command requires")[2])
    restored = [f"arn:aws:dynamodb:*:*:table/{one}" for one in (tables.ledger, tables.counters)]
    credentials = user_with(new, user, {"Action": actions, "Resource": restored})
    for output in ("OperatePolicyArn", "CompactPolicyArn"):
        iam.attach_user_policy(UserName=user, PolicyArn=new.outputs[output])
    return credentials


def restore_once(new: LocalStack, tables: RestoredTables) -> Finished:
    command = Command(new.environment(restorer_of(new, tables)))
    named = ("--from-ledger", tables.ledger, "--from-counters", tables.counters)
    return command("restore", *named, "--json")


def restore(new: LocalStack, tables: RestoredTables) -> dict[str, Any]:
    """Restore by the command until it has nothing left to do; what its last call says."""
    for _ in range(5):
        new.drain()
        done = restore_once(new, tables)
        if done.code != 1:
            break
    assert done.code == 0, done.err
    result: dict[str, Any] = json.loads(done.out)
    return result


@pytest.fixture(scope="module")
def new(shop: Shop) -> Iterator[LocalStack]:
    """A new stack with what the backup has."""
    with beside(shop.stack) as stack:
        assert restore(stack, shop.tables)["problems"] == 0
        yield stack


def test_every_number_is_that_of_the_backup(new: LocalStack) -> None:
    client = client_of(new)

    assert (client.exact("likes:a").value, client.exact("likes:old").value) == (5, 63)
    assert (client.total("likes:a").value, client.total("likes:old").value) == (5, 63)
    assert client.exact("likes:old").entries_read == 1  # as merged as it was
    verdicts = client.audit.verify_many(["likes:a", "likes:old"])
    assert {one.verdict for one in verdicts} == {Judgement.EXACT}
    hall, bins = client.strict.show("seats:hall"), client.strict.show("seats:bins")
    assert (hall.value, bins.value, bins.bins) == (5, 9, 3)
    settings = client.namespaces.get("likes")
    assert (settings.spread, settings.horizon_ms) == (16, DAY_MS // 2)


def test_what_was_counted_is_a_duplicate_and_what_was_lost_counts_once(
    shop: Shop, new: LocalStack
) -> None:
    client = client_of(new)

    def sent() -> list[str]:
        found = [*client.record_many([shop.kept, shop.lost])]
        return [str(getattr(one, "status", one)) for one in found]

    assert sent() == ["duplicate", "recorded"]
    assert sent() == ["duplicate", "duplicate"]
    new.drain()
    assert (client.exact("likes:a").value, client.total("likes:a").value) == (12, 12)


def test_strict_counters_sequences_and_claims_go_on(new: LocalStack) -> None:
    client = client_of(new)

    retried = client.strict.change("seats:hall", -4, key="seat")
    refused = client.strict.change("seats:hall", -6, key="other")
    assert isinstance(retried, outcomes.Duplicate)
    assert isinstance(refused, outcomes.BoundReached)
    assert client.sequences.draw("bills:2030") == 42
    assert client.claims.owner("mail", "ann@example.org") == "user-1"


def test_rankings_schedules_and_rules_are_there_and_nothing_alerted(
    shop: Shop, new: LocalStack
) -> None:
    client = client_of(new)

    assert [one.counter for one in client.rankings.top("likes")] == ["likes:old", "likes:a"]
    assert [one.counter for one in client.groups.top("favourites")] == ["likes:old", "likes:a"]
    schedule = client.schedules.get("likes")
    assert (schedule.expression, schedule.min_entries) == ("rate(1 hour)", 10)
    assert client.schedules.state("likes") == "enabled"
    (rule,), (before,) = client.alerts.list(), shop.client.alerts.list()
    assert rule.revision != before.revision
    assert rule.means_the_same_as(before)
    # The total of likes:old grew from 0 to 63 while it was restored.
    assert list(client.alerts.log()) == []


def test_nothing_of_the_lost_stack_is_left_in_the_way(shop: Shop, new: LocalStack) -> None:
    items = new.client("dynamodb").scan(TableName=new.outputs["CountersTableName"])["Items"]
    ours = new.outputs["LedgerStreamArn"].rpartition("/")[2]
    theirs = shop.stack.outputs["LedgerStreamArn"].rpartition("/")[2]

    places = [one["counter"]["S"] for one in items]
    assert any(place.startswith(keys.STREAM_PREFIX + ours) for place in places)
    assert not any(place.startswith(keys.STREAM_PREFIX + theirs) for place in places)


def test_a_second_restore_changes_nothing(shop: Shop, new: LocalStack) -> None:
    before = client_of(new).exact("likes:old")

    again = restore(new, shop.tables)

    assert again["copied"] == 0
    assert client_of(new).exact("likes:old") == before


def test_an_interrupted_copy_is_continued(shop: Shop) -> None:
    with beside(shop.stack) as stack:
        restorer = Restorer(client_of(stack), shop.tables)
        assert restorer.begin() is False
        next(restorer.copy())

        restore(stack, shop.tables)

        client = client_of(stack)
        assert (client.total("likes:a").value, client.total("likes:old").value) == (5, 63)


@pytest.mark.parametrize("older", _TABLES)
def test_tables_of_different_times_give_the_sums_of_the_ledger(older: str, shop: Shop) -> None:
    """Whichever is older: totals follow the ledger; what no ledger has is of its own time."""
    with beside(shop.stack) as stack:
        client = client_of(stack)
        client.sequences.draw_block("bills:x", 3)
        record_all(client, ["likes:a"] * 2)
        stack.drain()
        first = {output: backed_up(stack, output) for output in _TABLES}
        client.sequences.draw_block("bills:x", 3)
        client.strict.create("seats:hall", method="atomic", lower=0, opening=9)
        record_all(client, ["likes:a", "likes:b"])
        stack.drain()
        second = {output: backed_up(stack, output) for output in _TABLES}
        backups = {**second, older: first[older]}
        tables = RestoredTables(*(restored(stack, backups[output]) for output in _TABLES))
        with beside(stack) as new:
            found = client_of(new)
            if older == "LedgerTableName":
                # The strict counter is not taken for a ledger without entries.
                assert restore_once(new, tables).code == 1
                with pytest.raises(NamespaceUnknown):
                    found.strict.show("seats:hall")
                found.namespaces.create("seats", kind=Kind.STRICT)
            restore(new, tables)

            found = client_of(new)
            if older == "LedgerTableName":
                assert found.strict.show("seats:hall").value == 9
            expected = (2, 0, 7) if older == "LedgerTableName" else (3, 1, 4)
            totals = (found.total("likes:a").value, found.total("likes:b").value)
            assert (*totals, found.sequences.draw("bills:x")) == expected
            assert {one.verdict for one in found.audit.verify_many(["likes:a", "likes:b"])} == {
                Judgement.EXACT
            }


def test_a_stack_that_is_in_use_is_refused(shop: Shop, new: LocalStack) -> None:
    client, theirs = client_of(new), shop.tables
    own = RestoredTables(*(new.outputs[output] for output in _TABLES))
    swapped = RestoredTables(theirs.counters, theirs.ledger)

    for tables, reason in (
        (own, "belongs to this stack"),
        (swapped, "has the key counter, part, not counter, entry"),
        (RestoredTables(restored_copy(shop), theirs.counters), "was restored from"),
    ):
        with pytest.raises(BadSetting, match=reason):
            Restorer(client, tables).begin()
    with pytest.raises(BadSetting, match="is not empty"):
        Restorer(shop.client, theirs).begin()


def restored_copy(shop: Shop) -> str:
    return restored(shop.stack, backed_up(shop.stack, "LedgerTableName"))


def test_a_writer_that_came_too_early_is_noticed(shop: Shop) -> None:
    with beside(shop.stack) as stack:
        restorer = Restorer(client_of(stack), shop.tables)
        restorer.begin()
        client_of(stack).namespaces.create("likes", spread=1)

        with pytest.raises(BadSetting, match="used before the restore ended"):
            list(restorer.copy())


def test_a_stream_unread_for_a_day_needs_a_repair(shop: Shop) -> None:
    """A mapping that begins at the newest record has lost the others, as a trimmed stream has."""
    with beside(shop.stack, pumping=False) as stack:
        client = client_of(stack)
        record_all(client, ["likes:a"] * 3)
        newest = replace(mapping_settings(), starting_position="LATEST")
        pump = stack.new_pump(newest)
        pump.step()
        record_all(client, ["likes:a", "likes:b"])
        pump.drain()
        assert client.total("likes:a").value == 1

        verdict = client.audit.verify("likes:a")
        repairs = {one.counter: str(one.remedy) for one in client.audit.repair_all()}

        assert verdict.verdict is Judgement.DRIFT
        assert repairs == {"likes:a": "repaired", "likes:b": "none"}
        assert client.total("likes:a").value == 4


def test_while_the_key_is_disabled_nothing_is_acknowledged_and_nothing_is_lost(
    auth_stack: LocalStack, name: str
) -> None:
    """DynamoDB answers AccessDeniedException then; the engine checks no key, so a policy does."""
    client, counter = client_of(auth_stack), f"{name}:a"
    client.record(counter, 1)
    auth_stack.pump.drain()
    iam = auth_stack.client("iam")
    writer = auth_stack.credentials_for("EmitPolicyArn")
    user = next(
        one["UserName"]
        for one in iam.list_users()["Users"]
        for key in iam.list_access_keys(UserName=one["UserName"])["AccessKeyMetadata"]
        if key["AccessKeyId"] == writer.access_key
    )
    role = (
        auth_stack.client("lambda")
        .get_function_configuration(FunctionName=auth_stack.outputs["MaterializerFunctionName"])[
            "Role"
        ]
        .rpartition("/")[2]
    )
    denied = {"Effect": "Deny", "Action": "dynamodb:*", "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [denied]})
    emitter, key = client_of(auth_stack, "EmitPolicyArn"), now_key("order-2")
    emitter.record(counter, 2)
    iam.put_role_policy(RoleName=role, PolicyName="key", PolicyDocument=policy)
    iam.put_user_policy(UserName=user, PolicyName="key", PolicyDocument=policy)
    try:
        with pytest.raises(AccessDenied):
            emitter.record(counter, 4, key=key)
        with pytest.raises(PumpStalled):
            auth_stack.pump.drain(timeout_s=2.0)
        assert client.total(counter).value == 1
    finally:
        iam.delete_role_policy(RoleName=role, PolicyName="key")
        iam.delete_user_policy(UserName=user, PolicyName="key")

    assert str(emitter.record(counter, 4, key=key).status) == "recorded"
    auth_stack.pump.drain()
    assert client.total(counter).value == 7
    assert client.audit.verify(counter).verdict is Judgement.EXACT


def test_a_plan_copies_its_backups(shop: Shop) -> None:
    """As the engine makes it; it runs no plan, and does not know the type of the selection."""
    stack, name = shop.stack, f"plan-{uuid.uuid4().hex[:8]}"
    vault = "arn:aws:backup:eu-west-1:000000000000:backup-vault:far"
    every_night = "cron(0 3 * * ? *)"
    key = stack.client("kms").create_key()["KeyMetadata"]
    before, _, rest = template_text().partition("  BackupSelection:\n")
    known = before + rest[rest.index("  # ---- ") :]
    stack.client("s3").create_bucket(Bucket=name)
    outputs = deploy(
        stack.home.deployment(name),
        bucket=name,
        bundle=bundle_of(),
        parameters={
            "BackupSchedule": every_night,
            "BackupCopyVaultArn": vault,
            "KmsKeyArn": key["Arn"],
        },
        template=known,
    )

    backup, made = stack.client("backup"), outputs["BackupVaultName"]
    described = backup.describe_backup_vault(BackupVaultName=made)
    plans = backup.list_backup_plans()["BackupPlansList"]
    (plan,) = (one for one in plans if one["BackupPlanName"] == made)
    found = backup.get_backup_plan(BackupPlanId=plan["BackupPlanId"])["BackupPlan"]
    assert made.endswith(key["KeyId"].partition("-")[0])
    assert described["EncryptionKeyArn"] == key["Arn"]
    (rule,) = found["Rules"]
    assert (rule["TargetBackupVaultName"], rule["ScheduleExpression"]) == (made, every_night)
    assert int(rule["Lifecycle"]["DeleteAfterDays"]) == 35
    assert [one["DestinationBackupVaultArn"] for one in rule["CopyActions"]] == [vault]


def test_a_copy_without_backups_is_refused(shop: Shop) -> None:
    vault = "arn:aws:backup:eu-west-1:000000000000:backup-vault:far"
    with (
        pytest.raises(BadInput, match="BackupCopyVaultArn needs a BackupSchedule"),
        beside(shop.stack, BackupCopyVaultArn=vault),
    ):
        pass
