"""Operations of those who run the product: compact, verify, repair, schedule; and bad hands."""

from typing import Final

from countledger.compaction.report import CompactionReport, RunOutcome
from countledger.consumers.verify import Judgement, Remedy
from countledger.ledger import keys
from countledger.ledger.errors import (
    NamespaceUnknown,
    NoSuchSchedule,
    ScheduleExists,
    ServiceFailed,
)
from countledger.ledger.limits import MINUTE_MS
from tests.simulation.client import Client
from tests.simulation.ledger_account import EDITED, GONE, STOCK
from tests.simulation.ledger_operations import draw_any
from tests.simulation.shape import COUNTERS
from tests.simulation.sums import Wrong

NAMESPACE = "n"
# How often a total is deleted rather than edited by hand.
DELETED: Final = 0.3


def compact(client: Client) -> None:
    """A run by hand, with little time or much."""
    if client.region not in client.world.believers:
        return
    compactor = client.product.compactor()
    counter = draw_any(client)
    deadline_ms = client.process.now_ms() + client.random.choice([200, 10_000, 100_000])
    report = compactor.compact(counter, deadline_ms=deadline_ms)
    unknown = isinstance(report.error, NamespaceUnknown)  # it has not arrived there yet
    lost = report.outcome is RunOutcome.TAMPERED and counter in client.auditor.deletions.lost
    if not unknown and not lost:
        accept(report)
    client.tell(f"compact {counter}: {report.outcome} {report.merged} {report.detail}")


def accept(report: CompactionReport) -> None:
    """A run fails by the service alone."""
    failed = report.outcome is RunOutcome.FAILED and not isinstance(report.error, ServiceFailed)
    if failed or report.outcome is RunOutcome.TAMPERED:
        raise Wrong(f"{report}")


def verify(client: Client) -> None:
    """A verdict; drift is said only of a total that was corrupt."""
    counter = draw_any(client)
    accounts = client.auditor.ledger.accounts
    excused = set(accounts[counter].excused)  # a process may stand still after it has read
    verdict = client.product.auditor.verify(counter)
    client.tell(f"verify {counter}: {verdict.verdict} {verdict.proof}")
    excused |= set(accounts[counter].excused)
    if verdict.verdict is Judgement.UNREADABLE:
        raise Wrong(f"{verdict}")
    if verdict.verdict is Judgement.DRIFT and client.region not in excused:
        raise Wrong(f"drift where there is none: {verdict}")


def repair(client: Client) -> None:
    """A total that was corrupt becomes exact; no other is written."""
    began_ms = client.world.schedule.now_ms
    accounts = client.auditor.ledger.accounts
    counters = [*sorted(client.memory.free), STOCK]
    corrupt = [one for one in counters if client.region in accounts[one].excused]
    counter = client.random.choice(corrupt) if corrupt else draw_any(client)
    done = client.product.auditor.repair(counter)
    client.tell(f"repair {counter}: {done.remedy} {done.reason}")
    if done.remedy not in {Remedy.REPAIRED, Remedy.MADE}:
        return
    excused = client.auditor.ledger.accounts[counter].excused
    if client.region not in excused:
        raise Wrong(f"a total was repaired that was right: {done}")
    if excused[client.region][0] < began_ms:
        del excused[client.region]


def schedule(client: Client) -> None:
    """A schedule is made, changed, or deleted."""
    schedules = client.product.schedules
    every_ms = client.random.choice([2, 5, 10]) * MINUTE_MS
    try:
        if client.random.random() < 0.2:
            schedules.delete(NAMESPACE)
        elif schedules.find(NAMESPACE) is None:
            least = client.world.shape.min_entries
            schedules.create(NAMESPACE, every_ms=every_ms, min_entries=least)
        else:
            schedules.set(NAMESPACE, every_ms=every_ms)
    except (ScheduleExists, NoSuchSchedule) as error:
        client.tell(f"schedule: {error}")


def remake_schedule(client: Client) -> None:
    """A schedule is made and deleted again while requests for it are under way."""
    for _ in range(client.random.randint(1, 3)):
        schedules = client.product.schedules
        try:
            if client.random.random() < 0.5:
                client.tell(f"schedule deleted: {schedules.delete(NAMESPACE)}")
            else:
                every_ms = client.random.choice([1, 2]) * MINUTE_MS
                schedules.create(NAMESPACE, every_ms=every_ms)
                client.tell("schedule created")
        except ScheduleExists as error:
            client.tell(f"schedule: {error}")
        client.process.sleep_ms(client.random.random() * client.world.shape.life_ms)


def spoil(client: Client) -> None:
    """Somebody edits a total by hand, or deletes it: verify must see that, and repair mend it."""
    counter = draw_any(client)
    table = client.world.copies[client.region][COUNTERS]
    key = (counter, keys.TOTAL)
    there = table.items.get(key)
    if there is None or key in table.locked:
        return
    auditor = client.auditor
    excused = auditor.ledger.accounts[counter].excused
    gone = client.random.random() < DELETED
    excused[client.region] = client.world.schedule.now_ms, GONE if gone else EDITED
    auditor.by_hand = True
    table.store(key, None if gone else {**there, "total": there["total"] + 7})
    auditor.by_hand = False
    client.tell(f"total of {counter} {'deleted' if gone else 'edited'} by hand")
