"""Strict counters: every method, with one item and with two bins.

Each method has changes of +1 and -1 (with bins of two, so that one is split over both), without a
key and under a key that other processes repeat, its withdrawal, bounds, deletion and creation, and
the counter set to a value; the markers that a deletion has left are deleted. The state of the model
is the counter as a user sees it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from countledger import IdempotencyKey
from countledger.consumers.leftovers import Leftovers
from countledger.infra.memory.tables import COUNTERS
from countledger.ledger import keys
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import (
    BadBounds,
    CounterExists,
    IdempotencyKeyReused,
    KeyExpired,
    NoSuchCounter,
)
from countledger.ledger.limits import MINUTE_MS
from countledger.ledger.tombstones import present
from countledger.producers.strict.definition import (
    SPREADABLE,
    Method,
    decode_definition,
    decode_state,
    whole_of,
)
from countledger.producers.strict.outcome import Contended, Unknown
from tests.exploring.linear import DIED, Certainty, Effect, Masked, certainty_of
from tests.exploring.scope import Beginnings, Capability
from tests.exploring.search import Bounds
from tests.exploring.world import BEGIN_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from countledger.client import CountLedger
    from countledger.producers.strict.definition import Definition, StrictState
    from tests.exploring.scope import Script
    from tests.exploring.world import Contents

NAME: Final = "s:x"
KEY: Final = IdempotencyKey("k", to_datetime(BEGIN_MS))
_SET_KEY: Final = IdempotencyKey("v", to_datetime(BEGIN_MS))
_HISTORY: Final = 2
_SET_TO: Final = 7
_VOID: Final = 0

DIED_TWICE: Final = Masked(
    "a key that a process left when it died",
    "guarantees.md",
    "With `request_token` a key can count twice if a process dies while its request is under way, "
    "another process repeats the key within minutes, and the first request arrives more than ten "
    "minutes after that: no call knew of both.",
)
APPLIED_UNDER_KEY: Final = Masked(
    "applied by another call under the key",
    "strict.md",
    "After a lost answer `occ`, `history`, `set` and `request_token` find a change by its key, not "
    "by its call: if several calls of one key are under way, more than one may answer `Applied`; "
    "the change counts once.",
)
WITHDRAWN_BEFORE: Final = Masked(
    "a key that is used again after its withdrawal",
    "strict.md",
    "`Withdrawn` means that the change is never applied: as long as the counter exists for a "
    "`set`, for its window for a `marker`, and for every request that was sent before for "
    "`request_token`.",
)
DELETED_TWICE: Final = Masked(
    "deleted by another call meanwhile",
    "strict.md",
    "Two calls that delete a counter at the same time both succeed.",
)
_KEYED: Final = {"key", "key to add", "withdraw", "set"}
# Methods whose memory names the key and not the call.
_BY_KEY: Final = {Method.OCC, Method.HISTORY, Method.SET, Method.REQUEST_TOKEN}


class Tag(NamedTuple):
    """A change that a counter remembers.

    Attributes:
        key: its key; empty: none.
        delta: what it changed; 0: its key was withdrawn.
    """

    key: str
    delta: int


class Strict(NamedTuple):
    """A counter.

    Attributes:
        value: its value.
        lower: its lower bound.
        tags: what it remembers, the last ones at the end.
    """

    value: int
    lower: int
    tags: tuple[Tag, ...] = ()

    def delta_of(self, key: str) -> int | None:
        """What the change under a key was; None: not remembered."""
        return dict(self.tags).get(key)


class Seen(NamedTuple):
    """The state of the model.

    Attributes:
        counter: None: it does not exist.
        set_under: what the key that sets a value is known by: an incarnation; None: not used.
        incarnation: how often the counter was created.
    """

    counter: Strict | None
    set_under: int | None = None
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class Setting:
    """A counter as it is created.

    Attributes:
        method: of it.
        bins: over how many items it is spread.
        lives: whether its creation and deletion are explored, and little else.
    """

    method: Method
    bins: int = 1
    lives: bool = False

    @property
    def amount(self) -> int:
        """What a change moves: more than one bin has."""
        return self.bins

    def create(self, ledger: CountLedger) -> int:
        """Create it; its value."""
        history = _HISTORY if self.method is Method.HISTORY else None
        made = ledger.strict.create(
            NAME,
            method=str(self.method),
            bins=self.bins,
            history=history,
            lower=0,
            opening=self.amount,
        )
        return int(made.value)

    def calls(self) -> Mapping[str, Callable[[CountLedger], object]]:
        """What each call does."""
        take, add = -self.amount, self.amount
        return {
            "take": lambda ledger: _change(ledger, take),
            "add": lambda ledger: _change(ledger, add),
            "key": lambda ledger: _change(ledger, take, KEY),
            "key to add": lambda ledger: _change(ledger, add, KEY),
            "withdraw": lambda ledger: kind(ledger.strict.withdraw(NAME, KEY)),
            "raise bound": lambda ledger: _bounds(ledger, 1),
            "lower bound": lambda ledger: _bounds(ledger, 0),
            "set": _set,
            "create": self.create,
            "delete": lambda ledger: ledger.strict.delete(NAME),
            "tidy": lambda ledger: Leftovers(ledger.connection).delete_markers(NAME),
        }

    def scripts(self) -> tuple[Script, ...]:
        """What one actor does."""
        found: list[Script] = [("take",), ("delete",)]
        if self.lives:
            return (*found, ("create",), ("delete", "create"))
        found += [("add",), ("raise bound",), ("lower bound",), ("set",)]
        if self.method is not Method.REQUEST_TOKEN:
            found.append(("delete", "create"))
        if self.method is not Method.ATOMIC:
            found += [("key",), ("key to add",), ("key", "add")]
        if self.method in {Method.MARKER, Method.REQUEST_TOKEN, Method.SET}:
            found += [("withdraw",)]
        if self.method is Method.MARKER and self.bins == 1:
            found += [("tidy",)]
        return tuple(found)

    def model(self, seen: Seen, call: str) -> Iterator[Effect]:
        """What a call does."""
        counter = seen.counter
        if call == "tidy":
            yield Effect(None, seen)
        elif call == "create":
            if counter is not None:
                yield Effect(CounterExists, seen)
            else:
                made = Strict(self.amount, 0)
                yield Effect(
                    self.amount, seen._replace(counter=made, incarnation=seen.incarnation + 1)
                )
        elif counter is None:
            yield Effect(NoSuchCounter, seen)
            if call == "delete":
                yield Effect(None, seen, DELETED_TWICE)
            if call in _KEYED:
                yield Effect(KeyExpired, seen)
        elif call == "delete":
            yield Effect(None, seen._replace(counter=None))
        elif call == "set":
            yield from _setting(seen, counter)
        else:
            for effect in self._on(counter, call):
                yield effect._replace(after=seen._replace(counter=effect.after))

    def _on(self, counter: Strict, call: str) -> Iterator[Effect]:
        match call:
            case "raise bound":
                if counter.value < 1:
                    yield Effect(BadBounds, counter)
                else:
                    yield Effect("moved", counter._replace(lower=1))
            case "lower bound":
                yield Effect("moved", counter._replace(lower=0))
            case "withdraw":
                yield from self._withdrawing(counter)
            case "key" | "key to add":
                yield from self._under_key(counter, self._delta_of(call))
            case _:
                yield self._changing(counter, Tag("", self._delta_of(call)))

    def _delta_of(self, call: str) -> int:
        return self.amount if call in {"add", "key to add"} else -self.amount

    def _withdrawing(self, counter: Strict) -> Iterator[Effect]:
        yield Effect(KeyExpired, counter)
        if counter.delta_of("k"):
            yield Effect("Duplicate", counter)
        else:
            yield Effect("Withdrawn", self._remember(counter, Tag("k", _VOID)))

    def _under_key(self, counter: Strict, delta: int) -> Iterator[Effect]:
        yield Effect(KeyExpired, counter)
        before = counter.delta_of("k")
        if before is None:
            yield self._changing(counter, Tag("k", delta))
        elif before == _VOID:
            yield Effect("Withdrawn", counter)
            if self.method is Method.REQUEST_TOKEN:
                again = self._changing(counter, Tag("k", delta))
                yield again._replace(masked=WITHDRAWN_BEFORE)
        else:
            yield Effect("Duplicate" if before == delta else IdempotencyKeyReused, counter)
            if self.method is Method.REQUEST_TOKEN:
                again = self._changing(counter, Tag("k", delta))
                yield again._replace(answer=DIED, masked=DIED_TWICE)
            if before == delta and self.method in _BY_KEY:
                yield Effect("Applied", counter, APPLIED_UNDER_KEY)

    def _changing(self, counter: Strict, tag: Tag) -> Effect:
        if tag.delta < 0 and counter.value + tag.delta < counter.lower:
            return Effect("BoundReached", counter)
        moved = counter._replace(value=counter.value + tag.delta)
        return Effect("Applied", self._remember(moved, tag))

    def _remember(self, counter: Strict, tag: Tag) -> Strict:
        match self.method:
            case Method.OCC:
                return counter._replace(tags=(tag,))
            case Method.HISTORY:
                return counter._replace(tags=(*counter.tags, tag)[-_HISTORY:])
        return counter if not tag.key else counter._replace(tags=(*counter.tags, tag))

    @property
    def _forgets(self) -> bool:
        """Whether tokens are forgotten while a request is late: with bins that is too much."""
        return self.method is Method.REQUEST_TOKEN and self.bins == 1

    def masks(self) -> tuple[Masked, ...]:
        """What the guide documents of this method."""
        if self.lives:
            return (DELETED_TWICE,)
        by_key = (APPLIED_UNDER_KEY,) if self.method in _BY_KEY else ()
        tokens = (DIED_TWICE, WITHDRAWN_BEFORE) if self._forgets else ()
        return (DELETED_TWICE, *by_key, *tokens)

    def capability(self) -> Capability:
        """Of this counter."""
        spread = f"-{self.bins}" if self.bins > 1 else ""
        starts = {"created": Beginnings(self.create, Seen(Strict(self.amount, 0)))}
        # A deletion or a creation that is suspended for longer sends nothing.
        jumps_ms = (5 * MINUTE_MS, 14 * MINUTE_MS) if self.lives else (14 * MINUTE_MS,)
        if self.lives:
            starts["absent"] = Beginnings(_begin, Seen(None))
        return Capability(
            name="strict-life" if self.lives else f"strict-{self.method}{spread}",
            calls=self.calls(),
            scripts=self.scripts(),
            starts=starts,
            model=self.model,
            agrees=agrees,
            certainty=certainty,
            prepare=knowing(NAME),
            masks=self.masks(),
            bounds=Bounds(jumps_ms=jumps_ms, free_jumps=self._forgets),
        )


def _setting(seen: Seen, counter: Strict) -> Iterator[Effect]:
    yield Effect(KeyExpired, seen)
    if seen.set_under == seen.incarnation:
        yield Effect("Duplicate", seen)
    elif seen.set_under is not None:
        yield Effect(IdempotencyKeyReused, seen)
    elif counter.lower > _SET_TO:
        yield Effect("BoundReached", seen)
    else:
        after = counter._replace(value=_SET_TO)
        yield Effect("Applied", Seen(after, seen.incarnation, seen.incarnation))


def certainty(answer: object) -> Certainty:
    """What an answer says."""
    if answer == Unknown.__name__:
        return Certainty.MAYBE
    return Certainty.NONE if answer == Contended.__name__ else certainty_of(answer)


def agrees(seen: Seen, contents: Contents) -> bool:
    """Whether the counter is as the tables show it, and the directory with it."""
    items = contents.tables[COUNTERS]
    main = items.get((NAME, keys.TOTAL))
    entry = keys.strict_key(NAME)
    listed = items.get((entry["counter"], entry["part"]))
    exists = listed is not None and present(dict(listed)) is not None
    if main is None or seen.counter is None:
        bins = [key for key in items if key[1] == keys.BIN]
        return main is None and seen.counter is None and not exists and not bins
    whole = whole_in(contents, decode_definition(dict(main)))
    return exists and (whole.total, whole.lower) == (seen.counter.value, seen.counter.lower)


def whole_in(contents: Contents, definition: Definition) -> StrictState:
    """A counter with all of its bins, as the tables show it."""
    items = contents.tables[COUNTERS]
    places = [items.get((place["counter"], place["part"])) for place in definition.places]
    return whole_of([decode_state(definition.expect(dict(one or {}))) for one in places])


def kind(outcome: object) -> str:
    """Of an outcome, its class."""
    return type(outcome).__name__


def _change(ledger: CountLedger, delta: int, key: IdempotencyKey | None = None) -> str:
    return kind(ledger.strict.change(NAME, delta, key=key))


def _bounds(ledger: CountLedger, lower: int) -> str:
    ledger.strict.set_bounds(NAME, lower=lower)
    return "moved"


def _set(ledger: CountLedger) -> str:
    return kind(ledger.strict.transactions.set_value(NAME, _SET_TO, key=_SET_KEY))


def _begin(ledger: CountLedger) -> None:
    """A namespace without counters."""
    ledger.strict.create("s:other", method="atomic")


def knowing(*counters: str) -> Callable[[CountLedger], None]:
    """What a process knows that has used the counters before."""

    def know(ledger: CountLedger) -> None:
        ledger.namespaces.get(keys.namespace_of(counters[0]))
        for counter in counters:
            with suppress(NoSuchCounter):
                ledger.strict.tables.of(counter).get(counter)

    return know


STRICT: Final = (
    Setting(Method.REQUEST_TOKEN, lives=True).capability(),
    *(
        Setting(method, bins).capability()
        for method in Method
        for bins in ((1, 2) if method in SPREADABLE else (1,))
    ),
)
