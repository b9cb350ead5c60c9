"""The end of all poison: mended by hand, sent again; nothing waits any more, and no bell rings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.limits import MINUTE_MS
from countledger.ledger.quarantined import Source
from tests.simulation.compaction.world import Wrong
from tests.simulation.ledger_account import MOVED, STOCK
from tests.simulation.poison_operations import BY, COUNTER, desk_of, mend_one
from tests.simulation.product import Product
from tests.simulation.quiet import wait

if TYPE_CHECKING:
    from tests.simulation.client import Memory
    from tests.simulation.world import World

_ROUNDS: Final = 30
# Longer than a reader that died hides a message.
_HIDDEN_MS: Final = 3 * MINUTE_MS


def mend_all(world: World, memory: Memory) -> None:
    """Somebody mends by hand what was poisoned; until then no run of compaction can merge it."""
    while memory.poison:
        mend_one(world, memory, *memory.poison.pop())


def cure(world: World, memory: Memory) -> None:
    """Make all good; from then on the poisoned counter, and the stock, are ones like the others.

    Raises:
        Wrong: something stays in quarantine.
    """
    for region in world.regions:
        for _ in range(_ROUNDS):
            if _is_empty(world, region):
                break
            world.schedule.pause(_HIDDEN_MS)
            wait(world)
        else:
            raise Wrong(f"in quarantine for ever in {region}: {world.bells[region].bodies}")
    memory.free[COUNTER] = []
    for counter in sorted(world.auditor.ledger.accounts):
        if keys.namespace_of(counter) == MOVED:
            memory.free[counter] = []
    if world.auditor.ledger.accounts[STOCK].made:
        memory.free[STOCK] = []


def _is_empty(world: World, region: str) -> bool:
    """Send again what lies there; whether nothing is left."""
    desk = desk_of(Product(world.process(region, "the last nurse")))
    moves = [copy.id for copy in desk.list(Source.COUNTERS)]
    records = [copy.id for copy in desk.list(Source.LEDGER)]
    treated = [*desk.discard(moves, by=BY), *desk.resend(records, by=BY)]
    if not treated:
        desk.bells().silence(lambda copy_id: desk.show(copy_id).handled is not None)
    return all(one.settled for one in treated) and not world.bells[region].letters
