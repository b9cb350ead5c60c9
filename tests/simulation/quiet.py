"""The quiet end: all faults stop; then nothing may be stuck, and every number must be right."""

from collections.abc import Callable
from typing import Final

from countledger.compaction.report import RunOutcome
from countledger.consumers.verify import Judgement
from countledger.ledger import keys
from countledger.ledger.limits import HOUR_MS, MINUTE_MS
from countledger.ledger.quarantine import QuarantineSource
from countledger.producers.event import Event
from countledger.producers.strict.outcome import Applied, BoundReached
from tests.simulation import quarantine_operations as malformed
from tests.simulation import strict_operations as strict
from tests.simulation.accidents import is_lost, mend
from tests.simulation.administrator_operations import check_ruled
from tests.simulation.alert_operations import run_initial_scan
from tests.simulation.buffer_operations import check_events, check_spools
from tests.simulation.claim_operations import check_claims
from tests.simulation.client import Memory
from tests.simulation.deletion_operations import (
    archive_as_found,
    check_deletions,
    check_emptied,
)
from tests.simulation.evaluating import alerts_of
from tests.simulation.hold_operations import check_holds
from tests.simulation.ingest import check_ingest
from tests.simulation.joint_operations import check_joint
from tests.simulation.moving_operations import check_imports
from tests.simulation.number_operations import check_numbers
from tests.simulation.product import Product
from tests.simulation.quota_operations import check_quotas
from tests.simulation.running_operations import NAMESPACE, accept
from tests.simulation.shape import COUNTERS, LEDGER
from tests.simulation.sums import Wrong
from tests.simulation.window_account import check_windows
from tests.simulation.world import World

# All that is under way must have come to its end by then.
_PATIENCE_MS: Final = 6 * HOUR_MS
_LOOK_MS: Final = MINUTE_MS
_ROUNDS: Final = 30
_CALM_LAG_MS: Final = 200


def calm_down(world: World) -> None:
    """No more faults; what was cut, switched off or throttled works again."""
    world.tell("calm")
    world.faults.calm, world.faults.storm = True, False
    world.replicator.lag_ms = min(world.replicator.lag_ms, _CALM_LAG_MS)
    world.replicator.straggler = 0
    world.replicator.heal()
    world.strong.lost.clear()
    for alarms in world.alarms.values():
        alarms.targets.down.clear()
    for mapping in world.mappings:
        mapping.switch(on=True)


def wait(world: World) -> None:
    """Until nothing is under way."""
    give_up_ms = world.schedule.now_ms + _PATIENCE_MS
    if any(is_lost(world, region) for region in world.regions):
        recover_progress(world)  # perhaps no record comes any more that would show it
    while left := _under_way(world):
        if world.schedule.now_ms > give_up_ms:
            raise Wrong(f"not quiet after {_PATIENCE_MS // HOUR_MS} h: {left}")
        recover_progress(world)
        world.schedule.pause(_LOOK_MS)


def _under_way(world: World) -> str:
    behind = [f"{one.name} in {one.region}" for one in world.mappings if one.behind]
    facts = {
        f"{world.late} late requests": world.late,
        f"{world.zombies} zombies": world.zombies,
        f"{world.replicator.under_way} versions": world.replicator.under_way,
        f"{len(world.queue.waiting)} + {world.queue.in_flight} messages": not world.queue.empty,
        f"the streams of {behind}": behind,
    }
    return ", ".join(text for text, is_so in facts.items() if is_so)


def recover_progress(world: World) -> None:
    """Shards whose progress was lost go on, whenever a process that stood still lets that show."""
    for region in world.regions:
        mend(world, region)


def check_quiet(world: World, memory: Memory) -> None:  # noqa: ARG001 - as the others
    """What the last ones sent has arrived."""
    wait(world)


def check_ledgers(world: World, memory: Memory) -> None:
    """In each region each exact sum and each total is the tally; a corrupt one after repair."""
    for region in world.regions:
        product = Product(world.process(region, "the last reader"))
        for counter in sorted(memory.free):
            account = world.auditor.ledger.accounts[counter]
            exact = product.exact.read(counter)
            world.auditor.ledger.check_end(counter, int(exact.value))
            if exact.entries != len(account.made):
                raise Wrong(f"{counter} in {region}: {exact.entries} entries, not {account.made}")
            if region in account.excused:
                done = product.auditor.repair(counter)
                world.tell(f"repair {counter} in {region}: {done.remedy}")
                if not done.healthy:
                    raise Wrong(f"{counter} in {region} cannot be repaired: {done}")
            total = product.totals.read(counter, consistent=True)
            if (total.value, total.entries) != (exact.value, exact.entries):
                raise Wrong(f"{counter} in {region}: {total}, and exactly {exact}")
            verdict = product.auditor.verify(counter)
            if verdict.verdict is not Judgement.EXACT:
                raise Wrong(f"{counter} in {region}: {verdict}")


def check_schedules(world: World, memory: Memory) -> None:
    """What was due is merged, without anybody asking for it."""
    product = Product(world.process(world.home, "the last runner"))
    schedule = product.schedules.find(NAMESPACE)
    if schedule is None:
        # A trigger that is left over is deleted by its next tick, which sends no work.
        made = world.queue.made
        world.schedule.pause(HOUR_MS)
        if world.scheduler.known or world.queue.made > made:
            raise Wrong(f"no schedule is left, but {world.scheduler.known} run")
        return
    # A crash may have left it without its trigger: the same call again finishes it.
    product.schedules.set(NAMESPACE, min_entries=schedule.min_entries)
    # Its own age, a sweep, a few of its rates, and messages that had to come again.
    world.schedule.pause(2 * world.shape.age_ms + HOUR_MS)
    wait(world)
    for counter in sorted(memory.free):
        if keys.namespace_of(counter) != NAMESPACE:
            continue
        account = world.auditor.ledger.accounts[counter]
        excused = world.home in account.excused
        left = len(_entries(world, world.home, counter))
        if left >= schedule.min_entries and not excused:
            raise Wrong(f"{left} entries of {counter} were never merged under {schedule}")


