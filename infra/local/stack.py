"""The whole product on this machine: engine, deployed template, patches, pumps.

Dispatcher and workers of compaction run on the engine as they are: its schedules fire (a rate first
after a whole interval), and its mapping of a queue honours partial failures.
"""

import io
import json
import os
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import boto3
import botocore.session
from botocore.config import Config

from countledger.infra.deploy.deployment import Deployment, deploy
from countledger.infra.local.engine import REGION, ROOT_KEY, ROOT_SECRET, Engine
from countledger.infra.local.mappings import (
    MAPPINGS,
    MATERIALIZER,
    PUMPED_TAG,
    StreamMapping,
    record_filter,
)
from countledger.infra.local.pump import Pump, lambda_invoker
from countledger.infra.local.shard_delivery import OnFailure
from countledger.infra.local.shards import KinesisSource, ShardSource, StreamSource
from countledger.infra.template import MappingSettings, mapping_settings, table_schemas

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

STACK_NAME: Final = "countledger"
_BUCKET: Final = "countledger-code"
_PARAMETERS: Final = {
    "DeletionProtection": "false",
    "LogLevel": "INFO",
    "MaxCompactors": "2",  # every worker is a process here
    "AlertTopicArns": f"arn:aws:sns:{REGION}:*:*",  # any that is made here
}
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


