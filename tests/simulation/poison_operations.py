"""Poison: what somebody wrote by hand and nobody can read; set aside, mended, and made good.

One counter is there for it. Everything else shares shards with it, and must go on as if it was not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from countledger.consumers.cure import RepairTheCounter, look_at_the_log
from countledger.ledger import keys
from countledger.ledger.bells import Bells
from countledger.ledger.copies import Copies
from countledger.ledger.quarantine_desk import QuarantineDesk
from countledger.ledger.quarantined import Source
from tests.simulation.ledger_operations import send_new
from tests.simulation.mailbox import URL, MailboxClient
from tests.simulation.shape import COUNTERS, LEDGER

if TYPE_CHECKING:
    from typing import Any

    from tests.simulation.client import Client, Memory
    from tests.simulation.product import Product
    from tests.simulation.world import World

COUNTER: Final = "n:spoilt"
BY: Final = "operator"


def record(client: Client) -> None:
    """A good entry beside the bad ones."""
    send_new(client, COUNTER, client.memory.spoilt)


def poison(client: Client) -> None:
    """Somebody writes an entry, or edits the total, so that no program can read it."""
    random, world = client.random, client.world
    kind = random.choice(["entry", "entry", "stranger", "total"])
    if kind == "total":
        _spoil_total(client)
        return
    key = keys.entry_key(world.new_id(client.process.now_ms()), world.shape.spread)
    item: dict[str, Any] = {"counter": COUNTER, "entry": key, "delta": "seven", "origin": "hand"}
    item["at"] = client.process.now_ms()
    if kind == "stranger":
        item["entry"] = f"{random.choice(['note', 'E#', 'entry#'])}{key}"
    world.copies[client.region][LEDGER].store((COUNTER, item["entry"]), item)
    client.memory.poison.append((client.region, item))
    client.tell(f"poison: {item}")


def _spoil_total(client: Client) -> None:
    table = client.world.copies[client.region][COUNTERS]
    key = (COUNTER, keys.TOTAL)
    there = table.items.get(key)
    if there is None or key in table.locked:
        return
    excused = client.auditor.ledger.accounts[COUNTER].excused
    excused[client.region] = client.world.schedule.now_ms, "edited by hand"
    client.auditor.by_hand = True
    table.store(key, {**there, "total": "many"})
    client.auditor.by_hand = False
    client.tell("poison: a total that is a word")


def mend(client: Client) -> None:
    """Somebody takes a bad entry away, or writes what it should have been."""
    mine = [one for one in client.memory.poison if one[0] == client.region]
    if mine:
        one = client.random.choice(mine)
        client.memory.poison.remove(one)
        mend_one(client.world, client.memory, *one)
        client.tell(f"mended: {one[1]['entry']}")


def resend(client: Client) -> None:
    """`quarantine resend --all`: counters whose records were set aside are repaired."""
    desk = desk_of(client.product)
    # What came through Kinesis is worked off with the messages of its own queue.
    sources = (Source.LEDGER, Source.COUNTERS)
    waiting = [copy.id for source in sources for copy in desk.list(source)]
    for treated in desk.resend(waiting, by=BY):
        client.tell(f"resend {treated.copy.id}: {treated.settled} {treated.said}")


def mend_one(world: World, memory: Memory, region: str, item: dict[str, Any]) -> None:
    """Take it away, or write a number into it."""
    table = world.copies[region][LEDGER]
    good = item["entry"].startswith(keys.ENTRY_PREFIX) and world.random.random() < 0.5
    key = (COUNTER, item["entry"])
    if good and memory.spoilt:
        table.store(key, {**item, "delta": 4 ** memory.spoilt.pop()})
    else:
        table.store(key, None)


def desk_of(product: Product) -> QuarantineDesk:
    """The quarantine as a person works on it."""
    world, process = product.world, product.process
    client: Any = MailboxClient(world.bells[process.region], process)
    repair = RepairTheCounter(product.auditor)
    return QuarantineDesk(
        Copies(world.dynamo(process, retries=True), COUNTERS, process),
        {Source.LEDGER: repair, Source.COUNTERS: look_at_the_log},
        lambda: Bells(client, (URL,)),
        process,
    )
