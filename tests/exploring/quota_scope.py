"""Quotas: acquire, also under a key, reserve, commit, release; limits, deletion and creation.

For both methods. The state of the model is the quota as its counter meets it in one window. Once
more with windows of an hour, one of which ends: under a limit that is never reached, the state is
what all windows have used. And once more with amounts that are counted under two limits, of two
counters: both windows have used the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from countledger import IdempotencyKey
from countledger.infra.memory.tables import COUNTERS
from countledger.ledger import keys
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import (
    IdempotencyKeyReused,
    KeyExpired,
    NoSuchQuota,
    QuotaExists,
    TicketResolved,
)
from countledger.ledger.limits import MINUTE_MS, QUOTA_LIMIT_LIFE_MS, SECOND_MS
from countledger.ledger.tombstones import present
from countledger.producers.quotas.quota import Admitted, CountedIn, Ticket
from countledger.producers.strict.definition import Method
from tests.exploring.linear import DIED, Effect, Masked
from tests.exploring.scope import Beginnings, Capability, fewer_beside_more
from tests.exploring.search import Bounds
from tests.exploring.strict_scope import DIED_TWICE
from tests.exploring.world import BEGIN_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from countledger.client import CountLedger
    from countledger.ledger.attributes import Item
    from countledger.producers.quotas.quota import Denied
    from tests.exploring.scope import Script
    from tests.exploring.world import Contents

_PREFIX: Final = "a:"
_NAME: Final = "a:x"
_OTHERS: Final = "b:"
_OTHER: Final = "b:y"
_KEY: Final = IdempotencyKey("k", to_datetime(BEGIN_MS))
_RESERVED: Final = "r"
_LIMIT: Final = 3
_LOW: Final = 1
_HIGH: Final = 100
_AMOUNT: Final = 2
_LOWERED: Final = ("lower limit", "use 1 later")

OLD_LIMIT: Final = Masked(
    "a limit that was read before",
    "quotas.md",
    "A process uses a limit for **five seconds** after it has read it, so a change is effective "
    "everywhere five seconds later.",
)
DENIED_ALONE: Final = Masked(
    "an amount above the limit, counted before",
    "quotas.md",
    "An amount above the limit is denied without a look at its key, although an earlier try may "
    "be counted.",
)


class Budget(NamedTuple):
    """The state of the model.

    Attributes:
        limit: None: there is no quota.
        before: the limit that a process may still use.
        used: in the window.
        key: the amount that is counted under the key; 0: none.
        key_here: whether that was under this quota.
        ticket: what became of the reservation; empty: none.
        here: whether the reservation is of this quota.
        gone: whether there was another quota of the name.
    """

    limit: int | None
    before: int = _LIMIT
    used: int = 0
    key: int = 0
    key_here: bool = True
    ticket: str = ""
    here: bool = True
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Budgeting:
    """What is explored.

    Attributes:
        method: of the quota.
        hourly: whether its windows are hours; else days.
        both: whether amounts are counted for a second counter as well, whose limit is higher.
        tickets: that of the reservation, once it was made.
    """

    method: Method
    hourly: bool = False
    both: bool = False
    tickets: list[Ticket] = field(default_factory=list)

    def calls(self) -> Mapping[str, Callable[[CountLedger], object]]:
        """What each call does."""
        names = [_OTHER, _NAME] if self.both else _NAME
        return {
            "use": lambda ledger: _told(ledger.quotas.acquire(names, _AMOUNT)),
            "use 1 later": _use_later,
            "key": lambda ledger: _told(ledger.quotas.acquire(names, _AMOUNT, key=_KEY)),
            "key 1": lambda ledger: _told(ledger.quotas.acquire(names, 1, key=_KEY)),
            "reserve": lambda ledger: _told(ledger.quotas.reserve(names, _AMOUNT, key=_RESERVED)),
            "commit": lambda ledger: ledger.quotas.commit(self.tickets[0], 1).duplicate,
            "release": lambda ledger: ledger.quotas.release(self.tickets[0]),
            "lower limit": lambda ledger: ledger.quotas.set_limit(_PREFIX, _LOW),
            "raise limit": lambda ledger: ledger.quotas.set_limit(_PREFIX, 2 * _LIMIT),
            "delete": lambda ledger: ledger.quotas.delete(_PREFIX),
            "create": self.create,
        }

    def create(self, ledger: CountLedger) -> int:
        """Create the quota; its limit."""
        per, limit = ("hour", _HIGH) if self.hourly else ("day", _LIMIT)
        made = ledger.quotas.create(_PREFIX, limit=limit, per=per, method=str(self.method))
        if self.both:
            ledger.quotas.create(_OTHERS, limit=_HIGH, per="month", method=str(self.method))
        return int(made.limit)

    def reserve(self, ledger: CountLedger) -> None:
        """A quota with a reservation."""
        self.create(ledger)
        names = [_NAME, _OTHER] if self.both else _NAME
        made = ledger.quotas.reserve(names, _AMOUNT, key=_RESERVED)
        if isinstance(made, Admitted) and made.ticket:
            self.tickets[:] = [made.ticket]

    def model(self, budget: Budget, call: str) -> Iterator[Effect]:
        """What a call does."""
        match call:
            case "create" | "delete" | "lower limit" | "raise limit":
                yield from _administering(budget, call)
            case "commit" | "release":
                yield _resolving(budget, call)
            case _:
                yield from self._acquiring(budget, call)

    def _acquiring(self, budget: Budget, call: str) -> Iterator[Effect]:
        if self.method is Method.REQUEST_TOKEN and call.startswith("key"):
            yield Effect(KeyExpired, budget)
        if budget.limit is None:
            yield Effect(NoSuchQuota, budget)
        if budget.limit is None or budget.gone:
            yield Effect(_is_told, budget, OLD_LIMIT)
        if budget.limit is not None:
            yield from self._under(budget, call, budget.limit)
            if call != "use 1 later" and budget.before != budget.limit:
                for effect in self._under(budget, call, budget.before):
                    yield effect._replace(masked=effect.masked or OLD_LIMIT)

    def _under(self, budget: Budget, call: str, limit: int) -> Iterator[Effect]:
        amount = 1 if call in {"key 1", "use 1 later"} else _AMOUNT
        if call == "reserve" and budget.ticket:
            again = "duplicate" if budget.ticket == "reserved" else TicketResolved
            yield Effect(again, budget)
        elif call.startswith("key") and budget.key:
            yield from self._again(budget, amount, limit)
        elif budget.used + amount > limit:
            yield Effect("denied", budget)
        else:
            used = budget._replace(used=budget.used + amount)
            if limit == budget.limit:
                # Once a write under a limit is stored, an earlier one counts no more.
                used = used._replace(before=limit)
            if call == "reserve":
                used = used._replace(ticket="reserved", here=True)
            if call.startswith("key"):
                used = used._replace(key=amount, key_here=True)
                yield Effect("counted", used)
            yield Effect("admitted", used)

    def _again(self, budget: Budget, amount: int, limit: int) -> Iterator[Effect]:
        same = amount == budget.key and (budget.key_here or self.method is Method.MARKER)
        yield Effect("duplicate" if same else IdempotencyKeyReused, budget)
        if self.method is Method.MARKER:
            return
        if same:
            yield Effect("counted", budget)  # by which call is not said after a lost answer
        if amount > limit:
            yield Effect("denied", budget, DENIED_ALONE)
        if budget.used + amount <= limit:
            twice = budget._replace(used=budget.used + amount, key=amount, key_here=True)
            yield Effect(DIED, twice, DIED_TWICE)

    def scripts(self) -> tuple[Script, ...]:
        """What one actor does."""
        if self.hourly:
            return (("key",), ("reserve",), ("commit",), ("release",))
        if self.both:
            both: list[Script] = [("use",), ("key",), ("key 1",), ("lower limit",)]
            if self.method is Method.MARKER:
                both += [("reserve",), ("commit",), ("release",)]
            return tuple(both)
        found: list[Script] = [("use",), ("key",), ("key 1",), ("lower limit",), ("raise limit",)]
        found += [("delete",), ("delete", "create"), ("create",), _LOWERED]
        if self.method is Method.MARKER:
            found += [("reserve",), ("commit",), ("release",)]
        return tuple(found)

    def masks(self) -> tuple[Masked, ...]:
        """What the guide documents of this quota."""
        if self.hourly:
            return ()
        tokens = self.method is Method.REQUEST_TOKEN
        return (OLD_LIMIT, DENIED_ALONE, DIED_TWICE) if tokens else (OLD_LIMIT,)

    @property
    def name(self) -> str:
        """Of this capability."""
        return "quotas-hours" if self.hourly else f"quotas-{self.method}" + "-both" * self.both

    def prepare(self, ledger: CountLedger) -> None:
        """Each process knows the limits."""
        ledger.quotas.show(_NAME)
        if self.both:
            ledger.quotas.show(_OTHER)

    def _agrees(self, budget: Budget, contents: Contents) -> bool:
        if self.both and sum(_windows(contents, _OTHERS).values()) != budget.used:
            return False
        return (_agrees_by_markers if self.hourly else _agrees)(budget, contents)

    def capability(self) -> Capability:
        """Of this quota."""
        tokens = self.method is Method.REQUEST_TOKEN
        starts = {"created": Beginnings(self.create, Budget(_LIMIT))}
        if not tokens:
            limit = _HIGH if self.hourly else _LIMIT
            reserved = Budget(limit, limit, used=_AMOUNT, ticket="reserved")
            starts = {"reserved": Beginnings(self.reserve, reserved)}
        return Capability(
            name=self.name,
            calls=self.calls(),
            scripts=self.scripts(),
            starts=starts,
            model=self.model,
            agrees=self._agrees,
            prepare=self.prepare,
            masks=self.masks(),
            faults=_faults,
            bounds=Bounds(jumps_ms=(14 * MINUTE_MS,), free_jumps=tokens),
        )


def _administering(budget: Budget, call: str) -> Iterator[Effect]:
    if call == "create":
        if budget.limit is not None:
            yield Effect(QuotaExists, budget)
        else:
            made = budget._replace(limit=_LIMIT, before=_LIMIT, used=0, here=False, key_here=False)
            yield Effect(_LIMIT, made)
    elif budget.limit is None:
        yield Effect(NoSuchQuota, budget)
    elif call == "delete":
        gone = budget._replace(limit=None, used=0, key_here=False, here=False, gone=True)
        yield Effect(None, gone)
    else:
        yield Effect(None, budget._replace(limit=_LOW if call == "lower limit" else 2 * _LIMIT))


def _resolving(budget: Budget, call: str) -> Effect:
    done = {"commit": "committed", "release": "released"}[call]
    if budget.ticket == "reserved":
        actual = 1 if call == "commit" else 0
        used = budget.used + (actual - _AMOUNT if budget.here else 0)
        return Effect(call == "release", budget._replace(ticket=done, used=used))
    if budget.ticket == done:
        return Effect(call == "commit", budget)
    return Effect(TicketResolved, budget)


def _faults(scripts: tuple[Script, ...]) -> int:
    """Two changes of the limit, each with an amount after it: without a fault."""
    return 0 if scripts == (_LOWERED,) * 2 else fewer_beside_more(scripts)


def _use_later(ledger: CountLedger) -> str:
    """Once no process uses an earlier limit any more."""
    ledger.connection.clock.sleep_ms(QUOTA_LIMIT_LIFE_MS + SECOND_MS)
    return _told(ledger.quotas.acquire(_NAME, 1))


def _told(outcome: Admitted | Denied) -> str:
    if isinstance(outcome, Admitted):
        return {True: "duplicate", False: "admitted", None: "counted"}[outcome.duplicate]
    return "denied"


def _is_told(answer: object) -> bool:
    return isinstance(answer, str | IdempotencyKeyReused | TicketResolved)


def _quota(contents: Contents, prefix: str) -> Item | None:
    """The quota of a prefix, which has one."""
    found = [
        dict(item)
        for (counter, part), item in contents.tables[COUNTERS].items()
        if counter == keys.QUOTA_PREFIX and part.startswith(keys.quota_part(prefix))
    ]
    return present(found[0]) if found else None


def _windows(contents: Contents, prefix: str = _PREFIX) -> dict[str, int]:
    """What each window of the quota of a prefix has used."""
    quota = _quota(contents, prefix)
    windows = None if quota is None else f"{keys.QUOTA_PREFIX}{quota['incarnation']}#"
    return {
        counter.split("#")[2]: int(item["used"])
        for (counter, _), item in contents.tables[COUNTERS].items()
        if windows is not None and counter.startswith(windows)
    }


def _agrees(budget: Budget, contents: Contents) -> bool:
    quota = _quota(contents, _PREFIX)
    if quota is None or budget.limit is None:
        return quota is None and budget.limit is None
    used = sum(_windows(contents).values())
    return (int(quota["limit"]), used) == (budget.limit, budget.used)


def _agrees_by_markers(budget: Budget, contents: Contents) -> bool:
    """And each window has used what its markers say: all calls of this quota have one."""
    counted = dict.fromkeys(_windows(contents), 0)
    for item in contents.tables[COUNTERS].values():
        for place in item.get("counted_in", ()):
            counted[CountedIn(*place).window] += item.get("actual", item["amount"])
    return counted == _windows(contents) and _agrees(budget, contents)


QUOTAS: Final = (
    Budgeting(Method.MARKER).capability(),
    Budgeting(Method.REQUEST_TOKEN).capability(),
    Budgeting(Method.MARKER, hourly=True).capability(),
    Budgeting(Method.MARKER, both=True).capability(),
    Budgeting(Method.REQUEST_TOKEN, both=True).capability(),
)
