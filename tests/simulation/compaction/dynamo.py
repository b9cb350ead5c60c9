"""The client's own interface over a simulated table; anything may happen at every call."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from countledger.ledger.before_send import leave
from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.errors import (
    ConditionFailed,
    Reason,
    ServiceFailed,
    Throttled,
    TransactionCancelled,
)
from countledger.ledger.expressions import AllOf, BeginsWith, Between
from countledger.ledger.operations import Delete, Page, Query
from tests.simulation.schedule import Killed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mypy_boto3_dynamodb import DynamoDBClient

    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.operations import Put, Scan, Write
    from tests.simulation.compaction.schedule import ModelSchedule
    from tests.simulation.compaction.world import ModelWorld

# How often two items of a page are of different moments, a dead sender's request arrives, and an
# answer is lost.
_APART: Final = 0.3
_LATE: Final = 0.5
_LOST: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelClient(DynamoClient):
    """A client to one region of a simulated world.

    Attributes:
        world: the tables.
        region: which copy it leads to.
        schedule: whose turn it is.
        request_life_ms: for how long a signed request is taken.
        page_items: how many items a page holds, unless asked for fewer.
    """

    client: DynamoDBClient = field(default_factory=lambda: cast("DynamoDBClient", None))
    world: ModelWorld
    region: str
    schedule: ModelSchedule
    request_life_ms: int = 0
    page_items: int = 3

    def metered(self) -> DynamoClient:
        """The same: nobody counts here."""
        return self

    def describe(self, table: str) -> Any:  # noqa: ANN401, ARG002 - what a service says
        """The other regions, all in service."""
        self.schedule.pause()
        others = [name for name in self.world.regions if name != self.region]
        return {"Replicas": [{"RegionName": o, "ReplicaStatus": "ACTIVE"} for o in others]}

    def get(self, table: str, key: Key, *, consistent: bool = False) -> Item | None:  # noqa: ARG002
        """One item."""
        self.schedule.pause()
        return self.world.copies[self.region].items.get(key["entry"])

    def get_many(self, table: str, keys: Sequence[Key], *, consistent: bool = False) -> list[Item]:
        """Those that exist, each as of its own moment."""
        found = (self.get(table, key, consistent=consistent) for key in keys)
        return [item for item in found if item]

    def page(self, read: Query | Scan) -> Page:
        """A page is no snapshot: each item is as of its own moment."""
        if not isinstance(read, Query) or not isinstance(read.condition, AllOf):
            raise TypeError(f"no simulation of {read!r}")
        self.schedule.pause()
        low, high = _bounds(read.condition.conditions[1])
        copy, size = self.world.copies[self.region], read.page_size or self.page_items
        at = bisect_right(copy.ordered, read.after["entry"]) if read.after else None
        at = bisect_left(copy.ordered, low) if at is None else at
        items: list[Item] = []
        while at < len(copy.ordered) and (key := copy.ordered[at]) <= high:
            if self.schedule.running and self.schedule.random.random() < _APART:
                self.schedule.pause()
            if item := copy.items.get(key):
                items.append(item)
            if len(items) == size:
                return Page(items, {"counter": items[0]["counter"], "entry": key})
            at = bisect_right(copy.ordered, key)
        return Page(items, None)

    def put(self, write: Put) -> None:
        """Write one item; it may take its time on the way."""
        item = {name: value for name, value in write.item.items() if value is not None}
        key = item["entry"]
        self._send(lambda: self.world.write(self.region, key, item, write.condition), None)

    def delete(self, write: Delete) -> None:
        """Remove one item."""
        key = write.key["entry"]
        self._send(lambda: self.world.write(self.region, key, None, write.condition), None)

    def transact(self, writes: Sequence[Write], token: str) -> bool:  # noqa: ARG002
        """Judged at one moment; then each item changes at its own."""
        deletes = {w.key["entry"]: w.condition for w in writes if isinstance(w, Delete)}
        if len(deletes) != len(writes):
            raise TypeError("deletes only")
        self._send(lambda: self._transact_late(deletes), lambda: self._begin(deletes))
        left = list(deletes)
        while left:
            try:
                self.schedule.pause()
            except Killed:
                # What the service has accepted it carries out, whoever asks for it or not.
                self.world.late_requests += [partial(self._finish, key) for key in left]
                raise
            self._finish(left.pop(0))
        return True

    def _transact_late(self, deletes: dict[str, Any]) -> None:
        self._begin(deletes)
        for key in deletes:
            self._finish(key)

    def _begin(self, deletes: dict[str, Any]) -> None:
        reasons = []
        for key, condition in deletes.items():
            try:
                if key in self.world.locked:
                    raise Throttled(key)  # noqa: TRY301 - one reason among many
                self.world.check(self.region, key, condition)
            except Throttled:
                reasons.append(Reason("TransactionConflict"))
            except ConditionFailed as failed:
                reasons.append(Reason("ConditionalCheckFailed", failed.item))
            else:
                reasons.append(Reason("None"))
        if any(reason.code != "None" for reason in reasons):
            raise TransactionCancelled(tuple(reasons))
        self.world.locked.update(deletes)

    def _finish(self, key: str) -> None:
        self.world.apply(self.region, key, None)
        self.world.locked.discard(key)

    def _send(self, request: Callable[[], object], first: Callable[[], object] | None) -> None:
        """A request on its way; where its sender dies it may arrive all the same.

        Args:
            request: what it does, whenever it arrives.
            first: what it does where its sender waits for it; None: the same, and if its answer is
                lost it is sent again.
        """
        random = self.schedule.random
        self.schedule.pause()
        signed_ms = self.world.now_ms
        leave()

        def arrive(what: Callable[[], object]) -> None:
            if self.world.now_ms - signed_ms > self.request_life_ms:
                raise ServiceFailed("the signature is too old")
            what()

        try:
            self.schedule.pause()
        except Killed:
            if random.random() < _LATE:
                self.world.late_requests.append(lambda: arrive(request))
            raise
        arrive(first or request)
        if first is None and random.random() < _LOST:
            self.schedule.pause()
            arrive(request)


def _bounds(range_: object) -> tuple[str, str]:
    if isinstance(range_, Between):
        return str(range_.low), str(range_.high)
    if isinstance(range_, BeginsWith):
        return range_.prefix, range_.prefix + "~"
    raise TypeError(f"no simulation of {range_!r}")
