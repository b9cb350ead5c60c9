"""The ways by which the demo's events go into the ledger."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from countledger import Buffering, Receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from countledger import CountLedger, CountledgerError, Event, Pending
    from countledger.producers.kinesis.sender import Sent

    Outcomes: TypeAlias = Iterator[Receipt | Sent | CountledgerError]


# How many events are sent before the first of them is waited for.
_AHEAD: Final = 20_000


class Via(StrEnum):
    """What stands between the app and the ledger."""

    DYNAMODB = "dynamodb"
    KINESIS = "kinesis"


@dataclass(frozen=True, slots=True)
class Way:
    """A way into the ledger.

    Attributes:
        via: what it leads through.
        send: sends events, and tells of each in their order.
        tells: whether what it tells is the ledger's word, recorded or duplicate.
        coalesces: whether events of one counter share entries.
    """

    via: Via
    send: Callable[[CountLedger, Iterator[Event]], Outcomes]
    tells: bool
    coalesces: bool = False


def _coalesced(client: CountLedger, events: Iterator[Event]) -> Outcomes:
    """Send events without their keys, which nothing coalesced can keep, through a buffer.

    An event that comes a second time is a retry of the entry that it was summed up in: that very
    entry is sent again.
    """
    pendings: dict[object, Pending] = {}
    waiting: deque[tuple[Pending, bool]] = deque()
    with client.buffered(Buffering(coalesce=True)) as producer:
        for event in events:
            first = pendings.pop(event.key, None)
            if first is None:
                pending = producer.add(event.counter, event.delta)
                pendings[event.key] = pending
                waiting.append((pending, False))
            else:
                waiting.append((first, True))
            while waiting and (waiting[0][0].done or len(waiting) > _AHEAD):
                yield _outcome(client, *waiting.popleft())
        producer.flush()
        for pending, again in waiting:
            yield _outcome(client, pending, again)


def _outcome(client: CountLedger, pending: Pending, again: bool) -> Receipt | CountledgerError:  # noqa: FBT001 - half of a pair
    outcome = pending.wait()
    if again and pending.entry is not None and isinstance(outcome, Receipt):
        return client.resend(pending.entry)
    return outcome


DIRECT: Final = Way(Via.DYNAMODB, lambda client, events: client.record_stream(events), tells=True)
# The stream acknowledges that it holds an event; whether the ledger knows it already shows later.
STREAMED: Final = Way(
    Via.KINESIS, lambda client, events: client.kinesis.send_stream(events), tells=False
)
COALESCED: Final = Way(Via.DYNAMODB, _coalesced, tells=True, coalesces=True)
WAYS: Final = {way.via: way for way in (DIRECT, STREAMED)}
