"""The calls of claims: `countledger claim`, `/v1/claims`."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from countledger import Claim, ItemChange, ItemDeletion, NewItem
from countledger.infra.calls.access import ScopeVerb
from countledger.infra.calls.call import Call, Calls, NeedsScope, Param
from countledger.infra.calls.shapes import Text, View, parse_item
from countledger.ledger.errors import BadItem
from countledger.ledger.limits import CLAIM_ID_MAX_BYTES, OWNER_MAX_BYTES, SCOPE_MAX_BYTES

CLAIMS: Final = Calls(
    "claim",
    """Values that at most one owner has: e-mail addresses, user names, seats.

    An index cannot make a value unique, a claim can: docs/claims.md explains why, and how to write
    your own items in the same transaction. Exit code 4: another owner has it; the line names it.
    """,
    tag="claims",
)

_PARTS_MAX: Final = 20
_VALUE_MAX: Final = 1_024


# ---- parameters ----


# A claim's scope is a namespace of scopes as it is, also with a colon.
_READS_SCOPE: Final = NeedsScope(ScopeVerb.READ, lambda scope: [scope])
_WRITES_SCOPE: Final = NeedsScope(ScopeVerb.WRITE, lambda scope: [scope])
Scope = Annotated[
    str,
    Text(
        str,
        "^[^#]+$",
        path=r"^(?!\.{1,2}$)[ !\"$-.0->@-~]+$",
        maxLength=SCOPE_MAX_BYTES,
        examples=["user-email"],
    ),
    Param("Within which it is unique, as user-email."),
]
Value = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=_VALUE_MAX)]],
    Field(min_length=1, max_length=_PARTS_MAX, description="its parts, in their order"),
]
Parts = Annotated[Value, Param("The value; several are one combination.")]
Owner = Annotated[
    str,
    Field(min_length=1, max_length=OWNER_MAX_BYTES),
    Param("Who has it, as the id of a user."),
]
ClaimId = Annotated[str, Field(min_length=1, max_length=CLAIM_ID_MAX_BYTES)]
OneClaim = Annotated[
    ClaimId | None, Param("The id of the claim, as `show` prints it: that claim alone.")
]
Table = Annotated[
    str | None,
    Param("A table of your own: its item is written in the same transaction.", only="command"),
]
Key = Annotated[
    Mapping[str, Any] | None,
    Param(
        "The key of its item, as a JSON object.",
        metavar="JSON",
        text=partial(parse_item, "--key"),
        only="command",
    ),
]


# ---- what is shown ----


class ClaimView(View):
    """Who has a value; of a free one, `owner` and `claim_id` are null."""

    scope: str
    value: list[str]
    owner: str | None
    claim_id: str | None

    def row(self) -> Mapping[str, object]:
        return {**super().row(), "value": " ".join(self.value)}


class FreeView(ClaimView):
    """Nobody has the value."""

    exit_code: ClassVar[int] = 1


class DoneView(View):
    """Whether this call did it; `done` is false if it was done before."""

    scope: str
    value: list[str]
    owner: str
    done: bool

    @classmethod
    def of(cls, claim: Claim, *, done: bool) -> "DoneView":
        return cls(scope=claim.scope, value=list(claim.parts), owner=claim.owner, done=done)

    def row(self) -> Mapping[str, object]:
        return {**super().row(), "value": " ".join(self.value)}


# ---- the calls ----


@CLAIMS.op("take", "POST /v1/claims/{scope}", costs="One write unit.")
def take_claim(
    call: Call,
    scope: Annotated[Scope, _WRITES_SCOPE],
    value: Parts,
    *,
    owner: Owner,
    claim_id: Annotated[
        ClaimId | None, Param("A unique id for the claim; by default a new one.")
    ] = None,
    table: Table = None,
    item: Annotated[
        Mapping[str, Any] | None,
        Param(
            "A new item for that table: both are written, or neither.",
            metavar="JSON",
            text=partial(parse_item, "--item"),
            only="command",
        ),
    ] = None,
    key_name: Annotated[
        list[str] | None,
        Param("The table's key attributes: once or twice.", metavar="NAME", only="command"),
    ] = None,
) -> DoneView:
    """Take a value for an owner. A retry is answered as the first try.

    Examples:
      countledger claim take user-email ann@example.org --owner u-1
      countledger claim take seat hall-1 row-3 seat-7 --owner order-12     [dim]a combination[/dim]
      countledger claim take user-email bob@example.org --owner u-2 --table users --key-name id \
