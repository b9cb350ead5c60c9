"""Several strict counters in one transaction: a transfer, its repetition and withdrawal.

The counters are of methods `marker` and `occ`; others change them, set one to a value, or delete
it. The state of the model is both values and what the key of the transfer stands for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from countledger.infra.memory.tables import COUNTERS
from countledger.ledger import keys
from countledger.ledger.errors import IdempotencyKeyReused, NoSuchCounter
from countledger.ledger.limits import MINUTE_MS
from tests.exploring.linear import Effect, Masked
from tests.exploring.scope import Beginnings, Capability
from tests.exploring.search import Bounds
from tests.exploring.strict_scope import DELETED_TWICE, certainty, kind, knowing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.client import CountLedger
    from tests.exploring.world import Contents

_ANN: Final = "t:ann"
_BOB: Final = "t:bob"
_KEY: Final = "transfer-1"

REFUSED_AND_WITHDRAWN: Final = Masked(
    "a key that was withdrawn by its own refusal",
    "strict.md",
    "A rejection after a lost answer leaves the key of a `marker`, of a `set` or of several "
    "counters withdrawn: used again, it answers `Withdrawn`.",
)


class Accounts(NamedTuple):
    """The state of the model.

    Attributes:
        ann: her value, at least 0.
        bob: his value; None: his counter is deleted.
        moved: what the key stands for: an amount; 0: it was withdrawn; None: not used.
    """

    ann: int
    bob: int | None
    moved: int | None = None


def _model(now: Accounts, call: str) -> Iterator[Effect]:
    match call:
        case "take" if now.ann >= 1:
            yield Effect("Applied", now._replace(ann=now.ann - 1))
        case "take":
            yield Effect("BoundReached", now)
        case "add":
            yield Effect("Applied", now._replace(ann=now.ann + 1))
        case "withdraw" if not now.moved:
            yield Effect("Withdrawn", now._replace(moved=0))
        case "withdraw":
            yield Effect("Duplicate" if now.bob is not None else IdempotencyKeyReused, now)
        case "delete":
            yield Effect(NoSuchCounter if now.bob is None else None, now._replace(bob=None))
            if now.bob is None:
                yield Effect(None, now, DELETED_TWICE)
        case _:
            yield from _transferring(now, 2 if call == "transfer 2" else 1)


def _transferring(now: Accounts, amount: int) -> Iterator[Effect]:
    if now.bob is None:
        # What was withdrawn, or used for something else, is refused before the counters are read.
        yield Effect(_is_refused, now)
        if now.moved is None and now.ann < amount:
            yield Effect("BoundReached", now)
            yield Effect("BoundReached", now._replace(moved=0), REFUSED_AND_WITHDRAWN)
    elif now.moved == 0:
        yield Effect("Withdrawn", now)
    elif now.moved is not None:
        yield Effect("Duplicate" if now.moved == amount else IdempotencyKeyReused, now)
    elif now.ann < amount:
        yield Effect("BoundReached", now)
        yield Effect("BoundReached", now._replace(moved=0), REFUSED_AND_WITHDRAWN)
    else:
        yield Effect("Applied", Accounts(now.ann - amount, now.bob + amount, amount))


def _is_refused(answer: object) -> bool:
    return answer == "Withdrawn" or isinstance(answer, NoSuchCounter | IdempotencyKeyReused)


def _agrees(now: Accounts, contents: Contents) -> bool:
    items = contents.tables[COUNTERS]
    ann, bob = (items.get((name, keys.TOTAL)) for name in (_ANN, _BOB))
    return (ann and ann["total"], bob and bob["total"]) == (now.ann, now.bob)


def _created(ledger: CountLedger) -> None:
    ledger.strict.create(_ANN, method="marker", lower=0, opening=1)
    ledger.strict.create(_BOB, method="occ", lower=0)


def _transfer(ledger: CountLedger, amount: int) -> str:
    moved = ledger.strict.transactions.transfer(_ANN, _BOB, amount, key=_KEY)
    return kind(moved)


TRANSFERS: Final = Capability(
    name="transfers",
    calls={
        "transfer": lambda ledger: _transfer(ledger, 1),
        "transfer 2": lambda ledger: _transfer(ledger, 2),
        "withdraw": lambda ledger: kind(ledger.strict.transactions.withdraw(_KEY)),
        "take": lambda ledger: kind(ledger.strict.change(_ANN, -1)),
        "add": lambda ledger: kind(ledger.strict.change(_ANN, 1)),
        "delete": lambda ledger: ledger.strict.delete(_BOB),
    },
    scripts=(
        ("transfer",),
        ("transfer 2",),
        ("withdraw",),
        ("take",),
        ("add",),
        ("delete",),
        ("transfer", "add"),
    ),
    starts={"created": Beginnings(_created, Accounts(1, 0))},
    model=_model,
    agrees=_agrees,
    certainty=certainty,
    prepare=knowing(_ANN, _BOB),
    masks=(DELETED_TWICE, REFUSED_AND_WITHDRAWN),
    bounds=Bounds(jumps_ms=(14 * MINUTE_MS,)),
)
