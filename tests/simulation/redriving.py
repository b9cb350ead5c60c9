"""The end of the quarantine: items are mended, records redriven, and no message is left."""

from typing import Final

from countledger.ledger import keys
from countledger.ledger.limits import MINUTE_MS
from countledger.ledger.quarantine import QuarantineSource
from tests.simulation.client import Memory
from tests.simulation.ledger_account import MOVED, STOCK
from tests.simulation.product import Product
from tests.simulation.quarantine_operations import BY, COUNTER, mend_one, service_of
from tests.simulation.quiet import wait
from tests.simulation.sums import Wrong
from tests.simulation.world import World

_ROUNDS: Final = 30
# Longer than a reader that died hides a message.
_HIDDEN_MS: Final = 3 * MINUTE_MS


def mend_all(world: World, memory: Memory) -> None:
    """Somebody mends by hand what was malformed; until then no run of compaction can merge it."""
    while memory.malformed:
        mend_one(world, memory, *memory.malformed.pop())


def redrive_all(world: World, memory: Memory) -> None:
    """Make all good; then the malformed counter, and the stock, are counters like the others."""
    for region in world.regions:
        for _ in range(_ROUNDS):
            if _is_empty(world, region):
                break
            world.schedule.pause(_HIDDEN_MS)
            wait(world)
        else:
            raise Wrong(f"in quarantine for ever in {region}: {world.notices[region].bodies}")
    memory.free[COUNTER] = []
    for counter in sorted(world.auditor.ledger.accounts):
        if keys.namespace_of(counter) == MOVED:
            memory.free[counter] = []
    if world.auditor.ledger.accounts[STOCK].made:
        memory.free[STOCK] = []


def _is_empty(world: World, region: str) -> bool:
    """Send again what lies there; whether nothing is left."""
    service = service_of(Product(world.process(region, "the last nurse")))
    moves = [copy.id for copy in service.list(QuarantineSource.COUNTERS)]
    records = [copy.id for copy in service.list(QuarantineSource.LEDGER)]
    treated = [*service.discard(moves, by=BY), *service.resend(records, by=BY)]
    if not treated:
        notices = service.notices(service.connection)
        notices.delete_handled(lambda name: service.show(name).handled is not None)
    return all(one.resolved for one in treated) and not world.notices[region].letters
