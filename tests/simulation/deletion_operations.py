"""Deletion: counters are marked, deleted and forgotten, and their names used again meanwhile.

Between the calls lie a day and more. Clients that rest wake at one moment, so that they meet again.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from countledger.compaction import plan
from countledger.compaction.deletion import Deletion, DeletionMark, DeletionStage, empty_head
from countledger.compaction.report import RunOutcome
from countledger.ledger import keys
from countledger.ledger.errors import BadSetting, ConditionFailed, NoSuchCounter, ServiceFailed
from countledger.ledger.exact import decode_head, encode_head
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from countledger.ledger.operations import Delete, Put
from tests.simulation.client import Client, Memory
from tests.simulation.ledger_operations import draw_counter
from tests.simulation.product import Product
from tests.simulation.running_operations import accept
from tests.simulation.schedule import Killed
from tests.simulation.shape import LEDGER
from tests.simulation.sums import Wrong
from tests.simulation.world import World

GROUPS: Final = ("g", "h")
# From just below what is waited for to well above it.
_RESTS_H: Final = (1, 12, 13, 25, 31, 31)
_UP_TO: Final = 0.05
# An index shows what was written so long ago.
_STALE_MS: Final = MINUTE_MS
_TRIES: Final = 30


def rest(client: Client) -> None:
    """Stand still for hours or days, until the others that rest go on as well."""
    deletions, schedule = client.auditor.deletions, client.world.schedule
    if deletions.wake_ms <= schedule.now_ms:
        hours = client.random.choice(_RESTS_H) * (1 + client.random.random() * _UP_TO)
        deletions.wake_ms = schedule.now_ms + hours * HOUR_MS
        client.tell(f"rests for {hours:.1f} h")
    schedule.pause(deletions.wake_ms - schedule.now_ms)


def delete(client: Client) -> None:
    """One call, as far as is safe; perhaps another one once that may go on."""
    counter = draw_counter(client)
    deletion = _call(client, counter)
    if deletion is not None and deletion.next_at_ms is not None and client.random.random() < 0.6:
        deletions, now_ms = client.auditor.deletions, client.process.now_ms()
        wait_ms = max(0, deletion.next_at_ms - now_ms) + client.random.random() * MINUTE_MS
        deletions.wake_ms = max(deletions.wake_ms, client.world.schedule.now_ms + wait_ms)
        client.world.schedule.pause(deletions.wake_ms - client.world.schedule.now_ms)
        _call(client, counter)


def cancel(client: Client) -> None:
    """A mark is taken off."""
    counter = draw_counter(client)
    client.tell(f"cancel {counter}: {_product(client).deleter.cancel(counter)}")


def join(client: Client) -> None:
    """A counter is put into a group, whoever uses its name."""
    counter, group = draw_counter(client), client.random.choice(GROUPS)
    client.tell(f"{counter} into {group}: {client.product.groups.add(group, [counter])}")
    if (keys.GROUP_PREFIX + group, counter) not in client.auditor.deletions.joined:
        since_ms = client.auditor.deletions.deleted_ms.get(counter)
        raise Wrong(f"{counter} is no member of {group} (deleted: {since_ms})")


def lose(client: Client) -> None:
    """Somebody deletes an entry by hand that a head has taken in and that is not archived yet."""
    counter = draw_counter(client)
    world = client.world
    table = world.copies[world.home][LEDGER]
    if world.shape.archive:
        # A run publishes, and its archive is out of service.
        world.bucket.failing = 1
        try:
            client.product.compactor().compact(counter)
        finally:
            world.bucket.failing = 0
    head = table.items.get((counter, keys.HEAD))
    merged = decode_head(head)
    # Under a bare key another entry may be there by now, which no head has taken in.
    there = [
        key
        for key in merged.covers
        if merged.has_merged(key, table.items.get((counter, key), {}).get("at", -1))
    ]
    there = [key for key in there if (counter, key) in table.items]
    free = [key for key in there if (counter, key) not in table.locked]
    if head is None or not free or not world.shape.archive or len(world.regions) > 1:
        return
    key = client.random.choice(sorted(free))
    delta = table.items[counter, key]["delta"]
    client.auditor.deletions.lost.setdefault(counter, set()).add(delta)
    client.auditor.by_hand = True
    table.store((counter, key), None)
    client.auditor.by_hand = False
    client.tell(f"{counter}: {key} of generation {head['generation']} deleted by hand")


def as_found(client: Client) -> None:
    """An operator lets a run archive what is there, also where nobody deleted anything."""
    _archive_as_found(client.product, draw_counter(client))


def leave_empty_head(product: Product, counter: str) -> None:
    """A counter of that name was deleted a day ago: its empty head is forgotten once."""
    world, now_ms = product.world, product.process.now_ms()
    mark = DeletionMark(counter=counter, id="deletion", at_ms=now_ms - DAY_MS)
    empty = empty_head(mark, world.random.randint(1, 3))
    world.auditor.by_hand = True
    product.reads.put(Put(LEDGER, encode_head(counter, empty)))
    world.auditor.by_hand = False
    world.auditor.ledger.accounts[counter].generation = empty.generation

    def forget() -> None:
        while not 0 < world.auditor.deletions.wake_ms < world.schedule.now_ms:
            world.schedule.pause(SECOND_MS)
        world.schedule.pause(world.random.random() * 3 * world.shape.gap_ms)
        process = world.process(world.home, "forgetter")
        dynamo = world.dynamo(process, retries=True)
        with suppress(ConditionFailed, ServiceFailed, Killed):
            dynamo.delete(Delete(LEDGER, keys.head_key(counter), plan.is_still(empty)))
            world.tell(f"the empty head of {counter} is forgotten")

    world.schedule.spawn("forgetter", forget)


def archive_as_found(world: World, memory: Memory) -> None:  # noqa: ARG001 - as the others
    """Where somebody deleted entries by hand a run goes on only once an operator says so."""
    product = Product(world.process(world.home, "the last operator"))
    for counter in sorted(world.auditor.deletions.lost):
        _archive_as_found(product, counter)


def check_deletions(world: World, memory: Memory) -> None:
    """What is archived of each counter is what was merged of it, but for what was lost by hand."""
    product = Product(world.process(world.home, "the last archivist"))
    table = world.copies[world.home][LEDGER]
    for counter in sorted(memory.free):
        head = decode_head(table.items.get((counter, keys.HEAD)))
        if not world.shape.archive or head.covers:
            continue
        account = world.auditor.ledger.accounts[counter]
        lost = world.auditor.deletions.lost.get(counter, set())
        merged = {one: account.made[one] for one in account.merged if one in account.made}
        entries = product.archive.entries(counter, head.incarnation)
        found = {(keys.entry_key(one.id, world.shape.spread), one.at_ms) for one in entries}
        missing = {one: delta for one, delta in merged.items() if one not in found}
        if found - merged.keys() or set(missing.values()) - lost:
            raise Wrong(f"{counter}: archived {found}, merged {merged}, lost {lost}")


def _archive_as_found(product: Product, counter: str) -> None:
    report = replace(product.compactor(), archive_as_found=True).compact(counter)
    if report.outcome is not RunOutcome.TAMPERED:
        accept(report)


def _product(client: Client) -> Product:
    """In any region that takes itself for home, if the home may change."""
    world = client.world
    if not world.shape.deletes:
        return client.product
    region = client.random.choice(sorted(world.believers - world.gone))
    return Product(world.process(region, f"{client.name}, deleter"))


def check_emptied(world: World, memory: Memory) -> None:
    """What was deleted at home goes in every region."""
    if not world.shape.deletes:
        return
    product = Product(world.process(world.home, "the last deleter"))
    for counter in sorted(memory.free):
        for _ in range(_TRIES):
            mark = product.deleter.mark(counter)
            if mark is None or mark.deleted_at_ms is None or mark.tidied:
                break
            deletion = product.deleter.delete(counter)
            world.tell(f"delete {counter}: {deletion.stage} {deletion.detail}")
            world.schedule.pause(MINUTE_MS)
        else:
            raise Wrong(f"{counter} is never deleted in every region: {mark}")


def _call(client: Client, counter: str) -> Deletion | None:
    deletions, now_ms = client.auditor.deletions, client.world.schedule.now_ms
    old = {one: at for one, at in deletions.joined.items() if at < now_ms - _STALE_MS}
    deleter: Any = _product(client).deleter
    try:
        deletion: Deletion = deleter.delete(counter)
    except (NoSuchCounter, BadSetting) as error:
        client.tell(f"delete {counter}: {type(error).__name__}")
        return None
    client.tell(f"delete {counter}: {deletion.stage} {deletion.detail}")
    if deletion.stage is DeletionStage.FORGOTTEN:
        for (group, name), at_ms in old.items():
            stays = name == counter and deletions.joined.get((group, name)) == at_ms
            if stays and repr(group.removeprefix(keys.GROUP_PREFIX)) not in deletion.detail:
                raise Wrong(f"{counter} is a member of {group} still: {deletion.detail}")
    return deletion
