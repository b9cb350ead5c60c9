"""The deployed stack of one region on a local engine, and the pumps that play its mappings."""

import contextlib
import io
import json
import os
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import ClientError

from countledger import CountLedger, Settings
from countledger.infra.deploy.deployment import Deployment, deploy
from countledger.infra.deploy.stack_operation import StackReader
from countledger.infra.local.engine import REGION, ROOT_KEY, ROOT_SECRET
from countledger.infra.local.mappings import (
    MAPPINGS,
    MATERIALIZER,
    PUMPED_TAG,
    Checkpoints,
    StreamMapping,
    record_filter,
)
from countledger.infra.local.pump import Pump, lambda_invoker
from countledger.infra.local.replication import Copy
from countledger.infra.local.shards import KinesisSource, OnFailure, ShardSource, StreamSource
from countledger.infra.template import (
    MappingSettings,
    mapping_settings,
    table_schemas,
    template_text,
)

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

_BUCKET: Final = "countledger-code"
# Longer than any function may run (15 minutes): an invocation is awaited, never repeated.
_INVOKE_TIMEOUT_S: Final = 910
# The user's profile and configuration have no say here, and a profile that is missing no effect.
_NOT_THE_USERS: Final = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}


@dataclass(frozen=True, slots=True)
class Credentials:
    """A key pair of the local engine."""

    access_key: str
    secret_key: str


ROOT: Final = Credentials(ROOT_KEY, ROOT_SECRET)


