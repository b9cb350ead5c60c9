"""The clients of an actor: each request is handed to the actor, which stops there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from botocore.exceptions import ClientError, ReadTimeoutError

from countledger.infra.memory.client import TableClient, sdk_call
from countledger.infra.memory.stack import MemoryConnection
from countledger.infra.memory.tables import REGION
from countledger.ledger.attempts import CallLimits
from countledger.ledger.errors import Unclear
from countledger.ledger.operations import Query, Scan
from tests.exploring.followed import SHARD
from tests.exploring.stream import STREAM_TABLE, records_of
from tests.exploring.world import SCHEDULER, in_region

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb.type_defs import TableDescriptionTypeDef

    from countledger.infra.memory.stream import Record
    from countledger.infra.memory.tables import Table, Transactions
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.connection import Connection, Retries
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.operations import Delete, Page, Put, Update, Write
    from tests.exploring.world import World

# How often the SDK of a client sends a request.
_ATTEMPTS: Final = {"none": 1, "standard": 4}
_PAGE_ITEMS: Final = 1_000
NO_ANSWER: Final = Unclear("no answer")
# The iterator after an empty page.
_END: Final = "end"


class Sending(NamedTuple):
    """The actor is about to send a request.

    Attributes:
        what: the request, for people: all of it, so that equal ones are one request.
        request: carries it out on the tables of the world.
        writes: whether it may change something.
        lost: what the client raises without an answer.
        items: how many items a transaction writes; 1: it is none.
        eventual: whether it may show what was, and not what is.
        attempts: how often its SDK sends it, if it is throttled.
    """

    what: str
    request: Callable[[], object]
    writes: bool
    lost: Exception
    items: int = 1
    eventual: bool = False
    attempts: int = 1


class Sends(Protocol):
    """The app that a client sends for."""

    @property
    def world(self) -> World:
        """What requests work on."""

    def send(self, sending: Sending) -> Any:  # noqa: ANN401 - of the request
        """Send a request, when it is its turn; its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorClient(TableClient):
    """A DynamoDB client of an actor.

    Attributes:
        actor: whose.
        attempts: how often its SDK sends a request.
        region: where the tables are.
    """

    actor: Sends
    attempts: int = 1
    region: str = REGION

    def table(self, name: str) -> Table:
        """A table of the world."""
        return self.actor.world.tables[in_region(name, self.region)]

    def transactions(self) -> Transactions:
        """Those of the world."""
        return self.actor.world.transactions_in(self.region)

    def describe(self, table: str) -> TableDescriptionTypeDef:
        """The same at every moment, so no step."""
        found: Any = TableClient.describe(self, table)
        regions = [{"RegionName": one} for one in (REGION, *self.actor.world.elsewhere)]
        return cast("TableDescriptionTypeDef", {**found, "Replicas": regions[1:] and regions})

    @property
    def page_items(self) -> int:
        """The most items of one page."""
        return _PAGE_ITEMS

    def read(self, what: str, request: Callable[[], Any]) -> Any:  # noqa: ANN401 - of the request
        """Send a request that changes nothing."""
        return self._sent(Sending(what, request, writes=False, lost=NO_ANSWER))

    def written(self, what: str, request: Callable[[], Any]) -> Any:  # noqa: ANN401 - of the request
        """Send a request that writes."""
        return self._sent(Sending(what, request, writes=True, lost=NO_ANSWER))

    def _sent(self, sending: Sending) -> Any:  # noqa: ANN401 - of the request
        """The SDK's own attempts, without waits."""
        where = "" if self.region == REGION else f" in {self.region}"
        again = sending._replace(attempts=self.attempts, what=f"{sending.what}{where}")
        return sdk_call(self.attempts, lambda: self.actor.send(again))

    def get(self, table: str, key: Key, *, consistent: bool = False) -> Item | None:
        """One item."""
        copy = self.table(table)
        found: Item | None = self._sent(
            Sending(
                f"Get({table!r}, {dict(key)!r})",
                lambda: self.seen(copy, copy.key_of(key), consistent=consistent),
                writes=False,
                lost=NO_ANSWER,
                eventual=not consistent,
            )
        )
        return found

    def page(self, read: Query | Scan) -> Page:
        """One page."""
        found: Page = self._sent(
            Sending(
                repr(read),
                lambda: self.page_of(self.table(read.table), read),
                writes=False,
                lost=NO_ANSWER,
                eventual=not (isinstance(read, Query) and read.consistent),
            )
        )
        return found

    def write_one(self, what: str, write: Put | Update | Delete) -> Item | None:  # noqa: ARG002 - of `TableClient`
        """Carry out a write of one item; the item after it."""
        copy = self.table(write.table)
        after: Item | None = self._sent(
            Sending(repr(write), lambda: copy.write(write), writes=True, lost=NO_ANSWER)
        )
        return after

    def put_batch(self, table: str, items: Sequence[Item]) -> list[Item]:
        """Write several items without condition; the items that were not taken."""
        copy, what = self.table(table), f"PutBatch({table!r}, {[*items]!r})"
        left: list[Item] = self.written(what, lambda: self.store_batch(copy, items))
        return left

    def transact(self, writes: Sequence[Write], token: str) -> bool:
        """All or nothing."""
        self.check_transaction(writes)
        begin, told = self.transactions().begin, f"Transact({[*writes]!r}, token={token!r})"
        done: bool = self._sent(
            Sending(
                told,
                lambda: begin(writes, token)[0],
                writes=True,
                lost=NO_ANSWER,
                items=len(writes),
            )
        )
        return done


