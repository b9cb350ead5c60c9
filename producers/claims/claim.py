"""A claim as a value, and what takes and frees it: pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from countledger.ledger import keys
from countledger.ledger.attributes import check_format, require
from countledger.ledger.errors import AlreadyClaimed, BadClaim, NotClaimed, shown
from countledger.ledger.limits import (
    CLAIM_ID_MAX_BYTES,
    OWNER_MAX_BYTES,
    PARTITION_KEY_MAX_BYTES,
    SCOPE_MAX_BYTES,
    TRANSACTION_ACTIONS,
)
from countledger.ledger.operations import (
    Absent,
    AllOf,
    AnyOf,
    Assign,
    AssignOnce,
    Compare,
    Drop,
    Put,
    Update,
    all_unchanged,
)
from countledger.ledger.texts import check_text
from countledger.ledger.tombstones import removal_id, removed_id, tombstone

if TYPE_CHECKING:
    from countledger.ledger.attributes import Item
    from countledger.ledger.errors import Refused
    from countledger.ledger.operations import Clause, Condition

_MOVED_AT: Final = "removed_at"


class Before(NamedTuple):
    """What an item says of the claims that were at its place before.

    A claim that replaces a tombstone keeps its `removed`, `removal` and `removed_at`. So a call
    that meets either knows the last removal, and whether an attempt of its own can have been
    applied and removed since.

    `removed`: the id of the last claim that was released; `removal`: of the call that released it;
    `moved_at`: when that was, or when a call moved the fence: see `fence_of`.
    """

    removed: str | None
    removal: str | None
    moved_at: int | None

    @classmethod
    def of(cls, found: Item | None) -> Before:
        moved_at = None if found is None else found.get(_MOVED_AT)
        return cls(removed_id(found), removal_id(found), moved_at)

    def is_earlier(self, than_ms: int) -> bool:
        """Whether nothing was removed, and no fence moved, since then."""
        return self.moved_at is None or self.moved_at < than_ms


def claim_in(found: Item | None) -> Item | None:
    """The item, if it is a claim that somebody has; a tombstone has no owner."""
    return found if found is not None and "owner" in found else None


def _undisturbed(since_ms: int, met: Before | None) -> Condition:
    """Nothing was removed since then, and no fence moved, but what an attempt has met."""
    earlier = Compare(_MOVED_AT, "<", since_ms)
    if met is None:
        return AnyOf(Absent(_MOVED_AT), earlier)
    named = all_unchanged({"removed": met.removed, _MOVED_AT: met.moved_at}, "removed", _MOVED_AT)
    return AnyOf(Absent(_MOVED_AT), earlier, named)


@dataclass(frozen=True, slots=True)
class Claim:
    """A value within a scope, and who has or wants it.

    Two values are the same if their bytes are: to make `Ann@x.org` and `ann@x.org` one value,
    fold the case first.

    Attributes:
        scope: within which the value is unique, as `user-email`: 1 to 255 bytes, no `#`.
        value: a text, or a tuple of texts for a combination; not empty.
        owner: who has it, as the id of a user: 1 to 1,024 bytes.
        claim_id: the identity of this claim, which no other claim has: 1 to 128 bytes. `take`
            makes one if it is None. With an id, `release` and `change` free this claim alone;
            without an id, they free the claim that the owner has when they read it.

    Raises:
        BadClaim: naming the part and the rule that it breaks.
    """

    scope: str
    value: str | tuple[str, ...]
    owner: str
    claim_id: str | None = None

    def __post_init__(self) -> None:
        scope, value = check_value(self.scope, self.value)
        owner = check_text("owner", self.owner, OWNER_MAX_BYTES, BadClaim)
        object.__setattr__(self, "scope", scope)
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "owner", owner)
        if self.claim_id is not None:
            claim_id = check_text("claim_id", self.claim_id, CLAIM_ID_MAX_BYTES, BadClaim)
            object.__setattr__(self, "claim_id", claim_id)

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the value; a text is one part."""
        return parts_of(self.value)

    @property
    def key(self) -> dict[str, str]:
        """Its key in `counters`."""
        return keys.claim_key(self.scope, self.parts)


