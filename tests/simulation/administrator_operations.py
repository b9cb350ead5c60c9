"""Several administrators of the same strict counters: each sets values and bounds, or deletes them.

Every delta, value and bound is another number, so each write of a counter tells which call made
it: a delta has a fraction of four digits, a value that is set one of eight.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from countledger.infra.memory.tables import Change
from countledger.ledger import keys
from countledger.ledger.amount import Amount
from countledger.ledger.attributes import Item
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import (
    BadBounds,
    ClockSkew,
    CounterExists,
    IdempotencyKeyReused,
    KeyExpired,
    NoSuchCounter,
    Throttled,
)
from countledger.ledger.ids import IdempotencyKey
from countledger.producers.strict.definition import KEEP
from countledger.producers.strict.outcome import (
    Applied,
    BoundReached,
    Duplicate,
    StrictOutcome,
    Unknown,
)
from tests.simulation import strict_operations as strict
from tests.simulation.client import Client, Memory
from tests.simulation.product import Product
from tests.simulation.schedule import Killed
from tests.simulation.sums import Wrong
from tests.simulation.world import World

METHODS: Final = ("atomic", "occ", "history", "request_token", "marker")
OPERATIONS: Final = (
    "administrator value",
    "administrator bounds",
    "administrator remake",
    "administrator sale",
)
_KEYED: Final = ("request_token", "marker")
_DELTA_DIGITS: Final = 10**3
_VALUE_DIGITS: Final = 10**6
_BOUND_DIGITS: Final = 10**9


def counter_of(method: str) -> str:
    """The counter of a method that administrators share."""
    return f"{strict.NAMESPACE}:ruled by {method}"


COUNTERS: Final = frozenset(map(counter_of, METHODS))


@dataclass
class RuledAccounts:
    """What each write of the counters was: one of the calls, each once, and none that was refused.

    Attributes:
        wanted: the deltas, values and bounds of all calls, with their counters.
        refused: those of calls that are said to be never applied.
        applied: those that were written to the present incarnation of a counter.
        ever: those that were written to any.
        open: calls whose fate is not known: counter, key, and the delta or the value.
        closing: whether the clients have ended.
    """

    wanted: dict[Amount, str] = field(default_factory=dict)
    refused: set[Amount] = field(default_factory=set)
    applied: dict[str, set[Amount]] = field(default_factory=lambda: defaultdict(set))
    ever: set[Amount] = field(default_factory=set)
    open: list[tuple[str, IdempotencyKey, Decimal]] = field(default_factory=list)
    closing: bool = False

    def changed(self, change: Change) -> None:
        """An item was written."""
        counter, key = change.key
        before, after = change.before, change.after
        if counter not in COUNTERS or key != keys.TOTAL or self.closing:
            return
        if before is None or after is None or before["incarnation"] != after["incarnation"]:
            self.applied[counter].clear()
            if after is not None and after["total"] != strict.OPENING:
                raise Wrong(f"{counter} is created with {after['total']}")
            return
        if (step := after["total"] - before["total"]) != 0:
            is_set = _last_digits(before) != _last_digits(after)
            self._note(counter, after["total"] if is_set else step)
        for side in ("lower", "upper"):
            if before.get(side) != after.get(side):
                self._note(counter, after[side])

    def _note(self, counter: str, number: Amount) -> None:
        if self.wanted.get(number) != counter:
            raise Wrong(f"{counter} was changed by {number}, which nobody asked for")
        if number in self.refused:
            raise Wrong(f"{counter} was changed by {number}, which was refused")
        # A call that is repeated, or finds the counter deleted, may mean the next incarnation.
        if number in self.applied[counter]:
            raise Wrong(f"{counter} was changed twice by {number}")
        self.applied[counter].add(number)
        self.ever.add(number)

    def is_in(self, counter: str, number: Amount) -> None:
        """A client was told so."""
        if number not in self.ever:
            raise Wrong(f"{number} of {counter} is said to be in, and is not")

    def is_out(self, counter: str, number: Amount) -> None:
        """A client was told that it is not in, and never will be.

        A counter that was deleted since has taken with it what it was applied to.
        """
        if number in self.applied[counter]:
            raise Wrong(f"{number} of {counter} is in, and is said to be out")
        self.refused.add(number)


def _last_digits(item: Item) -> int:
    return int(item["total"] * _VALUE_DIGITS) % (_VALUE_DIGITS // _DELTA_DIGITS)


def make(product: Product, memory: Memory) -> None:
    """The counters."""
    for method in METHODS:
        strict.make(product, counter_of(method), method, 1)
    memory.ruled = True


def sell(client: Client) -> None:
    """A change of a counter, or one once more whose end nobody heard."""
    method = client.random.choice(METHODS)
    counter, account = counter_of(method), client.auditor.ruled
    open_ = [one for one in account.open if one[0] == counter and _is_delta(one[2])]
    again = bool(open_) and client.random.random() < 0.5
    if again:
        _, key, delta = client.random.choice(open_)
    else:
        number = client.memory.number()
        delta = client.random.randint(-3, 3) + Decimal(number) / _DELTA_DIGITS
        key = _key(client, number)
    given = key if method in _KEYED else None
    client.auditor.ruled.wanted[delta] = counter

    def send() -> StrictOutcome:
        return client.product.strict.change(counter, delta, key=given)

    _send(client, (counter, key, delta), send, again=again, keyed=given is not None)


def set_value(client: Client) -> None:
    """A counter is set to a value, or once more to one whose end nobody heard."""
    account = client.auditor.ruled
    open_ = [one for one in account.open if not _is_delta(one[2])]
    again = bool(open_) and client.random.random() < 0.5
    if again:
        counter, key, value = client.random.choice(open_)
    else:
        number = client.memory.number()
        counter = counter_of(client.random.choice(METHODS))
        value = client.random.randint(-1, strict.UPPER + 2) + Decimal(number) / _VALUE_DIGITS
        key = _key(client, number)
    account.wanted[value] = counter

    def send() -> StrictOutcome:
        return client.product.strict.transactions.set_value(counter, value, key=key)

    _send(client, (counter, key, value), send, again=again, keyed=True)


def move_bounds(client: Client) -> None:
    """One bound moves, or both; not all of them around the value."""
    counter, account, random = (
        counter_of(client.random.choice(METHODS)),
        client.auditor.ruled,
        client.random,
    )
    both = random.choice([("lower",), ("upper",), ("lower", "upper")])
    first = {"lower": random.randint(-4, 5), "upper": random.randint(4, 16)}
    bounds = {side: first[side] + Decimal(client.memory.number()) / _BOUND_DIGITS for side in both}
    account.wanted |= dict.fromkeys(bounds.values(), counter)
    try:
        client.product.strict.set_bounds(
            counter, lower=bounds.get("lower", KEEP), upper=bounds.get("upper", KEEP)
        )
    except (BadBounds, NoSuchCounter, Throttled) as error:
        client.tell(f"bounds of {counter}: {type(error).__name__}: {error}")
        for bound in bounds.values():
            account.is_out(counter, bound)
        return
    client.tell(f"bounds of {counter}: {bounds}")
    for bound in bounds.values():
        account.is_in(counter, bound)


def remake(client: Client) -> None:
    """A counter is deleted, and made again at once or by another administrator."""
    method = client.random.choice(METHODS)
    counter = counter_of(method)
    try:
        with client.auditor.strict.accounts[counter].deleted.one(NoSuchCounter):
            client.product.strict.delete(counter)
        client.tell(f"{counter} deleted")
    except NoSuchCounter:
        client.tell(f"{counter} is gone")
    if client.random.random() < 0.5:
        client.world.schedule.pause(client.random.random() * client.world.shape.gap_ms)
    try:
        strict.make(client.product, counter, method, 1)
    except CounterExists:
        client.tell(f"{counter} exists")
    else:
        client.tell(f"{counter} made again")


def _key(client: Client, number: int) -> IdempotencyKey:
    return IdempotencyKey(f"order {number}", to_datetime(client.process.now_ms()))


def _is_delta(number: Decimal) -> bool:
    return number * _DELTA_DIGITS % 1 == 0


def _send(
    client: Client,
    call: tuple[str, IdempotencyKey, Decimal],
    send: Callable[[], StrictOutcome],
    *,
    again: bool,
    keyed: bool,
) -> None:
    counter, key, number = call
    account = client.auditor.ruled
    try:
        outcome = send()
    except (KeyExpired, ClockSkew, NoSuchCounter, IdempotencyKeyReused, BadBounds) as error:
        client.tell(f"{counter} {key.key}: {type(error).__name__}")
        if not again:
            account.is_out(counter, number)
        return
    except Killed:
        if keyed:
            account.open.append(call)
        raise
    client.tell(f"{counter} {key.key} {number}: {type(outcome).__name__}")
    if isinstance(outcome, Unknown):
        if keyed:
            account.open.append(call)
    elif isinstance(outcome, Applied | Duplicate):
        account.is_in(counter, number)
    elif not again:
        account.is_out(counter, number)


def check_ruled(world: World, memory: Memory) -> None:
    """Each counter can be filled up to the bound that it has in the end, and not further."""
    if not memory.ruled:
        return
    product = Product(world.process(world.home, "the last administrator"))
    world.auditor.ruled.closing = True
    for method in METHODS:
        counter = counter_of(method)
        if world.auditor.strict.accounts[counter].incarnation is None:
            strict.make(product, counter, method, 1)
        shown = product.strict.show(counter)
        if shown.upper is None:
            raise Wrong(f"{counter} has lost its upper bound: {shown}")
        if room := shown.upper - shown.value:
            outcome = product.strict.change(counter, room)
            if not isinstance(outcome, Applied):
                raise Wrong(f"{counter} had room for {room}: {outcome}")
        outcome = product.strict.change(counter, 1)
        if not isinstance(outcome, BoundReached):
            raise Wrong(f"{counter} was full: {outcome}")
