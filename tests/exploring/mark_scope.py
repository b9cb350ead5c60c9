"""The marks of deletions: mark a counter, cancel that, and list what is marked.

The state of the model is whether the counter is marked. `deletion_scope` deletes its numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from countledger.compaction.deletion import DeletionMarks
from countledger.infra.memory.tables import LEDGER
from countledger.ledger import keys
from countledger.ledger.limits import MINUTE_MS
from countledger.ledger.tombstones import present
from tests.exploring.linear import Effect, Masked
from tests.exploring.scope import Beginnings, Capability
from tests.exploring.search import Bounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.client import CountLedger
    from tests.exploring.world import Contents

_NAME: Final = "n:x"
_KEY: Final = keys.DELETION_PREFIX + keys.namespace_of(_NAME), _NAME

CANCELLED_TWICE: Final = Masked(
    "cancelled by another call meanwhile",
    "operating.md",
    "Two calls that cancel the same deletion at the same time both succeed.",
)


def _model(marked: bool, call: str) -> Iterator[Effect]:  # noqa: FBT001 - the state of the model
    if call == "cancel":
        yield Effect(marked, after=False)
    elif call == "list":
        yield Effect((_NAME,) if marked else (), marked)
    else:
        yield Effect("waiting" if marked else "marked", after=True)
        if marked:  # by another call, which it met when it wrote its own mark
            yield Effect("marked", after=True)


def _agrees(marked: bool, contents: Contents) -> bool:  # noqa: FBT001 - as above
    item = contents.tables[LEDGER].get(_KEY)
    return (item is not None and present(dict(item)) is not None) == marked


def _list(ledger: CountLedger) -> tuple[str, ...]:
    return tuple(DeletionMarks(ledger.connection).pending("n"))


def _recorded(ledger: CountLedger) -> None:
    ledger.record(_NAME, 5)


def _marked(ledger: CountLedger) -> None:
    _recorded(ledger)
    ledger.deletions.delete(_NAME)


MARKS: Final = Capability(
    name="marks",
    calls={
        "mark": lambda ledger: str(ledger.deletions.delete(_NAME).stage),
        "cancel": lambda ledger: ledger.deletions.cancel(_NAME),
        "list": _list,
    },
    scripts=(("mark",), ("cancel",), ("list",), ("cancel", "mark"), ("mark", "cancel")),
    starts={"recorded": Beginnings(_recorded, state=False), "marked": Beginnings(_marked, True)},
    model=_model,
    agrees=_agrees,
    prepare=lambda ledger: ledger.namespaces.get("n"),
    bounds=Bounds(jumps_ms=(14 * MINUTE_MS, 61 * MINUTE_MS)),
)
