"""Claims: two owners take, change and release values.

The state of the model is who has the two values; an owner whose claim has an id of its own has the
id after the name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from countledger import Claim
from countledger.infra.memory.tables import COUNTERS
from countledger.ledger import keys
from countledger.ledger.errors import AlreadyClaimed, NotClaimed
from countledger.ledger.limits import MINUTE_MS
from countledger.ledger.tombstones import present
from tests.exploring.linear import Effect
from tests.exploring.scope import Beginnings, Capability
from tests.exploring.search import Bounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.client import CountLedger
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
    x, y = owners
    who, verb = call.split(" ")[:2]
    has = x.partition(" ")[0] == who
    if verb == "takes":
        if not x:
            yield Effect(True, (who, y))
        else:
            yield Effect(False if has else _OwnedBy(x), owners)
    elif call == "ann releases c1":
        if x == f"ann {_ID}":
            yield Effect(True, ("", y))
        else:
            yield Effect(lambda answer: answer is not True, owners)
    elif verb == "releases":
        if has:
            yield Effect(True, ("", y))
        else:
            yield Effect(_OwnedBy(x) if x else _is_gone, owners)
            yield Effect(False, owners)  # gone since the call read it
    elif has and not y:
        yield Effect(True, ("", who))
    elif has and y == who:
        yield Effect(True, ("", y))
    else:
        yield Effect(_is_refused, owners)


def _is_refused(answer: object) -> bool:
    return answer is False or isinstance(answer, AlreadyClaimed | NotClaimed)


def _agrees(owners: _Owners, contents: Contents) -> bool:
    for value, owner in zip(_VALUES, owners, strict=True):
        key = keys.claim_key(_SCOPE, (value,))
        item = contents.tables[COUNTERS].get((key["counter"], key["part"]))
        found = present(None if item is None else dict(item))
        if ("" if found is None else found["owner"]) != owner.partition(" ")[0]:
            return False
    return True


def _take(ledger: CountLedger, owner: str, value: str = "x", claim_id: str | None = None) -> bool:
    return ledger.claims.take(Claim(_SCOPE, value, owner, claim_id))


CLAIMS: Final = Capability(
    name="claims",
    calls={
        "ann takes": lambda ledger: _take(ledger, "ann"),
        "bob takes": lambda ledger: _take(ledger, "bob"),
        "ann releases": lambda ledger: ledger.claims.release(Claim(_SCOPE, "x", "ann")),
        "ann releases c1": lambda ledger: ledger.claims.release(Claim(_SCOPE, "x", "ann", _ID)),
        "ann changes": lambda ledger: ledger.claims.change(Claim(_SCOPE, "x", "ann"), "y"),
    },
    scripts=(
        ("ann takes",),
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
