"""Gathers the facts of a stack from its services. What it may not see is a fact as well."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from countledger.compaction.report import LastRunStore
from countledger.consumers.alerts.service import SilenceReader
from countledger.consumers.audit import Auditor, ForeignItems
from countledger.consumers.proof import proven_freshness
from countledger.consumers.region_state import Phase, RegionStateStore
from countledger.consumers.verify import Judgement
from countledger.infra.deploy.account_limits import read_quotas
from countledger.infra.deploy.region_checks import replicas_of
from countledger.infra.local.mappings import PUMPED_TAG
from countledger.infra.status.facts import (
    Facts,
    FreshnessFact,
    IteratorFact,
    MappingFact,
    QuarantinedFact,
    QueueFact,
    ScheduleFact,
    StackFact,
    alarms_of,
    measured,
)
from countledger.ledger import keys
from countledger.ledger.calendar import rules_of, rules_version
from countledger.ledger.clock import Clock, SystemClock, to_ms
from countledger.ledger.departure import guarded
from countledger.ledger.errors import (
    AccessDenied,
    BadSetting,
    CallCancelled,
    CorruptItem,
    RequestRejected,
    StackNotFound,
    TableNotFound,
    Unreachable,
)
from countledger.ledger.namespace import Namespaces
from countledger.ledger.operations import Compare, Scan
from countledger.ledger.quarantine import QuarantineSource
from countledger.ledger.service_errors import translated
from countledger.producers.strict.release import OverdueHolds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from concurrent.futures import Future
    from typing import TypeVar

    from countledger import CountLedger
    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import OnCorrupt
    from countledger.ledger.connection import Connection
    from countledger.ledger.windows import WindowSetting


# The rules on one counter that had crossed before they were effective, as facts of a stack.


RULES_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class SilentFact:
    """A counter that had passed the threshold, or step, of its rule before that was effective."""

    rule: str
    counter: str
    value: Amount
    passed: Amount
    effective_at_ms: int


def silent_facts(client: CountLedger) -> tuple[SilentFact, ...] | None:
    """Those of the newest 100 rules on one counter; None: rules and totals may not be read.

    A read unit for each 4 KB of rules, and one for each of those. The stack's policy of status does
    not allow it, because it shows values of counters; those of readers and operators do.
    """
    try:
        return tuple(_silent(client))
    except AccessDenied:
        return None


def _silent(client: CountLedger) -> Iterator[SilentFact]:
    rules = client.alerts.list()
    watched = [(one, one.counter) for one in rules if one.counter is not None]
    newest = sorted(watched, key=lambda one: one[0].effective_from_ms)[-RULES_MAX:]
    for one in SilenceReader(client.connection).silent(newest):
        from_ms = one.rule.effective_from_ms
        yield SilentFact(one.rule.name, one.counter, one.value, one.passed, from_ms)


# The windows of the namespaces, as facts of a stack.


@dataclass(frozen=True, slots=True)
class WindowsFact:
    """The newest windows of a namespace.

    Attributes:
        tzdata: the version of the rules of that zone that they follow.
        newer: the version of the installed rules, if that is later and has other rules for the
            zone; else None.
    """

    namespace: str
    by: str
    time_zone: str
    tzdata: str
    newer: str | None
    from_at_ms: int
    until_at_ms: int | None


def windows_facts(client: CountLedger, on_corrupt: OnCorrupt) -> Iterator[WindowsFact]:
    """The windows of each namespace that has or had any: half a read unit for each namespace."""
    for namespace, one in client.window_settings.list(on_corrupt=on_corrupt):
        yield WindowsFact(
            namespace,
            str(one.finest),
            one.zone,
            one.rules_version,
            _newer_rules(one),
            one.from_ms,
            one.ended_ms,
        )


def _newer_rules(setting: WindowSetting) -> str | None:
    installed = rules_version()
    if setting.ended_ms is not None or installed <= setting.rules_version:
        return None
    try:
        return installed if rules_of(setting.zone) != setting.rules else None
    except BadSetting:
        return None  # the zone has another name now: its rules stay as they are


# The regions of a stack: their replicas of the ledger, their stacks, and how late they are.


_NO_STACK = "no stack"
_SEGMENTS = 8
_PAGE = 500
_HAS_TOTAL = Compare("part", "=", keys.TOTAL)
_WRONG = frozenset({Judgement.DRIFT, Judgement.UNREADABLE})


@dataclass(frozen=True, slots=True)
class RegionFact:
    """A region, and the home that its stack names; no `since_ms`: it never joined."""

    name: str
    home: str
    phase: Phase
    since_ms: int | None


@dataclass(frozen=True, slots=True)
class RegionView:
    """A region of the ledger, as seen from another one.

    Attributes:
        replica: the status of its replica of the ledger, as `ACTIVE`; `missing`: there is none.
        state: `ready`, `rebuilding`, `no stack`, or why it could not be read.
        freshness: how far its totals are; None: it could not be read.
        drift: the totals of some counters against the region's ledger; None: none was compared.
    """

    name: str
    replica: str
    home: bool
    state: str
    freshness: FreshnessFact | None = None
    drift: RegionDrift | None = None


class RegionDrift(NamedTuple):
    """What a comparison found; drifted totals are wrong, or cannot be read."""

    compared: int
    drifted: tuple[str, ...]


def drift_of(connection: Connection, number: int, random: Random) -> RegionDrift:
    """Verify a few counters of a region, chosen from one page of its totals.

    Reads up to 4 MB of the totals to find them, and then all entries of each. A total that is late
    is no drift, and one that could not be compared now is not counted.
    """
    dynamo, table = connection.dynamo("standard"), connection.setting("counters_table")
    segments = list(range(_SEGMENTS))
    random.shuffle(segments)
    namespaces = Namespaces(connection)
    found: list[str] = []
    for segment in segments:
        page = dynamo.page(
            Scan(table, _HAS_TOTAL, ("counter",), segment, _SEGMENTS, page_size=_PAGE)
        )
        names = (str(item["counter"]) for item in page.items)
        found += (one for one in names if namespaces.is_of_a_ledger(one))
        if len(found) >= number:
            break
    chosen = random.sample(sorted(found), min(number, len(found)))
    verdicts = list(Auditor(connection).verify_many(chosen))
    wrong = tuple(one.counter for one in verdicts if one.verdict in _WRONG)
    exact = sum(one.verdict is Judgement.EXACT for one in verdicts)
    return RegionDrift(exact + len(wrong), tuple(sorted(wrong)))


def region_fact(connection: Connection) -> RegionFact:
    """The state of a connection's region: one read unit."""
    state = RegionStateStore(connection).read()
    home = connection.setting("home_region")
    return RegionFact(connection.region, home, state.phase, state.since_ms)


