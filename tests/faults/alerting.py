"""An evaluator on the embedded engine: its state in the table, its alerts through services.

Alerts of the bus arrive in a queue by a rule of EventBridge, those of a topic by a subscription.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import uuid4

from countledger.consumers.alerts.delivery import (
    DeadLetter,
    QueueDeadLetters,
    ServicePublisher,
    decode_dead_letter,
)
from countledger.consumers.alerts.evaluator import EvaluationOutcome, Evaluator
from countledger.consumers.alerts.rule import Rule, Topic
from countledger.consumers.alerts.rule_index import RuleIndex
from countledger.consumers.record import find
from tests.engines.store import KeptRecords, Record, Store
from tests.faults.canary import WrongNumber
from tests.faults.queue import listening, taken_out
from tests.unit.connections import through
from tests.unit.ledger.clocks import NOW_MS, ManualClock

# More than any test grants faults for; who needs more is blocked.
_DELIVERIES = 10


@dataclass
class Telling:
    """An evaluator, and where its alerts arrive.

    Attributes:
        store: the tables.
        evaluator: through clients of its own.
        rules: that it knows.
        topic: of SNS.
        letters: the dead ones.
        quarantine: records that can never be judged.
    """

    store: Store
    rules: list[Rule]
    topic: Topic
    letters: QueueDeadLetters
    queue_url: str
    quarantine: KeptRecords = field(default_factory=KeptRecords)

    def __post_init__(self) -> None:
        """One evaluator; another process would have another."""
        self.evaluator = self.new_evaluator()

    def index(self) -> RuleIndex:
        """The rules, looked up as the product does."""
        return RuleIndex(self.rules)

    def new_evaluator(self) -> Evaluator:
        """An evaluator of another process: it shares nothing but what is stored."""
        connection = self.store.connection
        publisher = ServicePublisher(
            connection.events(),
            connection.topics(),
            "default",
            clock=ManualClock(),
            random=Random(7),  # noqa: S311 - jitter
        )
        letters = QueueDeadLetters.at(connection.queues(), self.letters.queue.url)
        dynamo = self.store.dynamo()
        here = through(connection, dynamo, dynamo, ManualClock(NOW_MS))
        return Evaluator(here, self, publisher, letters, self.quarantine)

    @property
    def clients(self) -> tuple[Any, ...]:
        """Every client of the evaluator."""
        publisher: Any = self.evaluator.publisher
        letters: Any = self.evaluator.dead_letters
        dead_letters = letters.queue.client
        table = self.evaluator.connection.retrying.client
        return (table, publisher.events, publisher.topics, dead_letters)

    def deliver(self, records: Sequence[Record]) -> EvaluationOutcome:
        """Deliver a batch until all of it is handled, from the checkpoint each time."""
        rest = list(records)
        for _ in range(_DELIVERIES):
            outcome = self.evaluator.apply(rest, "stream")
            if outcome.retry_from is None:
                return outcome
            rest = rest[rest.index(find(rest, outcome.retry_from)) :]
        raise WrongNumber(f"blocked: {outcome.failed}")

    def arrived(self) -> list[dict[str, Any]]:
        """The alerts that came through the bus or the topic, taken out; doubles included."""
        return [
            said["detail"] if "detail" in said else json.loads(said["Message"])
            for said in taken_out(self.letters.queue.client, self.queue_url)
        ]

    def letters_left(self) -> list[DeadLetter]:
        """The dead letters; they stay."""
        with self.letters.queue.reader() as reader:
            return [decode_dead_letter(message.body) for message in reader]

    def dead(self) -> list[str]:
        """The ids of the dead letters, taken out."""
        found: list[str] = []
        with self.letters.queue.reader() as reader:
            for message in reader:
                found.append(decode_dead_letter(message.body).alert.id)
                reader.delete(message)
        return found

    def expect(self, ids: Iterable[str]) -> None:
        """Exactly these alerts were told, each at least once.

        Raises:
            WrongNumber: others, or not all.
        """
        told = {one["id"] for one in self.arrived()} | set(self.dead())
        wanted = set(ids)
        if told != wanted:
            raise WrongNumber(f"lost {sorted(wanted - told)}, too many {sorted(told - wanted)}")


@contextmanager
def new_telling(store: Store, rules: list[Rule]) -> Iterator[Telling]:
    """Make queues, a rule of the bus and a topic; take them away at the end."""
    connection = store.connection
    sqs: Any = connection.queues()
    dead = sqs.create_queue(QueueName=f"t{uuid4().hex[:12]}-dead")["QueueUrl"]
    letters = QueueDeadLetters.at(sqs, dead, wait_s=0)
    with listening(sqs, connection.events(), connection.topics()) as (url, topic):
        yield Telling(store, rules, Topic(topic), letters, url)
    sqs.delete_queue(QueueUrl=dead)
