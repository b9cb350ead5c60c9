"""Unique claims on every engine: one owner for each value, whatever else is written with it."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from botocore.exceptions import ClientError

from countledger.ledger.attempts import write_one
from countledger.ledger.errors import (
    AlreadyClaimed,
    ConditionFailed,
    ItemInTheWay,
    NotClaimed,
    Refused,
    TableNotFound,
)
from countledger.ledger.limits import MINUTE_MS
from countledger.producers.claims.claim import Claim, Taking
from countledger.producers.claims.claims import Claims
from countledger.producers.own_items import ItemChange, ItemDeletion, NewItem
from tests.engines.numbering import all_items, claims_of, own_table, units
from tests.engines.store import Store

THREADS = 32


@pytest.fixture
def claims(tables: Store) -> Claims:
    """A process that claims."""
    return claims_of(tables)


@pytest.fixture
def users(tables: Store) -> Iterator[str]:
    """A table of an app's own, with an index by `email`."""
    with own_table(tables) as table:
        yield table


@pytest.fixture
def scope(namespace: str) -> str:
    """A scope that nobody has used."""
    return f"{namespace}-email"


def _ann(users: str, **more: object) -> NewItem:
    return NewItem(users, {"id": "u-1", "email": "ann@x.org", **more}, ("id",))


def _stored(tables: Store, users: str) -> list[Any]:
    return sorted((i["id"], i["email"]) for i in all_items(tables, users))


def test_a_value_has_one_owner(claims: Claims, scope: str) -> None:
    """Whoever comes later hears who it is; other values and scopes are others."""
    ann = Claim(scope, "ann@x.org", "u-1")

    assert claims.take(ann)
    with pytest.raises(AlreadyClaimed, match=r"'ann@x.org' is claimed by 'u-1'") as told:
        claims.take(Claim(scope, "ann@x.org", "u-2"))
    assert claims.take(Claim(scope, "bob@x.org", "u-2"))
    assert claims.take(Claim(f"{scope}-2", "ann@x.org", "u-2"))

    assert (told.value.scope, told.value.value, told.value.owner) == (scope, ("ann@x.org",), "u-1")
    assert claims.owner(scope, "ann@x.org") == "u-1"
    assert claims.owner(scope, "eve@x.org") is None


def test_no_two_combinations_are_taken_for_one(claims: Claims, scope: str) -> None:
    values: list[str | tuple[str, ...]] = [
        "a#b",
        ("a", "b"),
        ("a#", "b"),
        ("a", "#b"),
        "a%23b",
        "a%b",
        ("a", "b", "c"),
        "ab",
    ]

    for n, value in enumerate(values):
        assert claims.take(Claim(scope, value, f"u-{n}"))

    assert [claims.owner(scope, value) for value in values] == [
        f"u-{n}" for n in range(len(values))
    ]


def test_a_changed_claim_frees_the_old_value(claims: Claims, scope: str) -> None:
    """In one step: its owner has always one of them, and never another's."""
    ann, bob = Claim(scope, "a", "u-1"), Claim(scope, "b", "u-2")
    claims.take(ann)
    claims.take(bob)

    with pytest.raises(AlreadyClaimed, match="'b' is claimed by 'u-2'"):
        claims.change(ann, "b")
    with pytest.raises(AlreadyClaimed, match="'b' is claimed by 'u-2'"):
        claims.change(Claim(scope, "b", "u-1"), "c")
    with pytest.raises(NotClaimed, match="'z' is not claimed by 'u-1'"):
        claims.change(Claim(scope, "z", "u-1"), "c")
    assert [claims.owner(scope, value) for value in "abcz"] == ["u-1", "u-2", None, None]

    assert claims.change(ann, "c")
    assert [claims.owner(scope, value) for value in "abc"] == [None, "u-2", "u-1"]


def test_a_change_that_was_made_is_done_whoever_has_the_old_value_since(
    tables: Store, claims: Claims, users: str, scope: str
) -> None:
    """A retry after a crash: its owner has the new value, and is not told of the other."""
    ann = Claim(scope, "ann@x.org", "u-1")
    claims.take(ann, own=[_ann(users)])
    moved = ItemChange(users, {"id": "u-1"}, {"email": "new@x.org"}, {"email": "ann@x.org"})
    claims.change(ann, "new@x.org", own=[moved])
    claims.take(Claim(scope, "ann@x.org", "u-2"))

    assert claims.change(ann, "new@x.org", own=[moved]) is False
    other = ItemChange(users, {"id": "u-1"}, {"email": "third@x.org"})
    with pytest.raises(AlreadyClaimed, match="claimed by 'u-2'"):
        claims.change(ann, "third@x.org", own=[other])

    assert claims.owner(scope, "new@x.org") == "u-1"
    assert _stored(tables, users) == [("u-1", "new@x.org")]


