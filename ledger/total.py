"""The total: a counter's current value, kept by the consumer and read by one GetItem."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from countledger.ledger import amount
from countledger.ledger.attributes import (
    Item,
    check_format,
    describe,
    optional,
    optional_time,
    require,
    require_amount,
)
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import CorruptItem, shown
from countledger.ledger.limits import BINS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from countledger.ledger.amount import Amount

REPAIRED_AT: Final = "repaired_at"
"""Of a total whose windows may lack what was recorded before; a rebuild of windows removes it."""

_WINDOWS_PREFIX: Final = "windows#"
_WINDOWED_PREFIX: Final = "windowed#"
_WINDOWED_EVENTS_PREFIX: Final = "windowed_events#"
# Of one counter at a time: 72 bits.
_WINDOWS_ID_BYTES: Final = 9
_OF_SETTING: Final = "."


@dataclass(frozen=True, slots=True)
class Total:
    """A counter's current value.

    Attributes:
        counter: its name.
        value: the sum of the deltas that the consumer has taken in; 0 for a counter never seen.
        events: how many events they carried; of a strict counter, which counts none, 0.
        entries: how many there were; of a strict counter 0.
        version: how often it was updated; 0 = never. (That of a strict counter begins elsewhere,
            and grows as well.)
        updated_at_ms: when it was last updated, milliseconds since the epoch.
        method: of a strict counter, or `sequence`; None for one that is kept in the ledger.
        bins: over how many items its value is spread; 1 = none but its own.
    """

    counter: str
    value: Amount = 0
    events: int = 0
    entries: int = 0
    version: int = 0
    updated_at_ms: int | None = None
    method: str | None = None
    bins: int = 1

    @property
    def updated_at(self) -> datetime | None:
        """When it was last updated, in UTC; None for never."""
        return None if self.updated_at_ms is None else to_datetime(self.updated_at_ms)


def windows_names(setting_id: str) -> tuple[str, str, str]:
    """The attributes of a total about the windows of a setting: their id, their sum, its events.

    Months add up to the sum, so what is left of the total was recorded outside of the setting.
    """
    return (
        f"{_WINDOWS_PREFIX}{setting_id}",
        f"{_WINDOWED_PREFIX}{setting_id}",
        f"{_WINDOWED_EVENTS_PREFIX}{setting_id}",
    )


def is_of_windows(attribute: str) -> bool:
    """Whether an attribute of a total is one of `windows_names`, of any setting."""
    return attribute.startswith((_WINDOWS_PREFIX, _WINDOWED_PREFIX, _WINDOWED_EVENTS_PREFIX))


def windows_id_of(item: Item, setting_id: str) -> str | None:
    """The id in the keys of a counter's windows; None: no entry of the setting was added yet.

    Another total, made after the counter was deleted, has another id.
    """
    return optional(item, windows_names(setting_id)[0], str)


def repaired_ms_of(item: Item) -> int | None:
    """When a total was last repaired without a rebuild of its windows since; None: never."""
    return optional_time(item, REPAIRED_AT)


def windows_ids_in(item: Item) -> set[object]:
    return {value for name, value in item.items() if name.startswith(_WINDOWS_PREFIX)}


def new_windows_id(setting_id: str, shard: str, sequence: int) -> str:
    """An id of a counter's windows: of the setting and the record by which they begin.

    It begins with the id of the setting, so the calendar of an item of windows follows from its
    key.
    """
    text = f"{setting_id}#{shard}#{sequence}"
    digest = blake2b(text.encode(), digest_size=_WINDOWS_ID_BYTES).digest()
    return f"{setting_id}{_OF_SETTING}{urlsafe_b64encode(digest).decode()}"


def new_incarnation(shard: str, sequence: int, now_ms: int) -> str:
    """An id of a total: of the record by which it begins, and of the time."""
    text = f"{shard}#{sequence}#{now_ms}"
    digest = blake2b(text.encode(), digest_size=_WINDOWS_ID_BYTES, person=b"total").digest()
    return urlsafe_b64encode(digest).decode()


def setting_id_of(windows_id: str) -> str:
    return windows_id.rpartition(_OF_SETTING)[0]


def decode_total(item: Item) -> Total:
    check_format(item)
    if "method" in item:
        return _decode_strict(item)
    return Total(
        counter=require(item, "counter", str),
        value=require_amount(item, "total"),
        events=require(item, "events", int),
        entries=require(item, "entries", int),
        version=require(item, "version", int),
        updated_at_ms=optional_time(item, "updated_at"),
    )


def _decode_strict(item: Item) -> Total:
    bins = optional(item, "bins", int) or 1
    if not 1 <= bins <= BINS_MAX:
        raise CorruptItem(f"{describe(item)}: 'bins' is {shown(bins)}, no number of bins", item)
    return Total(
        counter=require(item, "counter", str),
        value=require_amount(item, "total") if bins == 1 else 0,
        version=require(item, "version", int),
        updated_at_ms=optional_time(item, "updated_at"),
        method=require(item, "method", str),
        bins=bins,
    )


def with_bins(total: Total, items: Iterable[Item]) -> Total:
    found = list(items)
    stamps = [optional_time(item, "updated_at") for item in found]
    return replace(
        total,
        value=amount.total_of(require_amount(item, "total") for item in found),
        version=sum(require(item, "version", int) for item in found),
        updated_at_ms=max((at for at in stamps if at is not None), default=None),
    )
