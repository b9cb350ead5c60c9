"""Claims under faults: one owner, all or nothing, and the same call again is safe."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from countledger.ledger.connection import Retries
from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.errors import AlreadyClaimed, NotClaimed, Throttled, Unclear
from countledger.ledger.ids import new_id
from countledger.producers.claims import claim as claim_module
from countledger.producers.claims.claim import Claim, Taking
from countledger.producers.claims.claims import Claims
from countledger.producers.own_items import ItemChange, ItemDeletion, NewItem
from tests.engines.numbering import all_items, claims_of, own_table
from tests.engines.store import Store
from tests.faults.canary import Rule, WrongNumber, judged
from tests.faults.injection import FAULTS, Attempts, Crash, Fault, Kind, faults
from tests.faults.strict.conflicts import conflicts
from tests.faults.strict.sellers import Late, before_request

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

    def release_with_item(self, claims: Claims) -> bool:
        return claims.release(self.old, own=[ItemDeletion(self.users, {"id": "ann"})])

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


Act = Callable[[Ann, Claims], bool]
# What happened before, the call, by which operation, and how things stand afterwards.
Case = tuple[list[Act], Act, str, tuple[str | None, str | None, list[str]]]
CASES: dict[str, Case] = {
    "take": ([], Ann.take, "PutItem", ("ann", None, [])),
    "take with item": ([], Ann.take_with_item, "TransactWriteItems", ("ann", None, ["old"])),
    "change": ([Ann.take_with_item], Ann.change, "TransactWriteItems", (None, "ann", ["new"])),
    "release": ([Ann.take], Ann.release, "DeleteItem", (None, None, [])),
    "release with item": (
        [Ann.take_with_item],
        Ann.release_with_item,
        "TransactWriteItems",
        (None, None, []),
    ),
}
CALLS = pytest.mark.parametrize("case", list(CASES.values()), ids=list(CASES))


def _meeting(claims: Claims, at: str, *plan: Fault | None) -> AbstractContextManager[Attempts]:
    return faults(claims.context.dynamo.client, at=at, plan=plan)


@CALLS
@pytest.mark.parametrize("retries", ["none", "standard"])
@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_all_of_it_is_done_whatever_fails(
    store: Store, ann: Ann, case: Case, fault: Fault, retries: Retries
) -> None:
    """By this call or by an attempt that nobody heard of; the same call again changes nothing."""
    before, act, operation, after = case
    claims = claims_of(store, retries=retries)
    for earlier in before:
        earlier(ann, claims)

    with _meeting(claims, operation, fault):
        act(ann, claims)
    ann.expect(*after)

    assert act(ann, claims) is False
    ann.expect(*after)


@CALLS
def test_no_answer_at_all_is_said_and_the_same_call_is_safe(
    store: Store, ann: Ann, case: Case
) -> None:
    """Carried out or not: the next call settles it."""
    before, act, operation, after = case
    for fault in (LOST, NOT_SENT):
        claims = claims_of(store)
        for earlier in before:
            earlier(ann, claims)
        reads = faults(claims.context.reads.client, at="GetItem", plan=[NOT_SENT] * 200)
        with (
            _meeting(claims, operation, *[fault] * 100) as writes,
            reads,
            pytest.raises((Unclear, Throttled)) as told,
        ):
            act(ann, claims)
        # A call that could not even read what it would write has written nothing.
        said = "call again with the same arguments" if len(writes) else "nothing was written"
        assert said in str(told.value)

        act(ann, claims_of(store))
        ann.expect(*after)
        for claim in (ann.old, ann.new):
            claims.release(claim)
        for item in all_items(store, ann.users):
            store.client().delete_item(TableName=ann.users, Key={"id": item["id"]})


@CALLS
def test_conflicts_are_tried_again_and_then_said(store: Store, ann: Ann, case: Case) -> None:
    """Nothing is written by them."""
    before, act, operation, after = case
    claims = claims_of(store)
    for earlier in before:
        earlier(ann, claims)
    seen, client = ann.seen(), claims.context.dynamo.client

    with conflicts(client, operation, 100), pytest.raises(Throttled, match="nothing was written"):
        act(ann, claims)
    assert ann.seen() == seen
    with conflicts(client, operation, 3):
        assert act(ann, claims)
    ann.expect(*after)


@CALLS
def test_a_crash_leaves_all_of_it_or_nothing(store: Store, ann: Ann, case: Case) -> None:
    """And whoever comes next goes on from there."""
    before, act, operation, after = case
    claims = claims_of(store)
    for earlier in before:
        earlier(ann, claims)
    seen = ann.seen()

    with _meeting(claims, operation, Fault(Kind.CRASH)), pytest.raises(Crash):
        act(ann, claims)
    assert ann.seen() == seen
    with _meeting(claims, operation, Fault(Kind.CRASH, applied=True)), pytest.raises(Crash):
        act(ann, claims)
    ann.expect(*after)


def without_the_condition(patch: pytest.MonkeyPatch) -> None:
    """A claim is put over another's."""
    kept = Taking.write

    def unconditional(self: Taking) -> object:
        return replace(kept(self), condition=None)

    patch.setattr(Taking, "write", unconditional)


@judged(without_the_condition)
def test_of_two_who_both_saw_a_free_value_one_gets_it(store: Store, ann: Ann, rule: Rule) -> None:
    """The condition decides, and not who looked."""
    slow, fast = claims_of(store), claims_of(store)
    told: list[object] = []

    def take(claims: Claims, owner: str) -> None:
        try:
            told.append((owner, claims.take(Claim(ann.scope, "old", owner))))
        except AlreadyClaimed as refused:
            told.append((owner, refused.owner))

    with rule.watched():
        client = slow.context.dynamo.client
        assert slow.owner(ann.scope, "old") is None
        with before_request(client, "PutItem", 1, partial(take, fast, "fast")):
            take(slow, "slow")
        if told != [("fast", True), ("slow", "fast")]:
            raise WrongNumber(str(told))


def without_the_token(patch: pytest.MonkeyPatch) -> None:
    """Each attempt is a transaction of its own, and a refused one is believed."""
    transact = DynamoClient.transact

    def own_token(dynamo: DynamoClient, writes: Any, _token: str) -> bool:  # noqa: ANN401
        return transact(dynamo, writes, new_id(0))

    patch.setattr(DynamoClient, "transact", own_token)
    patch.setattr(claim_module.Freeing, "done", lambda *_: False)


@judged(without_the_token)
def test_a_change_that_was_made_is_not_called_refused(store: Store, ann: Ann, rule: Rule) -> None:
    """Its answer was lost, and its own work stands in its way."""
    claims = claims_of(store)
    ann.take_with_item(claims)

    with rule.watched(), _meeting(claims, "TransactWriteItems", LOST):
        try:
            ann.change(claims)
        except NotClaimed as refused:
            raise WrongNumber(str(refused)) from refused


def test_a_late_change_takes_nothing_back(store: Store, ann: Ann) -> None:
    """It lies in the network while its owner calls again, and moves on to a third value."""
    claims = claims_of(store)
    ann.take(claims)
    late, client = Late(), claims.context.dynamo.client
    client.meta.events.register_first("before-send.*.TransactWriteItems", late)
    silence = [NOT_SENT] * 100  # behind the first, which is held back
    with _meeting(claims, "TransactWriteItems", *silence), pytest.raises(Unclear):
        claims.change(ann.old, "new")

    assert claims.change(ann.old, "new")
    assert claims.change(ann.new, "third")
    late.land()

    assert late.landings == [400]
    assert claims.owner(ann.scope, "third") == "ann"
    ann.expect(None, None, [])