def test_nobody_releases_what_another_has(claims: Claims, scope: str) -> None:
    claims.take(Claim(scope, "a", "u-1"))

    with pytest.raises(AlreadyClaimed, match="claimed by 'u-1'"):
        claims.release(Claim(scope, "a", "u-2"))
    assert claims.owner(scope, "a") == "u-1"


@pytest.mark.parametrize("again", [False, True], ids=["alone", "with others"])
def test_a_take_from_before_a_release_is_refused(claims: Claims, scope: str, again: bool) -> None:  # noqa: FBT001
    """It arrives late; a take from after the release keeps what it says, but not its end."""
    connection, claim = claims.connection, Claim(scope, "a", "u-1")
    table, skew_ms = connection.counters, connection.clock_skew_ms
    now_ms = connection.clock.now_ms()
    early, late = (
        Taking(table, claim, f"id-{ms}", "a call", ms, skew_ms, again=again).write()
        for ms in (now_ms, now_ms + skew_ms + MINUTE_MS)
    )
    claims.take(claim)
    claims.release(claim)

    with pytest.raises(ConditionFailed):
        write_one(connection.unretried, early)
    assert claims.find(scope, "a") is None
    write_one(connection.unretried, late)

    item = connection.retrying.get(table, claim.key, consistent=True)
    assert item is not None
    assert set(item) == {"counter", "part", "owner", "id", "at", "removed", "removal", "removed_at"}


def test_claims_and_an_apps_own_item_are_written_together(
    tables: Store, claims: Claims, users: str, scope: str
) -> None:
    """Both, or none: whichever of them is refused."""
    email, name = Claim(scope, "ann@x.org", "u-1"), Claim(f"{scope}-name", "ann", "u-1")
    assert claims.take(email, name, own=[_ann(users)])
    assert not claims.take(email, name, own=[_ann(users)])

    bob = NewItem(users, {"id": "u-2", "email": "ann@x.org"}, ("id",))
    free = Claim(f"{scope}-name", "bob", "u-2")
    with pytest.raises(AlreadyClaimed, match="claimed by 'u-1'"):
        claims.take(free, Claim(scope, "ann@x.org", "u-2"), own=[bob])
    again = NewItem(users, {"id": "u-1", "email": "eve@x.org"}, ("id",))
    with pytest.raises(ItemInTheWay, match=r"\{'id': 'u-1'\}.* exists already"):
        claims.take(Claim(scope, "eve@x.org", "u-1"), own=[again])

    assert claims.owner(f"{scope}-name", "bob") is None
    assert claims.owner(scope, "eve@x.org") is None
    assert _stored(tables, users) == [("u-1", "ann@x.org")]


def test_a_change_reaches_the_apps_own_item(
    tables: Store, claims: Claims, users: str, scope: str
) -> None:
    """On condition that it is as it was seen; in the end both are gone together."""
    ann = Claim(scope, "ann@x.org", "u-1")
    claims.take(ann, own=[_ann(users, stars=1)])

    def to(email: str, expected: str) -> ItemChange:
        return ItemChange(users, {"id": "u-1"}, {"email": email}, expected={"email": expected})

    with pytest.raises(ItemInTheWay, match=r"not as expected: email = 'ann@x.org'"):
        claims.change(ann, "new@x.org", own=[to("new@x.org", "old@x.org")])
    assert claims.owner(scope, "new@x.org") is None
    assert claims.change(ann, "new@x.org", own=[to("new@x.org", "ann@x.org")])
    assert not claims.change(ann, "new@x.org", own=[to("new@x.org", "ann@x.org")])
    assert _stored(tables, users) == [("u-1", "new@x.org")]

    gone = ItemDeletion(users, {"id": "u-1"}, expected={"stars": 1})
    new = Claim(scope, "new@x.org", "u-1")
    assert claims.release(new, own=[gone])
    assert not claims.release(new, own=[gone])
    assert _stored(tables, users) == []
    assert claims.owner(scope, "new@x.org") is None


