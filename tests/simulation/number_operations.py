"""Operations on sequences: draws of every kind, and items that are numbered in their collection."""

from typing import Final

from countledger.ledger.errors import (
    NoSuchCounter,
    SequenceExists,
    Throttled,
    Unnumbered,
)
from countledger.producers.sequences.sequence import Collection
from countledger.producers.sequences.sequences import Numbered
from tests.simulation.client import Client, Memory
from tests.simulation.number_account import POSTS, PREFIX
from tests.simulation.product import LEASED, Product
from tests.simulation.sums import Wrong
from tests.simulation.world import World

SEQUENCE: Final = "q:orders"
COLLECTION: Final = Collection(POSTS, ("counter", "p-17"), "part", prefix=PREFIX, digits=6)


def draw(client: Client) -> None:
    """A number, or a block of them."""
    numbers = client.auditor.numbers
    above = numbers.before_draw(SEQUENCE)
    if client.random.random() < 0.5:
        drawn = range(number := client.product.sequences.draw(SEQUENCE), number + 1)
    else:
        drawn = client.product.sequences.draw_block(SEQUENCE, client.random.randint(2, 5))
    client.tell(f"drew {drawn}")
    numbers.drawn(SEQUENCE, drawn, above)


def draw_expected(client: Client) -> None:
    """A number behind the one that is known, if it still is the last."""
    numbers = client.auditor.numbers
    above = numbers.before_draw(SEQUENCE)
    known = client.random.choice([None, None, above[1] if above[1] > 0 else None])
    number = client.product.sequences.draw_expected(SEQUENCE, known=known)
    client.tell(f"drew {number} behind {known}")
    numbers.drawn(SEQUENCE, [number], above)


def draw_leased(client: Client) -> None:
    """Numbers out of blocks: growing within their lease."""
    lease = client.product.sequences.lease(LEASED, block=client.random.randint(1, 4))
    last = 0
    for _ in range(client.random.randint(1, 6)):
        number = lease.draw()
        client.auditor.numbers.drawn(LEASED, [number], None)
        if number <= last:
            raise Wrong(f"a lease gave out {number} behind {last}")
        last = number


def remake(client: Client) -> None:
    """The sequence is deleted while others draw, and begins again, by itself or where it is made.

    That of the leases stays: whoever holds a block does not hear of it.
    """
    try:
        with client.auditor.numbers.sequences[SEQUENCE].deleted.one(NoSuchCounter):
            client.product.sequences.delete(SEQUENCE)
        client.tell(f"deleted {SEQUENCE}")
        if client.random.random() < 0.5:
            client.product.sequences.create(SEQUENCE, first=client.random.randint(0, 3))
    except (NoSuchCounter, SequenceExists) as error:
        client.tell(f"{SEQUENCE} deleted, or made: {error}")


def append(client: Client) -> None:
    """An item under the next number; or one of which nobody could tell, once more."""
    pending = None
    unnumbered = client.memory.unnumbered
    if unnumbered and client.random.random() < 0.7:
        # By one process at a time, as the guide says.
        pending = unnumbered.pop(client.random.randrange(len(unnumbered)))
    sequences = client.product.sequences
    try:
        if pending is None:
            text = f"comment {client.memory.number()}"
            done = sequences.append(COLLECTION, {"text": text})
        else:
            done = sequences.resume(pending)
    except Unnumbered as error:
        client.memory.unnumbered.append(error.pending)
        client.tell(f"append: {error}")
    except Throttled:
        if pending is not None:
            client.memory.unnumbered.append(pending)
        raise
    else:
        _told(client, done)


def _told(client: Client, done: Numbered) -> None:
    client.tell(f"appended {done}")
    table = client.world.copies[client.world.home][POSTS]
    there = table.items.get(("p-17", f"{PREFIX}{done.number:06d}"))
    if there != done.item:
        raise Wrong(f"{done} was told, and {there} is there")
    client.auditor.numbers.put("p-17", done.number, str(done.item["text"]))


def check_numbers(world: World, memory: Memory) -> None:
    """No sequence has given out more than it says; what nobody could tell can be told now."""
    account = world.auditor.numbers
    sequences = Product(world.process(world.home, "the last to draw")).sequences
    for name, sequence in sorted(account.sequences.items()):
        last = sequences.show(name).last
        if max(sequence.told, default=last) > last:
            raise Wrong(f"{name} gave out {max(sequence.told)}, and says {last}")
    for pending in memory.unnumbered:
        done = sequences.resume(pending)
        account.put("p-17", done.number, str(done.item["text"]))
