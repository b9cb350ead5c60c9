"""Operations on strict counters, of every method, with bins and without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import BadBounds, ClockSkew, CounterExists, KeyExpired, NoSuchCounter
from countledger.ledger.ids import IdempotencyKey
from countledger.ledger.limits import MINUTE_MS
from countledger.producers.strict.outcome import (
    Applied,
    Contended,
    Duplicate,
    Unknown,
    Withdrawn,
)
from tests.simulation.schedule import Killed
from tests.simulation.sums import Wrong

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.producers.strict.outcome import StrictOutcome
    from tests.simulation.client import Client
    from tests.simulation.product import Product

NAMESPACE: Final = "s"
METHODS: Final = ("atomic", "occ", "history", "request_token", "marker", "set")
SHARDED: Final = ("atomic", "request_token", "marker")
BINS: Final = 3
# Those that know a key again: what nobody heard the end of may be asked once more.
_KEYED: Final = ("request_token", "marker", "set")
LOWER: Final = 0
UPPER: Final = 12
OPENING: Final = 4
_OVER_MOST: Final = 9
# So often at least is a change tried that others are in the way of.
_LEAST_ATTEMPTS: Final = 8
_MORE: Final[dict[str, dict[str, int]]] = {
    "set": {"max_tokens": 8},
    "history": {"history": 3},
    "marker": {"window_ms": 5 * MINUTE_MS},
}


def plain(method: str) -> str:
    """The counter of a method."""
    return f"{NAMESPACE}:{method}"


def sharded(method: str) -> str:
    """The one with bins."""
    return f"{NAMESPACE}:{method} in bins"


def over() -> str:
    """The one whose callers would rather count twice than not at all."""
    return f"{NAMESPACE}:atomic, over"


def change_by(method: str) -> Callable[[Client], None]:
    """A change of the counter of a method, or once more one whose end nobody heard."""

    def play(client: Client) -> None:
        if method == "atomic" and client.random.random() < 0.3:
            _change_over(client)
        else:
            change(client, plain(method), method)

    return play


def change_sharded(client: Client) -> None:
    """A change of a counter with bins."""
    method = client.random.choice(SHARDED)
    change(client, sharded(method), method)


def move_bounds(client: Client) -> None:
    """The upper bound moves while the counter is in use."""
    methods = [plain(method) for method in METHODS if method != "set"]
    counter = client.random.choice([*methods, *map(sharded, SHARDED)])
    upper = client.random.randint(UPPER - 4, UPPER + 4)
    try:
        client.product.strict.set_bounds(counter, upper=upper)
    except (BadBounds, NoSuchCounter) as error:
        client.tell(f"bound of {counter}: {error}")


def withdraw(client: Client) -> None:
    """The fate of a change that nobody heard the end of is settled for good."""
    if client.memory.open:
        settle(client, *client.random.choice(client.memory.open))


def settle(client: Client, counter: str, key: object, delta: int) -> None:
    """A change is withdrawn, or known to be in."""
    if not isinstance(key, IdempotencyKey):
        return
    making = client.auditor.strict.making(counter)
    try:
        outcome = client.product.strict.withdraw(counter, key)
    except (KeyExpired, ClockSkew, NoSuchCounter) as error:
        client.tell(f"{counter} {key.key} given up: {type(error).__name__}")
        return
    client.tell(f"{counter} {key.key} given up: {type(outcome).__name__}")
    if isinstance(outcome, Duplicate):
        client.auditor.strict.is_in(counter, key.key, delta, making)
    elif isinstance(outcome, Withdrawn):
        client.auditor.strict.is_out(counter, key.key, making)


def remake(client: Client) -> None:
    """A counter is deleted while it is in use, and made again under its name."""
    # What accounts have lost to each other would be gone with one of them.
    own = {*map(plain, METHODS), *map(sharded, SHARDED)}
    counters = sorted(own & client.memory.strict.keys())
    counter = client.random.choice(counters)
    try:
        with client.auditor.strict.accounts[counter].deleted.one(NoSuchCounter):
            client.product.strict.delete(counter)
        client.tell(f"{counter} deleted")
        if client.random.random() < 0.5:
            client.world.schedule.pause(client.random.random() * client.world.shape.gap_ms)
        make(client.product, counter, *client.memory.strict[counter])
    except (NoSuchCounter, CounterExists) as error:
        client.tell(f"{counter} made again: {type(error).__name__}")
    else:
        client.tell(f"{counter} made again")


def tidy(client: Client) -> None:
    """The last step of a deletion, now or late: the markers of incarnations that are gone."""
    counter = client.random.choice([plain("marker"), sharded("marker")])
    client.product.leftovers.delete_markers(counter, client.memory.strict[counter][1])
    client.tell(f"markers of {counter} tidied")


def make(product: Product, counter: str, method: str, bins: int) -> None:
    """A counter as all others of its method."""
    bound = {} if counter == over() else {"lower": LOWER, "upper": UPPER}
    more: Any = {**bound, **_MORE.get(method, {})}
    product.strict.create(counter, method=method, opening=OPENING, bins=bins, **more)


def change(client: Client, counter: str, method: str) -> None:
    """A change of a counter, or once more one whose end nobody heard."""
    open_ = [one for one in client.memory.open if one[0] == counter]
    if open_ and client.random.random() < 0.5:
        _, key, delta = client.random.choice(open_)
        _send(client, counter, key, delta, again=True)
        return
    delta = client.random.choice([1, 1, -1]) if method == "set" else client.random.randint(-3, 4)
    if delta:
        at = to_datetime(client.process.now_ms())
        key = IdempotencyKey(f"change {client.memory.number()}", at)
        _send(client, counter, key, delta, again=False, keyed=method in _KEYED)


def _send(
    client: Client, counter: str, key: object, delta: int, *, again: bool, keyed: bool = True
) -> None:
    if not isinstance(key, IdempotencyKey):
        raise TypeError(f"{key!r} is no key")
    strict = client.auditor.strict
    with strict.under_way(counter, key.key, delta) as making:
        try:
            outcome = client.product.strict.change(counter, delta, key=key if keyed else None)
        except (KeyExpired, ClockSkew, NoSuchCounter) as error:
            client.tell(f"{counter} {key.key}: {type(error).__name__}")
            if not again:
                strict.is_out(counter, key.key, making)
            return
        except Killed:
            if keyed:
                client.memory.open.append((counter, key, delta))
            raise
    client.tell(f"{counter} {key.key} {delta}: {_short(outcome)}")
    _check_patience(counter, outcome)
    if isinstance(outcome, Unknown):
        if keyed:
            client.memory.open.append((counter, key, delta))
    elif isinstance(outcome, Applied | Duplicate):
        strict.is_in(counter, key.key, delta, making)
    elif isinstance(outcome, Withdrawn) or not again:
        # Of this call. What an earlier one sent, which died, may still be on its way.
        strict.is_out(counter, key.key, making)


def _check_patience(counter: str, outcome: StrictOutcome) -> None:
    if not isinstance(outcome, Contended) or "suspended" in outcome.reason:
        return
    if outcome.attempts < _LEAST_ATTEMPTS:
        raise Wrong(f"{counter}: given up after {outcome.attempts} attempts")


def _change_over(client: Client) -> None:
    """One that may count more often than once."""
    account = client.auditor.strict.accounts[over()]
    account.over[f"change {client.memory.number()}"] = (1, _OVER_MOST)
    outcome = client.product.strict.change(over(), 1, prefer="over")
    client.tell(f"{over()}: {_short(outcome)}")


def _short(outcome: StrictOutcome) -> str:
    value = getattr(outcome, "value", "")
    return f"{type(outcome).__name__} {value}"
