"""What a watcher of totals has seen: values, rates, what is new. Pure: callers give the time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from countledger.ledger import amount
from countledger.ledger.limits import SECOND_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from countledger import Amount, Total
    from countledger.consumers.alerts.delivery import LoggedAlert

# A rate is that of the last seconds: shorter ones jump with every batch.
_RATE_OVER_MS: Final = 10 * SECOND_MS
_ALERTS_KEPT: Final = 10


@dataclass(frozen=True, slots=True)
class WatchedCounter:
    """One counter, as it was seen last.

    Attributes:
        total: its total.
        change: since it was looked at before; None at the first look.
        since_start: since the first look.
        per_second: over the last ten seconds; None before there are two looks.
    """

    total: Total
    change: Amount | None
    since_start: Amount
    per_second: float | None


@dataclass(slots=True)
class WatchState:
    """What was seen so far.

    Attributes:
        seen: each counter as it was seen last, in the order in which they were named.
        alerts: the newest alerts since the first look, oldest first.
    """

    seen: dict[str, WatchedCounter] = field(default_factory=dict)
    alerts: deque[LoggedAlert] = field(default_factory=lambda: deque(maxlen=_ALERTS_KEPT))
    _first: dict[str, Amount] = field(default_factory=dict)
    _looks: dict[str, deque[tuple[int, Amount]]] = field(default_factory=dict)
    _known: set[str] | None = None

    def look(self, totals: Mapping[str, Total], now_ms: int) -> list[WatchedCounter]:
        """Add totals; return those that changed since the last call, at the first call all."""
        changed: list[WatchedCounter] = []
        for name, total in totals.items():
            before = self.seen.get(name)
            seen = self._seen(name, total, now_ms)
            self.seen[name] = seen
            if before is None or before.total.value != total.value:
                changed.append(seen)
        return changed

    def hear(self, logged: Iterable[LoggedAlert]) -> list[LoggedAlert]:
        """Add the newest alerts of the log; return the new ones, oldest first.

        Alerts that are in the log at the first call are not new.
        """
        found = list(logged)
        known = self._known
        self._known = {one.alert.id for one in found}
        if known is None:
            return []
        fresh = [one for one in reversed(found) if one.alert.id not in known]
        mine = [one for one in fresh if one.alert.counter in self.seen]
        self.alerts.extend(mine)
        return mine

    def _seen(self, name: str, total: Total, now_ms: int) -> WatchedCounter:
        value = total.value
        before = self.seen.get(name)
        first = self._first.setdefault(name, value)
        looks = self._looks.setdefault(name, deque())
        looks.append((now_ms, value))
        # One look beyond the span stays: from it the rate is taken.
        while len(looks) > 2 and looks[1][0] <= now_ms - _RATE_OVER_MS:  # noqa: PLR2004 - two ends
            looks.popleft()
        return WatchedCounter(
            total,
            None if before is None else _less(value, before.total.value),
            _less(value, first),
            rate_of(looks),
        )


def rate_of(looks: Sequence[tuple[int, Amount]]) -> float | None:
    """The change each second between the first and the last look."""
    (first_ms, first), (last_ms, last) = looks[0], looks[-1]
    if last_ms <= first_ms:
        return None
    return float(_less(last, first)) * SECOND_MS / (last_ms - first_ms)


def _less(left: Amount, right: Amount) -> Amount:
    return amount.add(left, amount.negated(right))