@dataclass(frozen=True, slots=True)
class Taking:
    """A claim to be put.

    `call`: the id of this call, which a claim keeps whose own id the caller gave: another call may
    give the same. `again`: a claim that its owner has already is accepted unchanged, not refused.
    `own`: items of the app are written with it: they may change without the claim, so no request of
    this call may be applied once more after its answer: see `fence_of`. `met`: what the item said
    that refused an earlier request of this call.
    """

    table: str
    claim: Claim
    claim_id: str
    call: str
    now_ms: int
    clock_skew_ms: int
    again: bool
    own: bool = False
    met: Before | None = None

    @property
    def place(self) -> tuple[str, Item]:
        return self.table, dict(self.claim.key)

    def write(self) -> Update:
        """The write: one write unit up to 1 KB, two in a transaction.

        A claim that its owner has already keeps its id and its time.
        """
        undisturbed = _undisturbed(self.now_ms - self.clock_skew_ms, self.met)
        free: Condition = AllOf(Absent("owner"), undisturbed)
        clauses: list[Clause] = [
            Assign("owner", self.claim.owner),
            AssignOnce("id", self.claim_id),
            AssignOnce("at", self.now_ms),
            Drop("expires_at"),
        ]
        if self.claim.claim_id is not None:
            clauses.append(AssignOnce("call", self.call))
        mine: list[Condition] = [Compare("owner", "=", self.claim.owner)]
        if self.claim.claim_id is not None:
            mine.append(Compare("id", "=", self.claim.claim_id))
        if self.own:
            mine.append(undisturbed)
        condition = AnyOf(free, AllOf(*mine)) if self.again else free
        return Update(self.table, dict(self.claim.key), tuple(clauses), condition)

    @property
    def may_disturb(self) -> bool:
        """Whether a request that lands after the call's answer could change anything."""
        return self.own

    def may_come(self, _found: Item | None) -> bool:
        """Whether what it frees may still be taken: it frees nothing."""
        return False

    def over(self, found: Item | None, new_id: str) -> Taking | None:
        """The same take in place of what it met; None: the value is not to be had that way.

        The claim gets a new id: one with the old id may have been taken and released by now.
        """
        before = Before.of(found)
        claim = claim_in(found)
        free = claim is None and before.removed != self.claim_id
        mine = self.again and self.own and self.done(found)
        if not (free or mine) or before == self.met:
            return None
        return replace(self, claim_id=self.claim.claim_id or new_id, met=before)

    def was_applied(self, found: Item | None) -> bool | None:
        """Whether an attempt without an answer was applied, by what refused a later one.

        True also if somebody has released the claim since; None: the item does not show it.
        """
        claim, before = claim_in(found), Before.of(found)
        if claim is not None and id_of(claim) == self.claim_id:
            return bool(claim.get("call", self.call) == self.call)
        if before.removed == self.claim_id:
            return True if self.claim.claim_id is None else None
        if before.removed is None or before == self.met:
            return False
        return False if before.is_earlier(self.now_ms - self.clock_skew_ms) else None

    def done(self, found: Item | None) -> bool:
        """Whether the owner has the value, by the claim with the given id if one was given."""
        claim = claim_in(found)
        if claim is None or owner_of(claim) != self.claim.owner:
            return False
        return self.claim.claim_id in (None, id_of(claim))

    def refused(self, found: Item | None) -> Refused:
        if claim_in(found) is None and removed_id(found) == self.claim_id:
            return NotClaimed(
                f"{self.claim.scope} {shown_value(self.claim.parts)}: the claim {self.claim_id!r} "
                "was released: take the value under a new claim_id"
            )
        return _refused(self.claim, claim_in(found))


@dataclass(frozen=True, slots=True)
class Freeing:
    """A claim to be replaced by a tombstone: the one with this id, and no other of the same owner.

    `removal`: the id of this call, by which it knows its own tombstone. `seen`: the owner is known
    to have had that claim: the caller named it, or this call has read it; if not, the id is new and
    no claim has it, so the write is refused. `moved`: the owner takes another value instead: then
    the new value's claim shows whether it was done before, even if another owner has taken the old
    value since. `met`: as in `Taking`.
    """

    table: str
    claim: Claim
    claim_id: str
    now_ms: int
    clock_skew_ms: int
    removal: str
    seen: bool
    moved: bool = False
    met: Before | None = None

    @property
    def may_disturb(self) -> bool:
        return False

    @property
    def place(self) -> tuple[str, Item]:
        return self.table, dict(self.claim.key)

    def write(self) -> Put:
        """The write: one write unit up to 1 KB, two in a transaction."""
        met_ms = 0 if self.met is None else self.met.moved_at or 0
        left = tombstone(
            self.claim.key,
            self.claim_id,
            max(self.now_ms, met_ms),
            self.clock_skew_ms,
            removal=self.removal,
        )
        same = Compare("id", "=", self.claim_id), Compare("owner", "=", self.claim.owner)
        return Put(self.table, left, AllOf(*same, _undisturbed(self.now_ms + 1, self.met)))

    def over(self, found: Item | None, _new_id: str) -> Freeing | None:
        """The same release, although something was removed or fenced since it was planned."""
        before = Before.of(found)
        if not self.has(found) or before == self.met:
            return None
        return replace(self, met=before)

    def was_applied(self, found: Item | None) -> bool | None:
        """Whether an attempt without an answer was applied; None: the item does not show it."""
        before = Before.of(found)
        if before.removed == self.claim_id:
            return before.removal == self.removal
        if self.has(found) or not self.seen:
            return False
        if self.may_come(found):
            return None
        known = before.removed is None or before.is_earlier(self.now_ms - self.clock_skew_ms)
        return False if known else None

    def may_come(self, found: Item | None) -> bool:
        """Whether a claim of the given id may still be taken, and then be released late."""
        gone = self.claim.claim_id is None or removed_id(found) == self.claim_id
        return not gone and not self.has(found)

    def has(self, found: Item | None) -> bool:
        claim = claim_in(found)
        if claim is None or owner_of(claim) != self.claim.owner:
            return False
        return id_of(claim) == self.claim_id

    def done(self, found: Item | None) -> bool:
        """Whether the claim is gone. An id is used once, so a claim that is gone stays gone.

        If the owner was not seen to have the value, another owner's claim is a refusal.
        """
        claim = claim_in(found)
        if claim is None:
            return True
        if id_of(claim) == self.claim_id:
            return False
        return self.seen or self.moved or owner_of(claim) == self.claim.owner

    def refused(self, found: Item | None) -> Refused:
        claim = claim_in(found)
        mine = claim is not None and owner_of(claim) == self.claim.owner
        if self.seen and claim is not None and mine and id_of(claim) != self.claim_id:
            return NotClaimed(
                f"{self.claim.scope} {shown_value(self.claim.parts)}: the claim "
                f"{self.claim_id!r} is gone, and {self.claim.owner!r} has the value by another "
                "claim, which is left as it is"
            )
        return _refused(self.claim, claim)


