"""Sessions and clients of AWS, and the names in the stack's outputs. boto3 is set up here."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib.util import find_spec
from random import Random
from threading import Lock
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeVar
from weakref import WeakKeyDictionary

import boto3
from botocore.client import BaseClient
from botocore.config import Config
from botocore.session import Session as CoreSession
from urllib3 import PoolManager

from countledger.ledger.attempts import Attempts, CallLimits, DynamoPerformer, run
from countledger.ledger.batch_body import spell
from countledger.ledger.clock import Backoff, Clock, SystemClock
from countledger.ledger.departure import watch
from countledger.ledger.dynamo import DynamoClient, Meter
from countledger.ledger.errors import (
    BadSetting,
    CountledgerError,
    SetupError,
    StackNotFound,
    WrongRegion,
)
from countledger.ledger.ids import Ids
from countledger.ledger.limits import (
    SECOND_MS,
    SIGNED_REQUEST_LIFE_MS,
    TOKEN_LIFE_MS,
    late_write_ms,
)
from countledger.ledger.processes import (
    ClientPerProcess,
    abandon,
    close_before_snapshot,
    is_forked,
    lock_open_in_forks,
    made_once,
    this_process,
)
from countledger.ledger.service_errors import translated
from countledger.ledger.settings import OF_THE_HOME, ON_REQUEST, OUTPUTS, Settings, is_loopback
from countledger.ledger.suspension import MakeWorkers, workers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_dynamodbstreams import DynamoDBStreamsClient
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_kinesis import KinesisClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_scheduler import EventBridgeSchedulerClient
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sqs import SQSClient

    from countledger.ledger.attempts import Steps

_T = TypeVar("_T")

# A session of boto3 in a forked process: its credentials without what is the parent's.
#
# The session may be the caller's, with credentials that a function of the caller refreshes. A new
# session from the same sources could find other credentials; so the same ones are kept. What a
# child cannot use of them is replaced in the child's own memory: the lock of a refresh, which a
# thread of the parent may have held, and the connections by which they are refreshed.


_OF_THE_SDK: Final = ("botocore.", "boto3.", "urllib3.")
_RENEWED: Final[WeakKeyDictionary[boto3.Session, tuple[int, int]]] = WeakKeyDictionary()


def renew_in_fork(session: boto3.Session) -> None:
    """Make the credentials of a session this process's own; done once in each, and in forks only.

    What a refresh function of the caller uses is renewed where it is a client of boto3 that the
    function encloses or finds in its module.
    """
    if not is_forked() or _RENEWED.get(session) == this_process():
        return
    core: Any = session._session  # noqa: SLF001 - what it has loaded, without loading any
    left: list[object] = [getattr(core, "_credentials", None), getattr(core, "_auth_token", None)]
    seen: set[int] = set()
    while left:
        one = left.pop()
        if id(one) not in seen:
            seen.add(id(one))
            _renew(one)
            left += _parts(one)
    _RENEWED[session] = this_process()


def _renew(one: Any) -> None:  # noqa: ANN401 - whatever credentials hold
    if isinstance(one, PoolManager):
        abandon(one.pools)
        one.pools = type(one.pools)(one.pools._maxsize)  # noqa: SLF001 - as large as it was
    elif _is_of_the_sdk(one) and hasattr(one, "_refresh_lock"):
        one._refresh_lock = Lock()  # noqa: SLF001 - there is no public way


def _parts(one: Any) -> Iterable[object]:  # noqa: ANN401, PLR0911 - one for each kind
    if isinstance(one, BaseClient):
        endpoint: Any = vars(one)["_endpoint"]
        return [endpoint.http_session]  # the rest of it is data
    if isinstance(one, list | tuple | set):
        return list(one)
    if isinstance(one, dict):
        return list(one.values())
    if isinstance(one, partial):
        return [one.func, *one.args, *one.keywords.values()]
    if isinstance(one, MethodType):
        return [one.__self__, one.__func__]
    if isinstance(one, FunctionType):
        enclosed = [_content(cell) for cell in one.__closure__ or ()]
        return enclosed + [one.__globals__.get(name) for name in one.__code__.co_names]
    if isinstance(one, CoreSession) or not _is_of_the_sdk(one):
        return []
    return list(getattr(one, "__dict__", {}).values())


def _is_of_the_sdk(one: object) -> bool:
    return not isinstance(one, type) and type(one).__module__.startswith(_OF_THE_SDK)


def _content(cell: Any) -> object:  # noqa: ANN401 - a cell of a closure
    try:
        content: object = cell.cell_contents
    except ValueError:  # not filled yet
        return None
    return content


# The connection that every new connection of this process becomes while a test runs.
#
# It is set by `countledger.testing`, for code that makes its own `CountLedger()` from the
# environment. It is one for the whole process: the threads of such code must find it as well.


_CHANGING: Final = Lock()
_INSTALLED: Final[list[Connection]] = []


def replacement() -> Connection | None:
    """The installed connection, or None: connections lead to AWS."""
    return _INSTALLED[0] if _INSTALLED else None


@contextmanager
def replaced_by(connection: Connection) -> Iterator[None]:
    """Install a connection while the block runs; SetupError if any thread has installed one."""
    with _CHANGING:
        if _INSTALLED:
            raise SetupError(
                "a stack in memory is installed already in this process: leave its block first, "
                "or use one stack for both"
            )
        _INSTALLED.append(connection)
    try:
        yield
    finally:
        with _CHANGING:
            _INSTALLED.clear()


# Which transport a process uses.


def is_fast(transport: str | None) -> bool:
    """Whether calls on items take the fast transport; SetupError if it is set and not installed."""
    if transport == "boto3":
        return False
    if find_spec("orjson") is not None:
        return True
    if transport == "fast":
        raise SetupError(
            "the fast transport needs orjson: pip install 'countledger[fast]', or set "
            "COUNTLEDGER_TRANSPORT=boto3"
        )
    return False


Retries = Literal["none", "standard"]

_USER_AGENT: Final = "countledger"  # a fixed one saves building it, a fifth of a call's time
# As many as a buffer may have senders: another one would need a new handshake for each request.
CONNECTIONS: Final = 64
_ATTEMPTS: Final[dict[Retries, int]] = {"none": 1, "standard": 4}
# The client has checked what it sends; a second check would take a tenth of the time.
_UNCHECKED: Final[dict[str, Any]] = {"parameter_validation": False}
_ONE_CLIENT_AT_A_TIME: Final = lock_open_in_forks()
# How often a call is tried; a method that conflicts with others more often has its own policy.
POLICY: Final = Backoff(attempts=8, base_ms=25, cap_ms=1_000)
_START_HERE: Final = '`eval "$(countledger up)"`'


@dataclass(frozen=True)
class Connection:
    """Where a process is, and what it works with: every service takes one.

    Each of its clients is one of the process that uses it, also after a fork. Everything that is
    put together from this connection takes its clock, `ids`, `random` and `workers`.

    Attributes:
        endpoint_url: an endpoint instead of AWS's own; None leaves it to AWS_ENDPOINT_URL.
        meter: where every client of this connection sums its units.
        random: what the jitter is drawn from, and the place of a write that may have several.
        own_session: whether the app made the session: then another process cannot make it again.
        over_regions: whether `counters` is the table with multi-region strong consistency. That
            table takes neither transactions nor a time to live.
        request_life_ms: for how long a request that has left may still be applied.
        makes_requests: whether its clients do; those of a stack in memory do not.
    """

    makes_requests: ClassVar[bool] = True
    settings: Settings
    session: boto3.Session
    endpoint_url: str | None = None
    meter: Meter = field(default_factory=Meter)
    elsewhere: str | None = None
    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=Ids)
    random: Random = field(default_factory=Random)
    workers: MakeWorkers = workers
    own_session: bool = True
    over_regions: bool = False
    request_life_ms: int = SIGNED_REQUEST_LIFE_MS
    _shared: dict[type, Any] = field(default_factory=dict, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """By its settings, to be opened elsewhere; TypeError if the app gave the session."""
        if self.own_session:
            raise TypeError(
                "a client with a session of your own cannot be pickled, because its credentials "
                "would be: create the client in the other process"
            )
        again = self.settings, self.session.region_name, self.endpoint_url, self.elsewhere
        return _opened_again, again

    @classmethod
    def open(
        cls,
        settings: Settings | None = None,
        *,
        session: boto3.Session | None = None,
        profile: str | None = None,
        region: str | None = None,
        endpoint_url: str | None = None,
    ) -> Connection:
        """A connection by the usual AWS environment; what is given wins over it.

        No call is made. BadSetting if a setting is wrong, or the profile does not exist.

        While a stack in memory is installed (`countledger.testing`), a connection to that stack.
        """
        if (installed := replacement()) is not None:
            return replace(installed, meter=Meter(), _shared={})
        own = session is not None or profile is not None
        with translated("AWS session"):
            session = session or boto3.Session(
                profile_name=profile,
                # boto3 reads AWS_DEFAULT_REGION alone; the other SDKs and tools read this one.
                region_name=region or os.environ.get("AWS_REGION"),
            )
        settings = settings or Settings.from_environment()
        return cls(settings, session, endpoint_url, own_session=own)

    @property
    def region(self) -> str:
        """The region of every call; BadSetting if none is configured."""
        region = self.elsewhere or self.session.region_name
        if not region:
            raise BadSetting(
                "no AWS region: set AWS_REGION, give --region, or name it in a profile; for a "
                f"stack of this machine {_START_HERE}"
            )
        return region

    def in_region(self, region: str) -> Connection:
        """A connection to the stack of the same name in a region; its outputs name its tables."""
        if region == self.region:
            return self
        settings = Settings.of_stack(self.settings.stack_name, keep=self.settings)
        return replace(self, settings=settings, elsewhere=region, _shared={})

    def with_counters(self, table: str) -> Connection:
        """A connection to the same stack with another table in place of `counters`."""
        return replace(self, settings=replace(self.settings, counters_table=table), _shared={})

    @property
    def stays_here(self) -> bool:
        """Whether calls go to this machine's own loopback, and no AWS account is meant."""
        return is_loopback(self.endpoint_url, "cloudformation")

    @property
    def partition(self) -> str:
        """The partition of the region, such as `aws`, as its ARNs begin."""
        with translated("the partition of the region"):
            return self.session.get_partition_for_region(self.region)

    @made_once
    def outputs(self) -> Mapping[str, str]:
        """The stack's outputs: one DescribeStacks call; StackNotFound if it does not exist here."""
        name = self.settings.stack_name
        try:
            with translated(f"DescribeStacks of {name!r}"):
                stacks = self._client("cloudformation").describe_stacks(StackName=name)["Stacks"]
        except CountledgerError as error:
            if "does not exist" not in str(error):
                raise
            raise StackNotFound(
                f"no stack {name!r} in {self.region}: start one here with {_START_HERE}, or "
                "name yours with --stack-name or COUNTLEDGER_STACK_NAME, its region with --region"
            ) from error
        return {o["OutputKey"]: o["OutputValue"] for o in stacks[0].get("Outputs", [])}

    def setting(self, name: str) -> str:
        """A setting, or the stack's output that stands for it.

        StackNotFound without both; WrongRegion if only the stack of the home region has it.
        """
        value: str | None = getattr(self.settings, name)
        if value:
            return value
        output = OUTPUTS[name]
        with self.settings.naming_the_variable(name):
            value = self.outputs.get(output)
        if not value and output in OF_THE_HOME and self.outputs.get("HomeRegion"):
            raise WrongRegion(
                f"this is {self.region}; schedules and compaction are of the home region "
                f"{self.outputs['HomeRegion']}: run it there (--region or AWS_REGION)"
            )
        if not value and output in ON_REQUEST and self.outputs:
            raise StackNotFound(f"stack {self.settings.stack_name!r} has {ON_REQUEST[output]}")
        if not value:
            raise StackNotFound(
                f"stack {self.settings.stack_name!r} has no output {output}: it is no "
                f"stack of countledger; name yours, or set COUNTLEDGER_{name.upper()}"
            )
        return value

    @property
    def counters(self) -> str:
        """The table of totals and of settings; over regions that of strict counters."""
        return self.setting("strict_table" if self.over_regions else "counters_table")

    @property
    def ledger(self) -> str:
        return self.setting("ledger_table")

    @property
    def strict(self) -> str | None:
        """The table of strict counters over regions, or None: the stack has none here.

        No call is made if the settings name the tables.
        """
        named = self.settings.strict_table
        if named or self.settings.counters_table:
            return named or None
        return self.outputs.get(OUTPUTS["strict_table"])

    @property
    def home_region(self) -> str:
        """The region where one copy of the tables decides."""
        return self.setting("home_region")

    def home_beside(self, table: Literal["ledger_table", "counters_table"]) -> str | None:
        """The home region; None: the settings name this table, and no home region."""
        settings = self.settings
        if settings.home_region or getattr(settings, table):
            return settings.home_region
        return self.home_region

    def refuse_elsewhere(self, what: str, else_do: str = "") -> None:
        """Raise WrongRegion outside of the home region.

        `what` says what the call is for, and its rule: `'llm:': quotas are changed`; `else_do`,
        what a caller can do instead of calling there.
        """
        if self.region != self.home_region:
            raise WrongRegion(
                f"{what} in the home region {self.home_region} only, where one copy decides; this "
                f"is {self.region}: call there{else_do}"
            )

    @property
    def clock_skew_ms(self) -> int:
        return self.settings.clock_skew_ms

    @property
    def replication_ms(self) -> int:
        """The longest time in which a write reaches every region."""
        return self.settings.replication_bound_ms

    @property
    def token_life_ms(self) -> int:
        """For how long the service surely remembers the client token of a key with a time."""
        return TOKEN_LIFE_MS - self.clock_skew_ms

    @property
    def late_write_ms(self) -> int:
        """For how long a write that did not know the progress of a stream shard may still land."""
        return late_write_ms(self.clock_skew_ms)

    @cached_property
    def unretried(self) -> DynamoClient:
        """The client for writes whose lost answers must be seen: each request is sent once."""
        return self.dynamo("none")

    @cached_property
    def retrying(self) -> DynamoClient:
        """The client for reads, and for writes that may be applied twice: its SDK retries."""
        return self.dynamo("standard")

    def shared(self, kind: type[_T]) -> _T:
        """What this process knows of the stack: one object of each kind, for all services."""
        found: _T | None = self._shared.get(kind)
        return self._shared.setdefault(kind, kind()) if found is None else found

    def attempts(self, until_ms: int | None = None, policy: Backoff = POLICY) -> Attempts:
        """The attempts of one call.

        `until_ms` is when what makes another attempt safe may be forgotten, or None: a process that
        was suspended and wakes later must not send again.
        """
        return Attempts(self.clock, self.random, policy, until_ms)

    def run(self, steps: Steps[_T]) -> _T:
        return run(steps, DynamoPerformer(self.unretried, self.retrying, self.clock))

    def dynamo(self, retries: Retries, *, region: str | None = None) -> DynamoClient:
        """A DynamoDB client, here or in another region, whose SDK retries as given."""
        limits = CallLimits(self.settings.call_timeout_ms, self.settings.max_attempts)
        client = self._client("dynamodb", retries, region)
        return DynamoClient(
            client, self.meter, self.clock, self.random, limits=limits, workers=self.workers
        )

    def streams(self) -> DynamoDBStreamsClient:
        return self._streams

    @cached_property
    def _streams(self) -> DynamoDBStreamsClient:
        client: DynamoDBStreamsClient = self._client("dynamodbstreams")
        return client

    def queues(self) -> SQSClient:
        client: SQSClient = self._client("sqs")
        return client

    def objects(self) -> S3Client:
        client: S3Client = self._client("s3")
        return client

    def kinesis(self) -> KinesisClient:
        """A client of Kinesis whose SDK does not retry."""
        client: KinesisClient = self._client("kinesis", "none")
        return client

    def scheduler(self) -> EventBridgeSchedulerClient:
        client: EventBridgeSchedulerClient = self._client("scheduler")
        return client

    def stacks(self) -> CloudFormationClient:
        client: CloudFormationClient = self._client("cloudformation")
        return client

    def functions(self) -> LambdaClient:
        client: LambdaClient = self._client("lambda")
        return client

    def metrics(self) -> Any:  # noqa: ANN401 - typed where they are read
        return self._client("cloudwatch")

    def administration(self, service: Literal["iam", "service-quotas", "sts"]) -> Any:  # noqa: ANN401 - as above
        """A client of a service that only the command line calls, and no function."""
        return self._client(service)

    def account(self) -> str:
        """The number of the account that the credentials belong to: one call."""
        with translated("GetCallerIdentity"):
            account: str = self._client("sts").get_caller_identity()["Account"]
        return account

    def events(self) -> EventBridgeClient:
        """A client of EventBridge; its SDK does not retry."""
        client: EventBridgeClient = self._client("events", "none")
        return client

    def topics(self) -> SNSClient:
        """A client of SNS; its SDK does not retry."""
        client: SNSClient = self._client("sns", "none")
        return client

    def _client(
        self, service: str, retries: Retries = "standard", region: str | None = None
    ) -> Any:  # noqa: ANN401 - typed by its callers
        client = ClientPerProcess(partial(self.make_client, service, retries, region))
        close_before_snapshot(client)
        return client

    def make_client(self, service: str, retries: Retries, region: str | None) -> object:
        """A client of a service for this process, whose requests are checked as they leave."""
        make: Any = self.session.client  # it makes one client at a time
        with translated(f"the {service} client"), _ONE_CLIENT_AT_A_TIME:
            renew_in_fork(self.session)
            config = self.config(service, retries, region)
            client = make(service, endpoint_url=self.endpoint_url, config=config)
        watch(client, self.settings.call_timeout_ms)
        if service != "dynamodb":
            return client
        spell(client)
        return self._fast(client, retries) if is_fast(self.settings.transport) else client

    def _fast(self, client: object, retries: Retries) -> object:
        from countledger.ledger.transport.client import FastClient  # noqa: PLC0415

        limits = CallLimits(self.settings.call_timeout_ms, self._attempts(retries))
        try:
            return FastClient(client, self.session.get_credentials(), limits)
        except AttributeError as error:
            if not self.settings.transport:
                return client
            raise SetupError(
                f"the fast transport does not know this version of botocore ({error}): set "
                "COUNTLEDGER_TRANSPORT=boto3"
            ) from error

    def config(self, service: str, retries: Retries, region: str | None = None) -> Config:
        return Config(
            connect_timeout=self.settings.connect_timeout_ms / SECOND_MS,
            read_timeout=self.settings.read_timeout_ms / SECOND_MS,
            # A proxy of the user's network has no way to this machine's own loopback.
            proxies={} if is_loopback(self.endpoint_url, service) else None,
            region_name=region or self.region,
            retries={"mode": "standard", "total_max_attempts": self._attempts(retries)},
            max_pool_connections=CONNECTIONS,
            user_agent=_USER_AGENT,
            **(_UNCHECKED if service == "dynamodb" else {}),
        )

    def _attempts(self, retries: Retries) -> int:
        return min(_ATTEMPTS[retries], self.settings.max_attempts)


def _opened_again(
    settings: Settings, region: str | None, endpoint_url: str | None, elsewhere: str | None
) -> Connection:
    """A pickled connection, in the process that unpickles it."""
    opened = Connection.open(settings, region=region, endpoint_url=endpoint_url)
    return opened if elsewhere is None else replace(opened, elsewhere=elsewhere)
