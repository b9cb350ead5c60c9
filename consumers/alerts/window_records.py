"""The changes of windows in a stream record of `counters`. Pure.

An item of windows holds several: each of them is evaluated like a total. Its version is that of the
item, so of two changes of a window the later one has the higher version.

    item      windows, each with its sum
    month     its days; and the month itself
    day       its hours
    hour      its minutes

What several settings counted of one window is in several items, and each is evaluated alone: no
update contains their sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from countledger.consumers.alerts.crossing import (
    TotalChange,
    image_in,
    is_too_old,
    total_in,
    version_in,
)
from countledger.consumers.alerts.message import AlertWindow
from countledger.consumers.alerts.state import may_matter
from countledger.consumers.record import MalformedRecord, created_at_ms, integer_in, subject_of
from countledger.ledger import keys
from countledger.ledger.calendar import Per, Window, window_of
from countledger.ledger.errors import CorruptItem
from countledger.ledger.limits import SECOND_MS
from countledger.ledger.total import setting_id_of
from countledger.ledger.windows import SUM, windows_of_item

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from countledger.consumers.alerts.rule import Rule
    from countledger.consumers.alerts.rule_index import RuleIndex
    from countledger.ledger.amount import Amount
    from countledger.ledger.windows import WindowSetting

_IN_ITEM: Final = {str(Per.MONTH): Per.DAY, str(Per.DAY): Per.HOUR, str(Per.HOUR): Per.MINUTE}
# The whole item; the others are the names of cells.
_WHOLE: Final = "sum"
_CELL_LENGTH: Final = 3


@dataclass(frozen=True, slots=True)
class WindowRecords:
    """Reads the changes of windows that rules watch.

    Attributes:
        index: the rules.
        settings: the window settings of a counter's namespace.
        now_ms: the time, ms since the epoch.
    """

    index: RuleIndex
    settings: Callable[[str], Sequence[WindowSetting]]
    now_ms: int

    def changes(self, record: Mapping[str, Any], sequence: int) -> list[TotalChange]:
        """The changes in a record that may have an effect under a rule; none: it has no window.

        The settings are read only for those.

        Raises:
            MalformedRecord: an attribute is absent or malformed, or the settings cannot be read.
            ServiceFailed: the settings could not be read now.
        """
        counter, part, name = subject_of(record, "part")
        if not part.startswith(keys.WINDOW_PREFIX) or "#" in counter or name == "REMOVE":
            return []
        rules = [rule for rule in self.index.matching(counter) if rule.window is not None]
        if not rules:
            return []
        at_ms = created_at_ms(record)
        stream = record["dynamodb"]
        new = image_in(stream, "NewImage")
        old: Mapping[str, Any] = {} if name == "INSERT" else image_in(stream, "OldImage")
        _, windows_id, item = part.split("#", 2)
        found: list[TotalChange] = []
        for per, cell in _changed(item, old, new):
            before, after = (_sum_in(image, cell) for image in (old, new))
            change = TotalChange(sequence, counter, before, after, version_in(new), at_ms)
            if any(_watches(rule, per, change) for rule in rules):
                window = self._window(counter, windows_id, item, cell, new)
                if window is not None:
                    found.append(change._replace(window=window))
        if found and is_too_old(at_ms, self.now_ms):
            raise MalformedRecord("the record is older than a stream keeps records")
        return found

    def _window(
        self, counter: str, windows_id: str, item: str, cell: str, image: Mapping[str, Any]
    ) -> AlertWindow | None:
        """The window of a cell; None: its setting has no windows of that kind.

        Where only days are counted and ranked, the item of a day has one cell for all its hours.
        """
        try:
            setting_id = setting_id_of(windows_id)
            settings = (one for one in self.settings(counter) if one.id == setting_id)
            setting = next(settings, None)
            if setting is None:
                raise MalformedRecord(f"its windows {windows_id!r} have no setting")
            per, window = _named(setting, item, cell)
            if not setting.has(per):
                return None
        except CorruptItem as error:
            raise MalformedRecord(str(error)) from error
        return AlertWindow(
            windows_id,
            per,
            window.name,
            window.start_ms,
            window.end_ms,
            setting.zone,
            _last_ms(setting, window, image),
        )


def _changed(
    item: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[tuple[Per, str]]:
    """The kind and the cell of each window whose sum differs."""
    kind = item.partition("#")[0]
    if kind not in _IN_ITEM:
        raise MalformedRecord(f"{item!r} is no item of windows")
    if kind == Per.MONTH and old.get(_WHOLE) != new.get(_WHOLE):
        yield Per.MONTH, _WHOLE
    for name in sorted({*old, *new}):
        is_cell = name[0] == SUM and len(name) == _CELL_LENGTH and name[1:].isdigit()
        if is_cell and old.get(name) != new.get(name):
            yield _IN_ITEM[kind], name


def _sum_in(image: Mapping[str, Any], cell: str) -> Amount:
    return total_in(image, cell) if cell in image else 0


def _watches(rule: Rule, per: Per, change: TotalChange) -> bool:
    return rule.window is per and rule.is_effective_at(change.at_ms) and may_matter(change, rule)


def _named(setting: WindowSetting, item: str, cell: str) -> tuple[Per, Window]:
    """The window of a cell: its kind, name and bounds."""
    windows = windows_of_item(setting, item)
    kind = item.partition("#")[0]
    if cell == _WHOLE:
        first = next(iter(windows.values()))
        return Per.MONTH, window_of(first.start_ms, Per.MONTH, setting.calendar)
    if cell[1:] not in windows:
        raise MalformedRecord(f"{cell!r} is no window of {item!r}")
    return _IN_ITEM[kind], windows[cell[1:]]


def _last_ms(setting: WindowSetting, window: Window, image: Mapping[str, Any]) -> int | None:
    """When something is added to a window for the last time."""
    if "expires_at" in image:
        try:
            return integer_in(image["expires_at"]) * SECOND_MS
        except (KeyError, TypeError, ValueError):
            raise MalformedRecord("the image has no well-formed expiry") from None
    lateness_ms = setting.max_lateness_ms
    return None if lateness_ms is None else window.end_ms + lateness_ms + setting.late_write_ms
