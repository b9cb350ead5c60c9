"""The tables of `countledger.testing`, as one more engine of the contract suite.

Its clients have the events of boto3's, at each call and each attempt: what hooks into the one (as
`tests/faults/injection.py` does) hooks into the other. The product's own code says what an answer
means. What these tables do not have has a name; a test that meets it is left out under that name.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from threading import local
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import BotoCoreError, ClientError
from botocore.hooks import HierarchicalEmitter
from botocore.parsers import ResponseParserError
from mypy_boto3_dynamodb import DynamoDBClient

from countledger.infra.memory.client import MemoryDynamo
from countledger.infra.memory.faults import Missing, RefusingClient, refuse
from countledger.infra.memory.stack import MemoryConnection, settings_of
from countledger.infra.memory.tables import REGION, MemoryTables
from countledger.ledger.attempts import CallLimits
from countledger.ledger.attributes import Item, Key
from countledger.ledger.connection import Connection, Retries
from countledger.ledger.departure import watch
from countledger.ledger.dynamo import DynamoClient, Meter
from countledger.ledger.errors import CountledgerError, Reason, TransactionCancelled, Unclear
from countledger.ledger.operations import Delete, Put, Update, Write
from countledger.ledger.service_errors import conditions, may_pass, translated
from countledger.ledger.settings import Settings
from tests.engines.differences import MEMORY, Engine
from tests.engines.services import Buckets, Queues, Scheduler, Streams, Targets
from tests.engines.store import Store

T = TypeVar("T")

NAME: Final = "memory"
# Tests that need what no request shows.
LEFT_OUT: Final = {
    "test_a_table_that_is_not_there_is_named": Missing.STACK,
}
# Of an answer with status 200 of which botocore reads nothing.
_EMPTY: Final[Any] = {}


@dataclass(frozen=True)
class MemoryRequest:
    """An attempt that is about to be sent, as handlers of `before-send` get it.

    Attributes:
        operation: as `PutItem`.
        sent: the writes, or the parameters of the call.
        carry_out: carries it out.
    """

    operation: str
    sent: Sequence[object]
    carry_out: Callable[[], object]
    url: str = "memory"

    @property
    def items(self) -> int:
        """How many items a transaction has; 0: it is none."""
        return len(self.sent) if self.operation.startswith("Transact") else 0

    @property
    def body(self) -> bytes:
        """What is in it."""
        return repr(self.sent).encode()

    def land(self) -> int:
        """Carry it out; nobody hears the answer, whose status is returned."""
        try:
            self.carry_out()
        except (CountledgerError, ClientError):
            return 400
        return 200


@dataclass(eq=False)
class HookedClient:
    """What others hook into: the events of a client of boto3, and the attempts of its SDK."""

    service: str
    attempts: int
    meta: SimpleNamespace = field(init=False)
    _sending: local = field(default_factory=local)

    def __post_init__(self) -> None:
        """Each request is checked as it leaves, as those of the product's own clients."""
        self.meta = SimpleNamespace(events=HierarchicalEmitter())
        watch(self)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of the SDK
        refuse(Missing.CLIENT, name)

    @contextmanager
    def sending(self, *sent: object) -> Iterator[None]:
        """Say what the call of the block sends."""
        self._sending.sent = sent
        yield
        self._sending.sent = ()

    def call(self, operation: str, request: Callable[[], T]) -> T:
        """Make a call: as many attempts as the SDK makes, without its waits."""
        sent = getattr(self._sending, "sent", ())
        self._tell("before-call", operation, params={"body": repr(sent).encode()})
        for left in reversed(range(self.attempts)):
            try:
                return self._attempt(operation, MemoryRequest(operation, sent, request), request)
            except (ClientError, BotoCoreError) as error:
                self._judge(operation, error)
                if not left or not may_pass(error):
                    raise
        raise AssertionError("unreachable: the last attempt answers or raises")

    def answered(self, operation: str, parsed: dict[str, Any]) -> None:
        """Tell of the answer of a call, which may be changed."""
        self._tell("after-call", operation, parsed=parsed)

    def _tell(self, event: str, operation: str, **of: object) -> list[tuple[Any, Any]]:
        model = SimpleNamespace(name=operation)
        found: list[tuple[Any, Any]] = self.meta.events.emit(
            f"{event}.{self.service}.{operation}", model=model, **of
        )
        return found

    def params_of(self, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        """The parameters of a call, which may be changed."""
        given = [one for _, one in self._tell("provide-client-params", operation, params=params)]
        return next((one for one in given if one is not None), params)

    def _attempt(self, operation: str, sent: MemoryRequest, request: Callable[[], T]) -> T:
        _, answer = self.meta.events.emit_until_response(
            f"before-send.{self.service}.{operation}", request=sent
        )
        if answer is None:
            return request()
        if answer.status_code == 200:
            return cast("T", _EMPTY)
        raise self._error_in(answer, operation)

    def _judge(self, operation: str, error: Exception) -> None:
        answer: Any = getattr(error, "response", None) if isinstance(error, ClientError) else None
        metadata = {"ResponseMetadata": {"HTTPStatusCode": 400}}
        self._tell(
            "needs-retry",
            operation,
            response=answer and (None, metadata | answer),
            caught_exception=None if answer else error,
        )

    def _error_in(self, answer: AWSResponse, operation: str) -> Exception:
        """As botocore understands it."""
        status, body = answer.status_code, answer.content
        try:
            said = json.loads(body)
        except ValueError:
            said = {}
        if said and self.service == "sns":  # it speaks XML, and so does S3: the status is read
            return ResponseParserError("invalid XML received")
        said = {} if self.service == "s3" else said
        parsed: Any = {
            "Error": {
                "Code": said.get("__type", str(status)).rpartition("#")[2],
                "Message": said.get("message", ""),
            },
            "ResponseMetadata": {"HTTPStatusCode": status},
            "CancellationReasons": said.get("CancellationReasons", []),
        }
        return ClientError(parsed, operation)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookedDynamo(MemoryDynamo):
    """A client of DynamoDB whose calls pass the events of its `client`."""

    def read(self, what: str, request: Callable[[], T]) -> T:
        """Make a call that changes nothing."""
        return self.written(what, request)

    def written(self, what: str, request: Callable[[], T]) -> T:
        """Make a call, and let the product say what became of it."""
        client = cast("HookedClient", self.client)

        def locked() -> T:
            with self.memory.lock:
                return request()

        with translated(f"{what} in memory"), conditions(self.meter):
            try:
                answer = client.call(what, locked)
            except TransactionCancelled as cancelled:
                raise _as_answered(client, what, cancelled) from None
        if answer is _EMPTY:
            raise Unclear(f"{what}: it came with status 200, but is not the service's")
        return answer

    def write_one(self, what: str, write: Put | Update | Delete) -> Item | None:
        """The item after the write."""
        with cast("HookedClient", self.client).sending(write):
            return MemoryDynamo.write_one(self, what, write)

    def transact(self, writes: Sequence[Write], token: str) -> bool:
        """All or nothing."""
        with cast("HookedClient", self.client).sending(*writes):
            return MemoryDynamo.transact(self, writes, token)

    def transact_get(self, table: str, keys: Sequence[Key]) -> list[Item | None]:
        """Several items as of one moment."""
        with cast("HookedClient", self.client).sending(*keys):
            return MemoryDynamo.transact_get(self, table, keys)


def _as_answered(
    client: HookedClient, what: str, cancelled: TransactionCancelled
) -> TransactionCancelled:
    """What a handler of the answer has made of its reasons."""
    reasons: list[Any] = [{"Code": one.code, "Item": one.item} for one in cancelled.reasons]
    client.answered(what, {"CancellationReasons": reasons})
    return TransactionCancelled(tuple(Reason(one["Code"], one.get("Item")) for one in reasons))


class HookedService:
    """A client of another service, whose calls pass the events of a client of boto3."""

    def __init__(self, service: str, of: object, attempts: int) -> None:
        """A client with so many attempts for each call."""
        self._hooked, self._of = HookedClient(service, attempts), of
        self.meta = self._hooked.meta

    def get_waiter(self, _name: str) -> "HookedService":
        """Nothing has to be waited for."""
        return self

    def wait(self, **_: object) -> None:
        """It exists."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of the API
        if name.startswith("_"):
            raise AttributeError(name)
        call, hooked = getattr(self._of, name), self._hooked
        operation = "".join(one[0].upper() + one[1:] for one in name.split("_"))

        def made(**params: Any) -> dict[str, Any]:  # noqa: ANN401 - of the API
            given = hooked.params_of(operation, params)
            with hooked.sending(given):
                parsed = dict(hooked.call(operation, partial(call, **given)))
            hooked.answered(operation, parsed)
            return parsed

        return made


@dataclass(frozen=True, kw_only=True)
class HookedConnection(MemoryConnection):
    """A connection whose clients have the events of boto3's.

    Attributes:
        buckets: S3.
        kinesis_of: Kinesis.
    """

    buckets: Buckets = field(default_factory=Buckets)
    kinesis_of: Streams = field(default_factory=Streams)

    def dynamo(self, retries: Retries, *, region: str | None = None) -> DynamoClient:
        """A client of its own."""
        self.in_region(region or REGION)
        attempts: Any = self._attempts(retries)
        return HookedDynamo(
            client=cast("DynamoDBClient", HookedClient("dynamodb", attempts)),
            memory=self.memory,
            attempts=attempts,
            meter=self.meter,
            clock=self.clock,
            random=self.random,
            limits=CallLimits(self.settings.call_timeout_ms, self.settings.max_attempts),
            workers=self.workers,
        )

    def _client(
        self, service: str, retries: Retries = "standard", region: str | None = None
    ) -> Any:  # noqa: ANN401 - as of `Connection`
        of: Any = {"s3": self.buckets, "kinesis": self.kinesis_of}.get(service)
        if of is None:
            of = super()._client(service, retries, region)
        if service == "dynamodbstreams":
            return of
        return HookedService(service, of, self._attempts(retries))


class EngineSession(RefusingClient):
    """A session whose connections lead to tables in memory."""

    def __init__(self, connection: MemoryConnection) -> None:
        """Lead to where a connection leads."""
        super().__init__(Missing.CLIENT, REGION)
        self.connection = connection


@contextmanager
def memory_store() -> Iterator[Store]:
    """Both tables in memory; connections by its session lead there."""
    memory = MemoryTables()
    queues = Queues(memory.clock)
    refusing: Any = RefusingClient(Missing.SESSION, REGION)
    connection = HookedConnection(
        settings_of(memory),
        refusing,
        clock=memory.clock,
        memory=memory,
        queues_of=queues,
        targets=Targets(queues=queues),
        schedules=Scheduler(),
    )
    session: Any = EngineSession(connection)
    opened = Connection.open

    def open_(settings: Settings | None = None, **given: Any) -> Connection:  # noqa: ANN401 - handed on
        found = given.get("session")
        if not isinstance(found, EngineSession):
            return opened(settings, **given)
        to = found.connection
        chosen: Any = found
        return replace(
            to, settings=settings or to.settings, session=chosen, meter=Meter(), _shared={}
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "open", open_)
        connection = replace(connection, session=session)
        yield Store(Engine(NAME, session, None, MEMORY), connection, memory.ledger_stream.arn)