--item '{"id": "u-2", "email": "bob@example.org"}'
    """
    wanted = Claim(scope, _joined(value), owner, claim_id)
    own: list[NewItem] = []
    if _all_or_none(table=table, item=item, key_name=key_name):
        own = [NewItem(table or "", item or {}, tuple(key_name or ()))]
    return DoneView.of(wanted, done=call.ledger.claims.take(wanted, own=own))


@CLAIMS.op("change", "POST /v1/claims/{scope}/changes", costs="Four write units.")
def change_claim(
    call: Call,
    scope: Annotated[Scope, _WRITES_SCOPE],
    *,
    value: Annotated[Value, Param("What its owner has.", option="--from")],
    to: Annotated[Value, Param("What it is to have instead.")],
    owner: Owner,
    claim_id: OneClaim = None,
    table: Table = None,
    key: Key = None,
    values: Annotated[
        Mapping[str, Any] | None,
        Param(
            "Attributes to set in that item.",
            metavar="JSON",
            option="--set",
            text=partial(parse_item, "--set"),
            only="command",
        ),
    ] = None,
    expected: Annotated[
        Mapping[str, Any] | None,
        Param(
            "Attributes that it must have.",
            metavar="JSON",
            option="--expect",
            text=partial(parse_item, "--expect"),
            only="command",
        ),
    ] = None,
) -> DoneView:
    """Let an owner have another value instead. The answer has the new value.

    Examples:
      countledger claim change user-email --from ann@example.org --to ann@example.net --owner u-1
      countledger claim change user-email --from bob@example.org --to bob@example.net --owner u-2 \
--table users --key '{"id": "u-2"}' --set '{"email": "bob@example.net"}'
      countledger claim change seat --from hall-1 --from 3 --to hall-1 --to 4 --owner o-12
    """
    held = Claim(scope, _joined(value), owner, claim_id)
    wanted = Claim(scope, _joined(to), owner)
    own: list[ItemChange] = []
    if _all_or_none(table=table, key=key, set=values):
        own = [ItemChange(table or "", key or {}, values or {}, expected or {})]
    elif expected is not None:
        raise BadItem("--expect is about an item: give --table, --key and --set as well")
    return DoneView.of(wanted, done=call.ledger.claims.change(held, wanted.value, own=own))


@CLAIMS.op(
    "release",
    "POST /v1/claims/{scope}/releases",
    costs="One write unit, and a read unit without `claim_id`.",
)
def release_claim(
    call: Call,
    scope: Annotated[Scope, _WRITES_SCOPE],
    value: Parts,
    *,
    owner: Owner,
    claim_id: OneClaim = None,
    table: Table = None,
    key: Key = None,
) -> DoneView:
    """Free a value, if that owner has it.

    With the id of a claim it frees that claim alone, also if it is repeated: a claim that the same
    owner has taken since is left as it is.

    Examples:
      countledger claim release user-email ann@example.net --owner u-1
      countledger claim release user-email bob@example.net --owner u-2 --table users \
--key '{"id": "u-2"}'     [dim]removes the item as well[/dim]
    """
    held = Claim(scope, _joined(value), owner, claim_id)
    own: list[ItemDeletion] = []
    if _all_or_none(table=table, key=key):
        own = [ItemDeletion(table or "", key or {})]
    return DoneView.of(held, done=call.ledger.claims.release(held, own=own))


@CLAIMS.op("show", "GET /v1/claims/{scope}", costs="One read unit.")
def find_claim(call: Call, scope: Annotated[Scope, _READS_SCOPE], value: Parts) -> ClaimView:
    """Show who has a value, and the id of the claim. A free value has no owner.

    Exit codes: 0 it has an owner. 1 it is free.

    Examples:
      countledger claim show user-email ann@example.org
    """
    found = call.ledger.claims.find(scope, _joined(value))
    if found is None:
        return FreeView(scope=scope, value=value, owner=None, claim_id=None)
    return ClaimView(
        scope=scope, value=list(found.parts), owner=found.owner, claim_id=found.claim_id
    )


def _joined(value: list[str]) -> str | tuple[str, ...]:
    """A value of one part is a text."""
    return value[0] if len(value) == 1 else tuple(value)


def _all_or_none(**options: object) -> bool:
    """Whether options that need each other are given; some alone are refused."""
    given = [name for name, value in options.items() if value is not None and value != []]
    if given and len(given) < len(options):
        names = ", ".join(f"--{name.replace('_', '-')}" for name in options)
        raise BadItem(f"{names}: give all of them, or none")
    return bool(given)
