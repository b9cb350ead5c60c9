"""Unique claims: take, change, release, look up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from countledger.ledger import keys
from countledger.ledger.attempts import (
    Again,
    Attempts,
    Done,
    Exhausted,
    GiveUp,
    Recheck,
    Send,
    ask,
    attempt,
    otherwise,
    raise_exhausted,
)
from countledger.ledger.attributes import Item, encode
from countledger.ledger.errors import (
    BadClaim,
    BadItem,
    ConditionFailed,
    CountledgerError,
    TransactionCancelled,
)
from countledger.ledger.limits import TRANSACTION_ACTIONS
from countledger.ledger.operations import Delete, Get, Put, Transact, Update
from countledger.producers.claims.claim import (
    Claim,
    Freeing,
    Taking,
    check_value,
    claim_in,
    fence_of,
    id_of,
    owner_of,
    parts_of,
    shown_value,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from countledger.ledger.attempts import Reply, Steps, Verdict
    from countledger.ledger.connection import Connection
    from countledger.ledger.errors import Refused
    from countledger.producers.claims.claim import ClaimWrite
    from countledger.producers.own_items import OwnWrite


# Writes that belong together: all of them or none. A retry is recognized and is not refused.


_ADVICE: Final = "call again with the same arguments: writes that were applied are recognized"


class OwnedWrite(Protocol):
    """A write of a claim, or of an item of the app's own."""

    @property
    def place(self) -> tuple[str, Item]: ...

    def write(self) -> Put | Update | Delete: ...

    def done(self, found: Item | None) -> bool:
        """Whether the item is as the write would leave it."""

    def refused(self, found: Item | None) -> Refused:
        """Why the write was refused, by the item that was found."""


# A write that was refused, and the item that it met.
Met: TypeAlias = tuple[OwnedWrite, Item | None]
Read: TypeAlias = Callable[[Get], "Steps[Item | None]"]
Prepare: TypeAlias = Callable[[Read], "Steps[Sequence[ClaimWrite]]"]


def write_all(
    connection: Connection, what: str, prepare: Prepare, own: Sequence[OwnWrite]
) -> Steps[bool]:
    """Write everything or nothing: one write unit for a single item, two each for several.

    A refusal costs the same, and one read unit for each item that no condition met, to see whether
    it was done before. The answers mean:

        done                         all of it is written
        condition failed             refused, because of another owner or an item that is not as
                                     expected; or after a lost answer this very item: written;
                                     or all items are as the writes would leave them: done before
        condition failed: tombstones these takes again at once, each in place of the tombstone that
        and nothing else             it met: all writes cost the same once more
        throttle, conflict           nothing was written: again
        no answer                    again, a transaction under the same token; after that, what a
                                     single write meets says whether it `was_applied`, and the
                                     call answers once no request of it can be applied: by a
                                     fence (`fence_of`), one unit, unless the claim is decided

    `what` is for messages. `prepare` makes the writes of claims, one at least; it is given what
    reads. Every attempt sends these writes, so that a retry names the identity of what this call
    saw. All writes are at different items. False: it was done before this call.
    """
    begun_ms = connection.clock.now_ms()
    until_ms = begun_ms + connection.token_life_ms
    attempts = connection.attempts(until_ms)

    def give_up(exhausted: Exhausted[Any]) -> Any:  # noqa: ANN401 - it only raises
        raise_exhausted(exhausted, what, _ADVICE)

    def read(operation: Get) -> Steps[Item | None]:
        return ask(operation, attempts, give_up)

    claims = tuple((yield from prepare(read)))

    def interpret(reply: Reply[_Sent]) -> Verdict[_Sent, _Answered]:
        return reply.state.interpret(reply, lambda: connection.ids.new_id(begun_ms))

    first = _Sent(claims, tuple(own), connection.ids.new_id(begun_ms))
    sent, met = yield from attempt(first, _Sent.send, interpret, give_up, attempts)
    if attempts.maybe_applied:
        met = yield from _Confirmation(connection, sent, attempts, give_up).confirm_refusal(met)
    if not met:
        return True
    _refuse(met)
    # What was met was done at that moment, whatever others have done since.
    places = [write.place for write, _ in met]
    for write in first.writes:
        table, key = write.place
        if write.place not in places and not write.done((yield from read(Get(table, key)))):
            refused, found = met[0]
            raise refused.refused(found)
    return False