class ActorScheduler:
    """EventBridge Scheduler as an actor calls it: it has no conditional writes."""

    def __init__(self, actor: Sends) -> None:
        """A client of an actor.

        Args:
            actor: whose.
        """
        self._actor = actor

    def create_schedule(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - of the API
        """Store a new schedule."""
        return self._call("CreateSchedule", request, self._create, writes=True)

    def get_schedule(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - of the API
        """A schedule."""
        return self._call("GetSchedule", request, self._get, writes=False)

    def delete_schedule(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - of the API
        """Delete a schedule."""
        return self._call("DeleteSchedule", request, self._delete, writes=True)

    def _call(
        self,
        operation: str,
        request: dict[str, Any],
        call: Callable[[dict[str, Any]], dict[str, Any]],
        *,
        writes: bool,
    ) -> dict[str, Any]:
        what = f"{operation}({request!r})"
        lost = ReadTimeoutError(endpoint_url="scheduler")
        found = self._actor.send(Sending(what, lambda: call(request), writes, lost, items=0))
        return cast("dict[str, Any]", found)

    @property
    def _table(self) -> Table:
        return self._actor.world.tables[SCHEDULER]

    def _create(self, request: dict[str, Any]) -> dict[str, Any]:
        if (request["Name"], "") in self._table.items:
            raise _refusal("ConflictException", "CreateSchedule")
        self._table.store((request["Name"], ""), request)
        return {"ScheduleArn": request["Name"]}

    def _get(self, request: dict[str, Any]) -> dict[str, Any]:
        found = self._table.items.get((request["Name"], ""))
        if found is None:
            raise _refusal("ResourceNotFoundException", "GetSchedule")
        return dict(found)

    def _delete(self, request: dict[str, Any]) -> dict[str, Any]:
        self._get(request)
        self._table.store((request["Name"], ""), None)
        return {}


class ActorStreams:
    """The streams API as an actor calls it: one shard, open."""

    exceptions: Final = SimpleNamespace(TrimmedDataAccessException=ClientError)

    def __init__(self, actor: Sends) -> None:
        """A client of an actor.

        Args:
            actor: whose.
        """
        self._actor = actor

    def describe_stream(self, **_: object) -> dict[str, Any]:
        """The same at every moment."""
        shard = {"ShardId": SHARD.id, "SequenceNumberRange": {"StartingSequenceNumber": "1"}}
        return {"StreamDescription": {"StreamStatus": "ENABLED", "Shards": [shard]}}

    def get_shard_iterator(self, SequenceNumber: str = "0", **_: object) -> dict[str, str]:  # noqa: N803 - of the API
        """After a record, or at the oldest."""
        return {"ShardIterator": SequenceNumber}

    def get_records(self, ShardIterator: str) -> dict[str, Any]:  # noqa: N803 - of the API
        """The next records."""
        if ShardIterator == _END:
            return {"Records": [], "NextShardIterator": _END}
        world = self._actor.world

        def request() -> list[Record]:
            return records_of(world, int(ShardIterator))

        found: list[Record] = self._actor.send(
            Sending(f"GetRecords({ShardIterator})", request, writes=False, lost=NO_ANSWER)
        )
        after = str(found[-1].sequence) if found else _END
        return {"Records": [one.made() for one in found], "NextShardIterator": after}


def _refusal(code: str, operation: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": code}}, operation)


@dataclass(frozen=True, kw_only=True)
class ActorConnection(MemoryConnection):
    """The connection of an actor: its requests work on the world's tables.

    Attributes:
        actor: whose.
    """

    actor: Sends | None = None

    def dynamo(self, retries: Retries, *, region: str | None = None) -> DynamoClient:
        """A DynamoDB client."""
        region = region or self.region
        self.in_region(region)
        limits = CallLimits(self.settings.call_timeout_ms, self.settings.max_attempts)
        return ActorClient(
            actor=self.sender,
            attempts=_ATTEMPTS[retries],
            region=region,
            clock=self.clock,
            random=self.random,
            meter=self.meter,
            limits=limits,
            workers=self.workers,
        )

    def in_region(self, region: str) -> Connection:
        """A connection to the tables of a region of the world."""
        if region == self.region:
            return self
        if region not in (REGION, *self.sender.world.elsewhere):
            return super().in_region(region)
        return replace(self, elsewhere=region, _shared={})

    @property
    def sender(self) -> Sends:
        """The actor."""
        if self.actor is None:
            raise AssertionError("the connection is of no actor")
        return self.actor

    def _client(
        self, service: str, retries: Retries = "standard", region: str | None = None
    ) -> Any:  # noqa: ANN401 - as of `Connection`
        if service == "scheduler":
            return ActorScheduler(self.sender)
        if service == "dynamodbstreams" and STREAM_TABLE in self.sender.world.tables:
            return ActorStreams(self.sender)
        return super()._client(service, retries, region)
