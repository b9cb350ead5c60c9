"""The auditor's account of events that reach the ledger by detours: through buffers and streams.

Each event has a power of four of its own, so the entry that carries it shows by its delta which
events it stands for. It may lie in one entry and in no other; what was acknowledged does lie in
one; what a spool or a stream has taken does in the end, or was reported.
"""

from dataclasses import dataclass, field
from enum import IntEnum

from countledger.infra.memory.tables import Change
from countledger.ledger import keys
from tests.simulation.ledger_account import MOVED, STOCK, Identity, is_malformed, powers
from tests.simulation.shape import LEDGER
from tests.simulation.sums import Wrong


class Fate(IntEnum):
    """What an app was told of an event; what it was told once stays true."""

    OFFERED = 0
    """Nothing yet: it may be in or not."""
    REPORTED = 1
    """It was handed back: it may be in or not, and is not to be forgotten by the app."""
    KEPT = 2
    """It is in safe hands: in the end it is in, or reported."""
    ACKNOWLEDGED = 3
    """It is in."""


@dataclass
class EventAccounts:
    """All such events, by counter and power.

    Attributes:
        fates: what their apps were told.
        where: the entries that carry them.
        reported: those that were handed back, whatever was said of them before.
    """

    fates: dict[tuple[str, int], Fate] = field(default_factory=dict)
    where: dict[tuple[str, int], Identity] = field(default_factory=dict)
    reported: dict[tuple[str, int], str] = field(default_factory=dict)

    def changed(self, change: Change) -> None:
        """An entry was written somewhere."""
        after, (counter, key) = change.after, change.key
        if not change.local or after is None or change.table.name != LEDGER:
            return
        if not key.startswith(keys.ENTRY_PREFIX) or is_malformed(after):
            return
        if counter == STOCK or keys.namespace_of(counter) == MOVED:
            return
        identity, carried = (key, after["at"]), powers(after["delta"])
        if after.get("events", 1) != len(carried):
            raise Wrong(f"{identity} says {after.get('events', 1)} events, and carries {carried}")
        if len(set(carried)) < len(carried):
            raise Wrong(f"{identity} carries an event twice: {carried}")
        for power in carried:
            if (counter, power) in self.fates:
                there = self.where.setdefault((counter, power), identity)
                if there != identity:
                    raise Wrong(f"event {power} of {counter} lies in {there}, and in {identity}")

    def told(self, counter: str, delta: int, fate: Fate) -> None:
        """Its app was told of the events in a delta."""
        for power in powers(delta):
            event = counter, power
            self.fates[event] = max(fate, self.fates.get(event, fate))
            if fate is Fate.ACKNOWLEDGED and event not in self.where:
                raise Wrong(f"event {power} of {counter} was acknowledged, and is not in")

    def holds(self, counter: str, delta: int) -> bool:
        """Whether all events of a delta are in."""
        return all((counter, power) in self.where for power in powers(delta))

    def report(self, counter: str, delta: int, why: str) -> None:
        """They were handed back for good, or to a person."""
        for power in powers(delta):
            self.reported[counter, power] = why

    def check_end(self) -> None:
        """Once all is quiet: what was in safe hands is in, or was reported."""
        for event, fate in sorted(self.fates.items()):
            lost = fate >= Fate.KEPT and event not in self.where and event not in self.reported
            if lost or (fate is Fate.ACKNOWLEDGED and event not in self.where):
                raise Wrong(f"event {event} was {fate.name.lower()}, and is not in")
