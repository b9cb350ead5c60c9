"""A change of a strict counter, as the methods carry it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.amount import parse_delta, to_text
from countledger.ledger.clock import show_duration
from countledger.ledger.entry import check_note
from countledger.ledger.errors import ClockSkew, IdempotencyKeyReused, KeyExpired
from countledger.ledger.ids import IdempotencyKey, check_key, id_of_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from countledger.ledger.amount import Amount


@dataclass(frozen=True, slots=True)
class StrictChange:
    """One change, the same for every attempt.

    Attributes:
        counter: the counter's name.
        delta: what to add, not zero.
        id: what its key stands for, or made for this call; at most 36 characters.
        at_ms: when the call began.
        key: as the caller gave it, or None.
        key_at_ms: when the key was made, where the caller told.
        note: own short texts.
    """

    counter: str
    delta: Amount
    id: str
    at_ms: int
    key: str | None = None
    key_at_ms: int | None = None
    note: Mapping[str, str] | None = None

    @property
    def tag(self) -> str:
        """How it is remembered in an item: what it is, and what it added."""
        return f"{self.id}={to_text(self.delta)}"

    def remembered_in(self, tags: Iterable[str]) -> bool:
        """Whether it is among the changes remembered.

        Raises:
            IdempotencyKeyReused: its id is, with another delta.
        """
        prefix = f"{self.id}="
        for tag in tags:
            if tag.startswith(prefix):
                if tag != self.tag:
                    raise self.reused(tag.removeprefix(prefix))
                return True
        return False

    def reused(self, delta: object) -> IdempotencyKeyReused:
        """The error that says so."""
        return IdempotencyKeyReused(
            f"idempotency key {self.key!r} of counter {self.counter!r} was used for a delta of "
            f"{delta}, and now comes with {to_text(self.delta)}: a new change needs a new key"
        )

    def remembered_until(self, life_ms: int) -> int:
        """Until when a method that remembers keys for so long surely knows this one."""
        return (self.at_ms if self.key_at_ms is None else self.key_at_ms) + life_ms

    def check_age(self, now_ms: int, life_ms: int, skew_ms: int) -> None:
        """Whether its key, if it has a time, is still remembered if it was used before.

        Raises:
            KeyExpired: it was made too long ago.
            ClockSkew: it is dated further ahead than clocks may differ.
        """
        what = f"idempotency key {self.key!r} of counter {self.counter!r}"
        check_key_age(what, self.key_at_ms, now_ms, life_ms, skew_ms)


def check_key_age(
    what: str, key_at_ms: int | None, now_ms: int, life_ms: int, skew_ms: int
) -> None:
    """Whether a key that was made then (None: nobody knows when) is still remembered.

    Raises:
        KeyExpired, ClockSkew: as `StrictChange.check_age`; `what` names the key.
    """
    age_ms = now_ms - (now_ms if key_at_ms is None else key_at_ms)
    if age_ms > life_ms:
        raise KeyExpired(
            f"{what} was made {show_duration(age_ms)} ago and is remembered for "
            f"{show_duration(life_ms)}: whether it counted is no longer known"
        )
    if -age_ms > skew_ms:
        raise ClockSkew(
            f"{what} is dated {show_duration(-age_ms)} ahead; clocks may differ by "
            f"{show_duration(skew_ms)}"
        )


def make_change(
    counter: str,
    delta: Amount,
    key: str | IdempotencyKey | None,
    note: Mapping[str, str] | None,
    *,
    now_ms: int,
    new_id: Callable[[int], str],
) -> StrictChange:
    """A change, valid at birth.

    Raises:
        BadCounterName, BadDelta, BadKey, BadNote: naming the value and the rule that it breaks.
    """
    if key is not None and not isinstance(key, IdempotencyKey):
        check_key(key)
    return StrictChange(
        counter=keys.check_counter(counter),
        delta=parse_delta(delta),
        id=new_id(now_ms) if key is None else id_of_key(key),
        at_ms=now_ms,
        key=key.key if isinstance(key, IdempotencyKey) else key,
        key_at_ms=key.at_ms if isinstance(key, IdempotencyKey) else None,
        note=None if note is None else check_note(note),
    )