def freshness_fact(connection: Connection) -> FreshnessFact:
    """How far the totals of a connection's region are.

    One read unit for each shard of the stream; it also reads the stream where totals are behind.
    """
    fresh = proven_freshness(connection)
    return FreshnessFact(fresh.handled_through_ms, fresh.waiting_since_ms, len(fresh.idle))


def views_of(connection: Connection, sample: int = 0) -> Iterator[RegionView]:
    """Each region of the ledger, that of the connection first. A few calls for each of them.

    What cannot be read of a region is said in its state, so one that is cut off hides no other. A
    `sample` of the counters of each is verified, at what `drift_of` costs; of a region that is
    rebuilding none is.
    """
    home = connection.setting("home_region")
    for name, status in replicas_of(connection).items():
        view = RegionView(name, status, name == home, _NO_STACK)
        there = connection.in_region(name)
        try:
            fact = region_fact(there)
            view = replace(view, state=str(fact.phase), freshness=freshness_fact(there))
            if sample and fact.phase is Phase.READY:
                view = replace(view, drift=drift_of(there, sample, Random()))  # noqa: S311 - a sample
            yield view
        except StackNotFound:
            yield view
        except (AccessDenied, Unreachable) as error:
            yield replace(view, state=f"unknown: {error}")


if TYPE_CHECKING:
    T = TypeVar("T")

# Beyond that "many" is all that a person wants to know.
DUE_MAX: Final = 1000
QUARANTINED_MAX: Final = 100
# What is reported in place of the facts, and ends nothing.
_SHOWN: Final = (AccessDenied, CorruptItem, TableNotFound, RequestRejected)
_MAPPING: Final = "AWS::Lambda::EventSourceMapping"
_QUEUE: Final = "AWS::SQS::Queue"
_ALARM: Final = "AWS::CloudWatch::Alarm"
# Each of which reads a stream, whose age CloudWatch measures.
_FUNCTIONS: Final[tuple[str, ...]] = ("Materializer", "Evaluator", "IngestFunction")
# Threads that look at the same time.
_READERS: Final = 8


