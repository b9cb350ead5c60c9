"""The windows of the namespaces, as facts of a stack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.ledger.calendar import rules_of, rules_version
from countledger.ledger.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger import CountLedger
    from countledger.ledger.attributes import OnCorrupt
    from countledger.ledger.windows import WindowSetting


@dataclass(frozen=True, slots=True)
class WindowsFact:
    """The newest windows of a namespace.

    Attributes:
        namespace: whose counters have them.
        by: the finest.
        time_zone: whose hours, days and months.
        tzdata: the version of the rules of that zone that they follow.
        newer: the version of the installed rules, if that is later and has other rules for the
            zone; else None.
        from_at_ms: from when on they count, ms since the epoch.
        until_at_ms: until when; None: they are on.
    """

    namespace: str
    by: str
    time_zone: str
    tzdata: str
    newer: str | None
    from_at_ms: int
    until_at_ms: int | None


def windows_facts(client: CountLedger, on_corrupt: OnCorrupt) -> Iterator[WindowsFact]:
    """The windows of each namespace that has or had any: half a read unit for each namespace."""
    for namespace, one in client.window_settings.list(on_corrupt=on_corrupt):
        yield WindowsFact(
            namespace,
            str(one.finest),
            one.zone,
            one.rules_version,
            _newer_rules(one),
            one.from_ms,
            one.ended_ms,
        )


def _newer_rules(setting: WindowSetting) -> str | None:
    installed = rules_version()
    if setting.ended_ms is not None or installed <= setting.rules_version:
        return None
    try:
        return installed if rules_of(setting.zone) != setting.rules else None
    except BadSetting:
        return None  # the zone has another name now: its rules stay as they are
