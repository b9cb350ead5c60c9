"""Operations on several strict counters at once: transfers, all or nothing, under one key."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final

from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import ClockSkew, KeyExpired
from countledger.ledger.ids import IdempotencyKey
from countledger.producers.strict.outcome import (
    Applied,
    Duplicate,
    StrictOutcome,
    Unknown,
    Withdrawn,
)
from tests.simulation.client import Client, Memory
from tests.simulation.product import Product
from tests.simulation.schedule import Killed
from tests.simulation.sums import Wrong
from tests.simulation.world import World

JOINT: Final = ("joint transfer", "joint give up")
OPENING: Final = 12
ACCOUNTS: Final[dict[str, tuple[str, int]]] = {
    "s:account of ann": ("marker", 1),
    "s:account of bob": ("atomic", 1),
    "s:account of cy": ("occ", 1),
    "s:account of the bank": ("marker", 3),
}


def make(product: Product, memory: Memory) -> None:
    """The accounts, each with as much."""
    for counter, (method, bins) in ACCOUNTS.items():
        product.strict.create(counter, method=method, opening=OPENING, bins=bins, lower=0)
        memory.strict[counter] = method, bins
        product.world.auditor.strict.accounts[counter].opening = OPENING


def transfer(client: Client) -> None:
    """From one to another or two others; or once more one whose end nobody heard."""
    joint, random = client.memory.joint, client.random
    if joint and random.random() < 0.5:
        key, changes = random.choice(sorted(joint.items(), key=lambda one: one[0].key))
        _send(client, key, changes, again=True)
        return
    at = to_datetime(client.process.now_ms())
    key = IdempotencyKey(f"transfer {client.memory.number()}", at)
    source, *targets = random.sample(sorted(ACCOUNTS), random.choice([2, 2, 3]))
    amount = random.randint(1, 7)
    changes = dict.fromkeys(targets, amount) | {source: -amount * len(targets)}
    _send(client, key, changes, again=False)


def withdraw(client: Client) -> None:
    """The fate of a transfer that nobody heard the end of is settled for good."""
    joint = client.memory.joint
    if not joint:
        return
    key, changes = client.random.choice(sorted(joint.items(), key=lambda one: one[0].key))
    outcome = client.product.strict.transactions.withdraw(key)
    client.tell(f"{key.key} given up: {type(outcome).__name__}")
    _note(client, key, changes, outcome, again=True)


def _send(client: Client, key: IdempotencyKey, changes: Mapping[str, int], *, again: bool) -> None:
    with ExitStack() as under_way:
        for counter, delta in changes.items():
            under_way.enter_context(client.auditor.strict.under_way(counter, key.key, delta))
        try:
            outcome = client.product.strict.transactions.change(changes, key=key)
        except (KeyExpired, ClockSkew) as error:
            client.tell(f"{key.key}: {type(error).__name__}")
            return
        except Killed:
            client.memory.joint[key] = changes
            raise
    client.tell(f"{key.key} {changes}: {type(outcome).__name__}")
    _note(client, key, changes, outcome, again=again)


def _note(
    client: Client,
    key: IdempotencyKey,
    changes: Mapping[str, int],
    outcome: StrictOutcome,
    *,
    again: bool,
) -> None:
    strict = client.auditor.strict  # nobody makes these counters again
    if isinstance(outcome, Unknown):
        client.memory.joint[key] = changes
    elif isinstance(outcome, Applied | Duplicate):
        for counter, delta in changes.items():
            strict.is_in(counter, key.key, delta, strict.making(counter))
    elif isinstance(outcome, Withdrawn) or not again:
        for counter in changes:
            strict.is_out(counter, key.key, strict.making(counter))


def check_joint(world: World, memory: Memory) -> None:
    """All or none: what one account lost the others have."""
    mine = [counter for counter in ACCOUNTS if counter in memory.strict]
    if not mine:
        return
    product = Product(world.process(world.home, "the last cashier"))
    held = {counter: int(product.strict.show(counter).value) for counter in mine}
    if sum(held.values()) != OPENING * len(mine):
        raise Wrong(f"{OPENING * len(mine)} became {held}")
