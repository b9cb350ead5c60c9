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
from countledger.ledger.attributes import describe, require, require_time
from countledger.ledger.clock import show_duration
from countledger.ledger.errors import ConditionFailed, CorruptItem, RegionRebuilding
from countledger.ledger.limits import MINUTE_MS
from countledger.ledger.operations import Put, unchanged

if TYPE_CHECKING:
    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection

# For so long a region that was rebuilding is assumed to be rebuilding still.
CACHED_MS: Final = MINUTE_MS


class Phase(StrEnum):
    REBUILDING = "rebuilding"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class RegionState:
    """The state of a region; None: it never joined, or no write stored it."""

    phase: Phase = Phase.READY
    since_ms: int | None = None
    revision: str | None = None


def decode_region_state(item: Item | None) -> RegionState:
    """The state in the stored item; ready if there is none."""
    if item is None:
        return RegionState()
    phase = require(item, "state", str)
    if phase not in set(Phase):
        raise CorruptItem(f"{describe(item)}: 'state' is {phase!r}, no state of a region", item)
    return RegionState(Phase(phase), require_time(item, "since"), require(item, "revision", str))


@dataclass(slots=True)
class RegionStateStore:
    """Reads and writes the state of a connection's region. The home region is always ready.

    Where neither the settings nor the stack's outputs, if they had to be read, name the home
    region, the item is read.
    """

    connection: Connection
    _known: tuple[int, RegionState] | None = field(default=None, init=False, repr=False)

    def read(self) -> RegionState:
        """One read unit."""
        to = self.connection
        found = to.retrying.get(to.counters, keys.region_state_key(), consistent=True)
        return decode_region_state(found)

    def write(self, phase: Phase, seen: RegionState) -> bool:
        """Store a state if the one that was read is still there; else False. One write unit."""
        to = self.connection
        now_ms = to.clock.now_ms()
        item = {**keys.region_state_key(), "state": str(phase), "since": now_ms}
        item["revision"] = revision = to.ids.new_id(now_ms)
        same = unchanged("revision", seen.revision)
        try:
            to.retrying.put(Put(to.counters, item, same))
        except ConditionFailed as failed:
            # True: by an attempt of this write that got no answer, which the SDK repeated.
            return (failed.item or {}).get("revision") == revision
        return True

    def current(self) -> RegionState:
        """The state as read at most a minute ago; once ready, a region is not read again."""
        known = self._known
        if known is not None and known[1].phase is Phase.READY:
            return known[1]
        now_ms = self.connection.clock.now_ms()
        if known is None or not 0 <= now_ms - known[0] < CACHED_MS:
            is_home = self.connection.home_beside("counters_table") == self.connection.region
            known = self._known = now_ms, RegionState() if is_home else self.read()
        return known[1]

    def is_rebuilding(self) -> bool:
        """Whether totals are incomplete. One read unit at most once a minute; none once ready."""
        return self.current().phase is Phase.REBUILDING

    def check(self) -> None:
        """Refuse to read totals while they are incomplete; cost as `is_rebuilding`."""
        if self.is_rebuilding():
            now_ms = self.connection.clock.now_ms()
            since_ms = self.current().since_ms or now_ms
            age = show_duration(max(0, now_ms - since_ms) // 1000 * 1000)
            raise RegionRebuilding(
                f"the totals of this region have been rebuilding for {age} and are incomplete: "
                "read them in another region, or add up the ledger (exact); `countledger region "
                "list` shows the progress"
            )
