"""An evaluator in memory: its rules, its table, its targets, and the stream of totals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from countledger.consumers.alerts.delivery import DeadLetter, encode_dead_letter
from countledger.consumers.alerts.evaluator import EvaluationOutcome, Evaluator
from countledger.consumers.alerts.message import Alert, FailedAlert, body_of
from countledger.consumers.alerts.rule import Direction, Rule, Target
from countledger.consumers.alerts.rule_index import RuleIndex
from countledger.consumers.total_writer import windows_of
from countledger.ledger.amount import Amount, to_text
from countledger.ledger.connection import Connection
from countledger.ledger.errors import Throttled
from countledger.ledger.limits import SECOND_MS
from tests.unit.connections import connection_on
from tests.unit.consumers.world import Kept
from tests.unit.ledger.clocks import NOW_MS, ManualClock
from tests.unit.ledger.memory import MemoryClient

TABLE = "counters"
COUNTER = "a:b"
REGION = "eu-central-1"
# Whole seconds, as streams tell them.
START_MS = NOW_MS - 1_000 * SECOND_MS


def rule(
    threshold: Amount = 10,
    direction: str = "rising",
    *,
    name: str = "rule",
    prefix: str = "",
    revision: str = "r1",
    **more: Any,  # noqa: ANN401 - handed on
) -> Rule:
    """A rule that watches all counters."""
    return Rule(
        name=name,
        prefix=prefix,
        threshold=threshold,
        direction=Direction(direction),
        evaluate_in=REGION,
        revision=revision,
        **more,
    )


def record(
    version: int,
    old: Amount | None,
    new: Amount,
    *,
    counter: str = COUNTER,
    at_s: int = 0,
    sequence: int | None = None,
    **attributes: Any,  # noqa: ANN401 - of the image
) -> dict[str, Any]:
    """The stream record of an update of a ledger's total; the first one comes from None."""

    def image(total: Amount, of_version: int) -> dict[str, Any]:
        ledgers = {"events": {"N": "1"}, "entries": {"N": "1"}}
        known = {"total": {"N": to_text(total)}, "version": {"N": str(of_version)}}
        return {**known, **ledgers, **attributes}

    stream: dict[str, Any] = {
        "SequenceNumber": str(10**20 + (version if sequence is None else sequence)),
        "ApproximateCreationDateTime": START_MS / 1_000 + at_s,
        "Keys": {"counter": {"S": counter}, "part": {"S": "total"}},
        "NewImage": image(new, version),
    }
    if old is not None:
        stream["OldImage"] = image(old, version - 1)
    return {"eventName": "INSERT" if old is None else "MODIFY", "dynamodb": stream}


def history(
    totals: Sequence[Amount],
    *,
    counter: str = COUNTER,
    at_s: Callable[[int], int] = lambda version: version,
) -> list[dict[str, Any]]:
    """The records of a total that takes these values, one after the other."""
    before = [None, *totals[:-1]]
    return [
        record(version, old, new, counter=counter, at_s=at_s(version))
        for version, (old, new) in enumerate(zip(before, totals, strict=True), 1)
    ]


@dataclass(slots=True)
class Targets:
    """Takes alerts as messages, unless it is to refuse.

    Attributes:
        taken: what was published, in order; doubles included.
        refuses: how many of the coming calls are refused, all of theirs.
        silent: whether they are refused by silence.
        calls: how often it was called.
    """

    taken: list[tuple[Target, Alert]] = field(default_factory=list)
    refuses: int = 0
    silent: bool = False
    calls: int = 0

    def publish(self, alerts: Sequence[Alert], target: Target) -> list[FailedAlert]:
        for alert in alerts:
            body_of(alert)
        self.calls += 1
        if self.refuses:
            self.refuses -= 1
            return [FailedAlert(alert, "no", self.silent) for alert in alerts]
        self.taken += [(target, alert) for alert in alerts]
        return []


@dataclass(slots=True)
class Letters:
    """Keeps dead letters, unless it is to refuse some."""

    kept: list[DeadLetter] = field(default_factory=list)
    refuses: int = 0

    def put(self, letter: DeadLetter) -> None:
        encode_dead_letter(letter)
        if self.refuses:
            self.refuses -= 1
            raise Throttled("the dead-letter queue takes nothing")
        self.kept.append(letter)


@dataclass(slots=True)
class World:
    """An evaluator and all that it touches.

    Attributes:
        rules: that are known, in all their revisions.
        dynamo: to the table.
        targets: where alerts go.
        letters: the dead ones.
        quarantine: records that cannot be evaluated.
        clock: a little later than the records.
    """

    rules: list[Rule] = field(default_factory=list)
    dynamo: MemoryClient = field(default_factory=MemoryClient)
    targets: Targets = field(default_factory=Targets)
    letters: Letters = field(default_factory=Letters)
    quarantine: Kept = field(default_factory=Kept)
    clock: ManualClock = field(default_factory=ManualClock)

    def index(self) -> RuleIndex:
        """The rules, looked up as the product does."""
        return RuleIndex(self.rules)

    def evaluator(self) -> Evaluator:
        services = (self.targets, self.letters, self.quarantine)
        return Evaluator(self.connection, self, *services, windows_of(self.connection))

    @property
    def connection(self) -> Connection:
        """Of a process of its own."""
        return connection_on(self.dynamo, self.clock, region=REGION)

    def deliver(self, records: Sequence[dict[str, Any]]) -> EvaluationOutcome:
        """One delivery of a batch."""
        return self.evaluator().apply(records, "stream")

    @property
    def alerts(self) -> list[tuple[Amount, int]]:
        """Threshold and version of what was published, in order, doubles left out."""
        published = {alert.id: alert for _, alert in self.targets.taken}
        return [(one.threshold, one.version) for one in published.values()]
