"""Claims under faults: one owner, all or nothing, and the same call again is safe."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pytest

from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.errors import NotClaimed, Unclear
from countledger.ledger.ids import new_id
from countledger.producers.claims import claim as claim_module
from countledger.producers.claims.claim import Claim
from countledger.producers.claims.claims import Claims
from countledger.producers.own_items import ItemChange, NewItem
from tests.engines.numbering import all_items, claims_of, own_table
from tests.engines.store import Store
from tests.faults.canary import Rule, WrongNumber, judged
from tests.faults.injection import Attempts, Fault, Kind, faults, held_back

LOST = Fault(Kind.TIMEOUT, applied=True)
NOT_SENT = Fault(Kind.TIMEOUT)


@dataclass
class Ann:
    """A user with her address, and what she does with it."""

    store: Store
    users: str
    scope: str

    @property
    def old(self) -> Claim:
        return Claim(self.scope, "old", "ann")

    @property
    def new(self) -> Claim:
        return Claim(self.scope, "new", "ann")

    @property
    def item(self) -> NewItem:
        return NewItem(self.users, {"id": "ann", "mail": "old"}, ("id",))

    def take(self, claims: Claims) -> bool:
        return claims.take(self.old)

    def take_with_item(self, claims: Claims) -> bool:
        return claims.take(self.old, own=[self.item])

    def change(self, claims: Claims) -> bool:
        moved = ItemChange(self.users, {"id": "ann"}, {"mail": "new"}, {"mail": "old"})
        return claims.change(self.old, "new", own=[moved])

    def release(self, claims: Claims) -> bool:
        return claims.release(self.old)

    def seen(self) -> tuple[str | None, str | None, list[str]]:
        """Who has the old address, who the new one, and what the user's item says."""
        claims = claims_of(self.store)
        mails = [item["mail"]["S"] for item in all_items(self.store, self.users)]
        return claims.owner(self.scope, "old"), claims.owner(self.scope, "new"), mails

    def expect(self, old: str | None, new: str | None, mails: list[str]) -> None:
        """All of it, or an alarm."""
        if self.seen() != (old, new, mails):
            raise WrongNumber(f"{self.seen()} and not {(old, new, mails)}")


@pytest.fixture
def ann(store: Store, counter: str) -> Iterator[Ann]:
    """Nothing taken yet."""
    with own_table(store) as table:
        yield Ann(store, table, counter.partition(":")[0])


def _meeting(claims: Claims, at: str, *plan: Fault | None) -> AbstractContextManager[Attempts]:
    return faults(claims.context.dynamo.client, at=at, plan=plan)


def without_the_token(patch: pytest.MonkeyPatch) -> None:
    """Each attempt is a transaction of its own, and a refused one is believed."""
    transact = DynamoClient.transact

    def own_token(dynamo: DynamoClient, writes: Any, _token: str) -> bool:  # noqa: ANN401
        return transact(dynamo, writes, new_id(0))

    patch.setattr(DynamoClient, "transact", own_token)
    patch.setattr(claim_module.Freeing, "done", lambda *_: False)


@judged(without_the_token)
def test_a_change_that_was_made_is_not_called_refused(store: Store, ann: Ann, rule: Rule) -> None:
    claims = claims_of(store)
    ann.take_with_item(claims)

    with rule.watched(), _meeting(claims, "TransactWriteItems", LOST):
        try:
            ann.change(claims)
        except NotClaimed as refused:
            raise WrongNumber(str(refused)) from refused


def test_a_late_change_takes_nothing_back(store: Store, ann: Ann) -> None:
    claims = claims_of(store)
    ann.take(claims)
    # The first is held back, and no other arrives.
    silence = _meeting(claims, "TransactWriteItems", *[NOT_SENT] * 100)
    late_one = held_back(claims.context.dynamo.client, "TransactWriteItems")
    with late_one as late, silence, pytest.raises(Unclear):
        claims.change(ann.old, "new")

    assert claims.change(ann.old, "new")
    assert claims.change(ann.new, "third")
    late.land()

    assert late.landings == [400]
    assert claims.owner(ann.scope, "third") == "ann"
    ann.expect(None, None, [])
