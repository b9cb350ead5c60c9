"""A batch of well-formed records, read at one sweep: a third of the time of one by one.

Nearly every record is a young INSERT of an entry of this release. For those a check costs per call
more than per byte: so texts are gathered and checked all at once, and numbers read once for each
spelling. Any other record is read by `change_of`, and a batch of which one is not well formed is
not read here at all. Nothing passes here that `change_of` would refuse.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from countledger.consumers.changes import row_of
from countledger.consumers.record import (
    MalformedRecord,
    are_sequences,
    change_of,
    sequence_of,
    surely_young_from_s,
    worth_of,
)
from countledger.ledger import keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger.consumers.changes import Row
    from countledger.ledger.amount import Amount

# In the stream's seconds; what lies behind it (infinity does) is left to a closer look.
_FAR_AHEAD_S: Final = 1e11
_NOT_WELL_FORMED: Final = (KeyError, TypeError, AttributeError, ValueError, MalformedRecord)


def sweep(records: Sequence[Mapping[str, Any]], now_ms: int) -> Mapping[str, list[Row]] | None:
    """What records add to totals, by counter in order; None: one of them needs a closer look."""
    try:
        return _sweep(records, now_ms)
    except _NOT_WELL_FORMED:
        return None


def _sweep(records: Sequence[Mapping[str, Any]], now_ms: int) -> Mapping[str, list[Row]] | None:
    rows: defaultdict[str, list[Row]] = defaultdict(list)
    deltas: dict[str, Amount] = {}
    counts: dict[str, int] = {}
    entries: list[str] = []
    sequences: list[str] = []
    young_s = surely_young_from_s(now_ms)
    for record in records:
        stream = record["dynamodb"]
        sequence = stream["SequenceNumber"]
        if (
            record["eventName"] != "INSERT"
            or not young_s <= stream["ApproximateCreationDateTime"] < _FAR_AHEAD_S
            or "v" in (image := stream["NewImage"])
        ):
            change = change_of(record, sequence_of(record), now_ms)
            if change is not None:
                rows[change.counter].append(row_of(change))
            continue
        key = stream["Keys"]
        counter = key["counter"]["S"]
        delta = deltas.get(image["delta"]["N"])
        events = counts.get(image["events"]["N"]) if "events" in image else 1
        if delta is None or events is None:
            delta, events = worth_of(image, "new")
            deltas[image["delta"]["N"]] = delta
            if "events" in image:
                counts[image["events"]["N"]] = events
        entries.append(key["entry"]["S"])
        sequences.append(sequence)
        rows[counter].append((sequence, delta, events, 1))
    if sequences and not (set(map(type, rows)) == {str} and are_sequences(sequences)):
        return None
    return rows if keys.are_entries(entries) else None
