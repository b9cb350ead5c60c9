"""What only the services themselves can show, each with what was seen: docs/aws-checklist.md."""

import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError, ClientError
from botocore.httpsession import URLLib3Session

from countledger import CountLedger, Event
from countledger.infra.cost import batches_of
from countledger.infra.local.mappings import MAPPINGS
from countledger.infra.template import mapping_settings
from countledger.ledger import keys
from countledger.ledger.limits import MINUTE_MS
from tools.smoke.paths import Wrong

_POLL_S: Final = 2.0
_REFUSED: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_RATE_COUNTERS: Final = 500
_TABLES: Final = ("LedgerTableName", "CountersTableName")


class NotShown(Exception):
    """The services did not show it, with the reason; nothing is wrong by that."""


@dataclass(frozen=True)
class Checks:
    """The rows of the checklist that a program can see within minutes.

    Attributes:
        client: of a stack whose paths were walked before.
        endpoint_url: another endpoint than AWS's own.
        patience_s: how long to wait for a tick, or for a metric.
        rate_s: how long to record 100 entries a second.
    """

    client: CountLedger
    endpoint_url: str | None = None
    patience_s: float = 360.0
    rate_s: float = 180.0

    def all(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """The names of the rows, and what to call, in order; a call returns what it saw."""
        yield "shards", self.shards
        yield "mappings", self.mappings
        yield "tables", self.tables
        yield "units of an update", self.units
        yield "policies", self.policies
        yield "lag", self.lag
        yield "http api", self.http_api
        yield "unsigned request", self.unsigned
        yield "rate", self.rate
        yield "alarms", self.alarms
        yield "tick of a schedule", self.tick
        yield "cold start", self.cold_start
        yield "metrics", self.metrics

    def shards(self) -> str:
        """How many open shards the streams of new tables have; `countledger cost` assumes four."""
        found, streams = [], self._ask("dynamodbstreams")
        for output in _TABLES:
            table = self._ask("dynamodb").describe_table(TableName=self._outputs[output])["Table"]
            arn = table["LatestStreamArn"]
            listed = streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]
            ends = [one["SequenceNumberRange"].get("EndingSequenceNumber") for one in listed]
            found.append(f"{output.removesuffix('TableName')} {ends.count(None)}")
        return ", ".join(found)

    def rate(self) -> str:
        """What 100 entries a second take, and what `countledger cost` says."""
        names = [f"smoke-rate:{number}" for number in range(_RATE_COUNTERS)]
        before, began = self._spent(), time.monotonic()
        for number in range(max(1, int(self.rate_s))):
            events = [Event(names[(number * 100 + one) % _RATE_COUNTERS], 1) for one in range(100)]
            list(self.client.record_many(events))
            time.sleep(max(0.0, began + number + 1 - time.monotonic()))
        sent = max(1, int(self.rate_s)) * 100
        self._until("the entries", lambda: self._spent()[0] - before[0] >= sent, _POLL_S)
        records, updates, units = (b - a for a, b in zip(before, self._spent(), strict=True))
        said = batches_of(100, _RATE_COUNTERS, 1.0)
        return (
            f"{records} entries: {updates / records:.3f} updates and {units / records:.3f} write "
            f"units each; cost says {said.updates:.3f} and {said.updates + said.batches:.3f}"
        )

    def unsigned(self) -> str:
        """The access log has a line of JSON for a request without a signature."""
        address = self._outputs.get("HttpApiUrl")
        if address is None or self.endpoint_url is not None:
            raise NotShown("the stack has no HTTP API of AWS: deploy it with HttpApi=iam")
        answer = URLLib3Session().send(AWSRequest("GET", f"{address}/v1/freshness").prepare())
        if answer.status_code not in _REFUSED:
            raise Wrong(f"it answers {answer.status_code}")
        stack = self.client.connection.settings.stack_name
        group = self._ask("cloudformation").describe_stack_resource(
            StackName=stack, LogicalResourceId="HttpAccessLogs"
        )["StackResourceDetail"]["PhysicalResourceId"]
        found: list[str] = []

        def logged() -> bool:
            pattern = f'"{answer.status_code}"'
            pages = self._ask("logs").filter_log_events(logGroupName=group, filterPattern=pattern)
            found.extend(str(one["message"]) for one in pages["events"])
            return bool(found)

        self._until("a line of the access log", logged, _POLL_S)
        return json.dumps(json.loads(found[-1]))

    def mappings(self) -> str:
        """Lambda has the settings of the template, and reads."""
        found = []
        for mapping in MAPPINGS:
            if mapping.id_output not in self._outputs:
                continue
            mapping_id = self._outputs[mapping.id_output]
            now = self._ask("lambda").get_event_source_mapping(UUID=mapping_id)
            wanted = mapping_settings(mapping.logical_id)
            pairs = (
                (now.get("BatchSize"), wanted.batch_size),
                (now.get("TumblingWindowInSeconds", 0), wanted.window_s),
                (now.get("MaximumRetryAttempts", -1), wanted.retries),
                (now.get("BisectBatchOnFunctionError", False), wanted.bisect),
            )
            if any(one != other for one, other in pairs):
                raise Wrong(f"{mapping.logical_id}: {pairs}")
            found.append(f"{mapping.logical_id} {now['State']}")
        return ", ".join(found)

    def tables(self) -> str:
        """Recovery, time to live and warm throughput, as the service has them."""
        dynamodb, found = self._ask("dynamodb"), []
        for output in _TABLES:
            name = self._outputs[output]
            backups = dynamodb.describe_continuous_backups(TableName=name)
            recovery = backups["ContinuousBackupsDescription"].get(
                "PointInTimeRecoveryDescription", {}
            )
            warm = dynamodb.describe_table(TableName=name)["Table"].get("WarmThroughput", {})
            expiry = dynamodb.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
            if recovery.get("PointInTimeRecoveryStatus") != "ENABLED":
                raise Wrong(f"{name} has no point-in-time recovery: {recovery}")
            found.append(
                f"{output.removesuffix('TableName')}: recovery on, time to live "
                f"{expiry['TimeToLiveStatus'].lower()}, warm for "
                f"{warm.get('WriteUnitsPerSecond', '?')} write units a second"
            )
        return "; ".join(found)

    def units(self) -> str:
        """The write units of an update of a total, with four indexes beside it."""
        _, updates, write_units = self._spent()
        if not updates or not write_units:
            raise NotShown("no update of a total was recorded with its units")
        each = write_units / updates
        return f"{updates} updates, {each:.2f} write units each (expected: close to 1)"

    def policies(self) -> str:
        """IAM itself allows what a policy is for, and no more."""
        arn, iam = self._outputs["EmitPolicyArn"], self._ask("iam")
        version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
        document = iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]
        dynamodb = self._ask("dynamodb")
        table = dynamodb.describe_table(TableName=self._outputs["LedgerTableName"])["Table"]
        try:
            answer = iam.simulate_custom_policy(
                PolicyInputList=[_text(document["Document"])],
                ActionNames=["dynamodb:PutItem", "dynamodb:DeleteItem", "dynamodb:Scan"],
                ResourceArns=[table["TableArn"]],
            )
        except ClientError as error:
            raise NotShown(f"SimulateCustomPolicy: {error}") from error
        found = {
            one["EvalActionName"].partition(":")[2]: one["EvalDecision"]
            for one in answer["EvaluationResults"]
        }
        if (found.get("PutItem"), found.get("Scan")) != ("allowed", "implicitDeny"):
            raise Wrong(f"EmitPolicy: {found}")
        return f"EmitPolicy: {found}"

    def lag(self) -> str:
        """The time from an acknowledged entry to its total."""
        counter, times = f"smoke-lag:{uuid.uuid4().hex[:8]}", []
        for expected in range(1, 6):
            self.client.record(counter, 1)
            began = time.monotonic()
            self._until("the total", partial(self._has_total, counter, expected), 0.05)
            times.append(time.monotonic() - began)
        return f"{min(times):.2f} to {max(times):.2f} s of {len(times)} entries"

    def http_api(self) -> str:
        """The gateway invokes the function for a signed request."""
        address = self._outputs.get("HttpApiUrl")
        if address is None:
            raise NotShown("the stack has no HTTP API: deploy it with HttpApi=iam")
        if self.endpoint_url is not None:  # an engine's gateway has no name of its own
            api = self._outputs["HttpApiArn"].rpartition(":")[2].partition("/")[0]
            address = f"{self.endpoint_url}/_aws/execute-api/{api}/$default"
        request = AWSRequest("GET", f"{address}/v1/freshness")
        connection, began = self.client.connection, time.monotonic()
        key = connection.session.get_credentials()
        if key is None:
            raise NotShown("there are no credentials to sign a request with")
        SigV4Auth(key, "execute-api", connection.region).add_auth(request)
        answer = URLLib3Session().send(request.prepare())
        if answer.status_code in _REFUSED:
            raise NotShown(f"it answers {answer.status_code}: HttpApi=jwt, or no HttpReadPolicyArn")
        if answer.status_code != HTTPStatus.OK:
            raise Wrong(f"it answers {answer.status_code}: {answer.text[:200]}")
        return f"200 after {time.monotonic() - began:.1f} s, {answer.text[:80]}"

    def alarms(self) -> str:
        """The stack's alarms exist, and none is on."""
        stack = self.client.connection.settings.stack_name
        pages = self._ask("cloudwatch").get_paginator("describe_alarms")
        states = {
            one["AlarmName"]: one["StateValue"]
            for page in pages.paginate(AlarmNamePrefix=f"{stack}-")
            for one in page["MetricAlarms"]
        }
        if not states:
            raise NotShown("no alarm has the stack's name")
        on = sorted(name for name, state in states.items() if state == "ALARM")
        if on:
            raise Wrong(f"on: {', '.join(on)}")
        return ", ".join(f"{number} {state}" for state, number in Counter(states.values()).items())

    def tick(self) -> str:
        """EventBridge Scheduler starts the dispatcher, which writes its result."""
        namespace = "smoke-lag"
        self.client.schedules.create(namespace, every_ms=MINUTE_MS)
        connection = self.client.connection
        table, began = connection.setting("counters_table"), time.monotonic()
        key = keys.run_key(namespace)
        try:
            self._until(
                "a tick", lambda: connection.dynamo("standard").get(table, key) is not None, _POLL_S
            )
        finally:
            self.client.schedules.delete(namespace)
        return f"the first tick ended {time.monotonic() - began:.0f} s after the schedule was made"

    def cold_start(self) -> str:
        """What Lambda reports of the first invocation."""
        configuration = self._ask("lambda").get_function_configuration(
            FunctionName=self._outputs["MaterializerFunctionName"]
        )
        group = configuration.get("LoggingConfig", {}).get("LogGroup")
        if group is None:
            raise NotShown("the function names no log group")
        events = self._ask("logs").filter_log_events(
            logGroupName=group, filterPattern='"Init Duration"'
        )["events"]
        if not events:
            raise NotShown("its log has no line with Init Duration")
        return " ".join(str(events[0]["message"]).split())[-120:]

    def metrics(self) -> str:
        """Lines of the embedded format become metrics, some minutes later."""
        stack, watch = self.client.connection.settings.stack_name, self._ask("cloudwatch")
        service = [{"Name": "service", "Value": f"{stack}-materializer"}]

        def listed() -> list[str]:
            found = watch.list_metrics(Namespace="countledger", Dimensions=service)["Metrics"]
            return sorted({str(one["MetricName"]) for one in found})

        if self.endpoint_url is not None:
            raise NotShown("an engine makes no metrics of log lines")
        self._until("metrics", lambda: bool(listed()), _POLL_S)
        return ", ".join(listed())

    def _spent(self) -> tuple[int, int, int]:
        """Records, updates and write units of the progress of all shards."""
        shards = self.client.freshness().shards
        return (
            sum(one.records for one in shards),
            sum(one.updates for one in shards),
            int(sum(one.write_units for one in shards)),
        )

    def _has_total(self, counter: str, least: int) -> bool:
        return bool(self.client.total(counter).value >= least)

    @property
    def _outputs(self) -> dict[str, str]:
        return dict(self.client.connection.outputs)

    def _ask(self, service: str) -> Any:  # noqa: ANN401 - any service
        make: Any = self.client.connection.session.client
        return make(service, endpoint_url=self.endpoint_url)

    def _until(self, what: str, holds: Callable[[], bool], poll_s: float) -> None:
        deadline_s = time.monotonic() + self.patience_s
        while not holds():
            if time.monotonic() > deadline_s:
                raise Wrong(f"waited {self.patience_s:.0f} s for {what}")
            time.sleep(poll_s)


def seen(check: Callable[[], str]) -> str:
    """What a check saw.

    Raises:
        NotShown: a call that it needs is denied, or not known here.
    """
    try:
        return check()
    except (BotoCoreError, ClientError) as error:
        raise NotShown(str(error)) from error


def _text(document: object) -> str:
    return document if isinstance(document, str) else json.dumps(document)
