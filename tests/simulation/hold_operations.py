"""Holds of two strict counters, with bins and without: placed, confirmed, cancelled, and let go."""

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from countledger.infra.memory.tables import Change
from countledger.ledger import keys
from countledger.ledger.attributes import Item
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import (
    ClockSkew,
    CounterExists,
    KeyExpired,
    NoSuchCounter,
    NoSuchHold,
    OpenHolds,
)
from countledger.ledger.ids import IdempotencyKey, id_of_key
from countledger.ledger.limits import SECOND_MS
from countledger.producers.strict.hold import HoldState, hold_id
from countledger.producers.strict.outcome import (
    Applied,
    BoundReached,
    Cancelled,
    Confirmed,
    Duplicate,
    EndOutcome,
    Held,
    HoldCancelled,
    HoldConfirmed,
    HoldExpired,
)
from tests.simulation import strict_operations as strict
from tests.simulation.client import Client, Memory
from tests.simulation.product import Product
from tests.simulation.schedule import Schedule
from tests.simulation.shape import COUNTERS
from tests.simulation.sums import Wrong
from tests.simulation.world import World

HALL: Final = {f"{strict.NAMESPACE}:held": 1, f"{strict.NAMESPACE}:held in bins": strict.BINS}
OPERATIONS: Final = ("hold place", "hold confirm", "hold cancel", "hold sale")
_LONGEST_S: Final = 90
_KEPT: Final = 12


@dataclass(frozen=True)
class Basket:
    """A hold that somebody asked for.

    Attributes:
        counter: of which.
        key: under which key.
        amount: how much is to be held.
        taken: how much every confirmation takes.
        length: for how long.
    """

    counter: str
    key: IdempotencyKey
    amount: int
    taken: int
    length: timedelta

    @property
    def id(self) -> str:
        """The id of the hold."""
        return hold_id(self.counter, id_of_key(self.key))


@dataclass
class HoldAccounts:
    """What becomes of holds: each ends once, and no clock could still confirm one that expires.

    Attributes:
        schedule: the true time.
        half_ms: how far a clock is late at the most.
        open: the keys of the open holds of each counter.
        closed_ms: when one of a counter was closed last.
    """

    schedule: Schedule
    half_ms: int
    open: dict[str, set[tuple[str, str]]] = field(default_factory=lambda: defaultdict(set))
    closed_ms: dict[str, float] = field(default_factory=dict)

    def changed(self, change: Change) -> None:
        """An item was written."""
        before, after = change.before or {}, change.after or {}
        self._count(change, before, after)
        if "hold" not in before or before.get("state") == after.get("state"):
            return
        if after and before["incarnation"] != after["incarnation"]:
            return  # the key is used for another counter of that name
        was, became = before["state"], after.get("state")
        if became is None:
            if was == HoldState.OPEN:
                raise Wrong(f"{change.key} was open, and is gone: {before}")
            return
        allowed = was == HoldState.OPEN or (was, became) == (HoldState.EXPIRED, HoldState.CONFIRMED)
        if not allowed:
            raise Wrong(f"{change.key} was {was}, and became {became}")
        late_ms = self.schedule.now_ms - self.half_ms
        if became == HoldState.EXPIRED and late_ms < before["lapses_at"]:
            raise Wrong(f"{change.key} expired, and a clock that is late may still confirm it")

    def _count(self, change: Change, before: Item, after: Item) -> None:
        counter = change.key[0].partition("#")[0]
        open_ = self.open[counter]
        if "hold" in before or "hold" in after:
            if after.get("state") == HoldState.OPEN:
                open_.add(change.key)
            elif change.key in open_:
                open_.remove(change.key)
                self.closed_ms[counter] = self.schedule.now_ms
        gone = before.get("incarnation") not in {None, after.get("incarnation")}
        # The hold itself may be written a moment later, by the transaction that has ended it.
        if change.key[1] in {keys.TOTAL, "bin"} and gone and before.get("held"):
            raise Wrong(f"{change.key} is deleted, and open holds have {before['held']} of it")


def make(world: World, product: Product, memory: Memory) -> None:
    """The counters."""
    for counter, bins in HALL.items():
        memory.strict[counter] = "marker", bins
        world.auditor.strict.accounts[counter].opening = strict.OPENING
        strict.make(product, counter, "marker", bins)


def place(client: Client) -> None:
    """Hold something, or repeat an earlier call."""
    baskets = client.memory.baskets
    if baskets and client.random.random() < 0.4:
        basket = client.random.choice(baskets)
    else:
        amount = client.random.randint(1, 3)
        key = IdempotencyKey(
            f"basket {client.memory.number()}", to_datetime(client.process.now_ms())
        )
        basket = Basket(
            client.random.choice(list(HALL)),
            key,
            amount,
            client.random.randint(1, amount),
            timedelta(seconds=client.random.randint(1, _LONGEST_S)),
        )
        baskets.append(basket)
        del baskets[:-_KEPT]
    try:
        outcome = client.product.strict.hold(
            basket.counter, basket.amount, key=basket.key, expires_in=basket.length
        )
    except (KeyExpired, ClockSkew, NoSuchCounter) as error:
        client.tell(f"{basket.key.key}: {type(error).__name__}")
        return
    client.tell(f"{basket.key.key} of {basket.counter}: {type(outcome).__name__}")
    if isinstance(outcome, Held) and outcome.id != basket.id:
        raise Wrong(f"{outcome} is not {basket.id}")


