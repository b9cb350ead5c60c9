"""The stream of the ledger as a table of the world: the records of new and changed entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from countledger.infra.memory.functions import passes_ledger
from countledger.infra.memory.stream import Record
from countledger.infra.memory.tables import LEDGER
from countledger.ledger.limits import DAY_MS

if TYPE_CHECKING:
    from countledger.infra.memory.tables import Change
    from tests.exploring.world import World

STREAM_TABLE: Final = "stream"
MAPPING: Final = "mapping"


def let_streams_flow(world: World) -> None:
    """Keep the records of new and changed entries, and the position of the mapping."""
    stream = world.add(STREAM_TABLE, "number", "")
    world.add(MAPPING, "name", "")

    def note(change: Change) -> None:
        record = Record(0, 0, 0, change.key, change.before, change.after, change.table.sort)
        if passes_ledger(record.made()):
            item = {"before": change.before, "after": change.after, "made_ms": world.now_ms}
            stream.store((len(stream.items) + 1, ""), {**item, "key": change.key})

    world.tables[LEDGER].watchers.append(note)


def records_of(world: World, after: int, most: int | None = None) -> list[Record]:
    """Those that the stream keeps, after a number."""
    oldest_ms = world.now_ms - DAY_MS
    kept = [
        Record(number, item["made_ms"], 0, item["key"], item["before"], item["after"], "entry")
        for (number, _), item in sorted(world.tables[STREAM_TABLE].items.items())
        if number > after and item["made_ms"] > oldest_ms
    ]
    return kept[:most]