@dataclass(frozen=True, slots=True)
class _Sent:
    """What an attempt sends."""

    claims: tuple[ClaimWrite, ...]
    own: tuple[OwnWrite, ...]
    token: str

    @property
    def writes(self) -> tuple[OwnedWrite, ...]:
        """All of them, those of claims first: a claim is refused for its owner."""
        return *self.claims, *self.own

    def send(self) -> Send:
        writes = [one.write() for one in self.writes]
        return Send(writes[0] if len(writes) == 1 else Transact(writes, self.token))

    def interpret(
        self, reply: Reply[_Sent], new_id: Callable[[], str]
    ) -> Verdict[_Sent, _Answered]:
        """By the answer table of `write_all`."""
        match reply.answer:
            case ConditionFailed(item=found):
                applied = self.claims[0].was_applied(found) if reply.maybe_applied else False
                if applied is None:
                    return GiveUp(reply.answer)
                return Done((self, [])) if applied else self._met({0: found}, new_id)
            case TransactionCancelled(reasons=reasons):
                met = {n: one.item for n, one in enumerate(reasons) if one.condition_failed}
                return self._met(met, new_id) if met else otherwise(reply)
            case CountledgerError():
                return otherwise(reply)
        return Done((self, []))

    def _met(
        self, met: Mapping[int, Item | None], new_id: Callable[[], str]
    ) -> Verdict[_Sent, _Answered]:
        """Conditions failed: of takes that met tombstones only, or also of writes to be refused."""
        writes = self.writes
        over = {n: one.over(met[n], new_id()) for n, one in enumerate(self.claims) if n in met}
        others = [(writes[n], found) for n, found in met.items() if over.get(n) is None]
        if others:
            return Done((self, others))
        # Other writes than before: they need another token. What refused those refuses them for
        # ever, so none of them can be applied.
        claims = tuple(over.get(n) or one for n, one in enumerate(self.claims))
        return Recheck(replace(self, claims=claims, token=new_id()), resolved=True)


# What an attempt that was answered had sent, and what its writes met; nothing: all was written.
_Answered: TypeAlias = tuple[_Sent, list[Met]]


@dataclass(frozen=True, slots=True)
class _Confirmation:
    """Makes an outcome final, after a request without a clear answer: by the first claim.

    `sent`: the request that was answered; those before it are the same, or cannot be applied.
    """

    connection: Connection
    sent: _Sent
    attempts: Attempts
    give_up: Callable[[Exhausted[Any]], Any]

    def confirm_refusal(self, met: list[Met]) -> Steps[list[Met]]:
        """See to it that no request is applied after the answer; what the writes have met.

        What was done needs a fence only for the sake of the app's items: a claim that was freed
        cannot be freed again, and one that was taken is at most taken again by its owner.
        `Unclear`: the fence got no clear answer; or what was to be released may still be taken.
        """
        write = self.sent.claims[0]
        if not met and not write.may_disturb:
            return met
        found = next((item for one, item in met if one is write), None)
        if not any(one is write for one, _ in met):
            found = yield from ask(Get(*write.place), self.attempts, self.give_up)
        if write.may_come(found):
            self._unknown(found)
        alone = len(self.sent.writes) == 1
        if (yield from self._fence(write, found, alone=alone)):
            return []
        if alone or not met:
            return met
        return [] if (yield from self._was_applied()) else met

    def _fence(self, write: ClaimWrite, found: Item | None, *, alone: bool) -> Steps[bool]:
        """Move the fence; whether a request was applied before it, as far as the claim shows."""

        def fence(seen: Item | None) -> Put | Update | None:
            now_ms = self.connection.clock.now_ms()
            return fence_of(write, seen, now_ms, self.connection.ids.new_id(now_ms))

        def interpret(reply: Reply[Item | None]) -> Verdict[Item | None, bool]:
            match reply.answer:
                case ConditionFailed(item=seen):
                    applied = write.was_applied(seen) if alone else False
                    if applied is None:
                        return GiveUp(reply.answer)
                    return Done(applied) if applied or fence(seen) is None else Again(seen)
                case CountledgerError():
                    return otherwise(reply)
            return Done(value=False)

        if fence(found) is None:
            return False
        applied: bool = yield from attempt(
            found, lambda seen: Send(fence(seen)), interpret, self.give_up, self.attempts
        )
        return applied

    def _was_applied(self) -> Steps[bool]:
        """Ask with the same request again: its token says whether it was applied."""

        def interpret(reply: Reply[None]) -> Verdict[None, bool]:
            match reply.answer:
                case TransactionCancelled(reasons=reasons):
                    failed = any(reason.condition_failed for reason in reasons)
                    return Done(value=False) if failed else otherwise(reply)
                case CountledgerError():
                    return otherwise(reply)
            return Done(value=True)

        send = self.sent.send()
        applied: bool = yield from attempt(
            None, lambda _: send, interpret, self.give_up, self.attempts
        )
        return applied

    def _unknown(self, found: Item | None) -> None:
        error = ConditionFailed(found)
        self.give_up(Exhausted(None, self.attempts.made, error, maybe_applied=True))