def test_what_is_not_there_cannot_be_changed_or_removed(
    tables: Store, claims: Claims, users: str, scope: str
) -> None:
    """No claim changes hands for an item that does not exist."""
    ann = Claim(scope, "a", "u-1")
    claims.take(ann)

    for own in (
        ItemChange(users, {"id": "u-9"}, {"email": "b"}),
        ItemDeletion(users, {"id": "u-9"}),
    ):
        with pytest.raises(ItemInTheWay, match=r"u-9.* does not exist"):
            claims.change(ann, "b", own=[own])
    assert claims.owner(scope, "a") == "u-1"
    assert _stored(tables, users) == []


def test_a_condition_on_an_index_does_not_make_its_attribute_unique(
    tables: Store, users: str
) -> None:
    """A condition looks at the one item that is written, whose key is another one; so all pass."""
    client: Any = tables.client()

    def found() -> int:
        answer = client.query(
            TableName=users,
            IndexName="emails",
            KeyConditionExpression="email = :e",
            ExpressionAttributeValues={":e": {"S": "ann@x.org"}},
        )
        return int(answer["Count"])

    seen = [found(), found()]  # both writers look into the index first, and see nobody
    for user in ("u-1", "u-2"):
        client.put_item(
            TableName=users,
            Item={"id": {"S": user}, "email": {"S": "ann@x.org"}},
            ConditionExpression="attribute_not_exists(email)",
        )

    assert seen == [0, 0]
    assert found() == 2
    with pytest.raises(ClientError, match=r"[Cc]onsistent"):
        client.query(
            TableName=users,
            IndexName="emails",
            ConsistentRead=True,
            KeyConditionExpression="email = :e",
            ExpressionAttributeValues={":e": {"S": "ann@x.org"}},
        )


def test_p9_a_claim_costs_one_unit_and_with_others_two_each(
    claims: Claims, users: str, scope: str
) -> None:
    """A refusal or a repeat costs the same; a repeat also a read unit for each item not met.

    A claim that is to be freed, and is given without its id, costs a read unit more.
    """
    ann, bob = Claim(scope, "a", "u-1"), Claim(scope, "a", "u-2")
    item = NewItem(users, {"id": "u-1", "name": "Ann"}, ("id",))  # in no index of its table
    other = NewItem(users, {"id": "u-2"}, ("id",))
    moved = ItemChange(users, {"id": "u-1"}, {"stars": 1})
    named = Claim(scope, "d", "u-1", "id-of-d")
    calls: list[tuple[Callable[[], object], tuple[float, float]]] = [
        (partial(claims.take, ann), (1, 0)),
        (partial(claims.take, ann), (1, 0)),
        (partial(claims.take, bob), (1, 0)),
        (partial(claims.owner, scope, "a"), (0, 1)),
        (partial(claims.take, ann, own=[item]), (4, 0)),
        (partial(claims.take, ann, own=[item]), (4, 1)),
        (partial(claims.take, bob, own=[other]), (4, 0)),
        (partial(claims.change, ann, "b"), (4, 1)),
        (partial(claims.change, ann, "b"), (4, 2)),
        (partial(claims.change, Claim(scope, "b", "u-1"), "c", own=[moved]), (6, 1)),
        (partial(claims.find, scope, "c"), (0, 1)),
        (partial(claims.release, Claim(scope, "c", "u-1")), (1, 1)),
        (partial(claims.release, Claim(scope, "c", "u-1")), (1, 1)),
        (partial(claims.take, Claim(scope, "c", "u-2")), (2, 0)),  # within the skew of its release
        (partial(claims.take, named), (1, 0)),
        (partial(claims.change, named, "e"), (4, 0)),
        (partial(claims.release, Claim(scope, "e", "u-1", "no such id")), (1, 0)),
        (partial(claims.change, Claim(scope, "e", "u-1"), "d"), (8, 1)),
    ]

    spent = []
    for call, _ in calls:
        before = units(claims)
        with suppress(Refused):
            call()
        spent.append(tuple(now - then for now, then in zip(units(claims), before, strict=True)))

    assert spent == [cost for _, cost in calls]


def test_a_table_that_is_not_there_is_named(claims: Claims, scope: str) -> None:
    """The service does not say which one it misses; and nothing is claimed."""
    with pytest.raises(TableNotFound, match=r"no-such-users.*check the table"):
        claims.take(Claim(scope, "ann@x.org", "u-1"), own=[_ann("no-such-users")])
    assert claims.owner(scope, "ann@x.org") is None
