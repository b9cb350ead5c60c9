"""Quotas: acquire, also under a key, reserve, commit, release; limits, deletion and creation.

For both methods. The state of the model is the quota as its counter meets it in one window. Once
more with windows of an hour, one of which ends: under a limit that is never reached, the state is
what all windows have used.
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
from countledger.producers.quotas.quota import Admitted, Ticket
from countledger.producers.strict.definition import Method
from tests.exploring.linear import DIED, Effect, Masked
from tests.exploring.scope import Beginnings, Capability, fewer_beside_more
from tests.exploring.search import Bounds
from tests.exploring.strict_scope import DIED_TWICE
from tests.exploring.world import BEGIN_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from countledger.client import CountLedger
    from countledger.producers.quotas.quota import Denied
    from tests.exploring.scope import Script
    from tests.exploring.world import Contents

_PREFIX: Final = "a:"
_NAME: Final = "a:x"
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
        ticket: what became of the reservation; empty: none.
        here: whether the reservation is of this quota.
        gone: whether there was another quota of the name.
    """

    limit: int | None
    before: int = _LIMIT
    used: int = 0
    key: int = 0
    ticket: str = ""
    here: bool = True
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Budgeting:
    """What is explored.

    Attributes:
        method: of the quota.
        hourly: whether its windows are hours; else days.
        tickets: that of the reservation, once it was made.
    """

    method: Method
    hourly: bool = False
    tickets: list[Ticket] = field(default_factory=list)

    def calls(self) -> Mapping[str, Callable[[CountLedger], object]]:
        """What each call does."""
        return {
            "use": lambda ledger: _told(ledger.quotas.acquire(_NAME, _AMOUNT)),
            "use 1 later": _use_later,
            "key": lambda ledger: _told(ledger.quotas.acquire(_NAME, _AMOUNT, key=_KEY)),
            "key 1": lambda ledger: _told(ledger.quotas.acquire(_NAME, 1, key=_KEY)),
            "reserve": lambda ledger: _told(ledger.quotas.reserve(_NAME, _AMOUNT, key=_RESERVED)),
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
        return int(made.limit)

    def reserve(self, ledger: CountLedger) -> None:
        """A quota with a reservation."""
        self.create(ledger)
        made = ledger.quotas.reserve(_NAME, _AMOUNT, key=_RESERVED)
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
        if call == "reserve" and budget.ticket and budget.here:
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
                used = used._replace(key=amount)
                yield Effect("counted", used)
            yield Effect("admitted", used)

    def _again(self, budget: Budget, amount: int, limit: int) -> Iterator[Effect]:
        yield Effect("duplicate" if amount == budget.key else IdempotencyKeyReused, budget)
        if self.method is Method.MARKER:
            return
        if amount == budget.key:
            yield Effect("counted", budget)  # by which call is not said after a lost answer
        if amount > limit:
            yield Effect("denied", budget, DENIED_ALONE)
        if budget.used + amount <= limit:
            yield Effect(DIED, budget._replace(used=budget.used + amount), DIED_TWICE)

    def scripts(self) -> tuple[Script, ...]:
        """What one actor does."""
        if self.hourly:
            return (("key",), ("reserve",), ("commit",), ("release",))
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

    def capability(self) -> Capability:
        """Of this quota."""
        tokens = self.method is Method.REQUEST_TOKEN
        starts = {"created": Beginnings(self.create, Budget(_LIMIT))}
        if not tokens:
            limit = _HIGH if self.hourly else _LIMIT
            reserved = Budget(limit, limit, used=_AMOUNT, ticket="reserved")
            starts = {"reserved": Beginnings(self.reserve, reserved)}
        return Capability(
            name="quotas-hours" if self.hourly else f"quotas-{self.method}",
            calls=self.calls(),
            scripts=self.scripts(),
            starts=starts,
            model=self.model,
            agrees=_agrees_by_markers if self.hourly else _agrees,
            prepare=lambda ledger: ledger.quotas.show(_NAME),
            masks=self.masks(),
            faults=_faults,
            bounds=Bounds(jumps_ms=(14 * MINUTE_MS,), free_jumps=tokens),
        )


def _administering(budget: Budget, call: str) -> Iterator[Effect]:
    if call == "create":
        if budget.limit is not None:
            yield Effect(QuotaExists, budget)
        else:
            yield Effect(_LIMIT, Budget(_LIMIT, ticket=budget.ticket, here=False, gone=budget.gone))
    elif budget.limit is None:
        yield Effect(NoSuchQuota, budget)
    elif call == "delete":
        yield Effect(None, budget._replace(limit=None, used=0, key=0, here=False, gone=True))
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


def _windows(contents: Contents) -> dict[str, int]:
    """What each window of the quota that is there has used."""
    items = contents.tables[COUNTERS]
    place = keys.quota_key(_PREFIX)
    windows = keys.quota_window_key(
        items[place["counter"], place["part"]]["incarnation"], _NAME, ""
    )
    return {
        part.removeprefix(windows["part"]): int(item["used"])
        for (counter, part), item in items.items()
        if counter == windows["counter"] and part.startswith(windows["part"])
    }


def _agrees(budget: Budget, contents: Contents) -> bool:
    place = keys.quota_key(_PREFIX)
    found = contents.tables[COUNTERS].get((place["counter"], place["part"]), {})
    quota = present(dict(found) or None)
    if quota is None or budget.limit is None:
        return quota is None and budget.limit is None
    used = sum(_windows(contents).values())
    return (int(quota["limit"]), used) == (budget.limit, budget.used)


def _agrees_by_markers(budget: Budget, contents: Contents) -> bool:
    """And each window has used what its markers say: all calls of this quota have one."""
    counted = dict.fromkeys(_windows(contents), 0)
    for item in contents.tables[COUNTERS].values():
        if "window" in item:
            counted[item["window"]] += item.get("actual", item["amount"])
    return counted == _windows(contents) and _agrees(budget, contents)


QUOTAS: Final = (
    Budgeting(Method.MARKER).capability(),
    Budgeting(Method.REQUEST_TOKEN).capability(),
    Budgeting(Method.MARKER, hourly=True).capability(),
)
