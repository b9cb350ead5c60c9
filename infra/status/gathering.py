"""Gathers the facts of a stack from its services. What it may not see is a fact as well."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from countledger.compaction.report import LastRunStore
from countledger.consumers.audit import ForeignItems
from countledger.infra.deploy.quotas import read_quotas
from countledger.infra.local.mappings import PUMPED_TAG
from countledger.infra.status.facts import (
    Facts,
    IteratorFact,
    MappingFact,
    QuarantinedFact,
    QueueFact,
    ScheduleFact,
    StackFact,
    alarms_of,
    measured,
)
from countledger.infra.status.regions import freshness_fact, region_fact
from countledger.infra.status.silence import silent_facts
from countledger.infra.status.windows import WindowsFact, windows_facts
from countledger.ledger import keys
from countledger.ledger.clock import Clock, SystemClock, to_ms
from countledger.ledger.departure import guarded
from countledger.ledger.errors import (
    AccessDenied,
    CallCancelled,
    CorruptItem,
    RequestRejected,
    TableNotFound,
)
from countledger.ledger.quarantine import QuarantineSource
from countledger.ledger.service_errors import translated
from countledger.producers.strict.release import OverdueHolds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from concurrent.futures import Future
    from typing import TypeVar

    from countledger import CountLedger
    from countledger.ledger.connection import Connection

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
    """One look at a stack.

    Attributes:
        failures: what ended it, the first one first.
    """

    def __init__(self, client: CountLedger, clock: Clock | None = None) -> None:
        """Prepare a look; no call is made yet.

        Args:
            client: of the stack.
            clock: gives the time.
        """
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
        alert rules, and one for each of the newest 100 rules on one counter.

        Raises:
            StackNotFound: there is no such stack.
            CountledgerError: a service failed. What is forbidden or does not exist, such as a
                table that was deleted, or an item that was corrupt by hand, is reported in the
                facts instead.
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
        return StackFact(
            name,
            found["StackStatus"],
            found.get("StackStatusReason", ""),
            to_ms(found.get("LastUpdatedTime") or found["CreationTime"]),
            parameters.get("CodeKey", ""),
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
        return OverdueHolds(self._client.strict.context).oldest_ms()

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
        dynamo = self._connection.dynamo("standard")
        book = LastRunStore(dynamo, self._connection.setting("counters_table"), self._clock)
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