def confirm(client: Client) -> None:
    """Take what is held, or a part of it; now and then although its time is over."""
    if not client.memory.baskets:
        return
    basket = client.random.choice(client.memory.baskets)
    readmit, began_ms = client.random.random() < 0.2, client.process.now_ms()
    account = client.auditor.strict
    with account.under_way(basket.counter, basket.id, -basket.taken) as making:
        try:
            found = client.product.strict.confirm(basket.id, basket.taken, readmit=readmit)
        except (NoSuchHold, NoSuchCounter):
            client.tell(f"{basket.key.key}: never held")
            return
    client.tell(f"{basket.key.key} confirmed: {type(found).__name__}")
    if isinstance(found, Confirmed) and not readmit:
        _check_in_time(client, basket, began_ms)
    _note(client, basket, found, making)


def cancel(client: Client) -> None:
    """Let it go."""
    if not client.memory.baskets:
        return
    basket = client.random.choice(client.memory.baskets)
    making = client.auditor.strict.making(basket.counter)
    try:
        found = client.product.strict.cancel(basket.id)
    except (NoSuchHold, NoSuchCounter):
        client.tell(f"{basket.key.key}: never held")
        return
    client.tell(f"{basket.key.key} cancelled: {type(found).__name__}")
    if isinstance(found, HoldConfirmed):
        _note(client, basket, found, making)
    elif isinstance(found, Cancelled):
        client.auditor.strict.is_out(basket.counter, basket.id, making)


def sell(client: Client) -> None:
    """A change of the same counters, which must not take what is held."""
    strict.change(client, client.random.choice(list(HALL)), "marker")


def delete(client: Client) -> None:
    """Delete a counter, now and then once more at once: open holds refuse it, and stay."""
    counter = client.random.choice(list(HALL))
    for _ in range(client.random.randint(1, 3)):
        if _is_deleted(client, counter):
            break
        client.process.sleep_ms(client.random.choice([0.0, 1_000.0, _LONGEST_S * SECOND_MS]))
    else:
        return
    # Holds of the counter that is gone are none of the next one, which has its name.
    baskets = client.memory.baskets
    baskets[:] = [one for one in baskets if one.counter != counter]
    if client.random.random() < 0.5:
        client.world.schedule.pause(client.random.random() * client.world.shape.gap_ms)
    try:
        strict.make(client.product, counter, *client.memory.strict[counter])
    except CounterExists as error:
        client.tell(f"{counter} made again: {error}")
    else:
        client.tell(f"{counter} made again")


def _is_deleted(client: Client, counter: str) -> bool:
    account, began_ms = client.auditor.holds, client.world.schedule.now_ms
    there = bool(account.open[counter])
    try:
        with client.auditor.strict.accounts[counter].deleted.one(NoSuchCounter, OpenHolds):
            client.product.strict.delete(counter)
    except NoSuchCounter:
        client.tell(f"{counter} is gone")
        return True
    except OpenHolds:
        client.tell(f"{counter} has open holds")
        closed_ms = account.closed_ms.get(counter, -1.0)
        if not (there or account.open[counter] or closed_ms >= began_ms):
            raise Wrong(f"{counter} is said to have open holds, and has none") from None
        return False
    client.tell(f"{counter} deleted")
    return True


def _check_in_time(client: Client, basket: Basket, began_ms: int) -> None:
    place_ = next(
        (
            item
            for item in client.world.copies[client.world.home][COUNTERS].items.values()
            if "hold" in item and item["part"].endswith(id_of_key(basket.key))
        ),
        None,
    )
    if place_ is not None and place_["lapses_at"] <= began_ms:
        raise Wrong(f"{basket.id} was confirmed at {began_ms}, after its time: {place_}")


def _note(client: Client, basket: Basket, found: EndOutcome, making: int) -> None:
    """What a client was told of its hold."""
    account = client.auditor.strict
    if isinstance(found, Confirmed | Duplicate | HoldConfirmed):
        account.is_in(basket.counter, basket.id, -basket.taken, making)
    elif isinstance(found, HoldCancelled):
        account.is_out(basket.counter, basket.id, making)
    elif isinstance(found, HoldExpired | BoundReached):
        # An expired hold may be readmitted; nobody says "never". What nobody asked for is not in.
        applied = account.accounts[basket.counter].applied
        if basket.id in applied:
            raise Wrong(f"{basket.id} is taken, and is said to be {found}")


def check_holds(world: World, memory: Memory) -> None:
    """What is held is what open holds hold; once their time is over all of it can be sold."""
    process = world.process(world.home, "the last buyer")
    product = Product(process)
    for counter in HALL:
        if counter not in memory.strict:
            continue
        items = world.copies[world.home][COUNTERS].items.values()
        open_ = [
            item["hold"]
            for item in items
            if item.get("state") == HoldState.OPEN and item["counter"].split("#")[0] == counter
        ]
        shown = product.strict.show(counter)
        if shown.held != sum(open_) or shown.available + shown.held != shown.value:
            raise Wrong(f"{counter} holds {shown.held}, and its open holds {open_}")
        process.sleep_ms(_LONGEST_S * SECOND_MS + 2 * world.shape.skew_ms + 1)
        for attempt in range(20):
            outcome = product.strict.change(counter, -int(shown.value), key=f"the rest {attempt}")
            if isinstance(outcome, Applied):
                break
            if isinstance(outcome, BoundReached):
                raise Wrong(f"expired holds made a sale fail: {outcome}")
            process.sleep_ms(5 * SECOND_MS)
        after = product.strict.show(counter)
        if (after.value, after.held) != (0, 0):
            raise Wrong(f"{counter} is {after.value} with {after.held} held: not all could be sold")
