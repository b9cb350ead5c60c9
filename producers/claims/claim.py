"""A claim as a value, and what takes and frees it: pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.attributes import check_format, require
from countledger.ledger.errors import AlreadyClaimed, BadClaim, NotClaimed, shown
from countledger.ledger.expressions import Absent, AnyOf, Compare
from countledger.ledger.limits import (
    OWNER_MAX_BYTES,
    PARTITION_KEY_MAX_BYTES,
    SCOPE_MAX_BYTES,
    TRANSACTION_ACTIONS,
)
from countledger.ledger.operations import Delete, Put

if TYPE_CHECKING:
    from countledger.ledger.attributes import Item
    from countledger.ledger.errors import Refused


@dataclass(frozen=True, slots=True)
class Claim:
    """A value within a scope, and who has or wants it.

    Two values are the same if their bytes are: whoever wants `Ann@x.org` and `ann@x.org` to be one
    folds them first.

    Attributes:
        scope: within which the value is unique, as `user-email`: 1 to 255 bytes, no `#`.
        value: a text, or a tuple of texts for a combination; not empty.
        owner: who has it, as the id of a user: 1 to 1,024 bytes.

    Raises:
        BadClaim: naming the part and the rule that it breaks.
    """

    scope: str
    value: str | tuple[str, ...]
    owner: str

    def __post_init__(self) -> None:
        """Refuse at birth."""
        check_value(self.scope, self.value)
        _check_text("owner", self.owner, OWNER_MAX_BYTES)

    @property
    def parts(self) -> tuple[str, ...]:
        """The value as a combination, of one part maybe."""
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
        now_ms: when.
        again: whether one that its owner has already is put once more, rather than refused.
    """

    table: str
    claim: Claim
    now_ms: int
    again: bool

    @property
    def place(self) -> tuple[str, Item]:
        """Its table and its key."""
        return self.table, dict(self.claim.key)

    def write(self) -> Put:
        """The write: one write unit up to 1 KB, two in a transaction."""
        item = {**self.claim.key, "owner": self.claim.owner, "at": self.now_ms}
        free = Absent("part")
        mine = Compare("owner", "=", self.claim.owner)
        return Put(self.table, item, AnyOf(free, mine) if self.again else free)

    def done(self, found: Item | None) -> bool:
        """Whether its owner has it."""
        return found is not None and owner_of(found) == self.claim.owner

    def refused(self, found: Item | None) -> Refused:
        """Why the write was refused."""
        return _refused(self.claim, found)


@dataclass(frozen=True, slots=True)
class Freeing:
    """A claim to be deleted, if its owner has it.

    Attributes:
        table: the table `counters`.
        claim: what is to be free, and who has it.
        moved: whether its owner takes another value instead: then that one tells whether it was
            done before, whoever has the old value since.
    """

    table: str
    claim: Claim
    moved: bool = False

    @property
    def place(self) -> tuple[str, Item]:
        """Its table and its key."""
        return self.table, dict(self.claim.key)

    def write(self) -> Delete:
        """The write: one write unit up to 1 KB, two in a transaction."""
        return Delete(self.table, self.claim.key, Compare("owner", "=", self.claim.owner))

    def done(self, found: Item | None) -> bool:
        """Whether nobody has it; of one that moved, whether its owner has it no more."""
        return found is None or (self.moved and owner_of(found) != self.claim.owner)

    def refused(self, found: Item | None) -> Refused:
        """Why the write was refused."""
        return _refused(self.claim, found)


def parts_of(value: str | tuple[str, ...]) -> tuple[str, ...]:
    """A value as a combination."""
    return (value,) if isinstance(value, str) else value


def owner_of(item: Item) -> str:
    """Who owns the value of a claim that is stored.

    Raises:
        CorruptItem: it does not tell.
        NewerFormat: a later release wrote it.
    """
    check_format(item)
    return require(item, "owner", str)


def check_value(scope: object, value: object) -> None:
    """Scope and value of a claim.

    Raises:
        BadClaim: naming the part and the rule that it breaks.
    """
    name = _check_text("scope", scope, SCOPE_MAX_BYTES)
    if "#" in name:
        raise BadClaim(f"scope {shown(scope)} holds a '#', which is reserved")
    if not isinstance(value, str | tuple) or not 0 < len(parts_of(value)) <= TRANSACTION_ACTIONS:
        raise BadClaim(f"value {shown(value)} is no text and no tuple of 1 to 100 texts")
    for part in parts_of(value):
        _check_text("value", part, PARTITION_KEY_MAX_BYTES)
    size = len(keys.claim_key(name, parts_of(value))["counter"].encode())
    if size > PARTITION_KEY_MAX_BYTES:
        raise BadClaim(
            f"scope and value {shown(value)} make a key of {size} bytes; at most "
            f"{PARTITION_KEY_MAX_BYTES} fit: claim a hash of the value"
        )


def _check_text(what: str, text: object, most: int) -> str:
    if not isinstance(text, str):
        raise BadClaim(f"{what} {shown(text)} is a {type(text).__name__}, not a str")
    if not text or keys.has_control_characters(text):
        raise BadClaim(f"{what} {shown(text)} is empty or holds control characters")
    size = len(text.encode())
    if size > most:
        raise BadClaim(f"{what} {shown(text)} is {size} bytes long; at most {most} fit")
    return text


def _refused(claim: Claim, found: Item | None) -> Refused:
    if found is None:
        return NotClaimed(
            f"{claim.scope} {shown_value(claim.parts)} is not claimed by {claim.owner!r}, nor by "
            "anybody else"
        )
    owner = owner_of(found)
    return AlreadyClaimed(
        f"{claim.scope} {shown_value(claim.parts)} is claimed by {owner!r}",
        claim.scope,
        claim.parts,
        owner,
    )


def shown_value(parts: tuple[str, ...]) -> str:
    """A value for a message."""
    return shown(parts[0] if len(parts) == 1 else parts)
