"""Setting a ledger counter to a value, while others change it: one counter is there for it.

Its deltas are any numbers, negative ones too, so its sums do not tell what is in them. They are
large and drawn, so that no two sets of entries come to the same.
"""

from typing import Final

from countledger.ledger import keys
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import IdempotencyKeyReused
from countledger.ledger.ids import IdempotencyKey, id_of_key
from countledger.producers.event import Event
from countledger.producers.recorder import Became, Correction
from tests.simulation.client import Client
from tests.simulation.ledger_account import STOCK, Identity
from tests.simulation.ledger_operations import ALLOWED, send
from tests.simulation.sums import Wrong

_LARGEST: Final = 10**12
# A sum of so many entries that a read may have seen or not is not looked at.
_DOUBTFUL_MAX: Final = 12


def record(client: Client) -> None:
    """Somebody takes from the stock, or brings something."""
    send(client, Event(STOCK, client.random.randint(-_LARGEST, _LARGEST) or 1))


def set_value(client: Client) -> None:
    """Set it to a value, under a new key or one that was used; now and then to another one."""
    random, wishes = client.random, client.memory.wishes
    key, value = _drawn(client)
    mine = [one for one in wishes if one[1] == client.region]
    if mine and random.random() < 0.6:
        key, _ = random.choice(mine)
        value = random.choice(sorted(wishes[key, client.region]))
        if random.random() < 0.1:
            value += 1
    tried = wishes.setdefault((key, client.region), set())
    tried.add(value)
    account = client.auditor.ledger.accounts[STOCK]
    seen = dict(account.shown[client.region])
    try:
        done = client.product.compensator.set_value(STOCK, value, key, None)
    except IdempotencyKeyReused as error:
        client.tell(f"set to {value} under {key}: {error}")
        if len(tried) == 1:
            raise Wrong(f"{key} was only ever used to set {STOCK} to {value}: {error}") from error
    except ALLOWED as error:
        client.tell(f"set to {value} under {key}: {type(error).__name__}")
    else:
        client.tell(f"set to {value} under {key}: {done.became}, {done.delta}")
        _check(client, key, done, seen)


def _drawn(client: Client) -> tuple[str | IdempotencyKey, int]:
    name = f"stock-taking {client.memory.number()}"
    timed = IdempotencyKey(name, to_datetime(client.process.now_ms()))
    either: list[str | IdempotencyKey] = [name, timed]
    return client.random.choice(either), client.random.randint(-_LARGEST, _LARGEST)


def _check(
    client: Client, key: str | IdempotencyKey, done: Correction, seen: dict[Identity, int]
) -> None:
    """What it stands for is in, and what it was reckoned from was the sum at some time."""
    account = client.auditor.ledger.accounts[STOCK]
    entry = keys.entry_key(id_of_key(key), client.world.shape.spread)
    if done.became is not Became.UNCHANGED:
        client.auditor.ledger.acknowledge(STOCK, entry, int(done.delta))
    if done.became is Became.DUPLICATE:
        return  # it was reckoned by whoever was first
    mine = entry if done.became is Became.RECORDED else None
    meanwhile = [
        delta
        for identity, delta in account.made.items()
        if identity not in seen and identity[0] != mine
    ]
    if len(meanwhile) > _DOUBTFUL_MAX:
        return
    sums = {sum(seen.values())}
    for delta in meanwhile:
        sums |= {one + delta for one in sums}
    if int(done.value - done.delta) not in sums:
        raise Wrong(f"{done} was reckoned from no sum that there was: {seen}, {meanwhile}")
