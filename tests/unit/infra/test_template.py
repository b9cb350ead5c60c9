"""Facts of the deployable template that no linter checks."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from countledger.compaction.schedule import TRIGGER_RETRY
from countledger.infra.template import (
    TemplateUnsupported,
    load_template,
    mapping_settings,
    parse_template,
    resource,
    table_schemas,
    template_text,
)
from countledger.ledger import keys
from countledger.ledger.indexes import group_board, namespace_board
from countledger.ledger.limits import (
    HORIZON_DEFAULT_MS,
    HOUR_MS,
    INGEST_MARGIN_MS,
    INGEST_TIME_MS,
    INVOCATION_MARGIN_MS,
    INVOCATION_TIME_MS,
)
from countledger.ledger.settings import Settings
from countledger.probe import NAMESPACE

TEMPLATE = load_template()
RESOURCES: dict[str, Any] = TEMPLATE["Resources"]
# The ledger of this stack, or its replica in this region.
STRICT = {"Fn::GetAtt": ["Strict", "Arn"]}
LEDGER = {
    "Fn::If": [
        "OwnsLedger",
        {"Fn::GetAtt": ["Ledger", "Arn"]},
        {
            "Fn::Sub": "arn:${AWS::Partition}:dynamodb:${AWS::Region}:${AWS::AccountId}"
            ":table/${LedgerTableName}"
        },
    ]
}
# Those that somebody may have deployed.
RELEASES = sorted((Path(__file__).parents[2] / "e2e/releases").glob("*.yaml"))

# The properties by which resources of these types get a name of their own.
NAMES = {
    "TableName",
    "FunctionName",
    "QueueName",
    "RoleName",
    "LogGroupName",
    "AlarmName",
    "ManagedPolicyName",
    "DashboardName",
}


def statements() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every statement that allows something, with the resource that it stands in."""
    for name, one in RESOURCES.items():
        properties = one["Properties"]
        documents = [policy["PolicyDocument"] for policy in properties.get("Policies", [])]
        if one["Type"] == "AWS::IAM::ManagedPolicy":
            documents.append(properties["PolicyDocument"])
        for document in documents:
            for statement in document["Statement"]:
                plain = statement.get("Fn::If", [None, statement])[1]
                if plain["Effect"] == "Allow":
                    yield name, plain


def allowed_to(role: str) -> dict[str, Any]:
    """What a role or a policy may do, with the resource of each action."""
    return {
        action: statement["Resource"]
        for where, statement in statements()
        if where == role
        for action in listed(statement["Action"])
    }


def listed(value: Any) -> list[Any]:  # noqa: ANN401 - one or many, as IAM has it
    return value if isinstance(value, list) else [value]


def test_nothing_has_a_fixed_name() -> None:
    """Several stages fit one account; the mapping and the alarms only refer to what they name."""
    lambdas = {
        "AWS::Lambda::EventInvokeConfig",
        "AWS::Lambda::EventSourceMapping",
        "AWS::Lambda::Permission",
    }
    refers = {*lambdas, "AWS::CloudWatch::Alarm"}
    for name, one in RESOURCES.items():
        if one["Type"] not in refers:
            assert not NAMES & set(one["Properties"]), name


def test_a_tick_is_run_once_and_soon_or_not_at_all() -> None:
    """Else Lambda runs a failed function twice more, and a throttled one for six hours."""
    of_the_stack = {
        one["Properties"]["Target"]["Arn"]["Fn::GetAtt"][0]: one["Properties"]["Target"]
        for one in RESOURCES.values()
        if one["Type"] == "AWS::Scheduler::Schedule"
    }
    limits = {
        one["Properties"]["FunctionName"]["Ref"]: one
        for one in RESOURCES.values()
        if one["Type"] == "AWS::Lambda::EventInvokeConfig"
    }

    # The dispatcher's schedules are made by users.
    assert limits.keys() == of_the_stack.keys() | {"Dispatcher"}
    for function, one in limits.items():
        properties = one["Properties"]
        assert one["Condition"] == RESOURCES[function]["Condition"]
        assert (properties["Qualifier"], properties["MaximumRetryAttempts"]) == ("$LATEST", 0)
        handed_over = of_the_stack.get(function, {"RetryPolicy": TRIGGER_RETRY})
        age_s = handed_over["RetryPolicy"]["MaximumEventAgeInSeconds"]
        assert properties["MaximumEventAgeInSeconds"] == age_s <= 900


