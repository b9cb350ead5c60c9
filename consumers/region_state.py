"""Whether the totals of a region are complete, by one item of its table `counters`.

A region that joins has no totals of the entries before it. Until they are made and proven, its item
says `rebuilding`: totals are not read, and alerts are not evaluated. The first region of a stack
has no such item, and is ready.

Each write has an id, and names the state that it replaces. So what was proven of a region that left
meanwhile, and joined again, does not make it ready.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.attributes import describe, optional, optional_time, require
from countledger.ledger.clock import Clock, SystemClock, show_duration
from countledger.ledger.errors import ConditionFailed, CorruptItem, RegionRebuilding
from countledger.ledger.ids import new_id
from countledger.ledger.limits import MINUTE_MS
from countledger.ledger.operations import AllOf, Put, unchanged

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection
    from countledger.ledger.dynamo import DynamoClient

# For so long a region that was rebuilding is assumed to be rebuilding still.
CACHED_MS: Final = MINUTE_MS


class Phase(StrEnum):
    """Whether the totals of a region are complete."""

    REBUILDING = "rebuilding"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class RegionState:
    """The state of a region.

    Attributes:
        phase: whether its totals are complete.
        since_ms: when that was stored, ms since the epoch; None: the region never joined.
        revision: the id of the write that stored it; None: no write did, or that of an earlier
            release.
    """

    phase: Phase = Phase.READY
    since_ms: int | None = None
    revision: str | None = None


def decode_region_state(item: Item | None) -> RegionState:
    """The state in the stored item; ready if there is none.

    Raises:
        CorruptItem: it cannot be read.
    """
    if item is None:
        return RegionState()
    phase = require(item, "state", str)
    if phase not in set(Phase):
        raise CorruptItem(f"{describe(item)}: 'state' is {phase!r}, no state of a region", item)
    revision = optional(item, "revision", str)
    return RegionState(Phase(phase), optional_time(item, "since"), revision)


@dataclass(slots=True)
class RegionStateStore:
    """Reads and writes the state of one region.

    Attributes:
        dynamo: a DynamoDB client in that region.
        table: the table `counters` there.
        clock: the time.
        new_id: makes the id of a write.
    """

    dynamo: DynamoClient
    table: str
    clock: Clock = field(default_factory=SystemClock)
    new_id: Callable[[int], str] = new_id
    _known: tuple[int, RegionState] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, connection: Connection) -> RegionStateStore | None:
        """The state of a connection's region; None: it is the home region, which is always ready.

        Where neither the settings nor the stack's outputs, if they had to be read, name the home
        region, the item is read.
        """
        table, settings = connection.setting("counters_table"), connection.settings
        home = settings.home_region
        if home is None and settings.counters_table is None:
            home = connection.setting("home_region")
        if home == connection.region:
            return None
        dynamo = connection.dynamo("standard")
        return cls(dynamo, table, connection.clock, connection.ids.new_id)

    def read(self) -> RegionState:
        """The stored state. One read unit.

        Raises:
            CorruptItem: it cannot be read.
        """
        found = self.dynamo.get(self.table, keys.region_state_key(), consistent=True)
        return decode_region_state(found)

    def write(self, phase: Phase, seen: RegionState) -> bool:
        """Store a state in place of the one that was read. One write unit.

        Returns:
            False: another state is stored by now, and stays.
        """
        now_ms = self.clock.now_ms()
        item = {**keys.region_state_key(), "state": str(phase), "since": now_ms}
        item["revision"] = revision = self.new_id(now_ms)
        # An earlier release stored no revision; its states differ in their times.
        same = AllOf(unchanged("revision", seen.revision), unchanged("since", seen.since_ms))
        try:
            self.dynamo.put(Put(self.table, item, same))
        except ConditionFailed as failed:
            # True: by an attempt of this write that got no answer, which the SDK repeated.
            return (failed.item or {}).get("revision") == revision
        return True

    def current(self) -> RegionState:
        """The state as read at most a minute ago; once ready, a region is not read again."""
        now_ms = self.clock.now_ms()
        known = self._known
        if known is None or (
            known[1].phase is not Phase.READY and not 0 <= now_ms - known[0] < CACHED_MS
        ):
            known = self._known = now_ms, self.read()
        return known[1]

    def is_rebuilding(self) -> bool:
        """Whether totals are incomplete. One read unit at most once a minute; none once ready."""
        return self.current().phase is Phase.REBUILDING

    def check(self) -> None:
        """Refuse to read totals while they are incomplete; cost as `is_rebuilding`.

        Raises:
            RegionRebuilding: they are.
        """
        if self.is_rebuilding():
            since_ms = self.current().since_ms or self.clock.now_ms()
            age = show_duration(max(0, self.clock.now_ms() - since_ms) // 1000 * 1000)
            raise RegionRebuilding(
                f"the totals of this region have been rebuilding for {age} and are incomplete: "
                "read them in another region, or add up the ledger (exact); `countledger region "
                "list` shows the progress"
            )
