"""Unique claims: take, change, release, look up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.attributes import encode
from countledger.ledger.errors import BadClaim, BadItem, WrongRegion
from countledger.ledger.limits import TRANSACTION_ACTIONS
from countledger.ledger.operations import Get
from countledger.producers.claims.claim import (
    Claim,
    Freeing,
    Taking,
    check_value,
    claim_in,
    id_of,
    owner_of,
    parts_of,
    shown_value,
)
from countledger.producers.claims.writing import write_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.attempts import Steps
    from countledger.ledger.attributes import Item
    from countledger.producers.claims.writing import OwnedWrite, Prepare, Read
    from countledger.producers.own_items import OwnWrite
    from countledger.producers.strict.context import MethodContext


@dataclass(frozen=True, slots=True)
class Claims:
    """The unique claims of a stack. Safe to share between threads.

    They live in the home region alone, and so do the app's own tables that are written with them.

    Attributes:
        context: clients, table, clock and randomness.
        region: where this process works.
        home_region: where claims live.
    """

    context: MethodContext
    region: str
    home_region: str

    def take(self, *claims: Claim, own: Sequence[OwnWrite] = ()) -> bool:
        """Take values for their owners, together with items of the app's own: all or nothing.

        One write unit for a single claim; two for each claim and two for each KB of each item where
        there is more than one write; the same once more if one of the values was released within
        the clock skew (a minute). What an owner has already it may take again; that claim keeps its
        id. A claim that is new gets the id of its `Claim`, or a new one. Use an id of your own
        for one take and its retries only.

        Args:
            claims: what to take, and for whom.
            own: what to write in the same transaction; up to 100 writes in all.

        Returns:
            Whether this call did it; False: it was done before (a retry). Several values that their
            owner has already, with no new item among them, are written again as they are: True.

        Raises:
            AlreadyClaimed: another owner has one of the values, or the owner has it under another
                id than the one that was given; the error names the owner.
            NotClaimed: the last claim of one of the values had the given id and was released. Its
                tombstone shows this, for a quarter of an hour at least.
            ItemInTheWay: an item of the app's own is not as its write expects.
            BadClaim, BadItem: an argument breaks its rule.
            Unclear: no attempt got a clear answer; the same call again is safe.
            Throttled: every attempt was refused for now.
            WrongRegion: this is not the home region.
        """
        again = bool(own) or len(claims) > 1
        writes = [*self._taking(claims, again=again, own=bool(own)), *own]

        def prepare(_read: Read) -> Steps[Sequence[OwnedWrite]]:
            yield from ()
            return writes

        return self._carry_out("to claim", claims, writes, prepare)

    def change(self, claim: Claim, to: str | tuple[str, ...], own: Sequence[OwnWrite] = ()) -> bool:
        """Replace an owner's value by another: four write units, and two for each KB of items.

        One read unit more if the claim is given without its id. The write units once more if the
        new value was released within the clock skew (a minute).

        Args:
            claim: what its owner has; with an id exactly that claim, else the one that is read.
            to: the new value, within the same scope.
            own: what to write in the same transaction.

        Returns:
            Whether this call did it; False: it was done before (a retry).

        Raises:
            NotClaimed: the owner does not have it, or has it by another claim than the one named.
            AlreadyClaimed: another owner has the new value; or has the old one, and the owner does
            not have the new one.
            ItemInTheWay, BadClaim, BadItem, Unclear, Throttled, WrongRegion: as `take`.
        """
        taken = Claim(claim.scope, to, claim.owner)
        if taken.key == claim.key:
            raise BadClaim(f"{claim.scope} {shown_value(claim.parts)} is to change into itself")
        taking = self._taking([taken], again=True, own=bool(own))
        what = [self._unseen(claim), *taking, *own]

        def prepare(read: Read) -> Steps[Sequence[OwnedWrite]]:
            return [(yield from self._freeing(claim, read, moved=True)), *taking, *own]

        return self._carry_out("to change", [claim], what, prepare)

    def release(self, *claims: Claim, own: Sequence[OwnWrite] = ()) -> bool:
        """Free values, if their owners have them: one write unit for a single one, else two each.

        One read unit more for each claim that is given without its id. This call frees the claims
        that it names, or that it read; never a claim that the same owner takes meanwhile. Another
        call without ids reads again, and frees what the owner has by then: where a release may be
        repeated (by a queue, or after a crash), give the claims that `find` answered with. A take
        that was sent before the release and arrives after it is refused.

        Args:
            claims: what to free, and its owner; with an id exactly that claim, else what is read.
            own: what to write in the same transaction.

        Returns:
            Whether this call did it; False: they were gone before (a retry), and what the values
            are claimed by now is left as it is.

        Raises:
            AlreadyClaimed: another owner has one of the values that were given without an id, or
            a claim of that id belongs to another owner.
            NotClaimed: one of the values has no owner; nothing is freed.
            ItemInTheWay, BadClaim, BadItem, Unclear, Throttled, WrongRegion: as `take`.
        """
        what = [*map(self._unseen, claims), *own]

        def prepare(read: Read) -> Steps[Sequence[OwnedWrite]]:
            freeing: list[OwnedWrite] = []
            for claim in claims:
                freeing.append((yield from self._freeing(claim, read)))  # noqa: PERF401 - yields
            return [*freeing, *own]

        return self._carry_out("to release", claims, what, prepare)

    def find(self, scope: str, value: str | tuple[str, ...]) -> Claim | None:
        """The claim of a value, with its owner and its id, or None: one read unit.

        Give it to `release` or `change`: they then free exactly this claim, however often and
        however late they are called.

        Raises:
            BadClaim: the scope or the value is not valid.
            CorruptItem: the claim cannot be read.
            WrongRegion: this is not the home region.
        """
        item = self._item(scope, value)
        return None if item is None else Claim(scope, value, owner_of(item), id_of(item))

    def owner(self, scope: str, value: str | tuple[str, ...]) -> str | None:
        """Who has a value, or None: one read unit.

        Raises:
            BadClaim: the scope or the value is not valid.
            WrongRegion: this is not the home region.
        """
        item = self._item(scope, value)
        return None if item is None else owner_of(item)

    def _item(self, scope: str, value: str | tuple[str, ...]) -> Item | None:
        scope, value = check_value(scope, value)
        self._refuse_elsewhere()
        key = keys.claim_key(scope, parts_of(value))
        return claim_in(self.context.reads.get(self.context.table, key, consistent=True))

    def _taking(self, claims: Sequence[Claim], *, again: bool, own: bool) -> list[Taking]:
        now_ms = self.context.clock.now_ms()
        return [
            Taking(
                self.context.table,
                claim,
                claim.claim_id or self.context.new_id(now_ms),
                self.context.new_id(now_ms),
                now_ms,
                self.context.clock_skew_ms,
                again,
                own,
            )
            for claim in claims
        ]

    def _unseen(self, claim: Claim) -> Freeing:
        """The release of a claim that cannot exist: its id is new."""
        new_id = self.context.new_id(self.context.clock.now_ms())
        return self._release_of(claim, new_id, seen=False)

    def _freeing(self, claim: Claim, read: Read, *, moved: bool = False) -> Steps[Freeing]:
        """The release of the claim that was named, or else of the one that its owner has now."""
        claim_id = claim.claim_id
        if claim_id is None:
            item = claim_in((yield from read(Get(self.context.table, claim.key))))
            if item is None or owner_of(item) != claim.owner:
                return replace(self._unseen(claim), moved=moved)
            claim_id = id_of(item)
        return replace(self._release_of(claim, claim_id, seen=True), moved=moved)

    def _release_of(self, claim: Claim, claim_id: str, *, seen: bool) -> Freeing:
        now_ms, skew_ms = self.context.clock.now_ms(), self.context.clock_skew_ms
        removal = self.context.new_id(now_ms)
        return Freeing(self.context.table, claim, claim_id, now_ms, skew_ms, removal, seen)

    def _carry_out(
        self,
        verb: str,
        claims: Sequence[Claim],
        writes: Sequence[OwnedWrite],
        prepare: Prepare,
    ) -> bool:
        """Check the writes, and carry them out.

        Args:
            verb: for messages.
            claims: that the caller gave.
            writes: the same writes as `prepare` makes, before anything is read.
            prepare: makes the writes; it may read.
        """
        if not claims:
            raise BadClaim("no claim: give at least one")
        if len(writes) > TRANSACTION_ACTIONS:
            raise BadItem(f"{len(writes)} writes at once: at most {TRANSACTION_ACTIONS} fit")
        places = Counter(map(_shown_place, writes))
        twice, times = places.most_common(1)[0]
        if times > 1:
            raise BadItem(f"two writes of one call name the same item: {twice}")
        self._refuse_elsewhere()
        what = f"{verb} {claims[0].scope} {shown_value(claims[0].parts)} for {claims[0].owner!r}"
        return self.context.run(write_all(self.context, what, prepare))

    def _refuse_elsewhere(self) -> None:
        if self.region != self.home_region:
            raise WrongRegion(
                f"unique claims live in the home region {self.home_region} alone, where one copy "
                f"decides; this is {self.region}: call there"
            )


def _shown_place(write: OwnedWrite) -> str:
    """Where a write goes, the same text for the same item."""
    table, key = write.place
    return f"{table!r} {sorted(encode(key).items())!r}"
