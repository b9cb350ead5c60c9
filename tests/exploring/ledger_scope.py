"""The ledger: record, also under bare keys, compact, and read exactly.

The world begins with entries that are old enough to be merged. The state of the model is the exact
sum and whether the key is remembered: as a `duplicate` until a compaction has forgotten it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from countledger.infra.memory.tables import LEDGER
from countledger.ledger.errors import IdempotencyKeyReused, Unacknowledged
from countledger.ledger.exact import decode_head
from countledger.ledger.limits import DAY_MS, MINUTE_MS
from tests.exploring.linear import Certainty, Effect, certainty_of
from tests.exploring.scope import Beginnings, Capability
from tests.exploring.search import Bounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.client import CountLedger
    from tests.exploring.world import Contents

# The exact sum, and the delta under the key; 0: the key is not remembered.
_Ledger: TypeAlias = tuple[int, int]

_NAME: Final = "n:x"
_KEY: Final = "order-1"
_DELTAS: Final = {"record": 1, "record key": 10, "record key as 20": 20}


def _model(ledger: _Ledger, call: str) -> Iterator[Effect]:
    total, under_key = ledger
    if call == "exact":
        yield Effect(total, ledger)
    elif call == "compact":
        yield Effect(_is_compacted, ledger)
        yield Effect(_is_compacted, (total, 0))
    elif call == "record":
        yield Effect("recorded", (total + 1, under_key))
    elif not under_key:
        yield Effect("recorded", (total + _DELTAS[call], _DELTAS[call]))
    elif under_key == _DELTAS[call]:
        yield Effect("duplicate", ledger)
    else:
        yield Effect(IdempotencyKeyReused, ledger)


def certainty_of_record(answer: object) -> Certainty:
    """What answers of `record` say."""
    return Certainty.MAYBE if isinstance(answer, Unacknowledged) else certainty_of(answer)


def _is_compacted(answer: object) -> bool:
    return isinstance(answer, str)


def ledger_sum(contents: Contents, counter: str, table: str = LEDGER) -> int:
    """The exact sum of a counter, by one copy of the ledger."""
    items = [dict(item) for key, item in contents.tables[table].items() if key[0] == counter]
    head = decode_head(next((one for one in items if "delta" not in one), None))
    entries = [
        one for one in items if "delta" in one and not head.has_merged(one["entry"], one["at"])
    ]
    return int(head.sum) + sum(int(one["delta"]) for one in entries)


def _agrees(ledger: _Ledger, contents: Contents) -> bool:
    return ledger_sum(contents, _NAME) == ledger[0]


def _record(ledger: CountLedger, delta: int, key: str | None = None) -> str:
    return str(ledger.record(_NAME, delta, key=key).status)


def _begun(ledger: CountLedger) -> None:
    _record(ledger, 100)


def _begun_with_key(ledger: CountLedger) -> None:
    _record(ledger, 100)
    _record(ledger, 10, _KEY)


RECORDS: Final = Capability(
    name="ledger",
    calls={
        "record": lambda ledger: _record(ledger, 1),
        "record key": lambda ledger: _record(ledger, 10, _KEY),
        "record key as 20": lambda ledger: _record(ledger, 20, _KEY),
        "exact": lambda ledger: int(ledger.exact(_NAME).value),
        "compact": lambda ledger: str(ledger.compactor().compact(_NAME).outcome),
    },
    scripts=(
        ("record",),
        ("record key",),
        ("record key as 20",),
        ("exact",),
        ("compact",),
    ),
    starts={
        "old entries": Beginnings(_begun, (100, 0)),
        "an old key": Beginnings(_begun_with_key, (110, 10)),
    },
    model=_model,
    agrees=_agrees,
    certainty=certainty_of_record,
    prepare=lambda ledger: ledger.namespaces.get("n"),
    bounds=Bounds(jumps_ms=(14 * MINUTE_MS,)),
    # Equal entries of one millisecond are one item: who recorded it cannot be told.
    offsets_ms=(0, 1, 2),
    setup_before_ms=3 * DAY_MS,
)