class LocalStack:
    """The deployed stack on the embedded engine, for a `with` block.

    Attributes:
        name: of the stack.
        outputs: of the stack.
        engine: the engine that it runs on.
        pumps: play the event source mappings that the stack has. They deliver in the background if
            asked to; else drive them with `step` and `drain`.
    """

    outputs: dict[str, str]
    pumps: dict[StreamMapping, Pump]

    def __init__(
        self,
        *,
        name: str = STACK_NAME,
        bundle: bytes | None = None,
        auth: bool = False,
        pumping: bool = True,
        parent_dir: Path | None = None,
        parameters: Mapping[str, str] | None = None,
    ) -> None:
        """Describe a stack; nothing runs yet.

        Args:
            name: of the stack.
            bundle: the zip of the functions, built for this interpreter; None: they run from the
                installed package (an editable install: from the checkout).
            auth: whether the engine enforces IAM policies.
            pumping: whether the pumps deliver in the background.
            parent_dir: where the engine makes its private directory.
            parameters: of the template, besides those that a local stack sets.
        """
        self.name = name
        self.engine = Engine(auth=auth, parent_dir=parent_dir)
        self._bundle = bundle if bundle is not None else _empty_bundle()
        self._pumping = pumping
        self._parameters = dict(parameters or {})
        self._open = ExitStack()
        self._credentials: dict[str, Credentials] = {}
        self._sessions: dict[Credentials, boto3.Session] = {}

    def __enter__(self) -> Self:
        with self._open as opening:
            opening.enter_context(self.engine)
            self._deploy()
            self._patch_time_to_live()
            mappings = [one for one in MAPPINGS if one.id_output in self.outputs]
            self._patch_mappings_are_ours(mappings)
            self.pumps = {one: self.new_pump(mapping=one) for one in mappings}
            for pump in self.pumps.values():
                if self._pumping:
                    pump.start()
                opening.callback(pump.stop)
            self._open = opening.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    @property
    def pump(self) -> Pump:
        """The pump of the materializer."""
        return self.pumps[MATERIALIZER]

    @property
    def url(self) -> str:
        """The endpoint of the engine."""
        return self.engine.url

    def environment(self, credentials: Credentials = ROOT) -> dict[str, str]:
        """What a process needs in its environment to work on this stack."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": credentials.access_key,
            "AWS_SECRET_ACCESS_KEY": credentials.secret_key,
            "COUNTLEDGER_STACK_NAME": self.name,
        }

    def session(self, credentials: Credentials = ROOT) -> boto3.Session:
        """The session of these credentials, made once; the endpoint is `url`."""
        if credentials not in self._sessions:
            self._sessions[credentials] = session_of(credentials)
        return self._sessions[credentials]

    def client(
        self, service: str, credentials: Credentials = ROOT, *, config: Config | None = None
    ) -> Any:  # noqa: ANN401 - the caller knows the type of the client
        """A client of the engine; by default as the root user."""
        # A proxy of the user's network has no way to our loopback.
        plain = Config(proxies={}, retries={"mode": "standard", "total_max_attempts": 3})
        return self.session(credentials).client(  # type: ignore[call-overload]
            service, endpoint_url=self.url, config=plain.merge(config) if config else plain
        )

    def credentials_for(self, *policy_outputs: str) -> Credentials:
        """The keys of a user who has exactly these of the stack's policies.

        Args:
            policy_outputs: the outputs that name them: `EmitPolicyArn`, `ReadPolicyArn`,
                `OperatePolicyArn`.
        """
        user = "-".join(("only", *(name.removesuffix("PolicyArn") for name in policy_outputs)))
        if user not in self._credentials:
            iam = self.client("iam")
            iam.create_user(UserName=user)
            for name in policy_outputs:
                iam.attach_user_policy(UserName=user, PolicyArn=self.outputs[name])
            key = iam.create_access_key(UserName=user)["AccessKey"]
            self._credentials[user] = Credentials(key["AccessKeyId"], key["SecretAccessKey"])
        return self._credentials[user]

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
    ) -> Pump:
        """A pump of its own, which begins at the start of the stream: all is delivered again.

        Args:
            settings: of the mapping (default: the template's).
            mapping: which mapping of the template it plays.
            stream_arn: what it reads (default: what the mapping does).
            function_name: what it invokes (default: what the mapping does).
            on_failure: called with the note of a batch that is abandoned after the last retry.
            now_s: the clock that closes windows.
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
        )

    def _source(self, mapping: StreamMapping, arn: str, settings: MappingSettings) -> ShardSource:
        if mapping.service == "kinesis":
            return KinesisSource(self.client("kinesis"), arn)
        passes = record_filter(settings.filter_patterns)
        return StreamSource(self.client("dynamodbstreams"), arn, passes)

    def _deploy(self) -> None:
        s3 = self.client("s3")
        s3.create_bucket(Bucket=_BUCKET)
        deployment = Deployment(
            cloudformation=self.client("cloudformation"),
            s3=s3,
            stack_name=self.name,
            poll_s=0.01,
            timeout_s=60.0,
        )
        self.outputs = deploy(
            deployment,
            bucket=_BUCKET,
            bundle=self._bundle,
            parameters={**_PARAMETERS, **self._parameters},
            tags={PUMPED_TAG: " ".join(one.logical_id for one in MAPPINGS)},
        )

    # ---- gaps of the engine, closed after the deployment ----

    def _patch_time_to_live(self) -> None:
        """The engine ignores TimeToLiveSpecification in a template."""
        dynamodb = self.client("dynamodb")
        tables = {"ledger": "LedgerTableName", "counters": "CountersTableName"}
        for name, schema in table_schemas().items():
            if schema.ttl_attribute is not None:
                dynamodb.update_time_to_live(
                    TableName=self.outputs[tables[name]],
                    TimeToLiveSpecification={
                        "AttributeName": schema.ttl_attribute,
                        "Enabled": True,
                    },
                )

    def _patch_mappings_are_ours(self, mappings: Iterable[StreamMapping]) -> None:
        """The engine's own lose records and know no windows: the pumps play them."""
        for mapping in mappings:
            self.client("lambda").update_event_source_mapping(
                UUID=self.outputs[mapping.id_output], Enabled=False
            )


def session_of(credentials: Credentials = ROOT) -> boto3.Session:
    """A session of a local engine, whatever the user has configured for AWS."""
    return boto3.Session(
        aws_access_key_id=credentials.access_key,
        aws_secret_access_key=credentials.secret_key,
        region_name=REGION,
        botocore_session=botocore.session.Session(_NOT_THE_USERS),
    )


def _empty_bundle() -> bytes:
    """A bundle with nothing of ours in it: the engine's workers find the installed package."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("bundle.json", json.dumps({"countledger": "as installed"}))
    return buffer.getvalue()