def _refuse(met: Sequence[Met]) -> None:
    """Refuse for an item that is not as this call would leave it; another owner first.

    Writes of claims come before those of an app's own items, and a claim is refused for its owner.
    """
    for write, found in met:
        if not write.done(found):
            raise write.refused(found)


@dataclass(frozen=True, slots=True)
class Claims:
    """The unique claims of a stack. Safe to share between threads.

    They live in the home region alone, and so do the app's own tables that are written with them.
    """

    connection: Connection

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
        taking = self._taking(claims, again=again, own=bool(own))

        def prepare(_read: Read) -> Steps[Sequence[ClaimWrite]]:
            yield from ()
            return taking

        return self._carry_out("to claim", claims, taking, prepare, own)

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
        what: list[ClaimWrite] = [self._unseen(claim), *taking]

        def prepare(read: Read) -> Steps[Sequence[ClaimWrite]]:
            return [(yield from self._freeing(claim, read, moved=True)), *taking]

        return self._carry_out("to change", [claim], what, prepare, own)

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
        what = [*map(self._unseen, claims)]

        def prepare(read: Read) -> Steps[Sequence[ClaimWrite]]:
            freeing: list[ClaimWrite] = []
            for claim in claims:
                freeing.append((yield from self._freeing(claim, read)))  # noqa: PERF401 - yields
            return freeing

        return self._carry_out("to release", claims, what, prepare, own)

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
        self.connection.refuse_elsewhere("unique claims work")
        key = keys.claim_key(scope, parts_of(value))
        return claim_in(
            self.connection.retrying.get(self.connection.counters, key, consistent=True)
        )

    def _taking(self, claims: Sequence[Claim], *, again: bool, own: bool) -> list[Taking]:
        now_ms = self.connection.clock.now_ms()
        return [
            Taking(
                self.connection.counters,
                claim,
                claim.claim_id or self.connection.ids.new_id(now_ms),
                self.connection.ids.new_id(now_ms),
                now_ms,
                self.connection.clock_skew_ms,
                again,
                own,
            )
            for claim in claims
        ]

    def _unseen(self, claim: Claim) -> Freeing:
        """The release of a claim that cannot exist: its id is new."""
        new_id = self.connection.ids.new_id(self.connection.clock.now_ms())
        return self._release_of(claim, new_id, seen=False)

    def _freeing(self, claim: Claim, read: Read, *, moved: bool = False) -> Steps[Freeing]:
        """The release of the claim that was named, or else of the one that its owner has now."""
        claim_id = claim.claim_id
        if claim_id is None:
            item = claim_in((yield from read(Get(self.connection.counters, claim.key))))
            if item is None or owner_of(item) != claim.owner:
                return replace(self._unseen(claim), moved=moved)
            claim_id = id_of(item)
        return replace(self._release_of(claim, claim_id, seen=True), moved=moved)

    def _release_of(self, claim: Claim, claim_id: str, *, seen: bool) -> Freeing:
        now_ms, skew_ms = self.connection.clock.now_ms(), self.connection.clock_skew_ms
        removal = self.connection.ids.new_id(now_ms)
        return Freeing(self.connection.counters, claim, claim_id, now_ms, skew_ms, removal, seen)

    def _carry_out(
        self,
        verb: str,
        claims: Sequence[Claim],
        what: Sequence[ClaimWrite],
        prepare: Prepare,
        own: Sequence[OwnWrite],
    ) -> bool:
        """Check the writes, and carry them out; `verb` is for messages.

        `what`: the same writes as `prepare` makes, before anything is read.
        """
        writes: list[OwnedWrite] = [*what, *own]
        if not claims:
            raise BadClaim("no claim: give at least one")
        if len(writes) > TRANSACTION_ACTIONS:
            raise BadItem(f"{len(writes)} writes at once: at most {TRANSACTION_ACTIONS} fit")
        places = Counter(map(_shown_place, writes))
        twice, times = places.most_common(1)[0]
        if times > 1:
            raise BadItem(f"two writes of one call name the same item: {twice}")
        self.connection.refuse_elsewhere("unique claims work")
        named = f"{verb} {claims[0].scope} {shown_value(claims[0].parts)} for {claims[0].owner!r}"
        return self.connection.run(write_all(self.connection, named, prepare, own))


def _shown_place(write: OwnedWrite) -> str:
    """Where a write goes, the same text for the same item."""
    table, key = write.place
    return f"{table!r} {sorted(encode(key).items())!r}"