class RegionStack:
    """The stack of one region.

    Attributes:
        name: of the stack.
        region: where it is.
        url: the endpoint of the engine.
        outputs: of the stack, once it is deployed.
        pumps: play the event source mappings that the stack has, once they were made.
    """

    outputs: dict[str, str]
    pumps: dict[StreamMapping, Pump]

    def __init__(self, name: str, region: str, url: str, parameters: Mapping[str, str]) -> None:
        """Describe a stack; nothing is deployed yet."""
        self.name, self.region, self.url = name, region, url
        self.pumps = {}
        self._parameters = dict(parameters)
        self._sessions: dict[Credentials, boto3.Session] = {}

    def environment(self, credentials: Credentials = ROOT) -> dict[str, str]:
        """What a process needs in its environment to work on this stack."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ACCESS_KEY_ID": credentials.access_key,
            "AWS_SECRET_ACCESS_KEY": credentials.secret_key,
            "COUNTLEDGER_STACK_NAME": self.name,
        }

    def session(self, credentials: Credentials = ROOT) -> boto3.Session:
        """The session of these credentials, made once; the endpoint is `url`."""
        if credentials not in self._sessions:
            self._sessions[credentials] = session_of(credentials, self.region)
        return self._sessions[credentials]

    def ledger(self) -> CountLedger:
        """The counters of this stack, for the root user."""
        settings = Settings.of_stack(self.name)
        return CountLedger(settings, session=self.session(), endpoint_url=self.url)

    def client(
        self, service: str, credentials: Credentials = ROOT, *, config: Config | None = None
    ) -> Any:  # noqa: ANN401 - the caller knows the type of the client
        """A client of the engine in this region; by default as the root user."""
        # A proxy of the user's network has no way to our loopback.
        plain = Config(proxies={}, retries={"mode": "standard", "total_max_attempts": 3})
        return self.session(credentials).client(  # type: ignore[call-overload]
            service, endpoint_url=self.url, config=plain.merge(config) if config else plain
        )

    def deploy(self, bundle: bytes, parameters: Mapping[str, str] | None = None) -> None:
        """Deploy it, with further parameters, and close the gaps that the engine leaves."""
        self._parameters |= parameters or {}
        s3 = self.client("s3")
        place = (
            {}
            if self.region == REGION
            else {"CreateBucketConfiguration": {"LocationConstraint": self.region}}
        )
        with contextlib.suppress(s3.exceptions.BucketAlreadyOwnedByYou):
            s3.create_bucket(Bucket=self._bucket, **place)
        self.outputs = deploy(
            self.deployment(self.name),
            bucket=self._bucket,
            bundle=bundle,
            parameters=self._parameters,
            tags={PUMPED_TAG: " ".join(one.logical_id for one in MAPPINGS)},
        )
        self._patch_time_to_live()

    def deployment(self, stack_name: str) -> Deployment:
        """What makes or changes a stack of this region."""
        reader = StackReader(
            cloudformation=self.client("cloudformation"),
            name=stack_name,
            poll_s=0.01,
            timeout_s=60.0,
        )
        return Deployment(stack=reader, s3=self.client("s3"))

    @property
    def _bucket(self) -> str:
        """Of the code: S3 has one space of names for all regions."""
        return _BUCKET if self.region == REGION else f"{_BUCKET}-{self.region}"

    def take_up(self, bundle: bytes) -> bool:
        """Take up the stack if there is one, updated if its template is another; whether one is."""
        if not self.find():
            return False
        cloudformation = self.client("cloudformation")
        if cloudformation.get_template(StackName=self.name)["TemplateBody"] != template_text():
            self.deploy(bundle)
        return True

    def find(self) -> bool:
        """Take up the stack if another process has deployed it; whether it has."""
        try:
            answer = self.client("cloudformation").describe_stacks(StackName=self.name)
        except ClientError:
            return False
        (stack,) = answer["Stacks"]
        if not stack["StackStatus"].endswith("COMPLETE") or "ROLLBACK" in stack["StackStatus"]:
            return False
        self.outputs = {one["OutputKey"]: one["OutputValue"] for one in stack.get("Outputs", ())}
        # `region add` makes the table of the totals first, in a stack without outputs.
        return MATERIALIZER.id_output in self.outputs

    def replica(self, ledger_table: str) -> Copy:
        """This region's copy of the ledger."""
        described = self.client("dynamodb").describe_table(TableName=ledger_table)["Table"]
        return Copy(self.region, self.url, ledger_table, described["LatestStreamArn"])

    def take_mappings(self, *, kept: bool = False) -> None:
        """Make the pumps, which play the mappings; the engine's own are disabled.

        Args:
            kept: whether they go on where pumps of an earlier process came to.
        """
        mappings = [one for one in MAPPINGS if one.id_output in self.outputs]
        self._patch_mappings_are_ours(mappings)
        for one in mappings:
            key = f"checkpoints/{self.name}/{one.logical_id}"
            places = Checkpoints(self.client("s3"), self._bucket, key) if kept else None
            self.pumps[one] = self.new_pump(mapping=one, checkpoints=places)

    def drain(self) -> None:
        """Return once all that was sent so far has gone through every function.

        Raises:
            PumpStalled: a function went on failing.
        """
        # Through the stream into the ledger first, and then into the totals.
        for mapping in reversed(self.pumps):
            self.pumps[mapping].drain()

    def new_pump(
        self,
        settings: MappingSettings | None = None,
        *,
        mapping: StreamMapping = MATERIALIZER,
        stream_arn: str | None = None,
        function_name: str | None = None,
        on_failure: OnFailure | None = None,
        now_s: Callable[[], float] = time.time,
        checkpoints: Checkpoints | None = None,
    ) -> Pump:
        """A pump of its own, which begins at the start of the stream: all is delivered again.

        Args:
            settings: of the mapping (default: the template's).
            mapping: which mapping of the template it plays.
            stream_arn: what it reads (default: what the mapping does).
            function_name: what it invokes (default: what the mapping does).
            on_failure: called with the note of a batch that is abandoned after the last retry.
            now_s: the clock that closes windows.
            checkpoints: where it goes on instead, and notes how far it has come.
        """
        client: LambdaClient = self.client(
            "lambda",
            config=Config(read_timeout=_INVOKE_TIMEOUT_S, retries={"total_max_attempts": 1}),
        )
        settings = settings or mapping_settings(mapping.logical_id, self._parameters)
        return Pump(
            source=self._source(
                mapping, stream_arn or self.outputs[mapping.stream_output], settings
            ),
            invoke=lambda_invoker(client, function_name or self.outputs[mapping.function_output]),
            settings=settings,
            on_failure=on_failure,
            now_s=now_s,
            checkpoints=checkpoints,
        )

    def _source(self, mapping: StreamMapping, arn: str, settings: MappingSettings) -> ShardSource:
        if mapping.service == "kinesis":
            return KinesisSource(self.client("kinesis"), arn)
        passes = record_filter(settings.filter_patterns)
        return StreamSource(self.client("dynamodbstreams"), arn, passes)

    # ---- gaps of the engine, closed after the deployment ----

    def _patch_time_to_live(self) -> None:
        """The engine ignores TimeToLiveSpecification in a template."""
        dynamodb = self.client("dynamodb")
        tables = {"ledger": "LedgerTableName", "counters": "CountersTableName"}
        for name, schema in table_schemas().items():
            table = self.outputs[tables[name]]
            if schema.ttl_attribute is None or self._expires(table):
                continue
            dynamodb.update_time_to_live(
                TableName=table,
                TimeToLiveSpecification={"AttributeName": schema.ttl_attribute, "Enabled": True},
            )

    def _expires(self, table: str) -> bool:
        """Whether items of the table expire already: of a stack that was deployed before."""
        found = self.client("dynamodb").describe_time_to_live(TableName=table)
        return bool(found["TimeToLiveDescription"].get("TimeToLiveStatus") == "ENABLED")

    def _patch_mappings_are_ours(self, mappings: Iterable[StreamMapping]) -> None:
        """The engine's own lose records and know no windows: the pumps play them."""
        for mapping in mappings:
            self.client("lambda").update_event_source_mapping(
                UUID=self.outputs[mapping.id_output], Enabled=False
            )


def session_in(environment: Mapping[str, str], region: str | None = None) -> boto3.Session:
    """A session by the environment of a local stack, whatever this process has in its own.

    Args:
        environment: as `countledger up` prints it.
        region: another one of the stack; None: the environment's.
    """
    keys = Credentials(environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"])
    return session_of(keys, region or environment["AWS_REGION"])


def session_of(credentials: Credentials = ROOT, region: str = REGION) -> boto3.Session:
    """A session of a local engine, whatever the user has configured for AWS."""
    return boto3.Session(
        aws_access_key_id=credentials.access_key,
        aws_secret_access_key=credentials.secret_key,
        region_name=region,
        botocore_session=botocore.session.Session(_NOT_THE_USERS),
    )


def empty_bundle() -> bytes:
    """A bundle with nothing of ours in it: the engine's workers find the installed package."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("bundle.json", json.dumps({"countledger": "as installed"}))
    return buffer.getvalue()
