"""The deletion of a ledger counter, and the use of its name again: beside records, reads, and runs.

The state of the model is what the counter has from before its mark, what it has from after it, and
how far its deletion has come. Totals follow at once (`followed`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from countledger.compaction.deletion import DeletionStage
from countledger.infra.memory.tables import COUNTERS, LEDGER
from countledger.ledger import keys
from countledger.ledger.errors import KeyExpired, NoSuchCounter, Unacknowledged
from countledger.ledger.limits import HOUR_MS, MINUTE_MS
from countledger.ledger.tombstones import present
from tests.exploring.followed import let_totals_follow
from tests.exploring.ledger_scope import ledger_sum
from tests.exploring.linear import Certainty, Effect, certainty_of_several
from tests.exploring.mark_scope import CANCELLED_TWICE
from tests.exploring.scope import Beginnings, Capability, fewer_beside_more
from tests.exploring.search import Bounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.client import CountLedger
    from tests.exploring.scope import Script
    from tests.exploring.world import Contents

_NAME: Final = "n:x"
_MARK: Final = keys.DELETION_PREFIX + keys.namespace_of(_NAME), _NAME
# Longer than a deletion waits, and than an empty head stays.
_WAIT_MS: Final = 31 * HOUR_MS


class _Counter(NamedTuple):
    """A counter in the model.

    Attributes:
        old: what was recorded before the mark: the deletion deletes that, and nothing else.
        new: what was recorded after it; of an unmarked counter all is `old`.
        stage: `none`, `marked`, `deleted`.
    """

    old: int
    new: int
    stage: str

    @property
    def sum(self) -> int:
        """What reads show."""
        return self.old + self.new


def _model(counter: _Counter, call: str) -> Iterator[Effect]:
    if call in ("exact", "total"):
        yield Effect(counter.sum, counter)
    elif call == "compact":
        yield Effect(_is_text, counter)
    elif call == "a day passes":
        yield Effect(None, counter)
    elif call == "record":
        yield Effect("recorded", _recorded(counter))
    elif call == "cancel":
        yield Effect(counter.stage == "marked", _unmarked(counter))
        if counter.stage == "none":
            yield Effect(True, counter, masked=CANCELLED_TWICE)
    else:
        yield from _deletes(counter)


def _recorded(counter: _Counter) -> _Counter:
    if counter.stage == "none":
        return counter._replace(old=counter.old + 1)
    return counter._replace(new=counter.new + 1)


def _unmarked(counter: _Counter) -> _Counter:
    return _Counter(counter.sum, 0, "none") if counter.stage == "marked" else counter


def _deletes(counter: _Counter) -> Iterator[Effect]:
    stage = DeletionStage
    yield Effect(str(stage.SKIPPED), counter)
    if counter.stage == "none":
        yield Effect(str(stage.FORGOTTEN), counter)  # by another call, at the same time
        if counter.sum:
            yield Effect(str(stage.MARKED), counter._replace(stage="marked"))
        else:
            yield Effect(NoSuchCounter, counter)
        return
    if counter.stage == "marked":
        yield Effect(str(stage.MARKED), counter)  # by another call, at the same time
        yield Effect(str(stage.WAITING), counter)
        if counter.new:
            yield Effect(str(stage.IN_USE), _Counter(counter.sum, 0, "marked"))
    yield Effect(str(stage.DELETED), _Counter(0, counter.new, "deleted"))
    yield Effect(str(stage.FORGOTTEN), _Counter(counter.new, 0, "none"))


def certainty_of_deletion(answer: object) -> Certainty:
    """What answers of a deletion, or of what is beside it, say."""
    return (
        Certainty.MAYBE
        if isinstance(answer, Unacknowledged | KeyExpired)
        else certainty_of_several(answer)
    )


def _is_text(answer: object) -> bool:
    return isinstance(answer, str)


def _agrees(counter: _Counter, contents: Contents) -> bool:
    ledger, counters = contents.tables[LEDGER], contents.tables[COUNTERS]
    found = ledger_sum(contents, _NAME)
    total = counters.get((_NAME, keys.TOTAL), {}).get("total", 0)
    mark = ledger.get(_MARK)
    shown = None if mark is None else present(dict(mark))
    stage = "none" if shown is None else "deleted" if "deleted_at" in shown else "marked"
    return (found, int(total), stage) == (counter.sum, counter.sum, counter.stage)


def _record(ledger: CountLedger, delta: int) -> str:
    return str(ledger.record(_NAME, delta).status)


def _delete(ledger: CountLedger) -> str:
    return str(ledger.deletions.delete(_NAME).stage)


def _marked(ledger: CountLedger) -> None:
    _record(ledger, 100)
    _delete(ledger)
    ledger.connection.clock.sleep_ms(_WAIT_MS)


def _merged(ledger: CountLedger) -> None:
    _marked(ledger)
    ledger.compactor().compact(_NAME)


def _deleted(ledger: CountLedger) -> None:
    _marked(ledger)
    if _delete(ledger) != DeletionStage.DELETED:
        raise AssertionError("the counter was not deleted")
    ledger.connection.clock.sleep_ms(_WAIT_MS)


def _used_again(ledger: CountLedger) -> None:
    _deleted(ledger)
    _record(ledger, 7)
    ledger.connection.clock.sleep_ms(_WAIT_MS)


def _prepare(ledger: CountLedger) -> None:
    ledger.namespaces.get("n")
    regions = ledger.deletions.ledger.regions
    regions.survey()
    regions.hold_lease()


_MARKED: Final = _Counter(100, 0, "marked")
_LONGEST: Final = [(("delete", "record", "total"),) * 2, (("delete", "exact"),) * 2]

DELETIONS: Final = Capability(
    name="deletions",
    calls={
        "delete": _delete,
        "cancel": lambda ledger: ledger.deletions.cancel(_NAME),
        "record": lambda ledger: _record(ledger, 1),
        "exact": lambda ledger: int(ledger.exact(_NAME).value),
        "total": lambda ledger: int(ledger.total(_NAME).value),
        "a day passes": lambda ledger: ledger.connection.clock.sleep_ms(_WAIT_MS),
        "compact": lambda ledger: str(ledger.compactor().compact(_NAME).outcome),
    },
    scripts=(("record",), ("cancel",), ("exact",), ("compact",), ("delete",)),
    starts={
        "used again": Beginnings(_used_again, _Counter(0, 7, "deleted")),
        "deleted": Beginnings(_deleted, _Counter(0, 0, "deleted")),
        "merged": Beginnings(_merged, _MARKED),
    },
    model=_model,
    agrees=_agrees,
    masks=(CANCELLED_TWICE,),
    certainty=certainty_of_deletion,
    prepare=_prepare,
    watch=let_totals_follow,
    bounds=Bounds(jumps_ms=(14 * MINUTE_MS, _WAIT_MS)),
    # What is recorded after a mark is dated later than that.
    offsets_ms=(2, 1, 0),
    setup_before_ms=3 * _WAIT_MS + HOUR_MS,
)


def _faults(scripts: tuple[Script, ...]) -> int:
    """Two deletions and what follows each, beside each other: without a fault."""
    return 0 if scripts in _LONGEST else fewer_beside_more(scripts)


# The use of the name again. Canaries explore longer scripts, in which a day passes.
WHOLE_DELETIONS: Final = replace(
    DELETIONS,
    name="deletions-whole",
    scripts=(
        ("cancel", "total"),
        ("compact",),
        ("delete", "record", "total"),
    ),
    starts={"merged": Beginnings(_merged, _MARKED)},
    faults=_faults,
)
# Nothing is merged yet: the deletion merges it, or a run beside it.
UNMERGED_DELETIONS: Final = replace(
    WHOLE_DELETIONS,
    name="deletions-unmerged",
    scripts=(("compact",), ("delete", "exact")),
    starts={"marked": Beginnings(_marked, _MARKED)},
    masks=(),
)
DELETIONS_ALL: Final = (DELETIONS, WHOLE_DELETIONS, UNMERGED_DELETIONS)
