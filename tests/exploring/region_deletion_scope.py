"""The deletion of a counter over two regions: its numbers are gone at home, and not elsewhere yet.

The state of the model is what was recorded since. In each region the total is what its copy of the
ledger shows, and in the other one the deleted numbers beside it until that total is cleared.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from countledger.compaction.deletion import DeletionStage
from countledger.infra.memory.tables import COUNTERS, LEDGER, REGION
from countledger.ledger import keys
from countledger.ledger.exact import decode_head
from countledger.ledger.limits import HOUR_MS, MINUTE_MS, SECOND_MS
from tests.exploring.deletion_scope import certainty_of_deletion
from tests.exploring.ledger_scope import ledger_sum
from tests.exploring.linear import Effect
from tests.exploring.regions import arrive, far, let_regions_replicate
from tests.exploring.scope import Beginnings, Capability, fewer_beside_more
from tests.exploring.search import Bounds, Fault
from tests.exploring.world import BEGIN_MS, FAR, in_region

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.client import CountLedger
    from tests.exploring.scope import Script
    from tests.exploring.search import Situation
    from tests.exploring.world import Contents

_NAME: Final = "n:x"
_DELETED: Final = 100
# Longer than a deletion waits.
_WAIT_MS: Final = 31 * HOUR_MS
# A call does what every region shows the base of.
_CALLS_MAX: Final = 9


def _model(recorded: int, call: str) -> Iterator[Effect]:
    if call.startswith("record"):
        yield Effect("recorded", recorded + 1)
    else:
        yield Effect(_is_text, recorded)


def _is_text(answer: object) -> bool:
    return isinstance(answer, str)


def _agrees(recorded: int, contents: Contents) -> bool:
    entries = {
        key
        for table in (LEDGER, in_region(LEDGER, FAR))
        for key in contents.tables[table]
        if key[0] == _NAME and key[1].startswith(keys.ENTRY_PREFIX)
    }
    return len(entries) == recorded


def _holds(state: Situation) -> bool:
    """The totals of both regions are those of their copies, but for what is to be cleared."""
    tables = state.contents.tables
    answers = {one.answer for place in state.places for one in place.told}
    cleared = str(DeletionStage.DELETED) in answers
    for region in (REGION, FAR):
        ledger, counters = in_region(LEDGER, region), in_region(COUNTERS, region)
        total = tables[counters].get((_NAME, keys.TOTAL), {})
        waits = not cleared and region == FAR and total.get("incarnation") == _incarnation(state)
        head = decode_head(dict(tables[ledger].get((_NAME, keys.HEAD), {})) or None)
        surplus = int(total.get("total", 0)) - ledger_sum(state.contents, _NAME, ledger)
        if surplus != (_DELETED - int(head.sum) if waits else 0):
            return False
    return True


def _incarnation(state: Situation) -> object:
    """That of the total that is to be cleared."""
    first = state.path()[0].contents.tables[in_region(COUNTERS, FAR)]
    return first[_NAME, keys.TOTAL]["incarnation"]


def _record(ledger: CountLedger, delta: int) -> str:
    return str(ledger.record(_NAME, delta).status)


def _delete(ledger: CountLedger) -> str:
    return str(ledger.deletions.delete(_NAME).stage)


def hold_lease(ledger: CountLedger) -> None:
    """In a setup: every region shows the lease of this home."""
    regions = ledger.deletions.ledger.regions
    regions.hold_lease()
    arrive(ledger)
    if reason := regions.hold_lease():
        raise AssertionError(reason)


def _emptied(ledger: CountLedger, *, arrived: bool) -> None:
    clock, marks = ledger.connection.clock, ledger.deletions.ledger.marks
    _record(ledger, _DELETED)
    hold_lease(ledger)
    _delete(ledger)
    clock.sleep_ms(BEGIN_MS - 100 * SECOND_MS - clock.now_ms())
    for _ in range(_CALLS_MAX):
        hold_lease(ledger)
        _delete(ledger)
        mark = marks.find(_NAME)
        if mark is not None and mark.deleted_at_ms is not None:
            break
    if arrived:
        arrive(ledger)


def _used(ledger: CountLedger) -> None:
    _emptied(ledger, arrived=True)
    _record(ledger, 1)
    arrive(ledger)


def _prepare(ledger: CountLedger) -> None:
    ledger.namespaces.get("n")
    regions = ledger.deletions.ledger.regions
    regions.survey()
    regions.hold_lease()


def _faults(scripts: tuple[Script, ...]) -> int | None:
    """Two deletions: without a fault; one alone: with one; three calls: not."""
    if len(scripts) == 3:
        return None
    if scripts == (("delete",),):
        return 1
    return 0 if set(scripts) == {("delete",)} else fewer_beside_more(scripts)


REGION_DELETIONS: Final = Capability(
    name="deletions-regions",
    calls={
        "delete": _delete,
        "record": lambda ledger: _record(ledger, 1),
        "record elsewhere": lambda ledger: _record(far(ledger), 1),
    },
    scripts=(("record",), ("record elsewhere",), ("delete",)),
    starts={
        "emptied": Beginnings(partial(_emptied, arrived=True), 0),
        "emptied, used again": Beginnings(_used, 1),
        "emptied at home": Beginnings(partial(_emptied, arrived=False), 0),
    },
    model=_model,
    agrees=_agrees,
    holds=_holds,
    certainty=certainty_of_deletion,
    prepare=_prepare,
    watch=let_regions_replicate,
    bounds=Bounds(
        jumps_ms=(14 * MINUTE_MS,),
        kinds=frozenset({Fault.LATE, Fault.DEATH}),
        quiet=lambda read: read.startswith("DescribeTable"),
    ),
    offsets_ms=(2, 1, 0),
    setup_before_ms=_WAIT_MS,
    faults=_faults,
)
