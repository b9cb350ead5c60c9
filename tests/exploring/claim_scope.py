"""Claims: two owners take, change and release values, alone and with an item of the app.

The state of the model is who has the two values; an owner whose claim has an id of its own has the
id after the name. With items: who has the one value, and whether the app's item is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, cast

from countledger import Claim, ItemDeletion, NewItem
from countledger.infra.memory.tables import COUNTERS
from countledger.ledger import keys
from countledger.ledger.errors import AlreadyClaimed, ItemInTheWay, NotClaimed
from countledger.ledger.limits import MINUTE_MS
from countledger.producers.claims.claim import claim_in
from tests.exploring.linear import Effect, Masked
from tests.exploring.scope import Beginnings, Capability
from tests.exploring.search import Bounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.client import CountLedger
    from tests.exploring.client import ActorClient
    from tests.exploring.world import Contents

# The owner of `x`, that of `y`; empty: nobody.
_Owners: TypeAlias = tuple[str, str]

_SCOPE: Final = "mail"
_VALUES: Final = ("x", "y")
_ID: Final = "c1"


class _OwnedBy:
    """Accepts the refusal that names an owner."""

    def __init__(self, owner: str) -> None:
        """The owner, with or without an id.

        Args:
            owner: as in the model.
        """
        self.owner = owner.partition(" ")[0]

    def __call__(self, answer: object) -> bool:
        """Whether it is that refusal."""
        return isinstance(answer, AlreadyClaimed) and answer.owner == self.owner


def _is_gone(answer: object) -> bool:
    """The claim is gone: the call says so as an error, or as a retry."""
    return answer is False or isinstance(answer, NotClaimed)


def _model(owners: _Owners, call: str) -> Iterator[Effect]:
    verb = call.split(" ")[1]
    one = {"takes": _takes, "releases": _releases, "changes": _changes}[verb]
    yield from one(owners, call)


def _takes(owners: _Owners, call: str) -> Iterator[Effect]:
    (x, y), who = owners, call.partition(" ")[0]
    if call == "ann takes both":
        if x == "bob":
            yield Effect(_OwnedBy(x), owners)
        else:
            yield Effect(lambda answer: isinstance(answer, bool), (x or "ann", y or "ann"))
    elif call == "ann takes c1":
        if not x:
            yield Effect(True, (f"ann {_ID}", y))
            yield Effect(NotClaimed, owners)  # that claim was released before
        else:
            yield Effect(False if x == f"ann {_ID}" else AlreadyClaimed, owners)
    elif not x:
        yield Effect(True, (who, y))
    else:
        yield Effect(False if x.partition(" ")[0] == who else _OwnedBy(x), owners)


def _releases(owners: _Owners, call: str) -> Iterator[Effect]:
    x, y = owners
    if call == "ann releases c1":
        if x == f"ann {_ID}":
            yield Effect(True, ("", y))
        else:
            yield Effect(lambda answer: answer is not True, owners)
    elif x.partition(" ")[0] == "ann":
        yield Effect(True, ("", y))
    else:
        yield Effect(_OwnedBy(x) if x else _is_gone, owners)
        yield Effect(False, owners)  # gone since the call read it


def _changes(owners: _Owners, _call: str) -> Iterator[Effect]:
    x, y = owners
    if x.partition(" ")[0] == "ann" and y in {"", "ann"}:
        yield Effect(True, ("", "ann"))
    else:
        yield Effect(_is_refused, owners)


def _is_refused(answer: object) -> bool:
    return answer is False or isinstance(answer, AlreadyClaimed | NotClaimed)


def _agrees(owners: _Owners, contents: Contents) -> bool:
    for value, owner in zip(_VALUES, owners, strict=True):
        key = keys.claim_key(_SCOPE, (value,))
        item = contents.tables[COUNTERS].get((key["counter"], key["part"]))
        found = claim_in(None if item is None else dict(item))
        if ("" if found is None else found["owner"]) != owner.partition(" ")[0]:
            return False
        if found is not None and (found["id"] == _ID) != owner.endswith(f" {_ID}"):
            return False
    return True


def _take(ledger: CountLedger, owner: str, value: str = "x", claim_id: str | None = None) -> bool:
    return ledger.claims.take(Claim(_SCOPE, value, owner, claim_id))


CLAIMS: Final = Capability(
    name="claims",
    calls={
        "ann takes": lambda ledger: _take(ledger, "ann"),
        "ann takes c1": lambda ledger: _take(ledger, "ann", "x", _ID),
        "ann takes both": lambda ledger: ledger.claims.take(
            *(Claim(_SCOPE, value, "ann") for value in _VALUES)
        ),
        "bob takes": lambda ledger: _take(ledger, "bob"),
        "ann releases": lambda ledger: ledger.claims.release(Claim(_SCOPE, "x", "ann")),
        "ann releases c1": lambda ledger: ledger.claims.release(Claim(_SCOPE, "x", "ann", _ID)),
        "ann changes": lambda ledger: ledger.claims.change(Claim(_SCOPE, "x", "ann"), "y"),
    },
    scripts=(
        ("ann takes",),
        ("ann takes c1",),
        ("ann takes both",),
        ("bob takes",),
        ("ann releases",),
        ("ann releases c1",),
        ("ann changes",),
        ("ann releases", "bob takes"),
        ("ann takes", "ann releases"),
        ("ann releases", "ann takes"),
    ),
    starts={
        "free": Beginnings(lambda _: None, ("", "")),
        "taken": Beginnings(lambda ledger: _take(ledger, "ann", "x", _ID), (f"ann {_ID}", "")),
    },
    model=_model,
    agrees=_agrees,
    bounds=Bounds(jumps_ms=(14 * MINUTE_MS, 61 * MINUTE_MS)),
)

# Whether the app's item is there, beside the owner of `x`.
_WithItem: TypeAlias = tuple[str, bool]
_APP: Final = "app"
_ITEM: Final = NewItem(_APP, {"id": "i"}, ("id",))


MET_FIRST: Final = Masked(
    "refused for an item that was there a moment before",
    "claims.md",
    "Beside a release by the same owner, a repeated call may be refused for an item that it met a "
    "moment before (`ItemInTheWay`).",
)


def _model_with_item(state: _WithItem, call: str) -> Iterator[Effect]:
    owner, item = state
    match call:
        case "ann takes with item" if owner == "bob":
            yield Effect(_OwnedBy("bob"), state)
        case "ann takes with item" if item:
            yield Effect(False if owner else ItemInTheWay, state)
            yield Effect(ItemInTheWay, state, MET_FIRST)
        case "ann takes with item":
            yield Effect(True, ("ann", True))
        case "bob takes":
            yield Effect(_OwnedBy("ann") if owner == "ann" else not owner, _taken_by_bob(state))
        case "drop":
            yield Effect("dropped", (owner, False))
        case "look":
            yield Effect(item, state)
        case _ if owner != "ann":
            yield Effect(_is_refused, state)
        case "ann releases with item" if not item:
            yield Effect(ItemInTheWay, state)
        case _:
            yield Effect(True, ("", item and call == "ann releases"))


def _taken_by_bob(state: _WithItem) -> _WithItem:
    owner, item = state
    return owner or "bob", item


def _agrees_with_item(state: _WithItem, contents: Contents) -> bool:
    owner, item = state
    return _agrees((owner, ""), contents) and (("i", "") in contents.tables[_APP]) == item


def _put(ledger: CountLedger) -> None:
    ledger.connection.dynamo("standard").put(_ITEM.write())


def _drop(ledger: CountLedger) -> str:
    """What the app does with its own item, without its claim: at once."""
    dynamo = cast("ActorClient", ledger.connection.dynamo("standard"))
    dynamo.read("the app deletes its item", lambda: dynamo.table(_APP).store(("i", ""), None))
    return "dropped"


def _look(ledger: CountLedger) -> bool:
    found = ledger.connection.dynamo("standard").get(*_ITEM.place, consistent=True)
    return found is not None


def _take_with_item(ledger: CountLedger) -> bool:
    return ledger.claims.take(Claim(_SCOPE, "x", "ann"), own=[_ITEM])


CLAIMS_WITH_ITEMS: Final = Capability(
    name="claims-with-items",
    calls={
        "ann takes with item": _take_with_item,
        "ann releases with item": lambda ledger: ledger.claims.release(
            Claim(_SCOPE, "x", "ann"), own=[ItemDeletion(*_ITEM.place)]
        ),
        "bob takes": lambda ledger: _take(ledger, "bob"),
        "ann releases": lambda ledger: ledger.claims.release(Claim(_SCOPE, "x", "ann")),
        "drop": _drop,
        "look": _look,
    },
    scripts=(
        ("ann takes with item",),
        ("ann releases with item",),
        ("bob takes",),
        ("ann releases",),
        ("drop", "look"),
    ),
    starts={
        "free": Beginnings(lambda _: None, ("", False)),
        "an item": Beginnings(_put, ("", True)),
        "both": Beginnings(_take_with_item, ("ann", True)),
        "taken": Beginnings(lambda ledger: _take(ledger, "ann"), ("ann", False)),
    },
    model=_model_with_item,
    agrees=_agrees_with_item,
    masks=(MET_FIRST,),
    watch=lambda world: world.add(_APP, "id", ""),
    bounds=Bounds(jumps_ms=(14 * MINUTE_MS, 61 * MINUTE_MS)),
)
