"""What a worker is asked to do, as messages of a queue."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from countledger.ledger import keys
from countledger.ledger.errors import BadPayload

if TYPE_CHECKING:
    from countledger.ledger.attributes import Key

_KEY_NAMES: Final = frozenset({"counter", "part"})


@dataclass(frozen=True, slots=True)
class CompactCounter:
    """Compact a counter, if it is due still."""

    counter: str


@dataclass(frozen=True, slots=True)
class SweepSegment:
    """Put the counters of a namespace into the due index that should have been there before.

    Attributes:
        namespace: whose counters.
        segment: which part of the table `counters` to read.
        segments: of how many.
        after: the key of the last item read, or None at the beginning.
    """

    namespace: str
    segment: int
    segments: int
    after: Key | None = None


Work: TypeAlias = CompactCounter | SweepSegment


def encode_work(work: Work) -> str:
    """The message."""
    if isinstance(work, CompactCounter):
        return json.dumps({"counter": work.counter}, ensure_ascii=False)
    sweep = {"namespace": work.namespace, "segment": work.segment, "segments": work.segments}
    return json.dumps({"sweep": {**sweep, "after": work.after}}, ensure_ascii=False)


def parse_work(body: str) -> Work:
    """The work in a message.

    Raises:
        BadPayload: it is none of ours.
    """
    try:
        message: Any = json.loads(body)
        if message.keys() == {"counter"}:
            return CompactCounter(keys.check_counter(message["counter"]))
        sweep = message["sweep"]
        work = SweepSegment(
            keys.check_namespace(sweep["namespace"]),
            int(sweep["segment"]),
            int(sweep["segments"]),
            sweep["after"],
        )
        if 0 <= work.segment < work.segments and _is_key(work.after):
            return work
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadPayload(f"message {body[:200]!r} is no work for a compactor ({error})") from error
    raise BadPayload(f"message {body[:200]!r} is no work for a compactor")


def _is_key(after: object) -> bool:
    if after is None:
        return True
    return isinstance(after, dict) and after.keys() == _KEY_NAMES
