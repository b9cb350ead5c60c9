"""Malformed: what somebody wrote by hand and nobody can read; quarantined, mended, and made good.

One counter is there for it. Everything else shares shards with it, and must go on as if it was not.
"""

from typing import Any, Final

from countledger.consumers.audit import RepairCounter, review_alert_log
from countledger.consumers.window_audit import WindowRebuilder
from countledger.ledger import keys
from countledger.ledger.message_queue import MessageQueue
from countledger.ledger.quarantine import (
    QuarantineNotices,
    QuarantineService,
    QuarantineSource,
)
from tests.simulation.client import Client, Memory
from tests.simulation.ledger_operations import send_new
from tests.simulation.mailbox import URL, MailboxClient
from tests.simulation.product import Product
from tests.simulation.shape import COUNTERS, LEDGER
from tests.simulation.world import World

COUNTER: Final = "n:corrupt"
BY: Final = "operator"


def record(client: Client) -> None:
    """A good entry beside the bad ones."""
    send_new(client, COUNTER, client.memory.corrupt)


def malformed(client: Client) -> None:
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
    client.memory.malformed.append((client.region, item))
    client.tell(f"malformed: {item}")


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
    client.tell("malformed: a total that is a word")


def mend(client: Client) -> None:
    """Somebody takes a bad entry away, or writes what it should have been."""
    mine = [one for one in client.memory.malformed if one[0] == client.region]
    if mine:
        one = client.random.choice(mine)
        client.memory.malformed.remove(one)
        mend_one(client.world, client.memory, *one)
        client.tell(f"mended: {one[1]['entry']}")


def resend(client: Client) -> None:
    """`quarantine resend --all`: counters whose records were quarantined are repaired."""
    service = service_of(client.product)
    # What came through Kinesis is worked off with the messages of its own queue.
    sources = (QuarantineSource.LEDGER, QuarantineSource.COUNTERS)
    waiting = [copy.id for source in sources for copy in service.list(source)]
    for treated in service.resend(waiting, by=BY):
        client.tell(f"resend {treated.record.id}: {treated.resolved} {treated.detail}")


def mend_one(world: World, memory: Memory, region: str, item: dict[str, Any]) -> None:
    """Take it away, or write a number into it."""
    table = world.copies[region][LEDGER]
    good = item["entry"].startswith(keys.ENTRY_PREFIX) and world.random.random() < 0.5
    key = (COUNTER, item["entry"])
    if good and memory.corrupt:
        table.store(key, {**item, "delta": 4 ** memory.corrupt.pop()})
    else:
        table.store(key, None)


def service_of(product: Product) -> QuarantineService:
    """The quarantine as a person works on it."""
    world, process = product.world, product.process
    client: Any = MailboxClient(world.notices[process.region], process)
    repair = RepairCounter(product.auditor, WindowRebuilder(product.windows).rebuild)
    return QuarantineService(
        product.connection,
        {QuarantineSource.LEDGER: repair, QuarantineSource.COUNTERS: review_alert_log},
        lambda _: QuarantineNotices((MessageQueue(client, URL, "the quarantine"),)),
    )
