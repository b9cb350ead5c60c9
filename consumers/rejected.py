"""The records of a batch that can never be applied, on their way into the quarantine.

They go there when all other counters of the batch are written, several at a time: any number of
them delays no other counter. Their own counters come last: nothing passes a record before it is
stored, also if a later release can apply it. What is not stored before the deadline is delivered
again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from countledger.ledger.errors import CountledgerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor

    from countledger.ledger.departure import Deadline

_Place = TypeVar("_Place")
_Changes = TypeVar("_Changes")
_Ended = TypeVar("_Ended")


class Quarantine(Protocol):
    def put(self, record: Mapping[str, Any], reason: str, shard: str) -> None:
        """Store a record; return only when it is stored."""


class RejectedRecord(NamedTuple):
    """A record that goes to the quarantine, and why it can never be applied."""

    record: Mapping[str, Any]
    reason: str
    sequence: int | None


class Unstored(NamedTuple):
    """A record that is not in the quarantine, and its counter, if it names one."""

    sequence: int
    counter: str | None
    error: CountledgerError


def handle_around(
    rejected: Sequence[RejectedRecord],
    changes: Mapping[_Place, _Changes],
    counter_of: Callable[[_Place], str],
    handle: Callable[[Mapping[_Place, _Changes]], Mapping[_Place, _Ended]],
    store: Callable[[Sequence[RejectedRecord]], list[Unstored]],
) -> tuple[dict[_Place, _Ended], list[Unstored]]:
    """Handle a batch's changes, and store its rejected records before those of their own counters.

    Changes of a counter of which a rejected record is not stored are not handled. The answer has
    the result for each key that was handled, and the records that are not stored.
    """
    held = {counter_in(one.record) for one in rejected}
    ended = dict(handle({at: one for at, one in changes.items() if counter_of(at) not in held}))
    unstored = store(rejected) if rejected else []
    last = held - {one.counter for one in unstored}
    own = {at: one for at, one in changes.items() if counter_of(at) in last} if last else {}
    if own:
        ended |= handle(own)
    return ended, unstored


def counter_in(record: Mapping[str, Any]) -> str | None:
    """The counter that a record names, if any."""
    try:
        name = record["dynamodb"]["Keys"]["counter"]["S"]
    except (KeyError, TypeError):
        return None
    return name if isinstance(name, str) else None


def put_unnumbered(quarantine: Quarantine, rejected: Sequence[RejectedRecord], shard: str) -> None:
    """Store the records without a sequence number: a shard cannot be delivered again from them.

    An error: one is not stored, and the whole batch must be delivered again.
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
    """Store the others, several at a time, until the deadline; those that are not stored."""

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
