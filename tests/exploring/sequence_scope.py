"""Sequences: create, draw, draw a block, draw expected, delete; the example of a scope.

The state of the model is the last number that was given out; None: the sequence does not exist.
Of collections, whose items are numbered, it is the texts of the items in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from countledger.infra.memory.tables import COUNTERS
from countledger.ledger import keys
from countledger.ledger.errors import NoSuchCounter, SequenceExists, Unnumbered
from countledger.ledger.limits import MINUTE_MS
from countledger.producers.sequences.sequence import Collection
from tests.exploring.linear import Certainty, Effect, Masked, certainty_of
from tests.exploring.scope import Beginnings, Capability, Echo
from tests.exploring.search import Bounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.client import CountLedger
    from tests.exploring.world import Contents

# The last number.
_Last: TypeAlias = int | None

_NAME: Final = "q:s"
_KEY: Final = _NAME, keys.total_key(_NAME)["part"]
_BLOCK: Final = 2
LOST_NUMBER: Final = Masked(
    "a number of a lost draw",
    "sequences.md",
    "`draw` sends another one, and the number of the lost draw is never given out: a gap, not a "
    "duplicate.",
)
CREATED_LATE: Final = Masked(
    "created after the deletion",
    "sequences.md",
    "A request of `create` that got no answer may be applied within 15 minutes, also after the "
    "deletion: then the sequence is there again, from its first number.",
)
NOT_DELETED: Final = Masked(
    "deleted by another call meanwhile",
    "sequences.md",
    "Two calls that delete a sequence at the same time both succeed.",
)
_GIVEN: Final = {"draw": 1, "draw block": _BLOCK, "draw expected": 1, "draw after 0": 1}


def _model(last: _Last, call: str) -> Iterator[Effect]:
    begun = last or 0
    if call in _GIVEN:
        after = begun + _GIVEN[call]
        answer: object = (begun + 1, after) if call == "draw block" else after
        yield Effect(answer, after)
    elif call == "create at 5":
        yield Effect(SequenceExists, last) if last is not None else Effect(_is_number, 4)
    elif last is None:
        yield Effect(NoSuchCounter, None)
        yield Effect(None, None, NOT_DELETED)
    else:
        yield Effect(None, None)


def _is_number(answer: object) -> bool:
    # Others may draw before `create` reads the sequence that it answers with.
    return isinstance(answer, int)


def _echo(call: str) -> Echo | None:
    if call == "create at 5":
        return Echo(call, CREATED_LATE)
    return Echo(call, LOST_NUMBER) if call in _GIVEN else None


def _agrees(last: _Last, contents: Contents) -> bool:
    item = contents.tables[COUNTERS].get(_KEY)
    return (None if item is None else item["total"]) == last


def _used(ledger: CountLedger) -> None:
    ledger.sequences.draw("q:other")


def _created(ledger: CountLedger) -> None:
    _used(ledger)
    ledger.sequences.create(_NAME, first=4)


def _block(ledger: CountLedger) -> tuple[int, int]:
    block = ledger.sequences.draw_block(_NAME, _BLOCK)
    return block[0], block[-1]


SEQUENCES: Final = Capability(
    name="sequences",
    calls={
        "create at 5": lambda ledger: ledger.sequences.create(_NAME, first=5).last,
        "draw": lambda ledger: ledger.sequences.draw(_NAME),
        "draw block": _block,
        "draw expected": lambda ledger: ledger.sequences.draw_expected(_NAME),
        "draw after 0": lambda ledger: ledger.sequences.draw_expected(_NAME, known=0),
        "delete": lambda ledger: ledger.sequences.delete(_NAME),
    },
    scripts=(
        ("create at 5",),
        ("draw",),
        ("draw block",),
        ("draw expected",),
        ("draw after 0",),
        ("delete",),
        ("delete", "create at 5"),
        ("delete", "draw"),
        ("delete", "draw expected"),
        ("draw", "delete"),
        ("draw expected", "delete"),
        ("create at 5", "delete"),
    ),
    starts={"absent": Beginnings(_used, None), "created": Beginnings(_created, 3)},
    model=_model,
    agrees=_agrees,
    masks=(LOST_NUMBER, CREATED_LATE, NOT_DELETED),
    prepare=lambda ledger: ledger.namespaces.get("q"),
    echo=_echo,
    bounds=Bounds(jumps_ms=(14 * MINUTE_MS, 61 * MINUTE_MS)),
)

_ITEMS: Final = "items"
_COLLECTION: Final = Collection(_ITEMS, ("post", "p"), "comment")


def _append(ledger: CountLedger, text: str) -> int:
    return ledger.sequences.append(_COLLECTION, {"text": text}).number


def _append_until_answered(ledger: CountLedger) -> int:
    try:
        return _append(ledger, "b")
    except Unnumbered as error:
        return ledger.sequences.resume(error.pending).number


def _appended(texts: str, call: str) -> Iterator[Effect]:
    after = texts + call[len("append ")]
    yield Effect(len(after), after)


def _holds_items(texts: str, contents: Contents) -> bool:
    items = contents.tables[_ITEMS]
    found = {number: item["text"] for (_, number), item in items.items()}
    return found == dict(enumerate(texts, 1))


def _maybe_put(answer: object) -> Certainty:
    return Certainty.MAYBE if isinstance(answer, Unnumbered) else certainty_of(answer)


COLLECTIONS: Final = Capability(
    name="collections",
    calls={
        "append a": lambda ledger: _append(ledger, "a"),
        "append b or resume": _append_until_answered,
    },
    scripts=(("append a",), ("append b or resume",)),
    starts={"empty": Beginnings(_used, "")},
    model=_appended,
    agrees=_holds_items,
    certainty=_maybe_put,
    watch=lambda world: world.add(_ITEMS, "post", "comment"),
    bounds=Bounds(jumps_ms=(14 * MINUTE_MS, 61 * MINUTE_MS)),
)