class Gathering:
    """One look at a stack."""

    def __init__(self, client: CountLedger, clock: Clock | None = None) -> None:
        self._client = client
        self._connection: Connection = client.connection
        self._clock = clock or SystemClock()
        self._unseen: dict[str, str] = {}
        self.failures: list[BaseException] = []

    def facts(self) -> Facts:
        """Look at everything: some twenty calls, up to eight at a time.

        When one fails, no other request leaves: the error is raised as soon as the requests that
        are under way have ended, each within its own time-outs.

        Half a read unit for each namespace and for its windows; eight and more for the due counters
        of each schedule, a half for its last run, and one if its trigger is missing; a half for
        each 4 KB of what is quarantined, eight for expired holds; a read unit for each 4 KB of
        alert rules, and one for each of the newest 100 rules on one counter. What is forbidden or
        does not exist, such as a table that was deleted, or an item that was corrupt by hand, is
        reported in the facts, and no error.
        """
        stack = self._see("stack", self._stack, None)
        pool = ThreadPoolExecutor(_READERS, "countledger-status")
        try:
            return self._gathered(stack, pool)
        except BaseException as error:
            self.failures.append(error)
            if isinstance(error, CallCancelled):
                raise self.failures[0] from None
            raise
        finally:
            pool.shutdown(cancel_futures=True)

    def _gathered(self, stack: StackFact | None, pool: ThreadPoolExecutor) -> Facts:
        def see(what: str, look: Callable[[], T], nothing: T) -> Future[T]:
            return pool.submit(self._see, what, look, nothing)

        def rows(what: str, look: Callable[[], Iterable[T]]) -> Future[tuple[T, ...]]:
            return pool.submit(self._see, what, lambda: tuple(look()), ())

        region = see("region", partial(region_fact, self._connection), None)
        freshness = see("freshness", partial(freshness_fact, self._connection), None)
        schedules = rows("schedules", self._schedules)
        windows = rows("windows", self._windows)
        quarantined = rows("quarantine", self._quarantined)
        overdue_holds_ms = see("holds", self._overdue_holds_ms, 0)
        silent = see("alert rules", partial(silent_facts, self._client), None)
        foreign = see("last audit", partial(self._foreign, stack), ForeignItems())
        quotas = pool.submit(self._read, partial(read_quotas, self._connection))
        resources: dict[str, dict[str, str]] = self._see("resources", self._resources, {})
        own, pumped = resources.get(_MAPPING, {}), stack.pumped if stack else ()
        mappings = rows("mappings", partial(self._mappings, own, pumped))
        made = resources.get(_ALARM, {})
        alarms = rows("alarms", partial(alarms_of, self._connection, made))
        queues, iterators = self._queues_and_ages(resources)
        return Facts(
            at_ms=self._clock.now_ms(),
            stack=stack,
            mappings=mappings.result(),
            iterators=iterators,
            queues=queues,
            alarms=alarms.result(),
            region=region.result(),
            freshness=freshness.result(),
            schedules=schedules.result(),
            windows=windows.result(),
            quarantined=quarantined.result(),
            overdue_holds_ms=overdue_holds_ms.result(),
            silent=silent.result(),
            foreign=foreign.result(),
            quotas=quotas.result(),
            unseen=dict(sorted(self._unseen.items())),
        )

    def _queues_and_ages(
        self, resources: Mapping[str, Mapping[str, str]]
    ) -> tuple[tuple[QueueFact, ...], tuple[IteratorFact, ...]]:
        ids = {name: made for kind in resources.values() for name, made in kind.items()}
        urls = resources.get(_QUEUE, {})
        functions = {name: ids[name] for name in _FUNCTIONS if name in ids}
        ages_ms, iterators = self._read(partial(measured, self._connection, urls, functions))
        return self._see("queues", lambda: tuple(self._queues(urls, ages_ms)), ()), iterators

    def _see(self, what: str, look: Callable[[], T], nothing: T) -> T:
        try:
            return self._read(look)
        except _SHOWN as error:
            self._unseen[what] = str(error)
            return nothing

    def _read(self, look: Callable[[], T]) -> T:
        """Read while no other read has failed."""
        try:
            with guarded(self._go_on):
                return look()
        except (*_SHOWN, CallCancelled):
            raise
        except BaseException as error:
            self.failures.append(error)
            raise

    def _go_on(self) -> None:
        if self.failures:
            raise CallCancelled("another read of the status has failed")

    def _stack(self) -> StackFact:
        name = self._connection.settings.stack_name
        # First, because its error for a missing stack is the clearest.
        _ = self._connection.outputs
        with translated(f"DescribeStacks of {name!r}"):
            found: Any = self._connection.stacks().describe_stacks(StackName=name)["Stacks"][0]
        parameters = {
            one["ParameterKey"]: one.get("ParameterValue", "")
            for one in found.get("Parameters", [])
        }
        tags = {one["Key"]: one["Value"] for one in found.get("Tags", [])}
        outputs = {one["OutputKey"]: one["OutputValue"] for one in found.get("Outputs", [])}
        return StackFact(
            name,
            found["StackStatus"],
            found.get("StackStatusReason", ""),
            to_ms(found.get("LastUpdatedTime") or found["CreationTime"]),
            outputs.get("CodeKey", ""),
            tuple(tags.get(PUMPED_TAG, "").split()),
            parameters,
            self._connection.outputs.get("HttpApiUrl", ""),
        )

    def _resources(self) -> dict[str, dict[str, str]]:
        """Kind -> name in the template -> physical id."""
        name = self._connection.settings.stack_name
        found: dict[str, dict[str, str]] = {}
        with translated(f"ListStackResources of {name!r}"):
            pages = self._connection.stacks().get_paginator("list_stack_resources")
            for page in pages.paginate(StackName=name):
                for one in page["StackResourceSummaries"]:
                    kind = found.setdefault(one["ResourceType"], {})
                    kind[one["LogicalResourceId"]] = one.get("PhysicalResourceId", "")
        return found

    def _mappings(self, ids: Mapping[str, str], pumped: Collection[str]) -> Iterator[MappingFact]:
        client = self._connection.functions()
        for name, made in sorted(ids.items()):
            try:
                with translated(f"GetEventSourceMapping of {name}"):
                    one = client.get_event_source_mapping(UUID=made)
            except TableNotFound:  # what any service says of what is not there
                yield MappingFact(name, made, "missing", "")
            else:
                result = one.get("LastProcessingResult", "")
                yield MappingFact(name, made, one["State"], result, name in pumped)

    def _queues(self, urls: Mapping[str, str], ages_ms: Mapping[str, int]) -> Iterator[QueueFact]:
        client = self._connection.queues()
        for name, url in sorted(urls.items()):
            with translated(f"GetQueueAttributes of {name}"):
                one = client.get_queue_attributes(
                    QueueUrl=url,
                    AttributeNames=[
                        "ApproximateNumberOfMessages",
                        "ApproximateNumberOfMessagesNotVisible",
                    ],
                )["Attributes"]
            yield QueueFact(
                name,
                int(one["ApproximateNumberOfMessages"]),
                int(one["ApproximateNumberOfMessagesNotVisible"]),
                ages_ms.get(name),
            )

    def _quarantined(self) -> Iterator[QuarantinedFact]:
        now_ms = self._clock.now_ms()
        for source in QuarantineSource:
            note = partial(self._note, f"quarantine of {source}")
            service = self._client.quarantine
            waiting = list(service.list(source, limit=QUARANTINED_MAX, on_corrupt=note))
            if waiting:
                oldest_ms = min(one.kept_at_ms for one in waiting)
                yield QuarantinedFact(
                    str(source), len(waiting), QUARANTINED_MAX, max(0, now_ms - oldest_ms)
                )

    def _overdue_holds_ms(self) -> int:
        if not self._is_home:
            return 0
        return OverdueHolds(self._client.connection).oldest_ms()

    def _windows(self) -> Iterator[WindowsFact]:
        yield from windows_facts(self._client, partial(self._note, "windows"))

    def _foreign(self, stack: StackFact | None) -> ForeignItems:
        """What the audit of the stack stored at the end of its last walk: half a read unit."""
        mode = stack.parameters.get("AuditMode") if stack else None
        if mode is None:
            return ForeignItems()
        table = self._connection.setting("counters_table")
        item = self._connection.dynamo("standard").get(table, keys.bookmark_key(mode)) or {}
        return ForeignItems(int(item.get("foreign", 0)), str(item.get("foreign_first", "")))

    def _schedules(self) -> Iterator[ScheduleFact]:
        if not self._is_home:
            return  # schedules and due counters are the home region's
        book = LastRunStore(self._connection)
        for one in self._client.schedules.list(on_corrupt=partial(self._note, "schedule")):
            due = sum(1 for _ in islice(self._client.due(one.namespace), DUE_MAX))
            state = self._client.schedules.state(one)
            last = self._see(f"run of {one.namespace}", partial(book.last, one.namespace), None)
            yield ScheduleFact(one, state, due, DUE_MAX, last)

    @property
    def _is_home(self) -> bool:
        return self._connection.setting("home_region") == self._connection.region

    def _note(self, what: str, error: CorruptItem) -> None:
        """One item of several could not be read; the others are reported all the same."""
        sort = "" if error.key is None else " ".join(error.key)
        self._unseen[f"{what} {sort}".rstrip()] = str(error)
