"""The evaluator's function in one region, with all that it reaches: rules, targets, letters."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from countledger.consumers.alert_handler import answer_of
from countledger.consumers.alerts.delivery import (
    QueueDeadLetters,
    Resender,
    ServicePublisher,
)
from countledger.consumers.alerts.delivery import Targets as TargetCheck
from countledger.consumers.alerts.evaluator import Evaluator
from countledger.consumers.alerts.rule_index import RuleCache
from countledger.consumers.alerts.rules import Rules
from countledger.consumers.alerts.service import Alerts, InitialScan
from countledger.consumers.quarantine import StoredQuarantine
from countledger.consumers.record import label_of
from countledger.consumers.total_writer import windows_of
from countledger.infra.local.mappings import record_filter
from countledger.infra.template import mapping_settings
from countledger.ledger.errors import CountledgerError
from countledger.ledger.limits import SECOND_MS
from countledger.ledger.message_queue import MessageQueue
from countledger.ledger.quarantine import QuarantineSource, QuarantineStore
from tests.simulation.connection import connection_of
from tests.simulation.mailbox import URL, Mailbox, MailboxClient
from tests.simulation.mapping import Mapping
from tests.simulation.targets import BUS, EventsClient, Targets, TopicsClient, topic_of

if TYPE_CHECKING:
    from collections.abc import Mapping as Map

    from tests.simulation.process import Process
    from tests.simulation.stream import SimulatedStream
    from tests.simulation.world import World

_LOGICAL_ID: Final = "EvaluatorMapping"


@dataclass
class Alarms:
    """What a region has for alerts.

    Attributes:
        targets: bus and topic.
        letters: the dead ones.
    """

    targets: Targets
    letters: Mailbox = field(default_factory=Mailbox)


def quarantine_of(world: World, process: Process, source: QuarantineSource) -> StoredQuarantine:
    """The quarantine as a process reaches it."""
    client: Any = MailboxClient(world.notices[process.region], process)
    copies = QuarantineStore(connection_of(process))
    return StoredQuarantine(copies, MessageQueue(client, URL, "the quarantine"), source)


def evaluator_mapping(world: World, region: str, stream: SimulatedStream) -> Mapping:
    """The mapping as it is deployed."""
    settings = mapping_settings(_LOGICAL_ID)
    return Mapping(
        world,
        region,
        "evaluator",
        stream,
        replace(settings, batch_size=world.shape.batch_size),
        record_filter(settings.filter_patterns),
        EvaluatorFunction(world),
    )


@dataclass(eq=False)
class EvaluatorFunction:
    """The function: environments that stay warm, each with what it knows of the rules.

    Attributes:
        world: where it runs.
        idle: environments in which nothing runs.
    """

    world: World
    idle: list[tuple[Process, Evaluator]] = field(default_factory=list)

    def __call__(self, event: dict[str, Any], process: Process) -> Map[str, Any]:
        """One invocation: in an environment that is free, or a new one; who dies takes it along."""
        warm = bool(self.idle) and self.world.random.random() < 0.9
        environment = self.idle.pop() if warm else (process, self._new(process))
        here, evaluator = environment
        records = event.get("Records") or []
        stream = label_of(records[0].get("eventSourceARN", "")) if records else ""
        try:
            outcome = evaluator.apply(records, stream)
        except CountledgerError:
            self.idle.append(environment)
            raise
        self.idle.append(environment)
        if outcome.published or outcome.failed:
            failed = [f"{place}: {error}" for place, error in outcome.failed.items()]
            self.world.tell(f"evaluator in {here.region}: told {outcome.published} {failed}")
        return answer_of(outcome, records)

    def _new(self, process: Process) -> Evaluator:
        parts = alerting(self.world, process)
        rules = RuleCache(Rules(connection_of(process)))
        quarantine = quarantine_of(self.world, process, QuarantineSource.COUNTERS)
        return Evaluator(
            connection_of(process),
            rules,
            parts.publisher,
            parts.letters,
            quarantine,
            windows=windows_of(connection_of(process)),
        )


@dataclass(frozen=True)
class Alerting:
    """The services of alerts, as one process has them."""

    targets: TargetCheck
    publisher: ServicePublisher
    letters: QueueDeadLetters
    resender: Resender
    initial_scan: InitialScan


def alerting(world: World, process: Process) -> Alerting:
    """Put them together."""
    alarms = world.alarms[process.region]
    events: Any = EventsClient(alarms.targets, process)
    topics: Any = TopicsClient(alarms.targets, process)
    queue: Any = MailboxClient(alarms.letters, process)
    here = process.region
    publisher = ServicePublisher(events, topics, BUS, process, world.random)
    letters = QueueDeadLetters.at(queue, URL)
    return Alerting(
        TargetCheck(publisher, (topic_of(here),), here, "aws"),
        publisher,
        letters,
        Resender(letters, publisher),
        InitialScan(connection_of(process), publisher, letters),
    )


def alerts_of(world: World, process: Process) -> Alerts:
    """The alerts of its region, for a process whose clock is not behind."""
    careful = replace(process, error_ms=max(process.error_ms, -SECOND_MS))
    services: Any = alerting(world, careful)
    return Alerts(connection_of(careful), services)
