"""The account of alerts of windows: each sum of each window, and what may be told of it, once.

The recount has a calendar of its own, as that of windows, and reads no code of the product but the
names of items.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

from tests.simulation.alert_walk import crossed
from tests.simulation.sums import Wrong

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from countledger.infra.memory.tables import Change
    from tests.simulation.alert_account import Revision, TotalChange

_IN_ITEM = {"month": "day", "day": "hour", "hour": "minute"}


class Cell(NamedTuple):
    """One window, as it is stored.

    Attributes:
        counter: whose.
        part: the key of its item.
        name: of the attribute that has its sum.
    """

    counter: str
    part: str
    name: str

    @property
    def windows(self) -> str:
        """The id of the counter's windows."""
        return self.part.split("#")[1]

    @property
    def item(self) -> tuple[str, str]:
        """The kind and the name of its item."""
        kind, name = self.part.split("#")[2:]
        return kind, name

    @property
    def per(self) -> str:
        """Of which kind it is."""
        return "month" if self.name == "sum" else _IN_ITEM[self.item[0]]


@dataclass
class WindowAlerts:
    """Those of one region.

    Attributes:
        zone_of: the time zone of windows, by their id.
        has: whether windows of an id are of a kind: where only days are counted no hour is.
        moves: the sums of each window, in order.
        deleted: counters whose totals were deleted.
    """

    zone_of: Callable[[str], str]
    has: Callable[[str, str], bool] = lambda *_: True
    moves: dict[Cell, list[TotalChange]] = field(default_factory=lambda: defaultdict(list))
    deleted: set[str] = field(default_factory=set)
    _seen: set[tuple[str, str]] = field(default_factory=set)

    def changed(self, change: Change, made: Callable[..., TotalChange], *, by_hand: bool) -> None:
        """An item of windows was written."""
        before, after = change.before or {}, change.after
        if after is None:
            return
        again = not before and change.key in self._seen
        self._seen.add(change.key)
        for name in sorted({*before, *after}):
            if name != "sum" and not (name[:1] == "s" and name[1:].isdigit()):
                continue
            cell = Cell(*change.key, name)
            old, new = before.get(name, 0), after.get(name, 0)
            if old != new and (name != "sum" or cell.item[0] == "month"):
                sure = not by_hand and not again
                self.moves[cell].append(made(after["version"], old, new, sure=sure))

    def expected(
        self, message: dict[str, Any], revision: Revision
    ) -> Iterator[tuple[TotalChange, dict[str, Any]]]:
        """The moves of which a message may tell, with the window that it must name."""
        for cell, moves in self.moves.items():
            if cell.counter != message["counter"] or cell.per != revision.item.get("window"):
                continue
            for move in moves:
                if move.version == message["version"] and revision.may_evaluate(move):
                    yield move, _named(cell, self.zone_of(cell.windows))

    def check_end(self, revisions: Iterable[Revision], told: set[str], *, slept: bool) -> None:
        """Each window that crossed was told, and each was told once."""
        for revision in revisions:
            if "window" not in revision.item:
                continue
            for cell, moves in self.moves.items():
                if cell.per != revision.item["window"] or not self.has(cell.windows, cell.per):
                    continue
                if revision.covers(cell.counter):
                    self._check(cell, moves, revision, told, slept=slept)

    def _check(
        self,
        cell: Cell,
        moves: list[TotalChange],
        revision: Revision,
        told: set[str],
        *,
        slept: bool,
    ) -> None:
        window = _named(cell, self.zone_of(cell.windows))
        mark = f"@{revision.item['revision']}/{cell.windows}/{window['name']}/"
        mine = {one for one in told if mark in one and one.endswith(f"/{cell.counter}")}
        if len(mine) > 1 and cell.counter not in self.deleted:
            raise Wrong(f"one window was told more than once: {sorted(mine)}")
        for move in moves:
            if not _crosses(move, revision):
                continue
            if move.sure and not slept and revision.must_evaluate(move) and not mine:
                raise Wrong(f"never told: {cell} crossed {revision.item} by {move}")


def _crosses(move: TotalChange, revision: Revision) -> bool:
    return move.old is not None and bool(crossed(move.old, move.new, revision.levels))


def _named(cell: Cell, zone: str) -> dict[str, Any]:
    """The window as a message names it."""
    kind, name = cell.item
    local = ZoneInfo(zone)
    if kind == "hour":
        begin = datetime.fromisoformat(name).replace(minute=int(cell.name[1:]), tzinfo=UTC)
        end = begin + timedelta(minutes=1)
        shown = f"{begin:%Y-%m-%dT%H:%M}Z"
    elif kind == "day":
        begin = datetime.fromisoformat(name).replace(hour=int(cell.name[1:]), tzinfo=local)
        end = begin + timedelta(hours=1)
        offset = f"{begin:%z}"
        shown = f"{begin:%Y-%m-%dT%H}{offset[:3]}:{offset[3:]}"
    elif cell.name == "sum":
        begin = datetime.fromisoformat(f"{name}-01").replace(tzinfo=local)
        end = (begin + timedelta(days=31)).replace(day=1)
        shown = name
    else:
        shown = f"{name}-{cell.name[1:]}"
        begin = datetime.fromisoformat(shown).replace(tzinfo=local)
        end = begin + timedelta(days=1)
    times = (f"{one.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" for one in (begin, end))
    start_text, end_text = times
    return {
        "windows": cell.windows,
        "per": cell.per,
        "name": shown,
        "start": start_text,
        "end": end_text,
        "time_zone": zone,
    }
