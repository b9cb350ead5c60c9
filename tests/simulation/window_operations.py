"""Somebody edits windows by hand, and somebody rebuilds them, while everything else goes on."""

from functools import partial
from random import Random
from typing import Any, Final

from botocore.exceptions import ClientError

from countledger.consumers.verify import Remedy
from countledger.consumers.window_audit import WindowRebuilder
from countledger.ledger import keys
from countledger.ledger.errors import CountledgerError
from tests.simulation.product import Product
from tests.simulation.schedule import Killed
from tests.simulation.shape import COUNTERS, OF_WINDOWS
from tests.simulation.world import World

_TIMES: Final = 6
_TRIES: Final = 10
_GONE: Final = 0.4


def plan(world: World, random: Random, focus: str | None, span_ms: float) -> None:
    """In simulations of windows, some times while the clients are at work."""
    if focus in OF_WINDOWS:
        for _ in range(_TIMES):
            work = partial(_edit_and_rebuild, world, random)
            begin = partial(world.schedule.spawn, "operator of windows", work)
            world.schedule.at(random.random() * span_ms, begin)


def _edit_and_rebuild(world: World, random: Random) -> None:
    accounts = world.auditor.windows
    accounts.operators += 1
    region = random.choice(world.regions)
    places = sorted(
        key
        for key in world.copies[region][COUNTERS].items
        if key[1].startswith(keys.WINDOW_PREFIX) and keys.is_counter(key[0])
    )
    if places and not world.faults.calm:
        place = random.choice(places)
        edit_by_hand(world, region, place, gone=random.random() < _GONE)
        for _ in range(_TRIES):
            world.schedule.pause(random.choice([0, 1_000, 20_000, 60_000]))
            if region not in world.regions or rebuild(world, region, place[0]):
                break
    accounts.operators -= 1


def edit_by_hand(world: World, region: str, place: tuple[str, str], *, gone: bool) -> None:
    """An item of windows is edited by hand, or deleted."""
    table = world.copies[region][COUNTERS]
    item: dict[str, Any] | None = table.items.get(place)
    if item is None or place in table.locked:
        return
    world.auditor.windows.edited[region, place[0]] = world.schedule.now_ms
    cell = next(name for name in sorted(item) if name[0] == "s" and name[1:].isdigit())
    changed = {**item, cell: item[cell] + 7, "sum": item["sum"] + 7}
    world.auditor.by_hand = True
    table.store(place, None if gone else changed)
    world.auditor.by_hand = False
    world.tell(f"window {place} in {region} {'deleted' if gone else 'edited'} by hand")


def rebuild(world: World, region: str, counter: str) -> bool:
    """What was edited is right from here on, if it says so."""
    began_ms, edited = world.schedule.now_ms, world.auditor.windows.edited
    product = Product(world.process(region, "operator of windows", "rebuild"))
    try:
        done = next(WindowRebuilder(product.windows).rebuild([counter]))
    except (Killed, CountledgerError, ClientError) as error:
        world.tell(f"rebuild windows of {counter} in {region}: {error}")
        return False
    world.tell(f"rebuild windows of {counter} in {region}: {done.remedy} {done.reason}")
    if done.remedy is Remedy.REPAIRED and edited.get((region, counter), began_ms) < began_ms:
        edited.pop((region, counter), None)
    return done.healthy
