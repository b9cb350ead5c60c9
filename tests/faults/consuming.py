"""The operations of consumers and of compaction in the matrix."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast
from uuid import uuid4

from countledger.compaction.archive import ArchiveLocation, S3Archive
from countledger.compaction.compactor import Compactor
from countledger.compaction.deletion import RegionalTotals
from countledger.compaction.deletions import LedgerDeleter
from countledger.compaction.report import Retire, RunOutcome
from countledger.compaction.schedule import revision_of, trigger_name
from countledger.compaction.schedules import Schedules
from countledger.consumers.alerts.rule import Direction, Rule
from countledger.consumers.alerts.rules import Rules
from countledger.consumers.groups import Groups
from countledger.consumers.leftovers import Leftovers
from countledger.consumers.materializer import Materializer
from countledger.consumers.rankings import Rankings
from countledger.consumers.record import ShardName
from countledger.ledger import keys
from countledger.ledger.attributes import Item
from countledger.ledger.connection import Retries
from countledger.ledger.errors import NoSuchCounter, NoSuchGroup
from countledger.ledger.limits import DAY_MS, HOUR_MS
from countledger.ledger.message_queue import MessageQueue
from countledger.ledger.operations import Compare, Delete, Put, Query
from countledger.ledger.quarantine import (
    QuarantinedRecord,
    QuarantineNotices,
    QuarantineService,
    QuarantineSource,
    QuarantineStore,
)
from countledger.producers.event import Event
from countledger.producers.ingest.redrive import IngestRedrive
from tests.engines.clock import HandClock
from tests.faults.alerting import Telling, new_telling
from tests.faults.canary import WrongNumber
from tests.faults.play import Begin, Play, World, done, fresh, handled
from tests.faults.producing import entries_of, is_so, messages_of
from tests.faults.queue import Queue, new_queue
from tests.unit.alerts.evaluating import history, rule
from tests.unit.alerts.walk import expected
from tests.unit.consumers.records import record
from tests.unit.ledger.clocks import ManualClock

# ---- totals ----


def applying(*, malformed: bool = False) -> Begin:
    """A batch of six records of a counter is applied to its total; one of them may be malformed."""

    def begin(world: World, name: str, _retries: Retries) -> Play:
        counter, shard = f"fl:{name}", ShardName("faults", name)
        records = [record(10**24 + number, 7, counter=counter) for number in range(7)]
        queue: Queue = world.shared(_queue)
        if malformed:
            records[3] = {**records[3], "eventName": "UPSERT"}
        process = world.store.process(ManualClock(), dynamo=world.standard)
        materializer = Materializer(process, queue.quarantine)
        materializer.apply(records[:1], shard)  # the shard is known then
        told: set[str] = set()

        def act() -> object:
            return handled(materializer.apply(records[1:], shard))

        def effect() -> int:
            told.update(one["quarantine_id"] for one in queue.messages())
            total = int(world.store.totals().read(counter).value)
            if len(told) > malformed:
                raise WrongNumber(f"{len(told)} records are in quarantine")
            if malformed and len(told) < 1:
                return 0
            return (total - 7) // (35 if malformed else 42)

        clients = [world.standard.client, *([queue.client] if malformed else [])]
        return Play(act, effect, clients, lambda _told: act)

    return begin


@contextmanager
def _queue(world: World) -> Iterator[Queue]:
    with new_queue(world.store) as made:
        yield made


# ---- groups and rankings ----


def grouping(what: str, *, ranked: bool = False) -> Begin:
    """A group of two counters, of which one is the last to come or the first to go."""

    def begin(world: World, name: str, _retries: Retries) -> Play:
        world.namespaces.create("fl")
        names, group = [f"fl:{name}-{n}" for n in range(2)], f"g-{name}"
        groups = Groups(world.connection())
        groups.add(group, names[:1] if what == "add" else names)
        if ranked:
            groups.switch_ranking(group, on=True)
        ways: dict[str, Callable[[], object]] = {
            "add": lambda: groups.add(group, names[1:]),
            "remove": lambda: groups.remove(group, names[1:]),
            "rank": lambda: groups.switch_ranking(group, on=True),
            "unrank": lambda: groups.switch_ranking(group, on=False),
            "delete": lambda: groups.delete(group),
        }

        def effect() -> int:
            try:
                on, members = groups.get(group).ranked, [one.counter for one in groups.show(group)]
            except NoSuchGroup:
                on, members = False, []
            totals = [world.store.item(world.store.counters, keys.total_key(one)) for one in names]
            board = [
                one
                for one, item in zip(names, totals, strict=True)
                if "ranked_group" in (item or {})
            ]
            is_ranked = {"rank": True, "unrank": False}.get(what, ranked)
            wanted = {"add": names, "remove": names[:1], "delete": []}.get(what, names)
            places = wanted if is_ranked else []
            return int((members, board, on) == (wanted, places, is_ranked and what != "delete"))

        return Play.repeatable(done(ways[what]), effect, world.none)

    return begin


def ranking(*, on: bool) -> Begin:
    """The total of a namespace is ranked, or no more."""

    def begin(world: World, name: str, _retries: Retries) -> Play:
        namespace = f"r{name}"
        world.namespaces.create(namespace)
        # One total alone: with several, others are written at the time of the fault, or are not.
        where = keys.total_key(f"{namespace}:0")
        total = {"total": 1, "events": 1, "entries": 1, "version": 1}
        world.none.put(Put(world.store.counters, {**where, **total}))
        rankings = Rankings(world.connection(HandClock()))
        if not on:
            rankings.switch_on(namespace)

        def effect() -> int:
            item = world.store.item(world.store.counters, where) or {}
            return int(("ranked" in item) is on)

        switch = rankings.switch_on if on else rankings.switch_off
        return Play.repeatable(done(lambda: switch(namespace)), effect, world.none)

    return begin


# ---- namespaces and schedules ----


def _namespace_item(world: World, name: str) -> Item:
    return world.store.item(world.store.ledger, keys.namespace_key(f"n{name}")) or {}


def making_a_namespace(world: World, name: str, _retries: Retries) -> Play:
    """A namespace with a spread of its own."""
    namespaces = world.store.namespaces(dynamo=world.none)
    return Play.repeatable(
        done(lambda: namespaces.create(f"n{name}", spread=16)),
        is_so(lambda: _namespace_item(world, name).get("spread") == 16),
        world.none,
    )


def describing(world: World, name: str, _retries: Retries) -> Play:
    """A namespace gets another description."""
    namespaces = world.store.namespaces(dynamo=world.none)
    namespaces.create(f"n{name}")
    return Play.repeatable(
        done(lambda: namespaces.describe(f"n{name}", "likes")),
        is_so(lambda: _namespace_item(world, name).get("description") == "likes"),
        world.none,
    )


@contextmanager
def _schedules(world: World) -> Iterator[Schedules]:
    client: Any = world.store.connection.scheduler()
    group = f"faults-{fresh()}"
    client.create_schedule_group(Name=group)
    yield Schedules(
        world.connection(
            clients={"scheduler": client},
            schedule_group=group,
            dispatcher_arn="arn:aws:lambda:us-east-1:000000000000:function:f",
            scheduler_role_arn="arn:aws:iam::000000000000:role/r",
        )
    )
    client.delete_schedule_group(Name=group)


def scheduling(what: str) -> Begin:
    """The schedule of a namespace is created, changed or deleted, with its trigger."""

    def begin(world: World, name: str, _retries: Retries) -> Play:
        namespace = f"n{name}"
        schedules: Schedules = world.shared(_schedules)
        triggers, client = schedules.triggers, cast("Any", schedules.triggers.client)
        world.namespaces.create(namespace)
        if what != "create":
            schedules.create(namespace, every_ms=HOUR_MS)
        ways: dict[str, Callable[[], object]] = {
            "create": lambda: schedules.create(namespace, every_ms=HOUR_MS),
            "set": lambda: schedules.set(namespace, every_ms=2 * HOUR_MS),
            "delete": lambda: schedules.delete(namespace),
        }

        key = keys.schedule_key(namespace)

        def revision() -> str:
            return revision_of(world.standard.get(world.store.counters, key, consistent=True)) or ""

        act, before = done(ways[what]), revision()

        def effect() -> int:
            found, now = schedules.find(namespace), before if what == "delete" else revision()
            state = triggers.state(namespace, now)
            if what == "delete" or found is None or state != "enabled":
                return int(what == "delete" and found is None and state == "missing")
            name = {"Name": trigger_name(namespace, now), "GroupName": triggers.group}
            expression = client.get_schedule(**name)["ScheduleExpression"]
            wanted = "rate(1 hour)" if what == "create" else "rate(2 hours)"
            return int(found.expression == expression == wanted)

        return Play(act, effect, [world.none.client, client], lambda _told: act)

    return begin


# ---- alerts ----


def ruling(what: str) -> Begin:
    """An alert rule is created, changed or deleted; its effect is how many revisions came of it."""

    def begin(world: World, name: str, _retries: Retries) -> Play:
        table = world.store.counters
        # All rules are in one partition, and there is a limit of them.
        everything = Query(table, Compare("counter", "=", keys.ALERT_RULES))
        for item in [item for page in world.reads.pages(everything) for item in page]:
            world.reads.delete(Delete(table, {n: item[n] for n in ("counter", "part")}))
        rules = Rules(world.connection(HandClock()))
        made = Rule(
            name=name,
            prefix="",
            threshold=100,
            direction=Direction.RISING,
            evaluate_in=world.store.region,
        )
        if what != "create":
            rules.create(made)
        before = rules.number()
        ways: dict[str, Callable[[], object]] = {
            "create": lambda: rules.create(made),
            "set": lambda: rules.set(name, lambda one: replace(one, threshold=200)),
            "delete": lambda: rules.delete(name),
        }

        act, clients = done(ways[what]), (world.none, world.standard)
        return Play.repeatable(act, lambda: rules.number() - before, *clients)

    return begin


@contextmanager
def _telling(world: World) -> Iterator[Telling]:
    with new_telling(world.store, []) as made:
        yield made


def alerting(*services: int) -> Begin:
    """A batch that crosses thresholds is evaluated: to the bus, and to a topic.

    Args:
        services: whose requests meet faults: 0 the table, 1 the bus, 2 topics, 3 dead letters.
    """

    def begin(world: World, name: str, _retries: Retries) -> Play:
        telling: Telling = world.shared(_telling)
        telling.rules[:] = [
            rule(10, name="bus", revision="r1", prefix=name),
            rule(10, name="topic", revision="r2", rearm=5, target=telling.topic, prefix=name),
        ]
        batch = history([12, 3, 12], counter=f"{name}:c")
        wanted = set(expected(batch, telling.rules))
        found: set[str] = set()

        def act() -> object:
            return handled(telling.evaluator.apply(batch, "stream"))

        def effect() -> int:
            found.update(one["id"] for one in telling.arrived())
            found.update(telling.dead())
            if not found <= wanted:
                raise WrongNumber(f"too many: {sorted(found - wanted)}")
            return int(found == wanted)

        clients = [telling.clients[one] for one in services]
        return Play(act, effect, clients, lambda _told: act)

    return begin


# ---- quarantine ----


def redriving(world: World, name: str, _retries: Retries) -> Play:
    """A quarantined record of Kinesis is written to the ledger, and marked as handled."""
    counter, clock = f"fl:{name}", HandClock()
    process = world.store.process(clock, dynamo=world.standard)
    store = QuarantineStore(process)
    (one, *_) = messages_of(clock, counter, "key")
    kept = QuarantinedRecord(
        source=QuarantineSource.KINESIS,
        place=keys.quarantine_place(clock.now_ms(), name),
        where="shard",
        reason="r",
        kind="malformed",
        content=one.data,
        at_ms=clock.now_ms(),
        kept_at_ms=clock.now_ms(),
    )
    store.keep(kept)
    redrive = IngestRedrive(world.process("none", clock))
    queue: Queue = world.shared(_queue)
    queue.messages()  # of others; each would be looked up
    notices = QuarantineNotices(
        (MessageQueue(queue.client, queue.quarantine.queue.url, "q", wait_s=0),)
    )
    redrives = {QuarantineSource.KINESIS: redrive}
    service = QuarantineService(process, redrives, lambda _: notices)

    def act() -> object:
        (outcome,) = service.resend([kept.id], by="ann")
        if outcome.error is not None:
            return type(outcome.error).__name__
        return "done" if outcome.resolved else "not resolved"

    counted = entries_of(world, counter, 2)

    def effect() -> int:
        found = store.find(kept.id)
        return int(counted() == 1 and found is not None and found.handled is not None)

    clients = [world.none.client, world.standard.client]
    return Play(act, effect, clients, lambda _told: act)


# ---- compaction and deletion ----


@contextmanager
def _archive(world: World) -> Iterator[S3Archive]:
    bucket = f"archive-{uuid4().hex[:12]}"
    client = world.store.connection.objects()
    client.create_bucket(Bucket=bucket)
    yield S3Archive(client, ArchiveLocation.parse(f"s3://{bucket}/faults/"))


def _compactor(world: World, clock: HandClock, **more: Any) -> Compactor:  # noqa: ANN401 - handed on
    return Compactor(world.connection(clock), workers=1, **more)


def compacting(retire: Retire, *, archived: bool = False) -> Begin:
    """Four old entries are merged into the head, in two generations."""

    def begin(world: World, name: str, _retries: Retries) -> Play:
        counter, clock = f"fl:{name}", HandClock()
        world.recorder(clock=clock).record_many(Event(counter, 7) for _ in range(4))
        clock.move_ms(2 * DAY_MS)
        archive: S3Archive | None = world.shared(_archive) if archived else None
        compactor = _compactor(world, clock, retire=retire, archive=archive, covers_max=2)
        counted = entries_of(world, counter, 4)

        def act() -> object:
            report = compactor.compact(counter)
            if report.outcome is RunOutcome.FAILED:
                return type(report.error).__name__
            return str(report.outcome)

        def effect() -> int:
            if counted() != 1:
                raise WrongNumber(f"{counter}: {world.store.exact().read(counter)}")
            return int(world.store.entry_items(counter) == [])

        clients = [world.standard.client, *([archive.client] if archive else [])]
        return Play(act, effect, clients, lambda _told: act)

    return begin


def erasing(stage: str) -> Begin:
    """A ledger counter is marked, emptied or forgotten."""

    def begin(world: World, name: str, _retries: Retries) -> Play:
        counter, made = f"fl:{name}", HandClock()
        store, dynamo = world.store, world.standard
        world.recorder(clock=made).record_many(Event(counter, 7) for _ in range(2))
        total = {"total": 14, "events": 2, "entries": 2, "version": 1}
        key = keys.total_key(counter)
        dynamo.put(Put(store.counters, {**key, **total, "updated_at": made.now_ms()}))
        groups = Groups(world.connection(made))
        groups.add(f"g-{name}", [counter])

        def deleter(days: int) -> LedgerDeleter:
            clock = HandClock(made.at_ms + days * DAY_MS)
            compactor = _compactor(world, clock, retire=Retire.DELETE)
            tidy = Leftovers(world.connection(made)).delete
            return LedgerDeleter(
                compactor.connection,
                lambda _: RegionalTotals(groups.totals.item, lambda _: None, lambda _: None, tidy),
                compactor,
            )

        days = {"marked": 0, "deleted": 2, "forgotten": 4}
        for day in (one for one in days.values() if one < days[stage]):
            deleter(day).delete(counter)
        last = deleter(days[stage])

        def act() -> object:
            try:
                return str(last.delete(counter).stage)
            except NoSuchCounter:
                return "no such counter"

        def effect() -> int:
            found = (
                store.exact().read(counter).value,
                store.totals().read(counter, consistent=True).value,
            )
            if found not in [(14, 14), (0, 0)]:
                raise WrongNumber(f"{counter}: {found}")
            there = [
                one
                for table in (store.ledger, store.counters)
                for page in dynamo.pages(Query(table, Compare("counter", "=", counter)))
                for one in page
            ]
            if stage == "marked":
                return int(last.mark(counter) is not None)
            if stage == "deleted":
                return int(found == (0, 0) and not list(groups.of(counter)))
            return int(there == [] and last.mark(counter) is None)

        clients = [world.none.client, dynamo.client] if stage == "marked" else [dynamo.client]
        return Play(act, effect, clients, lambda _told: act)

    return begin
