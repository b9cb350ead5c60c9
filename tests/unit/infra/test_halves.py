"""The template as the stack of each kind of region: what it has, and that nothing is missing."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

from countledger.infra.deploy.template_limits import Surroundings, _Values
from countledger.infra.template import load_template

TEMPLATE: Final = load_template()
REGION: Final = "eu-west-1"
STREAM: Final = f"arn:aws:dynamodb:{REGION}:000000000000:table/shop-Ledger/stream/1"
REPLICA: Final = {"LedgerTableName": "shop-Ledger", "LedgerStreamArn": STREAM}
EVERYTHING: Final = {
    "AuditSchedule": "rate(1 day)",
    "BackupSchedule": "cron(0 3 * * ? *)",
    "HttpApi": "iam",
    "IngestStream": "on-demand",
    "KmsKeyArn": "arn:aws:kms:eu-west-1:1:key/k-eu",
    "Probe": "on",
    "AlertTopicArns": "arn:aws:sns:eu-west-1:1:ops",
    "ArchiveBucketArn": "arn:aws:s3:::archive",
}
# Each kind of stack there can be, by its parameters.
KINDS: Final[dict[str, dict[str, str]]] = {
    "owner and home": {},
    "owner and home with replicas": {"ReplicaRegions": "us-east-1,ap-northeast-1"},
    "owner after a promotion": {"ReplicaRegions": "us-east-1", "HomeRegion": "us-east-1"},
    "region": {**REPLICA, "HomeRegion": "us-east-1"},
    "region after its promotion": {**REPLICA, "HomeRegion": REGION},
}
OF_THE_HOME: Final = {
    "CompactionFailures",
    "CompactionFailuresAlarm",
    "CompactionFailuresPolicy",
    "CompactionLagAlarm",
    "CompactionQueue",
    "CompactionQueuePolicy",
    "Compactor",
    "CompactorLogs",
    "CompactorMapping",
    "CompactorRole",
    "Dispatcher",
    "DispatcherErrorAlarm",
    "DispatcherLogs",
    "DispatcherRole",
    "OverdueHoldsAlarm",
    "ProbeFunction",
    "Releaser",
    "ScheduleGroup",
    "SchedulerRole",
    "TamperedAlarm",
}
# What every region has.
REGIONAL: Final = {
    "Audit",
    "Counters",
    "Dashboard",
    "DeletePolicy",
    "EmitPolicy",
    "Evaluator",
    "HttpFunction",
    "HttpGateway",
    "HttpReadPolicy",
    "LagAlarm",
    "LedgerThrottleAlarm",
    "Materializer",
    "MaterializerMappingAlarm",
    "OperatePolicy",
    "Quarantine",
    "ReadPolicy",
}
POLICIES_OF_THE_HOME: Final = {
    "ClaimPolicy",
    "CompactPolicy",
    "QuotaPolicy",
    "SequencePolicy",
    "StrictPolicy",
}


def _kind(name: str, **more: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The resources and the outputs of a kind of stack, conditions and functions of lists done."""
    around = Surroundings("shop", REGION, "aws")
    values = _Values(TEMPLATE, {**EVERYTHING, **KINDS[name], **more}, around)

    def there(part: str) -> dict[str, Any]:
        return {
            name: _kept(one.get("Properties", one), values)
            for name, one in TEMPLATE[part].items()
            if "Condition" not in one or values.holds(one["Condition"])
        }

    return there("Resources"), there("Outputs")


def _kept(value: Any, values: _Values) -> Any:  # noqa: ANN401 - a part of a template is of any type
    """The part that a stack has: conditions decided, lists of parameters taken apart."""
    if isinstance(value, list):
        return [one for one in (_kept(part, values) for part in value) if one is not None]
    if not isinstance(value, dict):
        return value
    if "Fn::If" in value:
        condition, holds, otherwise = value["Fn::If"]
        return _kept(holds if values.holds(condition) else otherwise, values)
    of_regions = "ReplicaRegions" in json.dumps(value) or "RegionKmsKeyArns" in json.dumps(value)
    if of_regions and {"Fn::Select", "Fn::Split"} & value.keys():
        return values.of(value)
    if value == {"Ref": "AWS::NoValue"}:
        return None
    parts = {name: _kept(one, values) for name, one in value.items()}
    return {name: one for name, one in parts.items() if one is not None}


