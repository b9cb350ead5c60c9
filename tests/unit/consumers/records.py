"""Stream records as Lambda delivers them."""

from typing import Any

from countledger.ledger.ids import id_of_key
from countledger.ledger.keys import entry_key
from tests.unit.ledger.clocks import NOW_MS

COUNTER = "a:b"


def image(delta: int | str, events: int | None = None) -> dict[str, Any]:
    """An entry's image, as far as the fold looks at it."""
    found: dict[str, Any] = {"delta": {"N": str(delta)}}
    return found if events is None else {**found, "events": {"N": str(events)}}


def record(
    sequence: int | str,
    delta: int | str = 1,
    *,
    counter: str = COUNTER,
    name: str = "INSERT",
    entry: str | None = None,
    age_ms: int = 0,
    old: dict[str, Any] | None = None,
    events: int | None = None,
) -> dict[str, Any]:
    stream: dict[str, Any] = {
        "SequenceNumber": str(sequence),
        "ApproximateCreationDateTime": (NOW_MS - age_ms) / 1000,
        "Keys": {
            "counter": {"S": counter},
            "entry": {"S": entry_key(id_of_key(str(sequence)), 1) if entry is None else entry},
        },
        "NewImage": image(delta, events),
    }
    if old is not None:
        stream["OldImage"] = old
    return {"eventName": name, "eventSource": "aws:dynamodb", "dynamodb": stream}


def with_stream(template: dict[str, Any], **changed: object) -> dict[str, Any]:
    """A record with attributes of its `dynamodb` part replaced; None takes one out."""
    stream = {**template["dynamodb"], **changed}
    return {**template, "dynamodb": {n: v for n, v in stream.items() if v is not None}}
