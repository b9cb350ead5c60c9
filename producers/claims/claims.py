"""Unique claims: take, change, release, look up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.attributes import encode
from countledger.ledger.errors import BadClaim, BadItem, WrongRegion
from countledger.ledger.limits import TRANSACTION_ACTIONS
from countledger.producers.claims.claim import (
    Claim,
    Freeing,
    Taking,
    check_value,
    owner_of,
    parts_of,
    shown_value,
)
from countledger.producers.claims.writing import carry_out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.producers.claims.writing import Step
    from countledger.producers.own_items import OwnWrite
    from countledger.producers.strict.means import Means


@dataclass(frozen=True, slots=True)
class Claims:
    """The unique claims of a stack. Safe to share between threads.

    They live in the home region alone, and so do the app's own tables that are written with them.

    Attributes:
        means: doors, table, clock and randomness.
        region: where this process works.
        home_region: where claims live.
    """

    means: Means
    region: str
    home_region: str

    def take(self, *claims: Claim, own: Sequence[OwnWrite] = ()) -> bool:
        """Take values for their owners, together with items of the app's own: all or nothing.

        One write unit for a single claim; two for each claim and two for each KB of each item where
        there is more than one write. What an owner has already it may take again.

        Args:
            claims: what to take, and for whom.
            own: what to write in the same transaction; up to 100 writes in all.

        Returns:
            Whether this call did it; False: it was done before (a retry). Several values that their
            owner has already, with no new item among them, are written again as they are: True.

        Raises:
            AlreadyClaimed: somebody else has one of the values; the error names the owner.
            ItemInTheWay: an item of the app's own is not as its write expects.
            BadClaim, BadItem: no such transaction can be.
            Unclear: no attempt got a clear answer; the same call again is safe.
            Throttled: every attempt was refused for now.
            WrongRegion: this is not the home region.
        """
        steps = [*self._taking(claims, again=bool(own) or len(claims) > 1), *own]
        return self._carry_out("to claim", claims, steps)

    def change(self, claim: Claim, to: str | tuple[str, ...], own: Sequence[OwnWrite] = ()) -> bool:
        """Let an owner have another value instead: four write units, and two for each KB of items.

        Args:
            claim: what its owner has.
            to: the value that it is to have instead, within the same scope.
            own: what to write in the same transaction.

        Returns:
            Whether this call did it; False: it was done before (a retry).

        Raises:
            NotClaimed: the owner does not have it.
            AlreadyClaimed: somebody else has the new value; or the old one, and the owner does not
                have the new one.
            ItemInTheWay, BadClaim, BadItem, Unclear, Throttled, WrongRegion: as `take`.
        """
        taken = Claim(claim.scope, to, claim.owner)
        if taken.key == claim.key:
            raise BadClaim(f"{claim.scope} {shown_value(claim.parts)} is to change into itself")
        freeing = Freeing(self.means.table, claim, moved=True)
        steps = [freeing, *self._taking([taken], again=True), *own]
        return self._carry_out("to change", [claim], steps)

    def release(self, *claims: Claim, own: Sequence[OwnWrite] = ()) -> bool:
        """Free values, if their owners have them: one write unit for a single one, else two each.

        Args:
            claims: what to free, and who has it.
            own: what to write in the same transaction.

        Returns:
            Whether this call did it; False: they were free (a retry).

        Raises:
            AlreadyClaimed: somebody else has one of them.
            NotClaimed: nobody has one of them, and the rest is not done.
            ItemInTheWay, BadClaim, BadItem, Unclear, Throttled, WrongRegion: as `take`.
        """
        steps = [*(Freeing(self.means.table, claim) for claim in claims), *own]
        return self._carry_out("to release", claims, steps)

    def owner(self, scope: str, value: str | tuple[str, ...]) -> str | None:
        """Who has a value, or None: one read unit.

        Raises:
            BadClaim: it is no scope, or no value.
            WrongRegion: this is not the home region.
        """
        check_value(scope, value)
        self._refuse_elsewhere()
        key = keys.claim_key(scope, parts_of(value))
        item = self.means.reads.get(self.means.table, key, consistent=True)
        return None if item is None else owner_of(item)

    def _taking(self, claims: Sequence[Claim], *, again: bool) -> list[Taking]:
        now_ms = self.means.clock.now_ms()
        return [Taking(self.means.table, claim, now_ms, again) for claim in claims]

    def _carry_out(self, verb: str, claims: Sequence[Claim], steps: Sequence[Step]) -> bool:
        if not claims:
            raise BadClaim("no claim: give at least one")
        if len(steps) > TRANSACTION_ACTIONS:
            raise BadItem(f"{len(steps)} writes at once: at most {TRANSACTION_ACTIONS} fit")
        places = Counter(map(_shown_place, steps))
        twice, times = places.most_common(1)[0]
        if times > 1:
            raise BadItem(f"two writes of one call are at the same item: {twice}")
        self._refuse_elsewhere()
        what = f"{verb} {claims[0].scope} {shown_value(claims[0].parts)} for {claims[0].owner!r}"
        return carry_out(self.means, what, steps)

    def _refuse_elsewhere(self) -> None:
        if self.region != self.home_region:
            raise WrongRegion(
                f"unique claims live in the home region {self.home_region} alone, where one copy "
                f"decides; this is {self.region}: call there"
            )


def _shown_place(step: Step) -> str:
    """Where a step writes, the same text for the same item."""
    table, key = step.place
    return f"{table!r} {sorted(encode(key).items())!r}"
