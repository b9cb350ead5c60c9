"""A hold: an amount of a strict counter that is reserved first and taken later, or not.

A hold is stored where the marker of a change under its key would be (method `marker`), so one key
is one change or one hold. Its state changes once:

    open  ->  confirmed     all or a part of it was taken; the rest is available again
          ->  cancelled     all of it is available again
          ->  expired       the same, after its time; once more, it may be confirmed (readmitted)

`lapses_at` is the time until which it can be confirmed. It is not the attribute of the table's time
to live: that would delete an open hold, and its counter would keep the amount back for ever. Only
the write that ends a hold sets `expires_at`. An open hold is in the index `due`, in one of the
buckets of all holds. All functions here are pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from countledger.ledger import amount, indexes, keys
from countledger.ledger.attributes import check_format, describe, optional, require, require_amount
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import BadCounterName, BadKey, CorruptItem, shown
from countledger.ledger.operations import AllOf, Assign, Compare, Drop, Query, Update
from countledger.ledger.texts import has_control_characters, plain_text
from countledger.producers.strict.definition import has_headroom, of, reserved, unreserved

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.operations import Clause, Condition
    from countledger.producers.strict.definition import Definition, Part

BUCKETS: Final = 16
_BUCKET_PREFIX: Final = "holds#"


class HoldState(StrEnum):
    """What became of a hold."""

    OPEN = "open"
    CONFIRMED = "confirmed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Hold:
    """A hold as it is stored.

    Attributes:
        id: what to confirm or to cancel it by.
        counter: the counter's name.
        amount: how much it reserves, or reserved.
        state: what became of it.
        expires_at: until when it can be confirmed.
        key: the key that it was placed under, or None.
        note: the caller's short texts.
        confirmed: how much of it was taken.
        ended_at: when it was confirmed, cancelled or released, or None.
        parts: which items of the counter hold how much.
        incarnation: of its counter.
        placed_by: the id of the call that placed it; no two holds have the same one.
        ended_by: the id of the call that ended it, or None.
        lapses_at_ms: `expires_at` in milliseconds.
        place: the key of its item.
    """

    id: str
    counter: str
    amount: Amount
    state: HoldState
    expires_at: datetime
    key: str | None
    note: Mapping[str, str] | None
    confirmed: Amount
    ended_at: datetime | None
    parts: tuple[tuple[Key, Amount], ...]
    incarnation: str
    placed_by: str
    ended_by: str | None
    lapses_at_ms: int
    place: Key


def hold_id(counter: str, change_id: str) -> str:
    """The id of a hold: the name of its counter, and the id of its key."""
    return f"{counter}#{change_id}"


def parse_hold_id(text: object) -> tuple[str, str]:
    """The counter and the id of the key in the id of a hold.

    Raises:
        BadKey: it is no id of a hold.
    """
    if isinstance(text, str):
        counter, separator, change_id = plain_text(text).partition("#")
        try:
            counter = keys.check_counter(counter)
        except BadCounterName:
            separator = ""
        if separator and change_id and not has_control_characters(change_id):
            return counter, change_id
    raise BadKey(f"hold {shown(text, 80)} is no id of a hold: give the `id` that `hold` returned")


def encode_open(marker: Item, held: Amount, lapses_at_ms: int) -> Item:
    """The item of an open hold, without its parts, in the place of a marker.

    Args:
        marker: as a change under the same key would write it.
        held: the amount.
        lapses_at_ms: until when it can be confirmed.
    """
    kept = {name: value for name, value in marker.items() if name not in {"delta", "expires_at"}}
    return kept | {
        "hold": held,
        "state": str(HoldState.OPEN),
        "lapses_at": lapses_at_ms,
        "due_bucket": _bucket_of(marker["counter"]),
        "due_at": lapses_at_ms,
    }


def encode_parts(parts: Sequence[Part]) -> Item:
    """The attribute that stores which bins hold how much, of negative deltas; none without bins."""
    if parts[0].key["part"] == keys.TOTAL:
        return {}
    return {"parts": {part.key["counter"]: amount.negated(part.delta) for part in parts}}


def is_hold(item: Item | None) -> bool:
    """Whether an item is a hold."""
    return item is not None and "hold" in item


def decode_hold(counter: str, item: Item) -> Hold:
    """The hold in an item.

    Raises:
        CorruptItem: an attribute is absent or of another type.
        NewerFormat: a later release wrote it.
    """
    check_format(item)
    state = require(item, "state", str)
    if state not in list(HoldState):
        raise CorruptItem(f"{describe(item)}: 'state' is {shown(state)}, no state of a hold", item)
    change_id = require(item, "part", str).removeprefix(keys.MARKER_PREFIX)
    held = require_amount(item, "hold")
    lapses_at_ms = require(item, "lapses_at", int)
    ended_ms = optional(item, "ended_at", int)
    return Hold(
        id=hold_id(counter, change_id),
        counter=counter,
        amount=held,
        state=HoldState(state),
        expires_at=to_datetime(lapses_at_ms),
        key=optional(item, "key", str),
        note=optional(item, "note", dict),
        confirmed=require_amount(item, "confirmed") if "confirmed" in item else 0,
        ended_at=None if ended_ms is None else to_datetime(ended_ms),
        parts=tuple(_parts_in(counter, item, held)),
        incarnation=require(item, "incarnation", str),
        placed_by=require(item, "call", str),
        ended_by=optional(item, "ended_by", str),
        lapses_at_ms=lapses_at_ms,
        place={"counter": require(item, "counter", str), "part": require(item, "part", str)},
    )


def _parts_in(counter: str, item: Item, held: Amount) -> Iterator[tuple[Key, Amount]]:
    parts = optional(item, "parts", dict)
    if parts is None:
        yield keys.total_key(counter), held
        return
    for place in sorted(parts):
        yield {"counter": place, "part": keys.BIN}, parts[place]


def plan_part(table: str, definition: Definition, part: Part, now_ms: int) -> Update:
    """The write that reserves a part (a negative delta), if there is headroom: one write unit."""
    return Update(
        table,
        part.key,
        reserved(amount.negated(part.delta), now_ms),
        of(definition.incarnation, has_headroom(part.delta)),
    )


@dataclass(frozen=True, slots=True)
class End:
    """How a hold ends.

    Attributes:
        hold: as it was read.
        state: what becomes of it.
        taken: how much of it leaves the counter's value.
        in_time: what must hold of its time.
    """

    hold: Hold
    state: HoldState
    taken: Amount = 0
    in_time: Condition | None = None


def confirmed_before(now_ms: int) -> Condition:
    """The time of the hold is not over."""
    return Compare("lapses_at", ">", now_ms)


def lapsed_before(now_ms: int, skew_ms: int) -> Condition:
    """The time of the hold is over by every clock."""
    return Compare("lapses_at", "<", now_ms - skew_ms)


def plan_parts(table: str, hold: Hold, taken: Amount, now_ms: int) -> list[Update]:
    """The writes of the counter's items when an open hold ends: one write unit each.

    Each names the counter's incarnation; that the hold is open is the condition of its own write.
    """
    return [
        Update(
            table,
            key,
            unreserved(held, share, now_ms),
            of(hold.incarnation, Compare("held", ">=", held)),
        )
        for (key, held), share in zip(hold.parts, shares_of(hold, taken), strict=True)
    ]


def shares_of(hold: Hold, taken: Amount) -> list[Amount]:
    """How much of a confirmed amount each part gives, the first ones first."""
    shares: list[Amount] = []
    for _, held in hold.parts:
        share = min(held, taken)
        shares.append(share)
        taken = amount.add(taken, amount.negated(share))
    return shares


def plan_end(table: str, end: End, call: str, now_ms: int, kept_ms: int) -> Update:
    """The write of the hold itself, if it is the same hold and its state is what was read.

    Args:
        table: `counters`.
        end: how it ends.
        call: the id of the call.
        now_ms: the time.
        kept_ms: for how long the hold is remembered from now on.
    """
    hold = end.hold
    clauses: list[Clause] = [
        Assign("state", str(end.state)),
        Assign("ended_by", call),
        Assign("ended_at", now_ms),
        Assign("expires_at", -(-(now_ms + kept_ms) // 1_000)),
        Drop("due_bucket"),
        Drop("due_at"),
    ]
    same: list[Condition] = [
        Compare("call", "=", hold.placed_by),
        Compare("state", "=", str(hold.state)),
    ]
    if end.in_time is not None:
        same.append(end.in_time)
    if end.state is HoldState.CONFIRMED:
        clauses.append(Assign("confirmed", end.taken))
    return Update(table, hold.place, tuple(clauses), of(hold.incarnation, *same))


def bucket_query(table: str, bucket: str, before_ms: int, page_size: int | None) -> Query:
    """The open holds of a bucket whose time ends before then, the oldest first."""
    lapsed = AllOf(Compare("due_bucket", "=", bucket), Compare("due_at", "<", before_ms))
    return Query(table, lapsed, index=indexes.INDEX, page_size=page_size)


def buckets_of(places: Sequence[str]) -> list[str]:
    """The buckets of the holds that are stored in these partitions, each once."""
    return sorted({_bucket_of(place) for place in places})


def all_buckets() -> list[str]:
    """The buckets of all holds."""
    return [f"{_BUCKET_PREFIX}{number}" for number in range(BUCKETS)]


def _bucket_of(place: str) -> str:
    digest = blake2b(place.encode(), digest_size=1, person=b"hold").digest()
    return f"{_BUCKET_PREFIX}{digest[0] % BUCKETS}"