def check_compaction(world: World, memory: Memory) -> None:
    """Merged by hand nothing is left: no entry, no cover, in no region."""
    product = Product(world.process(world.home, "the last compactor"))
    world.schedule.pause(2 * world.shape.age_ms)
    for counter in sorted(memory.free):
        for _ in range(_ROUNDS):
            report = product.compactor().compact(counter)
            accept(report)
            wait(world)
            if report.outcome is RunOutcome.NOTHING:
                break
        else:
            raise Wrong(f"{counter} is never merged: {report}")
        for region in world.regions:
            left = _entries(world, region, counter)
            head = world.copies[region][LEDGER].items.get((counter, keys.HEAD), {})
            if left or head.get("covers"):
                raise Wrong(f"left behind in {region}: {left}, {head}")


def check_strict(world: World, memory: Memory) -> None:
    """Every value is what was applied; what is left can be taken, to the last."""
    product = Product(world.process(world.home, "the last seller"))
    for counter, (method, bins) in sorted(memory.strict.items()):
        if world.auditor.strict.accounts[counter].incarnation is None:
            # Who was to make it again has died.
            strict.make(product, counter, method, bins)
        shown = product.strict.show(counter)
        world.auditor.strict.check_end(counter, int(shown.value))
        if shown.upper is None or method == "set":
            continue  # of tokens there is no end but by their number
        room = int(shown.upper - shown.value)
        if room:
            outcome = product.strict.change(counter, room)
            if not isinstance(outcome, Applied):
                raise Wrong(f"{counter} of {method} had room for {room}: {outcome}")
        outcome = product.strict.change(counter, 1)
        if not isinstance(outcome, BoundReached):
            raise Wrong(f"{counter} of {method} was full: {outcome}")


def check_standing(world: World, memory: Memory) -> None:  # noqa: ARG001 - as the others
    """Where somebody asked for what stands beyond, and may have died, it is asked for again."""
    for region in world.regions:
        process = world.process(region, "the last to ask")
        asked = world.auditor.alerts[region].standing.asked
        for rule in alerts_of(world, process).list():
            if rule.name in asked:
                run_initial_scan(process, rule)


def check_goes_on(world: World, memory: Memory) -> None:
    """After all that, what is recorded counts as ever."""
    for region in world.regions:
        product = Product(world.process(region, "the last to record"))
        for counter, free in sorted(memory.free.items()):
            if free:
                product.recorder.record(Event(counter, 4 ** free.pop()))
    wait(world)


def check_alerts(world: World, memory: Memory) -> None:  # noqa: ARG001 - as the others
    """Dead letters are sent again; then every crossing was told, in every region."""
    wait(world)
    for region in world.regions:
        process = world.process(region, "the last one on duty")
        alerts, letters = alerts_of(world, process), world.alarms[region].letters
        for _ in range(_ROUNDS):
            for resent in alerts.resend():
                if resent.reason is not None:
                    raise Wrong(f"a dead letter stays in {region}: {resent}")
            if not letters.letters:
                break
            # Some are hidden by a reader that died.
            world.schedule.pause(MINUTE_MS)
        if letters.letters:
            raise Wrong(f"dead letters stay in {region}: {letters.bodies}")
        world.auditor.alerts[region].check_end()
        _check_told(world, region)


def _check_told(world: World, region: str) -> None:
    """Nothing lies in a state and was never told, unless nobody was promised anything."""
    for key, item in world.copies[region][COUNTERS].items.items():
        is_state = key[1].startswith(keys.ALERT_PREFIX)
        # Who asked for what stood there heard of no success, and it stands there no more.
        if is_state and not item["published"] and not item.get("from_scan"):
            raise Wrong(f"never told in {region}: {item}")


def check_quarantine(world: World, memory: Memory) -> None:  # noqa: ARG001 - as the others
    """Nothing that came by a table's stream was quarantined but what was malformed."""
    if world.shape.long or world.shape.deletes:
        return  # a shard whose progress is lost may wait for days until somebody rests no more
    streams = {
        keys.QUARANTINE_PREFIX + source
        for source in (QuarantineSource.LEDGER, QuarantineSource.COUNTERS)
    }
    for region in world.regions:
        items = world.copies[region][COUNTERS].items
        kept = [item for key, item in items.items() if key[0] in streams]
        if any(item.get("of_counter") != malformed.COUNTER for item in kept):
            raise Wrong(f"quarantined in {region}: {kept}")


def _entries(world: World, region: str, counter: str) -> list[str]:
    order = world.copies[region][LEDGER].partitions.get(counter, [])
    return [key for key in order if key.startswith(keys.ENTRY_PREFIX)]


ENDS: Final[tuple[Callable[[World, Memory], None], ...]] = (
    check_spools,
    check_quiet,
    check_emptied,
    check_ledgers,
    check_windows,
    check_ingest,
    check_imports,
    check_events,
    check_strict,
    check_holds,
    check_joint,
    check_ruled,
    check_numbers,
    check_claims,
    check_quotas,
    archive_as_found,
    check_schedules,
    check_compaction,
    check_deletions,
    check_goes_on,
    check_ledgers,
    check_windows,
    check_standing,
    check_alerts,
    check_quarantine,
)