ClaimWrite: TypeAlias = Taking | Freeing


def fence_of(
    write: ClaimWrite, found: Item | None, now_ms: int, new_id: str
) -> Put | Update | None:
    """What stops every request that a call has sent so far; None: none of them can be applied.

    Each request is conditional on nothing being removed at its place since it was planned, and on
    no fence that has moved since: this one does.
    """
    claim, before = claim_in(found), Before.of(found)
    if isinstance(write, Freeing) and (claim is None or id_of(claim) != write.claim_id):
        return None
    moved_ms = max(now_ms, write.now_ms + 1, (before.moved_at or 0) + 1)
    left = tombstone(write.claim.key, new_id, moved_ms, write.clock_skew_ms)
    if found is None:
        return Put(write.table, left, Absent("counter"))
    clauses: list[Clause] = [Assign(_MOVED_AT, moved_ms)]
    if claim is None:
        clauses.append(Assign("expires_at", left["expires_at"]))
    same = all_unchanged(found, "id", "owner", "removed", _MOVED_AT)
    return Update(write.table, dict(write.claim.key), tuple(clauses), same)


def parts_of(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def owner_of(item: Item) -> str:
    check_format(item)
    return require(item, "owner", str)


def id_of(item: Item) -> str:
    check_format(item)
    return require(item, "id", str)


def check_value(scope: object, value: object) -> tuple[str, str | tuple[str, ...]]:
    """Scope and value of a claim, as plain texts."""
    name = check_text("scope", scope, SCOPE_MAX_BYTES, BadClaim)
    if "#" in name:
        raise BadClaim(f"scope {shown(scope)} holds a '#', which is reserved")
    if not isinstance(value, str | tuple) or not 0 < len(parts_of(value)) <= TRANSACTION_ACTIONS:
        raise BadClaim(f"value {shown(value)} is neither a text nor a tuple of 1 to 100 texts")
    parts = tuple(
        check_text("value", part, PARTITION_KEY_MAX_BYTES, BadClaim) for part in parts_of(value)
    )
    size = len(keys.claim_key(name, parts)["counter"].encode())
    if size > PARTITION_KEY_MAX_BYTES:
        raise BadClaim(
            f"scope and value {shown(value)} make a key of {size} bytes; at most "
            f"{PARTITION_KEY_MAX_BYTES} fit: claim a hash of the value"
        )
    return name, parts[0] if isinstance(value, str) else parts


def _refused(claim: Claim, found: Item | None) -> Refused:
    if found is None:
        return NotClaimed(
            f"{claim.scope} {shown_value(claim.parts)} is not claimed by {claim.owner!r}, nor by "
            "anybody else"
        )
    owner = owner_of(found)
    if owner == claim.owner and claim.claim_id not in (None, id_of(found)):
        return AlreadyClaimed(
            f"{claim.scope} {shown_value(claim.parts)} is claimed by {owner!r} under another "
            f"claim_id, not under {claim.claim_id!r}",
            claim.scope,
            claim.parts,
            owner,
        )
    return AlreadyClaimed(
        f"{claim.scope} {shown_value(claim.parts)} is claimed by {owner!r}",
        claim.scope,
        claim.parts,
        owner,
    )


def shown_value(parts: tuple[str, ...]) -> str:
    return shown(parts[0] if len(parts) == 1 else parts)
