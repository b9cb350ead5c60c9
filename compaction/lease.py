"""Which region merges, and until when: decisions over values, without a service.

Two items of the ledger, which every region has a copy of. No item of a table that converges by the
last writer can fence by itself; so both count only once every region has shown them. A write of
them names the identity of what its own copy showed. A region that shows one therefore never writes
beside it: whatever it writes later replaces it.

    epoch   which region is home, numbered, each with an id of its own. No item: epoch 0, and the
            home of the settings
    lease   the right of that home to merge until a time; all its processes share it

A merging write leaves only under a lease that was seen in every region, together with its epoch,
and that has not ended; checked after signing. Another home waits until the life of a signed request
and the clock skew have passed after the end of each lease that any region shows. So two homes never
merge at the same time, also if two stacks both name themselves home, each waits for the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from countledger.ledger import keys
from countledger.ledger.attributes import check_format, optional, require
from countledger.ledger.clock import to_datetime
from countledger.ledger.limits import (
    CLOCK_SKEW_DEFAULT_MS,
    LEASE_MS,
    SIGNED_REQUEST_LIFE_MS,
)
from countledger.ledger.operations import Absent, Compare, Put

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Condition


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """Which region is home.

    Attributes:
        number: counts the promotions.
        id: made by the promotion; empty for epoch 0, which has no item.
        begins_ms: before this time its home merges nothing.
        lost: a region that was lost and whose entries are still to be brought in, or empty. As
            long as one is named nothing is merged: then no entry of it can have been merged.
    """

    number: int
    home: str
    id: str
    begins_ms: int = 0
    lost: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeLease:
    """The right to merge for a time."""

    epoch: str
    home: str
    id: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class Shown:
    """What one region shows of the two."""

    epoch: Epoch | None = None
    lease: HomeLease | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTerms:
    """How long leases are, and what other homes wait for after their end."""

    clock_skew_ms: int = CLOCK_SKEW_DEFAULT_MS
    lease_ms: int = LEASE_MS
    request_life_ms: int = SIGNED_REQUEST_LIFE_MS

    @property
    def after_ms(self) -> int:
        """How long after its end a write under a lease may still arrive, by any clock."""
        return self.request_life_ms + self.clock_skew_ms


@dataclass(frozen=True, slots=True)
class LeaseHeld:
    """The lease is held until its end (by the home's clock)."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class Take:
    """The home may write its next lease: for this epoch, in place of what its own copy shows."""

    epoch: str
    before: HomeLease | None


@dataclass(frozen=True, slots=True)
class MergeWait:
    """Nothing may be merged now: the reason, for people."""

    reason: str


Ruling: TypeAlias = LeaseHeld | Take | MergeWait

EPOCH_ZERO: Final = 0


def may_merge(
    shown: Mapping[str, Shown], home: str, region: str, now_ms: int, terms: LeaseTerms
) -> Ruling:
    """Whether a region may merge, by what each region shows, read after the list of regions was."""
    epoch = shown[region].epoch or Epoch(number=EPOCH_ZERO, home=home, id="")
    if reason := _no_home(shown, epoch, region, now_ms):
        return MergeWait(reason)
    mine = shown[region].lease
    for name, one in sorted(shown.items()):
        lease = one.lease
        if lease is None or _is_of(lease, epoch) or now_ms > lease.until_ms + terms.after_ms:
            continue
        over = _time(lease.until_ms + terms.after_ms)
        return MergeWait(
            f"{name} shows a lease of {lease.home} whose last write may arrive until {over}"
        )
    if len(shown) == 1:
        return _alone(epoch, mine, now_ms + terms.lease_ms)
    if mine is None or not _is_of(mine, epoch) or mine.until_ms - now_ms < terms.lease_ms // 2:
        return Take(epoch.id, mine)
    if late := not_shown_in(shown, mine):
        return MergeWait(f"the lease of {region} has not arrived in {', '.join(late)}")
    return LeaseHeld(mine.until_ms)


def _alone(epoch: Epoch, mine: HomeLease | None, until_ms: int) -> Ruling:
    """The table has no other copy, so there is nobody to show a lease to.

    A region may join meanwhile, and be promoted: its epoch begins after this right (`Promotion`).

    A lease of this epoch says that it had some. A copy that was cut off and taken out of its table
    looks the same as one whose replicas were removed: only a promotion says which it is.
    """
    if mine is not None and _is_of(mine, epoch):
        return MergeWait(
            f"the other regions have left the table: `countledger region promote {epoch.home}` "
            "says that this one goes on alone"
        )
    return LeaseHeld(until_ms)


def not_shown_in(shown: Mapping[str, Shown], lease: HomeLease) -> list[str]:
    return sorted(name for name, one in shown.items() if one.lease != lease)


def _no_home(shown: Mapping[str, Shown], epoch: Epoch, region: str, now_ms: int) -> str | None:
    """Why this region is not home now; None if it is."""
    for name, one in sorted(shown.items()):
        if (one.epoch.id if one.epoch else "") != epoch.id:
            return (
                f"{name} shows another epoch than {region}: a promotion has not arrived everywhere"
            )
    if epoch.home != region:
        return f"the home region is {epoch.home} (epoch {epoch.number}); this is {region}"
    if epoch.lost:
        return (
            f"{epoch.lost} was lost: bring in what it had not replicated first "
            f"(`countledger region salvage {epoch.lost}`)"
        )
    if now_ms < epoch.begins_ms:
        return f"epoch {epoch.number} of {region} begins at {_time(epoch.begins_ms)}"
    return None


def _time(at_ms: int) -> str:
    return f"{to_datetime(at_ms):%H:%M:%S} UTC"


def _is_of(lease: HomeLease, epoch: Epoch) -> bool:
    return (lease.epoch, lease.home) == (epoch.id, epoch.home)


def next_epoch(before: Epoch, home: str, new_id: str, begins_ms: int, lost: str = "") -> Epoch:
    """The epoch after another one; no other epoch has its id."""
    begins_ms = max(begins_ms, before.begins_ms)
    return Epoch(number=before.number + 1, home=home, id=new_id, begins_ms=begins_ms, lost=lost)


# ---- items ----


def epoch_of(table: str, epoch: Epoch, before: Epoch | None) -> Put:
    """The write of an epoch in place of the one that this copy shows: one write unit."""
    item = {
        **keys.region_home_key(keys.EPOCH),
        "epoch": epoch.number,
        "home": epoch.home,
        "id": epoch.id,
        "begins_at": epoch.begins_ms,
        "lost": epoch.lost or None,
    }
    return Put(table, item, _is_still(before.id if before else None))


def lease_of(table: str, lease: HomeLease, before: HomeLease | None) -> Put:
    """The write of a lease in place of the one that this copy shows: one write unit."""
    item = {
        **keys.region_home_key(keys.LEASE),
        "epoch": lease.epoch,
        "home": lease.home,
        "id": lease.id,
        "until": lease.until_ms,
    }
    return Put(table, item, _is_still(before.id if before else None))


def _is_still(seen: str | None) -> Condition:
    return Absent("entry") if seen is None else Compare("id", "=", seen)


def decode_shown(items: Iterable[Item]) -> Shown:
    """What a region shows, from the items of the partition."""
    found = {item["entry"]: item for item in items}
    for item in found.values():
        check_format(item)
    epoch, lease = found.get(keys.EPOCH), found.get(keys.LEASE)
    return Shown(
        None if epoch is None else _decode_epoch(epoch),
        None if lease is None else _decode_lease(lease),
    )


def _decode_epoch(item: Item) -> Epoch:
    return Epoch(
        number=require(item, "epoch", int),
        home=require(item, "home", str),
        id=require(item, "id", str),
        begins_ms=require(item, "begins_at", int),
        lost=optional(item, "lost", str) or "",
    )


def _decode_lease(item: Item) -> HomeLease:
    return HomeLease(
        epoch=require(item, "epoch", str),
        home=require(item, "home", str),
        id=require(item, "id", str),
        until_ms=require(item, "until", int),
    )
