"""What happens to the whole: partitions, storms, shards that split, mappings made anew, outages."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from botocore.exceptions import ClientError

from countledger.ledger import keys
from countledger.ledger.errors import CountledgerError
from countledger.ledger.limits import HOUR_MS, MINUTE_MS, SECOND_MS
from tests.simulation.mapping import Mapping
from tests.simulation.product import Product
from tests.simulation.schedule import Killed
from tests.simulation.shape import COUNTERS
from tests.simulation.world import World

# From here on a record may have been trimmed, or be too old to be applied.
_LOST_MS: Final = 20 * HOUR_MS


def partition(world: World) -> None:
    """Some regions are cut off from the others, one way or both."""
    if len(world.regions) == 1:
        return
    count = world.random.randint(1, len(world.regions) - 1)
    regions = set(world.random.sample(world.regions, count))
    world.replicator.partition(regions, one_way=world.random.random() < 0.3)
    world.tell(f"cut off: {sorted(regions)}")

    def heal() -> None:
        world.replicator.heal()
        world.tell("healed")

    world.schedule.at(world.random.random() ** 2 * HOUR_MS, heal)


def storm(world: World) -> None:
    """Nearly every call is throttled for a while."""
    world.faults.storm = True

    def end() -> None:
        world.faults.storm = False

    world.schedule.at(world.random.random() * MINUTE_MS, end)


def split(world: World) -> None:
    """A stream shard is followed by one or two others."""
    streams = world.random.choice([world.streams, world.moves])
    stream = streams[world.random.choice(world.regions)]
    if world.ingest is not None and world.random.random() < 0.5:
        stream = world.ingest.stream
    stream.split()
    world.tell(f"a shard of {stream.arn} split")


def remake(world: World) -> None:
    """A mapping is deleted and made anew: it reads its stream from the start."""
    mapping = world.random.choice(world.mappings)
    mapping.start()
    world.tell(f"the {mapping.name}'s mapping in {mapping.region} was made anew")


def outage(world: World) -> None:
    """A mapping is switched off for a while; in a long one the stream loses records."""
    mapping = world.random.choice(world.mappings)
    mapping.switch(on=False)
    hours = 24 + world.random.random() * 30 if world.shape.long else world.random.random() ** 2
    world.tell(f"the {mapping.name}'s mapping in {mapping.region} is off for {hours:.1f} h")

    def end() -> None:
        if hours * HOUR_MS > _LOST_MS:
            _excuse(world, mapping)
        mapping.switch(on=True)
        world.tell(f"the {mapping.name}'s mapping in {mapping.region} is on")

    world.schedule.at(hours * HOUR_MS + SECOND_MS, end)


def forget(world: World) -> None:
    """Somebody deletes the progress of a shard; a while later somebody else mends that."""
    region = world.random.choice(world.regions)
    table = world.copies[region][COUNTERS]
    there = [key for key in table.items if key[1] == keys.PROGRESS]
    if not there:
        return
    key = world.random.choice(sorted(there))
    table.store(key, None)
    world.forgotten.add((region, key))
    world.tell(f"the progress of {key[0]} in {region} is gone")
    delay_ms = world.random.random() ** 2 * 10 * MINUTE_MS
    _come_to_mend(world, region, delay_ms)


def _come_to_mend(world: World, region: str, delay_ms: float) -> None:
    """The alarm goes on while progress is lost: whoever could not mend it comes again, later."""

    def come() -> None:
        mend(world, region)
        again_ms = 2 * delay_ms + MINUTE_MS
        if is_lost(world, region) and again_ms < _LOST_MS // 2:
            _come_to_mend(world, region, again_ms)

    world.schedule.spawn(f"who mends progress in {region}", come, delay_ms)


def mend(world: World, region: str) -> None:
    """What had not been handled of such a shard is missing until it is repaired."""
    product = Product(world.process(region, "operator"))
    mended: list[str] = []
    if not _excuse_all(world, region):
        return
    with suppress(Killed, CountledgerError, ClientError):  # tried again at the end
        mended.extend(product.auditor.recover_progress())
    _excuse_all(world, region, now=True)
    world.tell(f"mended in {region}: {mended}")


def is_lost(world: World, region: str) -> bool:
    """Whether progress that somebody deleted is not there again."""
    items = world.copies[region][COUNTERS].items
    return any(one == region and key not in items for one, key in world.forgotten)


def _excuse_all(world: World, region: str, *, now: bool = False) -> bool:
    """While progress is lost, no total need be right until it is repaired; whether it is lost."""
    lost = is_lost(world, region)
    for account in world.auditor.ledger.accounts.values() if lost or now else ():
        account.excused[region] = world.schedule.now_ms, "the progress of a shard was lost"
    return lost


def deaf(world: World) -> None:
    """A bus or a topic takes nothing for a while: it refuses, says nothing, or is not there."""
    region, name = world.random.choice(world.regions), world.random.choice(["bus", "topic"])
    down = world.alarms[region].targets.down
    down[name] = world.random.choice(["refuses", "silent", "gone"])
    world.tell(f"the {name} of {region}: {down[name]}")

    def end() -> None:
        down.pop(name, None)

    world.schedule.at(world.random.random() ** 2 * HOUR_MS, end)


def _excuse(world: World, mapping: Mapping) -> None:
    """What the stream no longer keeps is in no total until that is repaired, and alerts nobody."""
    if mapping.name == "evaluator":
        world.auditor.alerts[mapping.region].slept = True
        return
    if world.ingest is not None and mapping is world.ingest.mapping:
        return  # its stream keeps them
    for log in mapping.stream.shards.values():
        for record in log.records:
            counter, key = record.key
            if key.startswith(keys.ENTRY_PREFIX):
                excused = world.auditor.ledger.accounts[counter].excused
                excused[mapping.region] = world.schedule.now_ms, "the stream was not read in time"


ACCIDENTS: Final[dict[str, Callable[[World], None]]] = {
    "partition": partition,
    "storm": storm,
    "split": split,
    "remake": remake,
    "outage": outage,
    "deaf": deaf,
    "forget": forget,
}
