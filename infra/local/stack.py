"""The whole product on this machine: engine, deployed template, patches, pumps, replication.

Dispatcher and workers of compaction run on the engine as they are: its schedules fire (a rate first
after a whole interval), and its mapping of a queue honours partial failures.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from countledger import CountLedger, Settings
from countledger.infra.deploy.deployment import Deployment, deploy
from countledger.infra.deploy.stack_operation import StackReader
from countledger.infra.local.engine import REGION, ROOT_KEY, ROOT_SECRET, Engine, Kept
from countledger.infra.local.mappings import (
    MAPPINGS,
    MATERIALIZER,
    PUMPED_TAG,
    Checkpoints,
    StreamMapping,
    record_filter,
)
from countledger.infra.local.pump import Pump, lambda_invoker
from countledger.infra.local.replication import Copy, Replicator
from countledger.infra.local.running import STACK_NAME, check_regions
from countledger.infra.local.shards import KinesisSource, OnFailure, ShardSource, StreamSource
from countledger.infra.template import (
    MappingSettings,
    mapping_settings,
    table_schemas,
    template_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from mypy_boto3_lambda import LambdaClient

    from countledger.infra.local.saved_stack import SavedStack, StackDirectory


# The deployed stack of one region on a local engine, and the pumps that play its mappings.


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
    """The stack of one region."""

    outputs: dict[str, str]
    pumps: dict[StreamMapping, Pump]

    def __init__(self, name: str, region: str, url: str, parameters: Mapping[str, str]) -> None:
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
        if credentials not in self._sessions:
            self._sessions[credentials] = session_of(credentials, self.region)
        return self._sessions[credentials]

    def ledger(self) -> CountLedger:
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
        described = self.client("dynamodb").describe_table(TableName=ledger_table)["Table"]
        return Copy(self.region, self.url, ledger_table, described["LatestStreamArn"])

    def take_mappings(self, *, kept: bool = False) -> None:
        """Make the pumps; kept ones go on where those of an earlier process came to."""
        mappings = [one for one in MAPPINGS if one.id_output in self.outputs]
        self._patch_mappings_are_ours(mappings)
        for one in mappings:
            key = f"checkpoints/{self.name}/{one.logical_id}"
            places = Checkpoints(self.client("s3"), self._bucket, key) if kept else None
            self.pumps[one] = self.new_pump(mapping=one, checkpoints=places)

    def drain(self) -> None:
        """Return once all that was sent so far has gone through every function."""
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

        What is None is as the template and the mapping say; see `Pump`.
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
    """A session by the environment of a local stack, whatever this process has in its own."""
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


__all__ = ["ROOT", "STACK_NAME", "Credentials", "LocalStack", "check_regions", "session_of"]

_LOG: Final = logging.getLogger(__name__)
_PARAMETERS: Final = {
    "DeletionProtection": "false",
    "LogLevel": "INFO",
    "MaxCompactors": "2",  # every worker is a process here
}


class LocalStack:
    """The deployed stack on the embedded engine, for a `with` block.

    Attributes:
        home: the home region's. What is not asked of a region's stack is asked of this one.
        replicator: between the regions' ledgers; it replicates in the background if the pumps do.
        found: the stack that was kept, and is started again; None: a new one is deployed.
    """

    stacks: dict[str, RegionStack]
    replicator: Replicator
    found: SavedStack | None

    def __init__(
        self,
        *,
        name: str = STACK_NAME,
        bundle: bytes | None = None,
        auth: bool = False,
        pumping: bool = True,
        parent_dir: Path | None = None,
        parameters: Mapping[str, str] | None = None,
        regions: Sequence[str] = (),
        port: int = 0,
        kept_in: StackDirectory | None = None,
    ) -> None:
        """Describe a stack; nothing runs yet.

        Without a bundle the functions run from the installed package (an editable install: from the
        checkout); `auth`: the engine enforces IAM policies; `pumping`: the pumps deliver in the
        background. The first region is the home; no regions: one, or as it is kept. Port 0 is any
        free one, and the one before if that is free.
        """
        self.name = name
        self.found = None if kept_in is None else kept_in.find(name, regions)
        earlier = (REGION,) if self.found is None else self.found.regions
        self.regions = check_regions(regions or earlier)
        self._is_kept = kept_in is not None
        self.engine = Engine(
            auth=auth,
            parent_dir=parent_dir,
            port=port,
            usual_port=0 if self.found is None else self.found.port,
            kept=None if kept_in is None else Kept(kept_in, name, self.regions),
        )
        self._bundle = bundle if bundle is not None else empty_bundle()
        self._pumping = pumping
        self._parameters = dict(parameters or {})
        self._open = ExitStack()
        self._credentials: dict[str, Credentials] = {}

    def __enter__(self) -> Self:
        with self._open as opening:
            opening.enter_context(self.engine)
            if self.found is None or not self._take_up():
                self._deploy()
            self.engine.keep()
            opening.callback(lambda: _stop_pumps(self.stacks.values()))
            for stack in self.stacks.values():
                stack.take_mappings(kept=self._is_kept)
                self._start(stack)
            table = self.outputs["LedgerTableName"]
            copies = {name: one.replica(table) for name, one in self.stacks.items()}
            self.replicator = Replicator(copies)
            opening.callback(self.replicator.stop)
            self._replicate()
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def home(self) -> RegionStack:
        return self.stacks[self.regions[0]]

    @property
    def outputs(self) -> dict[str, str]:
        return self.home.outputs

    @property
    def pumps(self) -> dict[StreamMapping, Pump]:
        """They deliver in the background if asked to; else drive them with `step` and `drain`."""
        return self.home.pumps

    @property
    def pump(self) -> Pump:
        return self.home.pumps[MATERIALIZER]

    @property
    def url(self) -> str:
        return self.engine.url

    def environment(self, credentials: Credentials = ROOT) -> dict[str, str]:
        return self.home.environment(credentials)

    def session(self, credentials: Credentials = ROOT) -> boto3.Session:
        return self.home.session(credentials)

    def client(
        self, service: str, credentials: Credentials = ROOT, *, config: Config | None = None
    ) -> Any:  # noqa: ANN401 - the caller knows the type of the client
        return self.home.client(service, credentials, config=config)

    @property
    def new_pump(self) -> Callable[..., Pump]:
        return self.home.new_pump

    def credentials_for(self, *policy_outputs: str, region: str | None = None) -> Credentials:
        """The keys of a user who has exactly the policies of a stack that these outputs name."""
        stack = self.stacks[region or self.regions[0]]
        names = (name.removesuffix("PolicyArn") for name in policy_outputs)
        user = "-".join(("only", *names, *([region] if region else [])))
        if user not in self._credentials:
            iam = self.client("iam")
            iam.create_user(UserName=user)
            for name in policy_outputs:
                iam.attach_user_policy(UserName=user, PolicyArn=stack.outputs[name])
            key = iam.create_access_key(UserName=user)["AccessKey"]
            self._credentials[user] = Credentials(key["AccessKeyId"], key["SecretAccessKey"])
        return self._credentials[user]

    def drain(self) -> None:
        """Return once all has gone every way that is open, and through every function."""
        # What comes through a stream must be in the ledger before it can be replicated.
        self.home.drain()
        if len(self.stacks) > 1:
            self.replicator.drain()
            for stack in self.stacks.values():
                stack.drain()

    def _deploy(self) -> None:
        """The home region's stack, which makes the replicas; then the others, side by side."""
        home, *others = self.regions
        self.stacks = {home: self._stack(home)}
        self.home.deploy(self._bundle, {"ReplicaRegions": ",".join(others)} if others else {})
        if not others:
            return
        table = self.outputs["LedgerTableName"]
        self.stacks |= {region: self._stack(region) for region in others}

        def deploy_in(region: str) -> None:
            stack = self.stacks[region]
            ours = {"LedgerTableName": table, "HomeRegion": home, "StrictRegions": ""}
            ours["StrictTableName"] = self._strict_table_in(region)
            ours["LedgerStreamArn"] = stack.replica(table).stream_arn
            stack.deploy(self._bundle, ours)

        with ThreadPoolExecutor(len(others)) as pool:
            list(pool.map(deploy_in, others))

    def _take_up(self) -> bool:
        """The stacks that were kept, as far as they still exist; whether the home region's does."""
        stacks = {region: self._stack(region) for region in self.regions}
        self.stacks = {name: one for name, one in stacks.items() if one.take_up(self._bundle)}
        return self.regions[0] in self.stacks

    def _strict_table_in(self, region: str) -> str:
        """The table of strict counters over regions, if that region has a copy of it."""
        regions = self._parameters.get("StrictRegions", "").split(",")
        return self.outputs["StrictTableName"] if region in regions else ""

    def _stack(self, region: str) -> RegionStack:
        # Any topic that is made there.
        topics = {"AlertTopicArns": f"arn:aws:sns:{region}:*:*"}
        parameters = {**_PARAMETERS, **topics, **self._parameters}
        return RegionStack(self.name, region, self.url, parameters)

    def follow_replicas(self) -> None:
        """Take up regions that were added to the running stack, and drop those removed from it.

        Entries travel to a region as soon as its replica exists, and are counted there as soon as
        its stack does. One DescribeTable call, and a call for each region without a stack.
        """
        try:
            self._follow_replicas(self.outputs["LedgerTableName"])
        except (BotoCoreError, ClientError):
            # The engine may be out of breath: the next look finds the same.
            _LOG.warning("the regions of the stack could not be read", exc_info=True)

    def _follow_replicas(self, table: str) -> None:
        described = self.client("dynamodb").describe_table(TableName=table)["Table"]
        replicas = {one["RegionName"] for one in described.get("Replicas", ())}
        for region in replicas - self.replicator.copies.keys():
            self.replicator.join(self._stack(region).replica(table))
            self._replicate()
        for region in self.replicator.copies.keys() - replicas - {self.home.region}:
            self.replicator.leave(region)
            if region in self.stacks:
                _stop_pumps([self.stacks.pop(region)])
        for region in replicas - self.stacks.keys():
            stack = self._stack(region)
            if stack.find():
                stack.take_mappings(kept=self._is_kept)
                self._start(stack)
                self.stacks[region] = stack

    def _replicate(self) -> None:
        if self._pumping and len(self.replicator.copies) > 1:
            self.replicator.start()

    def _start(self, stack: RegionStack) -> None:
        if self._pumping:
            for pump in stack.pumps.values():
                pump.start()


def _stop_pumps(stacks: Iterable[RegionStack]) -> None:
    """Stop the pumps side by side: each ends after the invocation that is under way."""
    pumps = [pump for stack in stacks for pump in stack.pumps.values()]
    with ThreadPoolExecutor(max(len(pumps), 1)) as pool:
        list(pool.map(Pump.stop, pumps))