def test_data_outlive_the_stack() -> None:
    for name in ("Ledger", "Counters"):
        assert RESOURCES[name]["DeletionPolicy"] == "RetainExceptOnCreate"
        assert RESOURCES[name]["UpdateReplacePolicy"] == "Retain"
        one = resource(name)["Replicas"][0]
        assert one["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
        assert one["DeletionProtectionEnabled"] == {"Fn::If": ["Protected", True, False]}
    assert TEMPLATE["Parameters"]["DeletionProtection"]["Default"] == "true"


@pytest.mark.parametrize(("table", "others"), [("Ledger", 4), ("Counters", 0)])
def test_each_table_is_a_global_table_with_a_replica_here(table: str, others: int) -> None:
    """A change of the type later would replace it."""
    assert RESOURCES[table]["Type"] == "AWS::DynamoDB::GlobalTable"
    here, *elsewhere = resource(table)["Replicas"]
    assert here["Region"] == {"Ref": "AWS::Region"}
    assert [one["Fn::If"][0] for one in elsewhere] == [f"HasReplica{n + 1}" for n in range(others)]


@pytest.mark.parametrize("table", ["Ledger", "Counters"])
def test_provisioned_capacity_is_set_for_every_index(table: str) -> None:
    """An index without it is refused, and one with less would throttle its table."""
    properties = resource(table)
    write = properties["WriteProvisionedThroughputSettings"]
    assert write["Fn::If"][0] == "IsProvisioned"
    for index in properties["GlobalSecondaryIndexes"]:
        assert index["WriteProvisionedThroughputSettings"] == write
    replica = properties["Replicas"][0]
    reads = replica["GlobalSecondaryIndexes"]["Fn::If"][1]
    names = [one["IndexName"] for one in properties["GlobalSecondaryIndexes"]]
    assert [one["IndexName"] for one in reads] == names
    for one in reads:
        read = one["ReadProvisionedThroughputSettings"]
        assert read == replica["ReadProvisionedThroughputSettings"]["Fn::If"][1]


def test_the_pump_follows_the_parameters_of_the_stack() -> None:
    """A batch on the laptop is as large as on AWS."""
    own = {"MaterializerBatchSize": "10000", "BatchingWindowSeconds": "5"}
    settings = mapping_settings(parameters=own)

    assert (settings.batch_size, settings.batching_window_s) == (10_000, 5)
    assert mapping_settings("EvaluatorMapping", own).batch_size == 1_000


def test_no_policy_allows_an_action_on_everything() -> None:
    found = list(statements())
    assert len(found) > 15
    for where, statement in found:
        assert statement["Sid"], where
        for action in listed(statement["Action"]):
            assert "*" not in action, (where, action)
        for one in listed(statement["Resource"]):
            assert one != "*", (where, statement["Sid"])


def test_the_materializer_may_not_write_the_ledger() -> None:
    assert set(allowed_to("MaterializerRole")) == {
        "dynamodb:BatchGetItem",
        "dynamodb:DescribeStream",
        "dynamodb:GetItem",
        "dynamodb:GetRecords",
        "dynamodb:GetShardIterator",
        "dynamodb:ListStreams",
        "dynamodb:PutItem",
        "dynamodb:Query",
        "dynamodb:UpdateItem",
        "kms:Decrypt",
        "kms:GenerateDataKey",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
        "sqs:SendMessage",
    }


@pytest.mark.parametrize(
    ("role", "statement", "partition"),
    [
        ("MaterializerRole", "KeepWhatIsQuarantined", "quarantine#ledger"),
        ("IngestRole", "KeepWhatIsQuarantined", "quarantine#kinesis"),
        ("IngestRole", "ReadAndStoreProgressOfLongRecords", "ingest#*"),
        ("MaterializerRole", "SeeTheProgressOfShards", "stream#*"),
    ],
)
def test_a_role_reaches_one_partition_only(role: str, statement: str, partition: str) -> None:
    (found,) = (one for where, one in statements() if (where, one["Sid"]) == (role, statement))

    condition = found["Condition"]["ForAllValues:StringLike"]
    assert condition == {"dynamodb:LeadingKeys": [partition]}


def test_the_evaluator_may_not_touch_the_ledger_and_tells_nobody_else() -> None:
    allowed = allowed_to("EvaluatorRole")

    assert "Ledger" not in json.dumps(list(allowed.values()))
    assert "event-bus/${AlertBusName}" in allowed["events:PutEvents"]["Fn::Sub"]
    assert allowed["sns:Publish"] == {"Ref": "AlertTopicArns"}
    assert not {"dynamodb:DeleteItem", "dynamodb:Scan"} & set(allowed)


@pytest.mark.parametrize("name", ["MaterializerMapping", "EvaluatorMapping", "IngestMapping"])
def test_a_mapping_never_skips_a_record(name: str) -> None:
    """Exact totals, alerts and entries rest on these settings."""
    settings = mapping_settings(name)

    assert (settings.retries, settings.record_age_s) == (-1, -1)
    assert settings.partial_failures
    assert settings.starting_position == "TRIM_HORIZON"
    # Of a halved batch the second half may come first, and move watermarks and states past the
    # first; the ingest has neither.
    assert settings.bisect == (name == "IngestMapping")


def test_the_evaluator_sees_totals_and_windows_only() -> None:
    (pattern,) = map(json.loads, mapping_settings("EvaluatorMapping").filter_patterns)
    assert pattern["dynamodb"]["Keys"]["part"]["S"] == [keys.TOTAL, {"prefix": keys.WINDOW_PREFIX}]


def test_who_compacts_or_removes_deletes_entries_and_nobody_changes_them() -> None:
    deletes = {"CompactorRole", "CompactPolicy", "DeletePolicy"}
    for where, statement in statements():
        actions = set(listed(statement["Action"]))
        if statement.get("Sid") in {"ChangeStrictCounters", "ChangeCountersAndSettings"}:
            assert "Ledger" not in json.dumps(statement)
            continue  # who changes strict counters may do all to them: no entry lies there
        at_the_ledger = {"Fn::GetAtt": ["Ledger", "Arn"]} in listed(statement["Resource"])
        if "dynamodb:DeleteItem" in actions and where not in deletes:
            assert "dynamodb:LeadingKeys" in json.dumps(statement["Condition"]), where
        if at_the_ledger and "dynamodb:UpdateItem" in actions:
            assert "dynamodb:LeadingKeys" in json.dumps(statement["Condition"]), where


def test_a_message_does_not_come_again_while_it_is_worked_on() -> None:
    """As the service advises: six times the function's time; and what fails is not lost."""
    queue = resource("CompactionQueue")

    assert queue["VisibilityTimeout"] >= 6 * resource("Compactor")["Timeout"]
    assert queue["RedrivePolicy"]["deadLetterTargetArn"] == {
        "Fn::GetAtt": ["CompactionFailures", "Arn"]
    }
    mapping = resource("CompactorMapping")
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["EventSourceArn"] == {"Fn::GetAtt": ["CompactionQueue", "Arn"]}


def test_who_feeds_its_own_queue_is_not_stopped_as_a_loop() -> None:
    """Lambda stops a chain after sixteen rounds, unless the function says that it is meant."""
    feeds = set()
    for one in RESOURCES.values():
        if one["Type"] == "AWS::Lambda::EventSourceMapping":
            function = one["Properties"]["FunctionName"]["Ref"]
            role = resource(function)["Role"]["Fn::GetAtt"][0]
            source = one["Properties"]["EventSourceArn"]
            for where, statement in statements():
                sends = "sqs:SendMessage" in listed(statement["Action"])
                if where == role and sends and source in listed(statement["Resource"]):
                    feeds.add(function)

    assert feeds == {"Compactor"}
    for name, one in RESOURCES.items():
        if one["Type"] == "AWS::Lambda::Function":
            assert (one["Properties"].get("RecursiveLoop") == "Allow") == (name in feeds), name


@pytest.mark.parametrize(
    ("alarm", "function"),
    [
        ("TamperedAlarm", "Compactor"),
        ("DriftAlarm", "Audit"),
        ("ReplacedEntryAlarm", "Materializer"),
    ],
)
def test_an_alarm_looks_where_its_function_writes(alarm: str, function: str) -> None:
    """The dimension is the service: stages of one account have alarms of their own."""
    (dimension,) = resource(alarm)["Dimensions"]
    variables = resource(function)["Environment"]["Variables"]
    assert dimension == {"Name": "service", "Value": variables["POWERTOOLS_SERVICE_NAME"]}
    assert resource(alarm)["Namespace"] == variables["POWERTOOLS_METRICS_NAMESPACE"]


def test_no_schedule_of_compaction_exists_until_a_user_makes_one() -> None:
    schedules = [n for n, one in RESOURCES.items() if one["Type"] == "AWS::Scheduler::Schedule"]

    assert sorted(schedules) == ["AuditTimer", "ProbeTimer", "ReleaserTimer"]
    assert RESOURCES["ScheduleGroup"]["Type"] == "AWS::Scheduler::ScheduleGroup"


def test_the_functions_assume_what_the_settings_assume() -> None:
    for parameter, setting in (
        ("ClockSkewMs", "clock_skew_ms"),
        ("ReplicationBoundMs", "replication_bound_ms"),
    ):
        default = getattr(Settings(), setting)
        assert TEMPLATE["Parameters"][parameter]["Default"] == default


@pytest.mark.parametrize(
    "function", ["Materializer", "Audit", "IngestFunction", "Compactor", "Releaser"]
)
def test_a_function_that_compares_clocks_knows_how_far_they_may_differ(function: str) -> None:
    """The parameter is of any two machines: a bound that a function does not know is none."""
    variables = resource(function)["Environment"]["Variables"]
    assert variables["COUNTLEDGER_CLOCK_SKEW_MS"] == {"Ref": "ClockSkewMs"}


def test_the_audit_is_off_until_somebody_asks_for_it() -> None:
    parts = [name for name in RESOURCES if name.startswith(("Audit", "Drift"))]
    assert len(parts) == 8
    assert {RESOURCES[name].get("Condition") for name in parts} == {"HasAudit"}
    assert TEMPLATE["Parameters"]["AuditSchedule"]["Default"] == ""
    assert TEMPLATE["Parameters"]["AuditMode"]["Default"] == "verify"
    role = json.dumps(resource("AuditRole"))
    assert role.count("dynamodb:UpdateItem") == 1
    assert "AuditRepairs" in role


def test_the_probe_is_off_until_somebody_asks_for_it_and_reaches_its_own_counter_only() -> None:
    parts = [name for name in RESOURCES if name.startswith("Probe")]
    assert len(parts) == 7
    assert {RESOURCES[name].get("Condition") for name in parts} == {"HasProbe"}
    assert TEMPLATE["Parameters"]["Probe"]["Default"] == "off"
    for where, statement in statements():
        actions = set(listed(statement["Action"]))
        if where == "ProbeRole" and "dynamodb:DescribeTable" not in actions:
            partitions = statement.get("Condition", {}).get("ForAllValues:StringLike", {})
            for one in partitions.get("dynamodb:LeadingKeys", ()):
                assert one in {f"{NAMESPACE}:*", keys.NAMESPACE_PREFIX + NAMESPACE}
            assert bool(partitions) == any(action.startswith("dynamodb:") for action in actions)


def test_the_releaser_finds_reads_and_updates_and_does_nothing_else() -> None:
    parts = [name for name in RESOURCES if name.startswith(("Releaser", "OverdueHolds"))]
    assert len(parts) == 7
    assert {RESOURCES[name].get("Condition") for name in parts} == {"ReleasesHolds"}
    assert TEMPLATE["Parameters"]["ReleaseHolds"]["Default"] == "on"
    allowed = allowed_to("ReleaserRole")
    assert {name: found for name, found in allowed.items() if name.startswith("dynamodb:")} == {
        "dynamodb:Query": {"Fn::Sub": "${Counters.Arn}/index/due"},
        "dynamodb:GetItem": {"Fn::GetAtt": ["Counters", "Arn"]},
        "dynamodb:UpdateItem": {"Fn::GetAtt": ["Counters", "Arn"]},
    }


def test_backups_are_off_until_requested_and_their_role_may_restore_nothing() -> None:
    parts = [name for name in RESOURCES if name.startswith("Backup")]
    assert {RESOURCES[name].get("Condition") for name in parts} == {"HasBackup"}
    assert TEMPLATE["Parameters"]["BackupSchedule"]["Default"] == ""
    assert RESOURCES["BackupVault"]["DeletionPolicy"] == "RetainExceptOnCreate"
    both = [LEDGER, {"Fn::GetAtt": ["Counters", "Arn"]}]
    # And the table of strict counters over regions, where this stack has made it.
    all_three = [*both, {"Fn::If": ["HasStrict", STRICT, {"Ref": "AWS::NoValue"}]}]
    assert resource("BackupSelection")["BackupSelection"]["Resources"] == all_three
    (rule,) = resource("BackupPlan")["BackupPlan"]["BackupPlanRule"]
    (copy,) = rule["CopyActions"]["Fn::If"][1]
    assert copy["DestinationBackupVaultArn"] == {"Ref": "BackupCopyVaultArn"}
    assert copy["Lifecycle"] == rule["Lifecycle"]
    allowed = allowed_to("BackupRole")
    assert allowed["dynamodb:StartAwsBackupJob"] == all_three
    assert allowed["backup:CopyIntoBackupVault"] == {"Ref": "BackupCopyVaultArn"}
    assert not [one for one in allowed if "Restore" in one or "Item" in one or "Scan" in one]


def test_environments_hold_strings_only() -> None:
    """Numbers and booleans there break functions on some engines."""
    for name, one in RESOURCES.items():
        variables = one["Properties"].get("Environment", {}).get("Variables", {})
        for variable, value in variables.items():
            assert isinstance(value, str | dict), (name, variable)
            if isinstance(value, dict):
                assert set(value) <= {"Ref", "Fn::If", "Fn::Sub", "Fn::GetAtt"}, (name, variable)


@pytest.mark.parametrize(
    ("function", "time_ms", "margin_ms"),
    [
        ("Materializer", INVOCATION_TIME_MS, INVOCATION_MARGIN_MS),
        ("Evaluator", INVOCATION_TIME_MS, INVOCATION_MARGIN_MS),
        ("IngestFunction", INGEST_TIME_MS, INGEST_MARGIN_MS),
    ],
)
def test_a_function_may_run_for_as_long_as_its_deadline_says(
    function: str, time_ms: int, margin_ms: int
) -> None:
    """The rules of watermarks count on it: no write leaves after that time."""
    assert resource(function)["Timeout"] * 1_000 == time_ms
    assert 0 < margin_ms < time_ms


def test_the_mapping_of_the_materializer_knows_its_shard() -> None:
    settings = mapping_settings()

    assert settings.window_s == 900
    assert resource("MaterializerMapping")["ParallelizationFactor"] == 1
    # A batch of more than ten records demands a batching window.
    assert settings.batch_size > 10
    assert settings.batching_window_s >= 1


def test_alarms_say_what_to_do_and_tell_the_topic() -> None:
    alarms = [one for one in RESOURCES.values() if one["Type"] == "AWS::CloudWatch::Alarm"]
    assert len(alarms) >= 6
    for one in alarms:
        assert len(one["Properties"]["AlarmDescription"]) > 100
        assert "HasAlarmTopic" in json.dumps(one["Properties"]["AlarmActions"])
    assert TEMPLATE["Parameters"]["AlarmTopicArn"]["Default"] == ""


def test_everything_can_be_encrypted_with_the_customers_key() -> None:
    encrypted = {
        "AWS::DynamoDB::GlobalTable",
        "AWS::DynamoDB::Table",
        "AWS::Kinesis::Stream",
        "AWS::Lambda::Function",
        "AWS::Logs::LogGroup",
        "AWS::SQS::Queue",
    }
    for name, one in RESOURCES.items():
        if one["Type"] in encrypted and name != "Strict":  # refused together with a key
            assert "KmsKeyArn" in json.dumps(one["Properties"]), name
        if one["Type"] == "AWS::SQS::Queue":
            assert one["Properties"]["SqsManagedSseEnabled"]["Fn::If"][2] is True


def test_who_sends_may_use_the_customers_key_for_it() -> None:
    """A queue or stream under a key of one's own asks its senders for a data key as well."""
    sending = {"sqs:SendMessage", "kinesis:PutRecords"}
    senders = {name for name, _ in statements() if sending & set(allowed_to(name))}

    assert {"OperatePolicy", "KinesisPolicy", "EvaluatorRole"} <= senders
    assert all("kms:GenerateDataKey" in allowed_to(name) for name in senders)


def test_who_operates_may_empty_the_queue_of_failed_compactions() -> None:
    emptied = {n: allowed_to(n).get("sqs:PurgeQueue") for n in {name for name, _ in statements()}}

    assert {name: queue for name, queue in emptied.items() if queue} == {
        "OperatePolicy": {"Fn::GetAtt": ["CompactionFailures", "Arn"]}
    }


def test_every_function_and_no_other_role_can_be_traced() -> None:
    """X-Ray has no resources, so AWS's own policy is attached, and only while tracing is on."""
    roles = set()
    for name, one in RESOURCES.items():
        if one["Type"] == "AWS::Lambda::Function":
            assert one["Properties"]["TracingConfig"]["Fn::If"][:2] == [
                "IsTraced",
                {"Mode": "Active"},
            ], name
            roles.add(one["Properties"]["Role"]["Fn::GetAtt"][0])
    traced = {
        name
        for name, one in RESOURCES.items()
        if one["Type"] == "AWS::IAM::Role" and "AWSXRayDaemonWriteAccess" in json.dumps(one)
    }

    assert traced == roles
    for name in traced:
        assert resource(name)["ManagedPolicyArns"]["Fn::If"][0] == "IsTraced"
    assert TEMPLATE["Parameters"]["Tracing"]["Default"] == "off"


def test_every_role_takes_the_boundary() -> None:
    """An account that demands a permissions boundary can deploy it."""
    for name, one in RESOURCES.items():
        if one["Type"] == "AWS::IAM::Role":
            assert "PermissionsBoundaryArn" in json.dumps(one["Properties"]), name


@pytest.fixture(params=RELEASES, ids=lambda path: path.stem)
def before(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The template of an earlier stage."""
    template: dict[str, Any] = parse_template(request.param.read_text())
    return template


def test_an_upgrade_makes_one_index_of_a_table_at_most(before: dict[str, Any]) -> None:
    """CloudFormation refuses more in one update."""
    for table in ("Ledger", "Counters"):
        properties = before["Resources"][table]["Properties"]
        old = {one["IndexName"] for one in properties["GlobalSecondaryIndexes"]}
        new = {one["IndexName"] for one in resource(table)["GlobalSecondaryIndexes"]}
        assert len(old ^ new) <= 1


def test_an_upgrade_replaces_no_managed_policy(before: dict[str, Any]) -> None:
    """Another description, or path, is another policy: the users of the old one would lose it."""
    for name, one in before["Resources"].items():
        if one["Type"] == "AWS::IAM::ManagedPolicy":
            assert resource(name)["Description"] == one["Properties"]["Description"]
            assert resource(name).get("Path") == one["Properties"].get("Path")


def test_an_upgrade_takes_no_output_away(before: dict[str, Any]) -> None:
    """Apps find the tables, and people the queues and policies, by these names."""
    assert set(before["Outputs"]) <= set(TEMPLATE["Outputs"])


def test_cloudformation_takes_its_size() -> None:
    """It takes a million bytes from a bucket, which the bundle needs in any case."""
    assert len(template_text().encode()) < 1_000_000


def test_table_schemas_are_what_create_table_takes() -> None:
    ledger, counters = table_schemas()["ledger"], table_schemas()["counters"]

    for table, wanted in ((ledger, ["counter", "entry"]), (counters, ["counter", "part"])):
        assert [one["AttributeName"] for one in table.create_table["KeySchema"]] == wanted
    assert ledger.create_table["GlobalSecondaryIndexes"][0]["IndexName"] == "namespaces"
    assert ledger.create_table["StreamSpecification"] == {
        "StreamEnabled": True,
        "StreamViewType": "NEW_AND_OLD_IMAGES",
    }
    assert (ledger.ttl_attribute, counters.ttl_attribute) == (None, "expires_at")


def test_every_index_is_sparse() -> None:
    for room, carried in (("ledger", {"counter", "entry"}), ("counters", {"counter", "part"})):
        for index in table_schemas()[room].create_table["GlobalSecondaryIndexes"]:
            hashed = index["KeySchema"][0]["AttributeName"]
            assert hashed not in carried | {"total", "delta"}, index["IndexName"]


def test_rankings_read_the_indexes_that_there_are() -> None:
    schema = table_schemas()["counters"].create_table["GlobalSecondaryIndexes"]
    indexes = {
        one["IndexName"]: [key["AttributeName"] for key in one["KeySchema"]] for one in schema
    }

    for board in (namespace_board("n", 4), group_board("g")):
        assert indexes[board.index] == [board.attribute, "total"]
    assert indexes["members"] == ["member", "counter"]


def test_there_is_no_stream_until_somebody_asks_for_one() -> None:
    parts = [name for name in RESOURCES if name.startswith(("Ingest", "Kinesis"))]
    assert len(parts) == 15
    assert {RESOURCES[name].get("Condition") for name in parts} == {"HasIngest"}
    outputs = [one for name, one in TEMPLATE["Outputs"].items() if name.startswith("Ingest")]
    assert {one["Condition"] for one in outputs} == {"HasIngest"}
    assert TEMPLATE["Parameters"]["IngestStream"]["Default"] == "none"
    for name, one in RESOURCES.items():
        if name not in parts:
            text = json.dumps(one["Properties"]).replace('{"Fn::If": ["HasIngest"', "")
            roles = {"OperatePolicy", "StatusPolicy", "HttpRole"}
            may = {*roles, "Dashboard", "FunctionThrottleAlarm"}
            assert ("Ingest" in text) == (name in may), name


def test_what_expires_in_a_backlog_is_still_in_the_stream() -> None:
    """So that it is seen, and quarantined, before the stream forgets it."""
    hours = TEMPLATE["Parameters"]["IngestRetentionHours"]["Default"]

    assert hours * HOUR_MS > HORIZON_DEFAULT_MS + HOUR_MS


def test_an_unknown_resource_is_refused() -> None:
    with pytest.raises(TemplateUnsupported, match="Nothing"):
        resource("Nothing")
