"""Holds and quotas among 256 clients: reserve, confirm or commit, cancel or release, and expiry.

On the simulated tables, in virtual time. Processes of four threads each are killed and begin again
with what their clients remember: a call whose outcome is not known is repeated under its key. Each
clear answer is compared with what is stored, each write with the limits, and in the end every
amount with the sum of what went in and out.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from time import monotonic
from typing import Any, Final

from countledger.infra.memory.tables import Change
from countledger.ledger import amount as amounts
from countledger.ledger import keys
from countledger.ledger.attributes import Item
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import KeyExpired, NoSuchHold, Throttled, TicketResolved, Unclear
from countledger.ledger.ids import IdempotencyKey, id_of_key
from countledger.ledger.limits import MINUTE_MS, SECOND_MS
from countledger.producers.quotas.plan import counted_in_of
from countledger.producers.quotas.quota import Admitted, Ticket
from countledger.producers.quotas.quotas import Quotas
from countledger.producers.strict.counters import StrictCounters
from countledger.producers.strict.hold import HoldState, hold_id
from countledger.producers.strict.outcome import (
    Applied,
    BoundReached,
    Cancelled,
    Confirmed,
    Contended,
    Duplicate,
    Held,
    HoldCancelled,
    HoldConfirmed,
    HoldExpired,
    Unknown,
)
from tests.simulation.hold_operations import HoldAccounts
from tests.simulation.schedule import Killed
from tests.simulation.sums import Wrong
from tests.unit.connections import connection_on
from tools.endurance.scenarios import Row
from tools.endurance.tables import Life, StruckClient, Tables

NAME: Final = "reservations"
OPERATIONS: Final = 1_000_000
CLIENTS: Final = 256
_THREADS: Final = 4
_SKEW_MS: Final = 2 * SECOND_MS
_HALLS: Final = tuple(f"hall:{number}" for number in range(32))
_BINS: Final = 4
_OPENING: Final = 200
_QUOTA: Final = "spent:"
_SPENDERS: Final = tuple(f"{_QUOTA}{number}" for number in range(16))
_LIMIT: Final = 100
_GAP_MS: Final = 400.0
_SHORT_S, _LONG_S = (1, 20), 600
# How often a call is repeated that has succeeded.
_REPEATED: Final = 0.1
_UNCLEAR: Final = (Unknown, Contended)


@dataclass(eq=False)
class Accounts:
    """What must hold of each write, and the sums of all of them.

    Attributes:
        tables: what is written.
        values: what each hall's value has to be.
        counted: what each window of a quota has to have used.
        refused: ids of keys that were clearly refused.
        done: how many operations of each kind were carried out.
    """

    tables: Tables
    values: Counter[str] = field(default_factory=Counter)
    counted: Counter[tuple[str, str]] = field(default_factory=Counter)
    refused: set[str] = field(default_factory=set)
    done: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Watch every write."""
        self.holds = HoldAccounts(self.tables.schedule, _SKEW_MS // 2)
        self.tables.items.watchers += [self.holds.changed, self._changed]

    def _changed(self, change: Change) -> None:
        before, after = change.before or {}, change.after
        part = change.key[1]
        if after is None:
            return
        if "headroom_down" in after:
            _check_headroom(after)
        elif part.startswith("w#"):
            if after["used"] > _LIMIT or after["used"] < 0:
                raise Wrong(f"{change.key} has used {after['used']} of {_LIMIT}")
        elif part.startswith(keys.MARKER_PREFIX):
            if not before and part.removeprefix(keys.MARKER_PREFIX) in self.refused:
                raise Wrong(f"{change.key} was refused, and is stored: {after}")
            self._count(change.key[0], before, after)

    def _count(self, place: str, before: Item, after: Item) -> None:
        if "counted_in" in after:
            earlier = before.get("amount", 0)
            for one in counted_in_of(after):
                window = one.key["counter"], one.key["part"]
                self.counted[window] += after["actual"] if "actual" in after else after["amount"]
                self.counted[window] -= before.get("actual", earlier) or 0
            return
        hall = place.split("#", maxsplit=1)[0]
        if not before and "delta" in after:
            self.values[hall] += after["delta"]
        if before.get("state") == after.get("state"):
            return
        if after.get("state") == HoldState.CONFIRMED:
            self.values[hall] -= after["confirmed"]
        elif after.get("state") == HoldState.EXPIRED:
            self.done["expiry"] += 1

    def windows(self) -> list[str]:
        """What windows used that nothing counts for, or the other way round."""
        used = {
            key: item["used"]
            for key, item in self.tables.items.items.items()
            if key[1].startswith("w#")
        }
        return [
            f"{key} has used {value}, counted are {self.counted[key]}"
            for key, value in used.items()
            if value != self.counted[key]
        ]


def _check_headroom(item: Item) -> None:
    free = amounts.add(item["total"], amounts.negated(item.get("held", 0)))
    lower = item.get("lower", 0)
    if item.get("held", 0) < 0 or free < lower:
        raise Wrong(f"{item} is past its limit")
    if item["headroom_down"] != amounts.add(free, amounts.negated(lower)):
        raise Wrong(f"{item} has leaked")


@dataclass(eq=False)
class Host:
    """A machine: its process, which is started again when it is killed."""

    tables: Tables

    def __post_init__(self) -> None:
        """The first process."""
        self.kills = -1
        self.restart()

    def restart(self) -> None:
        """A new process, which knows nothing."""
        self.kills += 1
        random = self.tables.random
        self.life = Life(self.tables, random.randint(-_SKEW_MS // 2, _SKEW_MS // 2))
        client = StruckClient(life=self.life)
        connection = connection_on(
            client,
            self.life,
            retrying=replace(client, attempts=4),
            new_id=lambda _ms: f"{random.getrandbits(96):024x}",
            clock_skew_ms=_SKEW_MS,
        )
        connection = replace(connection, random=random)
        self.strict, self.quotas = StrictCounters(connection), Quotas(connection)


@dataclass(eq=False)
class Client:
    """One thread of a process; what it remembers outlives the process."""

    number: int
    host: Host
    accounts: Accounts
    target: int
    made: int = 0
    # Open reservations: of holds by counter, key, amount; of quotas by ticket.
    open: list[Any] = field(default_factory=list)
    task: Callable[[], bool] | None = None

    def run(self) -> None:
        """Until enough is done."""
        schedule, random = self.host.tables.schedule, self.host.tables.random
        step = self._hold_step if self.number % 2 else self._quota_step
        while self.accounts.done.total() < self.target:
            life = self.host.life
            try:
                life.sleep_ms(random.expovariate(1 / _GAP_MS))
                self.task = self.task or step(random)
                with suppress(Throttled, Unclear):  # then it is repeated
                    if self.task():
                        self.task = None
            except Killed:
                if self.host.life is life:
                    self.host.restart()
                schedule.pause(random.random() * SECOND_MS)

    def _key(self) -> IdempotencyKey:
        self.made += 1
        at = to_datetime(self.host.life.now_ms())
        return IdempotencyKey(f"{self.number}-{self.made}", at)

    def _hold_step(self, random: Random) -> Callable[[], bool]:
        draw, hall = random.random(), random.choice(_HALLS)
        if draw < 0.15:
            key, delta = self._key(), random.randint(-3, 3) or 5
            return lambda: self._change(hall, delta, key)
        if draw < 0.55 or not self.open:
            return self._placing(random, hall)
        basket = self.open.pop(random.randrange(len(self.open)))
        if draw < 0.60:
            return lambda: True  # forgotten: it expires
        if draw < 0.70:
            return lambda: self._cancel(basket)
        taken, readmit = random.randint(1, basket[2]), random.random() < 0.1
        return lambda: self._confirm(basket, taken, readmit=readmit)

    def _placing(self, random: Random, hall: str) -> Callable[[], bool]:
        key, held = self._key(), random.randint(1, 4)
        seconds = _LONG_S if random.random() < 0.2 else random.randint(*_SHORT_S)
        tries: list[int] = []

        def place() -> bool:
            tries.append(1)
            try:
                found = self.host.strict.hold(
                    hall, held, key=key, expires_in=timedelta(seconds=seconds)
                )
            except KeyExpired:
                return True
            if isinstance(found, Unknown):
                return False
            self.accounts.done["hold"] += 1
            if isinstance(found, Held) and random.random() < _REPEATED:
                return False
            if isinstance(found, Held | Duplicate):
                self.open.append((hall, id_of_key(key), held))
            elif len(tries) == 1:  # of this call; an earlier one may be late
                self.accounts.refused.add(id_of_key(key))
            return True

        return place

    def _change(self, hall: str, delta: int, key: IdempotencyKey) -> bool:
        try:
            found = self.host.strict.change(hall, delta, key=key)
        except KeyExpired:
            return True
        if isinstance(found, Applied | Duplicate) and self._stored(hall, id_of_key(key)) is None:
            raise Wrong(f"{key} is {found}, and nothing is stored")
        if isinstance(found, BoundReached):
            # Without deliveries everything would be sold out in the end.
            more = self._key()
            self.task = lambda: self._change(hall, 20, more)
            return False
        return not isinstance(found, Unknown)

    def _confirm(self, basket: tuple[str, str, int], taken: int, *, readmit: bool) -> bool:
        hall, key_id, _ = basket
        began_ms = self.host.life.now_ms()
        lapses_at_ms = (self._stored(hall, key_id) or {}).get("lapses_at", began_ms)
        try:
            found = self.host.strict.confirm(hold_id(hall, key_id), taken, readmit=readmit)
        except NoSuchHold:
            return self._is(basket, None, "confirm")
        if isinstance(found, Confirmed) and lapses_at_ms < began_ms and not readmit:
            raise Wrong(f"{found}, and its time was over by this clock")
        if isinstance(found, Confirmed | Duplicate | HoldConfirmed):
            if (self._stored(hall, key_id) or {}).get("confirmed") != taken:
                raise Wrong(f"{found}, and stored is {self._stored(hall, key_id)}")
            return self._is(basket, HoldState.CONFIRMED, "confirm")
        if isinstance(found, HoldExpired | BoundReached):
            state = (self._stored(hall, key_id) or {}).get("state")
            if state not in {None, HoldState.OPEN, HoldState.EXPIRED}:
                raise Wrong(f"{basket} was told {found}, and stored is {state}")
            return self._is(basket, state, "confirm")
        return self._ended(basket, found, "confirm")

    def _cancel(self, basket: tuple[str, str, int]) -> bool:
        hall, key_id, _ = basket
        try:
            found = self.host.strict.cancel(hold_id(hall, key_id))
        except NoSuchHold:
            return self._is(basket, None, "cancel")
        if isinstance(found, Cancelled | Duplicate):
            return self._is(basket, HoldState.CANCELLED, "cancel")
        return self._ended(basket, found, "cancel")

    def _ended(self, basket: tuple[str, str, int], found: object, kind: str) -> bool:
        if isinstance(found, _UNCLEAR):
            return False
        ends = {HoldExpired: HoldState.EXPIRED, HoldCancelled: HoldState.CANCELLED}
        return self._is(basket, ends.get(type(found)), kind)

    def _is(self, basket: tuple[str, str, int], state: object, kind: str) -> bool:
        """What was said of a hold is what is stored; it may have been forgotten since."""
        stored = self._stored(basket[0], basket[1])
        if stored is not None and (state is None or stored["state"] != state):
            raise Wrong(f"{kind} of {basket} was told {state}, and stored is {stored}")
        self.accounts.done[kind] += 1
        return True

    def _stored(self, hall: str, key_id: str) -> Item | None:
        bins = _BINS if int(hall.split(":")[1]) % 2 else 1
        place = keys.marker_key(hall, bins, key_id)
        return self.host.tables.items.items.get((place["counter"], place["part"]))

    def _quota_step(self, random: Random) -> Callable[[], bool]:
        if len(self.open) < random.randint(1, 3):
            key, counter, held = self._key(), random.choice(_SPENDERS), random.randint(1, 4)
            return lambda: self._reserve(counter, held, key)
        ticket: Ticket = self.open.pop(random.randrange(len(self.open)))
        draw = random.random()
        if draw < 0.1:
            return lambda: True  # it stays counted
        actual = None if draw < 0.3 else random.randint(0, int(ticket.amount))
        return lambda: self._resolve(ticket, actual)

    def _reserve(self, counter: str, held: int, key: IdempotencyKey) -> bool:
        found = self.host.quotas.reserve(counter, held, key=key)
        self.accounts.done["reserve"] += 1
        if isinstance(found, Admitted) and found.ticket is not None:
            self._marker_of(found.ticket)
            self.open.append(found.ticket)
        return True

    def _resolve(self, ticket: Ticket, actual: int | None) -> bool:
        quotas = self.host.quotas
        try:
            if actual is None:
                quotas.release(ticket)
            else:
                quotas.commit(ticket, actual)
        except TicketResolved as error:
            raise Wrong(f"{ticket} was resolved once: {error}") from error
        wanted = ("released", 0) if actual is None else ("committed", actual)
        stored = self._marker_of(ticket)
        if (stored["state"], stored["actual"]) != wanted:
            raise Wrong(f"{ticket} was told {wanted}, and stored is {stored}")
        self.accounts.done["release" if actual is None else "commit"] += 1
        return True

    def _marker_of(self, ticket: Ticket) -> Item:
        place = ticket.marker_key
        return self.host.tables.items.items[place["counter"], place["part"]]


def run(operations: int, seed: int, say: Callable[[str], None]) -> Row:
    """So many operations of all clients together; then every hold ends, and all is sold."""
    began_s = monotonic()
    tables = Tables(Random(seed), calm=True)  # noqa: S311 - of a simulation
    accounts = Accounts(tables)
    hosts = [Host(tables) for _ in range(CLIENTS // _THREADS)]
    first = hosts[0]
    for number, hall in enumerate(_HALLS):
        bins = _BINS if number % 2 else 1
        first.strict.create(
            hall, method="marker", lower=0, opening=_OPENING, bins=bins, window_ms=MINUTE_MS
        )
        accounts.values[hall] += _OPENING
    first.quotas.create(_QUOTA, limit=_LIMIT, per="minute")
    tables.calm = False
    clients = [
        Client(number, hosts[number // _THREADS], accounts, operations) for number in range(CLIENTS)
    ]
    running = [tables.schedule.spawn(f"client {one.number}", one.run) for one in clients]

    def supervise() -> None:
        told = 0
        while any(actor in tables.schedule.alive for actor in running):
            tables.schedule.pause(10 * SECOND_MS)
            if accounts.done.total() >= told:
                told += max(operations // 20, 1)
                rate = accounts.done.total() / max(monotonic() - began_s, 1)
                say(f"  {accounts.done.total():,} operations, {rate:,.0f} a second")
        tables.schedule.stop()

    tables.schedule.spawn("supervisor", supervise)
    problems: list[str] = []
    try:
        tables.schedule.run()
        tables.calm = True
        tables.schedule.pass_time(30 * SECOND_MS)  # what is late lands
        problems += accounts.windows() + _sell_all(Host(tables), accounts)
    except AssertionError as error:
        problems.append(str(error))
    say(f"  {dict(accounts.done)}; {tables.requests:,} requests, {dict(tables.struck)}")
    kills = sum(host.kills for host in hosts)
    seconds, counters = monotonic() - began_s, len(_HALLS) + len(_SPENDERS)
    done = accounts.done.total()
    return Row(NAME, done, counters, seconds, 0.0, kills, tuple(problems))


def _sell_all(host: Host, accounts: Accounts) -> list[str]:
    """Open holds are what is held; once they have expired, the last unit can be sold."""
    problems = []
    for hall in _HALLS:
        shown = host.strict.show(hall)
        open_ = sum(int(one.amount) for one in host.strict.holds(hall))
        if (shown.value, shown.held) != (accounts.values[hall], open_):
            problems.append(f"{hall}: {shown}, not {accounts.values[hall]} with {open_} held")
    host.tables.schedule.pass_time(_LONG_S * SECOND_MS + 3 * _SKEW_MS)
    for hall in _HALLS:
        value = int(host.strict.show(hall).value)
        found = host.strict.change(hall, -value, key=f"the rest of {hall}") if value else None
        shown = host.strict.show(hall)
        if (shown.value, shown.held) != (0, 0):
            problems.append(f"{hall} could not be sold: {found}, {shown}")
    return problems
