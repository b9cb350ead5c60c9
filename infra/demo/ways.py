"""The ways by which the demo's events go into the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from countledger import CountLedger, CountledgerError, Event, Receipt
    from countledger.producers.kinesis.sender import Sent

    Outcomes: TypeAlias = Iterator[Receipt | Sent | CountledgerError]


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
    """

    via: Via
    send: Callable[[CountLedger, Iterator[Event]], Outcomes]
    tells: bool


DIRECT: Final = Way(Via.DYNAMODB, lambda client, events: client.record_many(events), tells=True)
# The stream acknowledges that it holds an event; whether the ledger knows it already shows later.
STREAMED: Final = Way(
    Via.KINESIS, lambda client, events: client.kinesis.send_many(events), tells=False
)
WAYS: Final = {way.via: way for way in (DIRECT, STREAMED)}
