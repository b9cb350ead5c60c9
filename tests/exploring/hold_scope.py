"""Holds: place, confirm, cancel, readmit, withdraw; with changes, bounds, deletion of the counter.

Once with a hold that lasts for a day, and once with one whose time is over after ten minutes: then
the model does not say at which moment, but what each answer says of it must be what is stored. A
hold is confirmed before its time by the clock of who confirms it, released after it by every clock,
and a sale after that is not refused for it. Once more with a hold whose time is over by one clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from countledger.infra.memory.tables import COUNTERS
from countledger.ledger import keys
from countledger.ledger.clock import to_ms
from countledger.ledger.errors import BadBounds, CounterExists, NoSuchCounter, NoSuchHold, OpenHolds
from countledger.ledger.ids import id_of_key
from countledger.ledger.limits import CLOCK_SKEW_DEFAULT_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from countledger.producers.strict.definition import decode_definition
from countledger.producers.strict.hold import HoldState, decode_hold, hold_id, is_hold
from tests.exploring.linear import DIED, Certainty, Effect
from tests.exploring.scope import Beginnings, Capability
from tests.exploring.search import Bounds
from tests.exploring.strict_scope import DELETED_TWICE, certainty, kind, knowing, whole_in
from tests.exploring.transfer_scope import REFUSED_AND_WITHDRAWN
from tests.exploring.world import BEGIN_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from countledger.client import CountLedger
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.hold import Hold
    from tests.exploring.scope import Script
    from tests.exploring.search import Situation
    from tests.exploring.world import Contents

_NAME: Final = "h:x"
_KEY: Final = "basket"
_ID: Final = hold_id(_NAME, id_of_key(_KEY))
_OPENING: Final = 3
_HELD: Final = 2
_LENGTH_MS: Final = 10 * MINUTE_MS
_ENDING: Final = {"confirm", "confirm 1", "cancel"}


class Shop(NamedTuple):
    """The state of the model.

    Attributes:
        value: of the counter; None: it does not exist.
        lower: its lower bound.
        hold: `open`, `confirmed`, `cancelled`, `expired`; `void`: withdrawn; empty: none.
        taken: how much of it was confirmed.
        beside: what another open hold reserves, which nobody ends.
    """

    value: int | None
    lower: int = 0
    hold: str = ""
    taken: int = 0
    beside: int = 0

    @property
    def held(self) -> int:
        """What is reserved."""
        return self.beside + (_HELD if self.hold == "open" else 0)

    def confirmed(self, taken: int) -> Shop:
        """The same with the hold confirmed."""
        return self._replace(value=(self.value or 0) - taken, hold="confirmed", taken=taken)


@dataclass(frozen=True, slots=True)
class Holding:
    """What is explored.

    Attributes:
        bins: over how many items the counter is spread.
        lapses: whether the time of the hold is over at some moment.
        ends_in_ms: when that is for a hold that is there when the world begins.
        offset_ms: how far the clock of the first actor is ahead.
        beside: whether there is another hold.
    """

    bins: int = 1
    lapses: bool = False
    ends_in_ms: int = _LENGTH_MS
    offset_ms: int = 0
    beside: bool = False

    def calls(self) -> Mapping[str, Callable[[CountLedger], object]]:
        """What each call does."""
        return {
            "hold": self.hold,
            "confirm": lambda ledger: kind(ledger.strict.confirm(_ID)),
            "confirm 1": lambda ledger: kind(ledger.strict.confirm(_ID, 1)),
            "readmit": lambda ledger: kind(ledger.strict.confirm(_ID, readmit=True)),
            "cancel": lambda ledger: kind(ledger.strict.cancel(_ID)),
            "withdraw": lambda ledger: kind(ledger.strict.withdraw(_NAME, _KEY)),
            "take": lambda ledger: kind(ledger.strict.change(_NAME, -_HELD)),
            "raise bound": _raise_bound,
            "create": self.create,
            "delete": lambda ledger: ledger.strict.delete(_NAME),
        }

    def create(self, ledger: CountLedger) -> None:
        """Create the counter."""
        ledger.strict.create(_NAME, method="marker", lower=0, opening=_OPENING, bins=self.bins)

    def hold(self, ledger: CountLedger) -> str:
        """Place the hold."""
        length = timedelta(milliseconds=_LENGTH_MS) if self.lapses else timedelta(days=1)
        return kind(ledger.strict.hold(_NAME, _HELD, key=_KEY, expires_in=length))

    def held(self, ledger: CountLedger) -> None:
        """A counter with an open hold; one that lapses was placed that long before."""
        self.create(ledger)
        ledger.connection.clock.sleep_ms(HOUR_MS + self.ends_in_ms - _LENGTH_MS)
        self.hold(ledger)
        if self.beside:
            ledger.strict.change(_NAME, _HELD)
            ledger.strict.hold(_NAME, _HELD, key="another basket", expires_in=timedelta(days=1))

    def released(self, ledger: CountLedger) -> None:
        """A counter whose hold was placed and released when the world begins."""
        self.held(ledger)
        ledger.connection.clock.sleep_ms(12 * MINUTE_MS)
        ledger.strict.confirm(_ID)

    def model(self, shop: Shop, call: str) -> Iterator[Effect]:
        """What a call does."""
        yield Effect("Contended", shop)
        if shop.value is None:
            if call == "create":
                yield Effect(None, Shop(_OPENING))
            else:
                yield Effect(NoSuchCounter, shop)
                if call == "delete":
                    yield Effect(None, shop, DELETED_TWICE)
                if shop.hold in {"confirmed", "cancelled", "expired"} and call in _ENDING:
                    # What became of the hold stays known to who knew the counter.
                    yield from self._ending(shop, 0, call)
            return
        if call == "create":
            yield Effect(CounterExists, shop)
            return
        yield from self._on(shop, shop.value, call)
        if self.lapses and shop.hold == "open" and call != "withdraw":
            # A call that is refused, or finds the hold lapsed, releases it first.
            released = shop._replace(hold="expired")
            yield from self._on(released, shop.value, call)
            yield Effect(_is_given_up, released)

    def _on(self, shop: Shop, value: int, call: str) -> Iterator[Effect]:
        match call:
            case "hold":
                yield from _placing(shop, value)
            case "withdraw":
                used = shop.hold not in {"", "void"}
                yield Effect(
                    "Duplicate" if used else "Withdrawn",
                    shop if used else shop._replace(hold="void"),
                )
            case "take":
                fits = value - shop.held - _HELD >= shop.lower
                after = shop._replace(value=value - _HELD)
                yield Effect("Applied", after) if fits else Effect("BoundReached", shop)
            case "raise bound":
                fits = value - shop.held >= 1
                yield Effect("moved", shop._replace(lower=1)) if fits else Effect(BadBounds, shop)
            case "delete":
                open_hold = shop.hold == "open"
                yield (
                    Effect(OpenHolds, shop)
                    if open_hold
                    else Effect(None, shop._replace(value=None))
                )
            case _:
                yield from self._ending(shop, value, call)

    def _ending(self, shop: Shop, value: int, call: str) -> Iterator[Effect]:
        asked = {"confirm 1": 1}.get(call, _HELD)
        match shop.hold, call:
            case (("" | "void"), _):
                yield Effect(NoSuchHold, shop)
            case "open", "cancel":
                yield Effect("Cancelled", shop._replace(hold="cancelled"))
            case "open", _:
                yield Effect("Confirmed", shop.confirmed(asked))
                if self.lapses:
                    yield Effect("HoldExpired", shop)
            case "confirmed", ("confirm" | "readmit"):
                yield Effect("Duplicate", shop)
            case "confirmed", _:
                again = call == "confirm 1" and shop.taken == 1
                yield Effect("Duplicate" if again else "HoldConfirmed", shop)
            case "cancelled", _:
                yield Effect("Duplicate" if call == "cancel" else "HoldCancelled", shop)
            case "expired", "readmit":
                fits = value - _HELD >= shop.lower
                yield (
                    Effect("Confirmed", shop.confirmed(_HELD))
                    if fits
                    else Effect("BoundReached", shop)
                )
            case _:
                yield Effect("HoldExpired", shop)

    def scripts(self) -> tuple[Script, ...]:
        """What one actor does."""
        if self.offset_ms:
            return (("confirm",), ("cancel",), ("readmit",))
        found: list[Script] = [("confirm",), ("cancel",), ("take",)]
        if self.beside:
            return tuple(found)
        if self.lapses:
            return (*found, ("readmit",))
        found += [("hold",), ("delete",)]
        found += [("confirm 1",), ("withdraw",), ("raise bound",), ("cancel", "take")]
        return (*found, ("delete", "create"))

    def capability(self) -> Capability:
        """Of these holds."""
        held = Beginnings(self.held, Shop(_OPENING, hold="open"))
        released = Beginnings(self.released, Shop(_OPENING, hold="expired"))
        starts = {"held": held, "created": Beginnings(self.create, Shop(_OPENING))}
        if self.lapses:
            starts = {"held": held, "released": released}
        if self.offset_ms:
            del starts["released"]
        if self.beside:
            open_ones = Shop(_OPENING + _HELD, hold="open", beside=_HELD)
            starts = {"held": Beginnings(self.held, open_ones)}
        if self.lapses and self.bins > 1:
            # A look for expired holds of a counter with bins asks 16 buckets: too many orders.
            del starts["held"]
        return Capability(
            name=self.name,
            calls=self.calls(),
            scripts=self.scripts(),
            starts=starts,
            model=self.model,
            agrees=_agrees,
            holds=self.keeps_time if self.lapses else lambda _: True,
            certainty=_certainty,
            prepare=knowing(_NAME),
            masks=() if self.lapses or self.beside else (DELETED_TWICE, REFUSED_AND_WITHDRAWN),
            bounds=Bounds(jumps_ms=(14 * MINUTE_MS,)),
            offsets_ms=(self.offset_ms, 0, 0),
        )

    @property
    def name(self) -> str:
        """Of what is explored."""
        if self.offset_ms or self.beside:
            return "holds-ending" if self.offset_ms else "holds-beside"
        spread = f"-{self.bins}" if self.bins > 1 else ""
        return f"holds-lapsing{spread}" if self.lapses else f"holds{spread}"

    def keeps_time(self, state: Situation) -> bool:
        """Whether what became of the hold, and each answer, fits the time of the hold."""
        found, late_ms = _stored(state.contents), CLOCK_SKEW_DEFAULT_MS
        if found is not None and found.state is HoldState.EXPIRED:
            # By the clock of who released it; a clock that is late may not confirm it any more.
            return (
                found.ended_at is not None and to_ms(found.ended_at) > found.lapses_at_ms + late_ms
            )
        lapses_ms = BEGIN_MS + self.ends_in_ms
        is_open = found is not None and found.state is HoldState.OPEN
        for place, starts in zip(state.places, state.starts, strict=True):
            for told, start in zip(place.told, starts, strict=False):
                began_ms = start.at_ms + self.offset_ms * (place.actor == 0)
                if (told.call, told.answer) == ("confirm", "Confirmed") and began_ms >= lapses_ms:
                    return False
                refused = (told.call, told.answer) == ("take", "BoundReached")
                if refused and is_open and start.at_ms > lapses_ms + late_ms:
                    return False
        return True


def _placing(shop: Shop, value: int) -> Iterator[Effect]:
    if shop.hold:
        yield Effect("Withdrawn" if shop.hold == "void" else "Duplicate", shop)
    elif value - _HELD < shop.lower:
        yield Effect("BoundReached", shop)
        yield Effect("BoundReached", shop._replace(hold="void"), REFUSED_AND_WITHDRAWN)
    else:
        yield Effect("Held", shop._replace(hold="open"))


def _agrees(shop: Shop, contents: Contents) -> bool:
    main = contents.tables[COUNTERS].get((_NAME, keys.TOTAL))
    if main is None or shop.value is None:
        return main is None and shop.value is None
    definition = decode_definition(dict(main))
    whole = whole_in(contents, definition)
    state, taken = "", 0
    found = _marker(definition, contents)
    if found is not None:
        hold = _stored(contents)
        state, taken = ("void", 0) if hold is None else (str(hold.state), int(hold.confirmed))
    shown = whole.total, whole.lower, whole.held, state, taken
    return shown == (shop.value, shop.lower, shop.held, shop.hold, shop.taken)


def _marker(definition: Definition, contents: Contents) -> dict[str, Any] | None:
    """What is stored under the key, if it is of this counter."""
    key = keys.marker_key(_NAME, definition.bins, id_of_key(_KEY))
    found = dict(contents.tables[COUNTERS].get((key["counter"], key["part"]), {}))
    return found if definition.is_of(found) else None


def _stored(contents: Contents) -> Hold | None:
    """The hold as it is stored; None: there is none of this counter."""
    main = contents.tables[COUNTERS].get((_NAME, keys.TOTAL))
    found = None if main is None else _marker(decode_definition(dict(main)), contents)
    return decode_hold(_NAME, found) if found is not None and is_hold(found) else None


def _is_given_up(answer: object) -> bool:
    """A call that died, or gave up, may have released the hold."""
    return answer == "Contended" or answer is DIED


def _certainty(answer: object) -> Certainty:
    return Certainty.SURE if answer == "Contended" else certainty(answer)


def _raise_bound(ledger: CountLedger) -> str:
    ledger.strict.set_bounds(_NAME, lower=1)
    return "moved"


HOLDS: Final = (
    *(Holding(bins=bins, lapses=one).capability() for one in (False, True) for bins in (1, 2)),
    Holding(beside=True).capability(),
    Holding(lapses=True, ends_in_ms=20 * SECOND_MS, offset_ms=30 * SECOND_MS).capability(),
)
