"""A claim as a value, and what takes and frees it: pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.attributes import check_format, require
from countledger.ledger.errors import AlreadyClaimed, BadClaim, NotClaimed, shown
from countledger.ledger.expressions import AllOf, AnyOf, Assign, AssignOnce, Compare
from countledger.ledger.limits import (
    CLAIM_ID_MAX_BYTES,
    OWNER_MAX_BYTES,
    PARTITION_KEY_MAX_BYTES,
    SCOPE_MAX_BYTES,
    TRANSACTION_ACTIONS,
)
from countledger.ledger.operations import Put, Update
from countledger.ledger.texts import check_text
from countledger.ledger.tombstones import NO_TOMBSTONE, present, removed_id, tombstone, vacant

if TYPE_CHECKING:
    from countledger.ledger.attributes import Item
    from countledger.ledger.errors import Refused


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
        """Check the parts of the claim, and keep them as plain texts."""
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

    Attributes:
        table: the table `counters`.
        claim: what is claimed, and for whom.
        claim_id: the id that the claim gets.
        now_ms: when.
        clock_skew_ms: how far clocks may differ.
        again: whether a claim that its owner has already is accepted unchanged, not refused.
        met: the id of the released claim whose tombstone an earlier request of this call has met.
    """

    table: str
    claim: Claim
    claim_id: str
    now_ms: int
    clock_skew_ms: int
    again: bool
    met: str | None = None

    @property
    def place(self) -> tuple[str, Item]:
        """Its table and its key."""
        return self.table, dict(self.claim.key)

    def write(self) -> Put | Update:
        """The write: one write unit up to 1 KB, two in a transaction.

        A claim that its owner has already keeps its id and its time.
        """
        free = vacant(self.now_ms, self.clock_skew_ms, self.met)
        if not self.again:
            facts = {"owner": self.claim.owner, "id": self.claim_id, "at": self.now_ms}
            return Put(self.table, {**self.claim.key, **facts}, free)
        clauses = (
            Assign("owner", self.claim.owner),
            AssignOnce("id", self.claim_id),
            AssignOnce("at", self.now_ms),
            *NO_TOMBSTONE,
        )
        mine = [Compare("owner", "=", self.claim.owner)]
        if self.claim.claim_id is not None:
            mine.append(Compare("id", "=", self.claim.claim_id))
        return Update(self.table, dict(self.claim.key), clauses, AnyOf(free, AllOf(*mine)))

    def over(self, found: Item | None, new_id: str) -> Taking | None:
        """The same take in place of the tombstone that it met; None: it has met none of another id.

        The claim gets a new id: one with the old id may have been taken and released by now.
        """
        met = removed_id(found)
        if met in (None, self.claim_id):
            return None
        return replace(self, claim_id=self.claim.claim_id or new_id, met=met)

    def released(self, found: Item | None) -> bool:
        """Whether this call has made the claim, and somebody has released it since."""
        return self.claim.claim_id is None and removed_id(found) == self.claim_id

    def done(self, found: Item | None) -> bool:
        """Whether the owner has the value, by the claim with the given id if one was given."""
        held = present(found)
        if held is None or owner_of(held) != self.claim.owner:
            return False
        return self.claim.claim_id in (None, id_of(held))

    def refused(self, found: Item | None) -> Refused:
        """Why the write was refused."""
        if removed_id(found) == self.claim_id:
            return NotClaimed(
                f"{self.claim.scope} {shown_value(self.claim.parts)}: the claim {self.claim_id!r} "
                "was released: take the value under a new claim_id"
            )
        return _refused(self.claim, present(found))


@dataclass(frozen=True, slots=True)
class Freeing:
    """A claim to be replaced by a tombstone: the one with this id, and no other of the same owner.

    Attributes:
        table: the table `counters`.
        claim: the value to free, and its owner.
        claim_id: the id of the claim to free.
        now_ms: when.
        clock_skew_ms: how far clocks may differ.
        removal: the id of this call, by which it knows its own tombstone.
        seen: whether the owner is known to have had that claim: the caller named it, or this call
            has read it. If not, the id is new and no claim has it, so the write is refused.
        moved: whether the owner takes another value instead: then the new value's claim shows
        whether it was done before, even if another owner has taken the old value since.
    """

    table: str
    claim: Claim
    claim_id: str
    now_ms: int
    clock_skew_ms: int
    removal: str
    seen: bool
    moved: bool = False

    @property
    def place(self) -> tuple[str, Item]:
        """Its table and its key."""
        return self.table, dict(self.claim.key)

    def write(self) -> Put:
        """The write: one write unit up to 1 KB, two in a transaction."""
        left = tombstone(
            self.claim.key, self.claim_id, self.now_ms, self.clock_skew_ms, removal=self.removal
        )
        same = Compare("id", "=", self.claim_id), Compare("owner", "=", self.claim.owner)
        return Put(self.table, left, AllOf(*same))

    def done(self, found: Item | None) -> bool:
        """Whether the claim is gone. An id is used once, so a claim that is gone stays gone.

        If the owner was not seen to have the value, another owner's claim is a refusal.
        """
        held = present(found)
        if held is None:
            return True
        if id_of(held) == self.claim_id:
            return False
        return self.seen or self.moved or owner_of(held) == self.claim.owner

    def refused(self, found: Item | None) -> Refused:
        """Why the write was refused."""
        held = present(found)
        mine = held is not None and owner_of(held) == self.claim.owner
        if self.seen and held is not None and mine and id_of(held) != self.claim_id:
            return NotClaimed(
                f"{self.claim.scope} {shown_value(self.claim.parts)}: the claim "
                f"{self.claim_id!r} is gone, and {self.claim.owner!r} has the value by another "
                "claim, which is left as it is"
            )
        return _refused(self.claim, held)


def parts_of(value: str | tuple[str, ...]) -> tuple[str, ...]:
    """A value as a combination."""
    return (value,) if isinstance(value, str) else value


def owner_of(item: Item) -> str:
    """Who owns the value of a claim that is stored.

    Raises:
        CorruptItem: the item has no owner.
        NewerFormat: a later release wrote it.
    """
    check_format(item)
    return require(item, "owner", str)


def id_of(item: Item) -> str:
    """The id of a claim that is stored.

    Raises:
        CorruptItem: the item has none.
        NewerFormat: a later release wrote it.
    """
    check_format(item)
    return require(item, "id", str)


def check_value(scope: object, value: object) -> tuple[str, str | tuple[str, ...]]:
    """Scope and value of a claim, as plain texts.

    Raises:
        BadClaim: naming the part and the rule that it breaks.
    """
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
    """A value for a message."""
    return shown(parts[0] if len(parts) == 1 else parts)
