"""The auditor's account of quotas: what each window has used, under which limit, and why."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, Final

from countledger.infra.memory.tables import Change
from countledger.ledger.ids import IdempotencyKey
from countledger.ledger.tombstones import present
from countledger.producers.quotas.plan import counted_in_of
from tests.simulation.sums import Wrong

_PREFIX: Final = "quota#"
_ENDS: Final = ("committed", "released")


@dataclass(frozen=True)
class QuotaCall:
    """A call under a key, which may be repeated.

    Attributes:
        counters: its counters, sorted.
        amount: how much.
        key: its key.
        reserve: whether it reserves.
    """

    counters: tuple[str, ...]
    amount: int
    key: IdempotencyKey
    reserve: bool


@dataclass
class QuotaAccounts:
    """All quotas.

    Attributes:
        limits: of each incarnation the limits by revision.
        own: of each incarnation and counter its own limits by revision; None: removed.
        used: of each item of a window, what it has used.
        markers: of each partition and sort key, the marker as it was written last.
        keys: of each partition the markers by the keys of the callers.
        told: of each counter and window, what was admitted without a key.
        open: of each counter and window, what may have been counted without a key.
    """

    limits: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    own: dict[tuple[str, str], dict[int, int | None]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    used: dict[tuple[str, str], int] = field(default_factory=dict)
    markers: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    keys: dict[tuple[str, str], str] = field(default_factory=dict)
    told: Counter[tuple[str, str]] = field(default_factory=Counter)
    open: Counter[tuple[str, str]] = field(default_factory=Counter)

    def changed(self, change: Change) -> None:
        """An item of a quota was written."""
        partition, sort = change.key
        if not partition.startswith(_PREFIX) or change.after is None:
            return
        incarnation, _, window = partition.removeprefix(_PREFIX).partition("#")
        if not incarnation:
            after = present(change.after)
            if after is None:
                return  # the tombstone of a quota that was deleted
            self.limits[after["incarnation"]][int(after["revision"])] = int(after["limit"])
        elif incarnation == "keys":
            self._marker_changed(change)
        elif not window:
            own = change.after.get("limit")
            revision = int(change.after["revision"])
            self.own[incarnation, sort][revision] = None if own is None else int(own)
        else:
            self._window_changed(incarnation, sort.removeprefix("w#"), change)

    def _window_changed(self, incarnation: str, counter: str, change: Change) -> None:
        before, after = change.before or {}, change.after or {}
        if change.before is None and change.key in self.used:
            raise Wrong(f"the counter {change.key} was made twice")
        if "revision" not in after:
            raise Wrong(f"{change.key} was made by no admission: {after}")
        if after["revision"] < before.get("revision", 0):
            raise Wrong(f"{change.key} went back to revision {after['revision']}: {before}")
        used = int(after["used"])
        if used < 0:
            raise Wrong(f"{change.key} has used {used}")
        added = used - int(before.get("used", 0)) - self._overrun(before, after)
        limit = self._limit(incarnation, counter, int(after["revision"]))
        if added > 0 and used > limit:
            raise Wrong(f"{change.key} has used {used} of {limit}: {before}, then {after}")
        self.used[change.key] = used

    def _overrun(self, before: dict[str, Any], after: dict[str, Any]) -> int:
        return int(after.get("overrun", 0)) - int(before.get("overrun", 0))

    def _limit(self, incarnation: str, counter: str, revision: int) -> int:
        own = [r for r in self.own[incarnation, counter] if r <= revision]
        newest = self.own[incarnation, counter][max(own)] if own else None
        if newest is not None:
            return newest
        limits = self.limits[incarnation]
        return limits[max(r for r in limits if r <= revision)]

    def _marker_changed(self, change: Change) -> None:
        partition, sort = change.key
        after, before = dict(change.after or {}), self.markers.get(change.key)
        key = after.get("key")
        if key is not None and self.keys.setdefault((partition, key), sort) != sort:
            raise Wrong(f"key {key} of {partition} has two markers: {sort} and another one")
        if before is not None:
            if change.before is None:
                raise Wrong(f"{change.key} was made twice: {before}, then {after}")
            same = ("call", "amount", "counted_in", "key")
            if any(before.get(name) != after.get(name) for name in same):
                raise Wrong(f"{change.key} became another call: {before}, then {after}")
            if before["state"] != "reserved" or after["state"] not in _ENDS:
                raise Wrong(f"{change.key} was resolved twice: {before}, then {after}")
        self.markers[change.key] = after

    def counted(self, marker: dict[str, Any]) -> int:
        """What a marker says is counted in its window."""
        return int(marker.get("actual", marker["amount"]))

    def check(self) -> None:
        """Each window has used what its markers and the outcomes say."""
        keyed: Counter[tuple[str, str]] = Counter()
        total: Counter[tuple[str, str]] = Counter()
        for marker in self.markers.values():
            for place in counted_in_of(marker):
                keyed[place.counter, place.window] += self.counted(marker)
        for (partition, sort), used in self.used.items():
            total[sort.removeprefix("w#"), partition.split("#")[2]] += used
        for each in {*keyed, *total, *self.told}:
            plain = total[each] - keyed[each]
            if not self.told[each] <= plain <= self.told[each] + self.open[each]:
                raise Wrong(
                    f"{each} has used {total[each]}: {keyed[each]} under keys, and without "
                    f"{self.told[each]} to {self.told[each] + self.open[each]}"
                )