def _references(value: Any) -> Iterator[str]:  # noqa: ANN401 - a part of a template
    """The names that references in it name."""
    if isinstance(value, list):
        for one in value:
            yield from _references(one)
    elif isinstance(value, dict):
        for name, one in value.items():
            if name == "Ref":
                yield one
            elif name == "Fn::GetAtt":
                yield one[0]
            elif name == "Fn::Sub":
                text, known = (one, {}) if isinstance(one, str) else one
                yield from _references(known)
                found = re.findall(r"\$\{([^!}.]+)", text)
                yield from (part for part in found if part not in known)
            else:
                yield from _references(one)


@pytest.mark.parametrize("name", KINDS)
def test_every_reference_resolves(name: str) -> None:
    resources, outputs = _kind(name)
    known = {*resources, *TEMPLATE["Parameters"]}

    for where, one in {**resources, **outputs}.items():
        missing = {found for found in _references(one) if not found.startswith("AWS::")} - known
        assert not missing, (where, missing)


@pytest.mark.parametrize("name", KINDS)
def test_a_stack_has_its_own_half_and_nothing_of_the_other(name: str) -> None:
    resources, outputs = _kind(name)
    home, owner = "home" in name or "its promotion" in name, "owner" in name

    assert set(resources) >= REGIONAL
    assert OF_THE_HOME & set(resources) == (OF_THE_HOME if home else set())
    assert ("Ledger" in resources) == owner
    assert POLICIES_OF_THE_HOME & set(resources) == (
        POLICIES_OF_THE_HOME if owner or home else set()
    )
    assert {"LedgerTableName", "LedgerStreamArn", "CountersTableName", "HomeRegion"} <= set(outputs)
    assert ("SchedulerRoleArn" in outputs) == home


def test_a_region_reads_the_replica_of_its_own_region() -> None:
    """No statement of it is about the ledger of another region, and its mapping reads here."""
    resources, outputs = _kind("region")
    table = "arn:${AWS::Partition}:dynamodb:${AWS::Region}:${AWS::AccountId}:table"

    assert resources["MaterializerMapping"]["EventSourceArn"] == {"Ref": "LedgerStreamArn"}
    assert outputs["LedgerStreamArn"]["Value"] == {"Ref": "LedgerStreamArn"}
    documents = json.dumps(
        [one for name, one in resources.items() if name.endswith(("Role", "Policy"))]
    )
    ledgers = set(re.findall(r'"(arn:[^"]*table/\$\{LedgerTableName\})', documents))
    assert ledgers == {f"{table}/${{LedgerTableName}}"}


def test_the_home_reads_the_ledger_in_every_region() -> None:
    resources, _ = _kind("region after its promotion")
    documents = json.dumps(resources["CompactorRole"])

    assert "dynamodb:*:${AWS::AccountId}:table/${LedgerTableName}" in documents


def test_each_region_has_replicas_and_keys_as_listed() -> None:
    keys = {"RegionKmsKeyArns": "key-us,key-ap"}
    resources, _ = _kind("owner and home with replicas", **keys)
    here, *others = resources["Ledger"]["Replicas"]

    assert here["SSESpecification"] == {"KMSMasterKeyId": {"Ref": "KmsKeyArn"}}
    assert [(one["Region"], one["SSESpecification"]["KMSMasterKeyId"]) for one in others] == [
        ("us-east-1", "key-us"),
        ("ap-northeast-1", "key-ap"),
    ]
    for one in others:
        assert one["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
        assert one["DeletionProtectionEnabled"] is True
    compactor = json.dumps(resources["CompactorRole"])
    assert "key-us" in compactor
    assert "key-us" not in json.dumps(resources["MaterializerRole"])


def test_replicas_have_the_capacity_of_every_index() -> None:
    resources, _ = _kind("owner and home with replicas", CapacityMode="provisioned")
    here, *others = resources["Ledger"]["Replicas"]

    for one in others:
        for name in ("ReadProvisionedThroughputSettings", "GlobalSecondaryIndexes"):
            assert one[name] == here[name]
