"""The records of a batch that can never be applied, on their way into the quarantine.

They go there when all other counters of the batch are written, several at a time: any number of
them delays no other counter. Their own counters come last: nothing passes a record before it is
stored, also if a later release can apply it. What is not stored before the deadline is delivered
again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from countledger.ledger.errors import CountledgerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Executor

    from countledger.ledger.before_send import Deadline


class Quarantine(Protocol):
    """Stores records that can never be applied."""

    def put(self, record: Mapping[str, Any], reason: str, shard: str) -> None:
        """Store a record; return only when it is stored.

        Raises:
            ServiceFailed: it is not stored.
        """


class RejectedRecord(NamedTuple):
    """A record that goes to the quarantine.

    Attributes:
        record: as delivered.
        reason: why it can never be applied.
        sequence: its sequence number; None if it has none.
    """

    record: Mapping[str, Any]
    reason: str
    sequence: int | None


class Unstored(NamedTuple):
    """A record that is not in the quarantine.

    Attributes:
        sequence: its sequence number.
        counter: its counter; None: it names none.
        error: why it is not.
    """

    sequence: int
    counter: str | None
    error: CountledgerError


def counters_of(rejected: Sequence[RejectedRecord]) -> set[str | None]:
    """The counters that records name."""
    return {counter_in(one.record) for one in rejected}


def counter_in(record: Mapping[str, Any]) -> str | None:
    """The counter that a record names; None: it names none."""
    try:
        name = record["dynamodb"]["Keys"]["counter"]["S"]
    except (KeyError, TypeError):
        return None
    return name if isinstance(name, str) else None


def put_unnumbered(quarantine: Quarantine, rejected: Sequence[RejectedRecord], shard: str) -> None:
    """Store the records without a sequence number: a shard cannot be delivered again from them.

    Raises:
        ServiceFailed: one is not stored; the whole batch must be delivered again.
    """
    for one in rejected:
        if one.sequence is None:
            quarantine.put(one.record, one.reason, shard)


def put_numbered(
    quarantine: Quarantine,
    rejected: Sequence[RejectedRecord],
    shard: str,
    deadline: Deadline,
    pool: Executor,
) -> list[Unstored]:
    """Store the records with a sequence number, several at a time, until the deadline.

    Returns:
        Those that are not stored.
    """

    def put(one: RejectedRecord) -> CountledgerError | None:
        try:
            with deadline.guarded():
                quarantine.put(one.record, one.reason, shard)
        except CountledgerError as error:
            return error
        return None

    numbered = [one for one in rejected if one.sequence is not None]
    return [
        Unstored(one.sequence or 0, counter_in(one.record), error)
        for one, error in zip(numbered, pool.map(put, numbered), strict=True)
        if error is not None
    ]
