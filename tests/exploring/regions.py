"""Two regions of a world: the ledger has a copy in each, and each copy's totals follow it at once.

A version of an item arrives in the other region in a step of its own, at any later moment, and in
any order; the later write wins. A version that is overtaken before it arrives never shows there.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, cast

from countledger.client import CountLedger
from countledger.infra.memory.tables import LEDGER, REGION
from tests.exploring.client import NO_ANSWER, Sending
from tests.exploring.followed import let_totals_follow
from tests.exploring.world import FAR, in_region

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from countledger.infra.memory.tables import Change
    from tests.exploring.client import ActorConnection
    from tests.exploring.world import World

# The number of the last write of an item, in each copy, while the copies differ in it.
_WRITES: Final = "writes"


def let_regions_replicate(world: World) -> None:
    """Another region, to which each write of the ledger travels by itself."""
    world.add_region(FAR)
    world.add(_WRITES, "place", "")
    for region in (REGION, FAR):
        world.tables[in_region(LEDGER, region)].watchers.append(partial(_note, world, region))
        let_totals_follow(world, region)
    world.steps.append(lambda: _arrivals(world))


def _other(region: str) -> str:
    return FAR if region == REGION else REGION


def _note(world: World, region: str, change: Change) -> None:
    """Number a write after those that either copy has seen."""
    if not change.local:
        return
    writes = world.tables[_WRITES]
    seen = (writes.items.get((place, ""), {"n": 0}) for place in _places(change.key))
    writes.store(((region, *change.key), ""), {"n": 1 + max(one["n"] for one in seen)})


def _places(key: tuple[str, str]) -> Iterator[tuple[str, str, str]]:
    return ((region, *key) for region in (REGION, FAR))


def _arrivals(world: World) -> Iterator[tuple[str, Callable[[], object]]]:
    """What may arrive: the last write of each item in which the copies differ."""
    writes = world.tables[_WRITES].items
    newest = {
        place[1:]: max(_places(place[1:]), key=lambda one: writes.get((one, ""), {"n": 0})["n"])
        for place, _ in sorted(writes)
    }
    for key, (region, *_) in newest.items():
        yield f"{key} arrives in {_other(region)}", partial(_arrive, world, region, key)


def _arrive(world: World, region: str, key: tuple[str, str]) -> None:
    """The copies agree on the item from now on."""
    here, there = (in_region(LEDGER, one) for one in (region, _other(region)))
    for place in _places(key):
        world.tables[_WRITES].store((place, ""), None)
    world.tables[there].store(key, world.tables[here].items.get(key), local=False)


def arrive(ledger: CountLedger) -> None:
    """In a setup: all that is under way arrives."""
    sender = cast("ActorConnection", ledger.connection).sender

    def all_of_it() -> None:
        while found := [*_arrivals(sender.world)]:
            for _, step in found:
                step()

    sender.send(Sending("everything arrives", all_of_it, writes=False, lost=NO_ANSWER))


def far(ledger: CountLedger) -> CountLedger:
    """The client of the same process for the other region."""
    made = CountLedger(ledger.connection.settings, session=ledger.connection.session)
    made.connection = ledger.connection.in_region(FAR)
    return made
