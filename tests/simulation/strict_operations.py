"""Operations on strict counters, of every method, with bins and without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import BadBounds, ClockSkew, KeyExpired
from countledger.ledger.ids import IdempotencyKey
from countledger.producers.strict.outcome import (
    Applied,
    Duplicate,
    GivenUp,
    Unknown,
)
from tests.simulation.schedule import Killed

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.producers.strict.outcome import Outcome
    from tests.simulation.client import Client

NAMESPACE: Final = "s"
METHODS: Final = ("atomic", "occ", "history", "crt", "marker", "set")
SHARDED: Final = ("atomic", "crt", "marker")
BINS: Final = 3
# Those that know a key again: what nobody heard the end of may be asked once more.
_KEYED: Final = ("crt", "marker", "set")
LOWER: Final = 0
UPPER: Final = 12
OPENING: Final = 4
_OVER_MOST: Final = 9


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
            _change(client, plain(method), method)

    return play


def change_sharded(client: Client) -> None:
    """A change of a counter with bins."""
    method = client.random.choice(SHARDED)
    _change(client, sharded(method), method)


def move_bounds(client: Client) -> None:
    """The upper bound moves while the counter is in use."""
    methods = [plain(method) for method in METHODS if method != "set"]
    counter = client.random.choice([*methods, *map(sharded, SHARDED)])
    upper = client.random.randint(UPPER - 4, UPPER + 4)
    try:
        client.product.strict.set_bounds(counter, upper=upper)
    except BadBounds as error:
        client.tell(f"bound of {counter}: {error}")


def give_up(client: Client) -> None:
    """The fate of a change that nobody heard the end of is settled for good."""
    if not client.memory.open:
        return
    counter, key, delta = client.random.choice(client.memory.open)
    if not isinstance(key, IdempotencyKey):
        return
    try:
        outcome = client.product.strict.give_up(counter, key)
    except (KeyExpired, ClockSkew) as error:
        client.tell(f"{counter} {key.key} given up: {type(error).__name__}")
        return
    client.tell(f"{counter} {key.key} given up: {type(outcome).__name__}")
    if isinstance(outcome, Duplicate):
        client.auditor.strict.is_in(counter, key.key, delta)
    elif isinstance(outcome, GivenUp):
        client.auditor.strict.is_out(counter, key.key)


def _change(client: Client, counter: str, method: str) -> None:
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
    client.auditor.strict.began(counter, key.key, delta)
    try:
        outcome = client.product.strict.change(counter, delta, key=key if keyed else None)
    except (KeyExpired, ClockSkew) as error:
        client.tell(f"{counter} {key.key}: {type(error).__name__}")
        if not again:
            client.auditor.strict.is_out(counter, key.key)
        return
    except Killed:
        if keyed:
            client.memory.open.append((counter, key, delta))
        raise
    client.tell(f"{counter} {key.key} {delta}: {_short(outcome)}")
    if isinstance(outcome, Unknown):
        if keyed:
            client.memory.open.append((counter, key, delta))
    else:
        _answered(client, counter, key.key, delta, outcome, again=again)


def _answered(
    client: Client, counter: str, key: str, delta: int, outcome: Outcome, *, again: bool
) -> None:
    if isinstance(outcome, Applied | Duplicate):
        client.auditor.strict.is_in(counter, key, delta)
    elif isinstance(outcome, GivenUp):
        client.auditor.strict.is_out(counter, key)
    elif not again:
        # Of this call. What an earlier one sent, which died, may still be on its way.
        client.auditor.strict.is_out(counter, key)


def _change_over(client: Client) -> None:
    """One that may count more often than once."""
    account = client.auditor.strict.accounts[over()]
    account.over[f"change {client.memory.number()}"] = (1, _OVER_MOST)
    outcome = client.product.strict.change(over(), 1, prefer="over")
    client.tell(f"{over()}: {_short(outcome)}")


def _short(outcome: Outcome) -> str:
    value = getattr(outcome, "value", "")
    return f"{type(outcome).__name__} {value}"
