"""The main paths, each from a call to what it has to come to, wherever the stack is."""

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from countledger import Claim, CountLedger, Direction, IdempotencyKey, outcomes
from countledger.infra.portability.export import Exporter
from countledger.infra.portability.importing import Importer
from countledger.infra.status.findings import findings
from countledger.infra.status.gathering import Gathering
from countledger.ledger.clock import SystemClock, to_datetime
from countledger.ledger.limits import DAY_MS
from tests.e2e.world import record_aged

_POLL_S: Final = 0.2
# A new rule is known everywhere after five seconds; streams and functions take some.
PATIENCE_S: Final = 180.0


class Wrong(AssertionError):
    """A path did not come to what it has to come to."""


@dataclass(frozen=True)
class Paths:
    """The paths on one stack, with counters of their own.

    Attributes:
        client: of the stack.
        patience_s: how long to wait for a total or an alert.
        mark: in every name that is made.
    """

    client: CountLedger
    patience_s: float = PATIENCE_S
    mark: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    def all(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Their names, and what to call, in order."""
        yield "a rule for alerts", self.rule
        yield "emit, retry, total", self.emit
        yield "many events at once", self.emit_many
        yield "strict counter at its bound", self.strict
        yield "sequence", self.sequence
        yield "unique claim", self.claim
        yield "compaction by hand", self.compact
        yield "alert", self.alert
        yield "export and import", self.move
        yield "deletion, thought better of", self.keep
        yield "verify", self.verify
        yield "status", self.status

    def rule(self) -> None:
        """Made at the beginning, for it takes effect some seconds later."""
        counter = self._counter("alert")
        self.client.record(counter, 1)
        self._total(counter, 1)
        self.client.alerts.create(
            self._rule, counter=counter, threshold=10, direction=Direction.RISING
        )

    def emit(self) -> None:
        """A retry is a duplicate, and the total follows."""
        counter, now = self._counter("emit"), to_datetime(SystemClock().now_ms())
        key = IdempotencyKey("order-1", now)
        first = self.client.record(counter, 3, key=key)
        again = self.client.record(counter, 3, key=key)
        self._same((str(first.status), str(again.status)), ("recorded", "duplicate"))
        self._total(counter, 3)
        self._same(self.client.exact(counter).value, 3)

    def emit_many(self) -> None:
        """A hundred through the buffered producer."""
        counter = self._counter("many")
        with self.client.buffered() as producer:
            for _ in range(100):
                producer.add(counter, 1)
        self._total(counter, 100)

    def strict(self) -> None:
        """It is refused what would pass its bound, and a retry counts once."""
        counter = f"smoke-strict-{self.mark}:hall"
        strict = self.client.strict
        strict.create(counter, method="marker", lower=0, opening=5)
        told = [
            type(strict.change(counter, delta, key=key))
            for delta, key in ((-2, "a"), (-2, "a"), (-4, "b"))
        ]
        self._same(told, [outcomes.Applied, outcomes.Duplicate, outcomes.BoundReached])
        self._same(strict.show(counter).value, 3)

    def sequence(self) -> None:
        """Numbers are given out once."""
        name = f"smoke-seq-{self.mark}:bill"
        self.client.sequences.create(name)
        drawn = [self.client.sequences.draw(name), *self.client.sequences.draw_block(name, 3)]
        self._same(drawn, [1, 2, 3, 4])

    def claim(self) -> None:
        """A value has one owner."""
        wanted = Claim(f"smoke-{self.mark}", "ann@example.org", "user-1")
        self.client.claims.take(wanted)
        self._same(self.client.claims.owner(wanted.scope, wanted.value), wanted.owner)
        self.client.claims.release(wanted)
        self._same(self.client.claims.owner(wanted.scope, wanted.value), None)

    def alert(self) -> None:
        """A crossing is told once, and is in the log."""
        counter, alerts = self._counter("alert"), self.client.alerts
        rule = alerts.get(self._rule)
        try:
            self._until(
                "the rule to take effect",
                lambda: SystemClock().now_ms() >= rule.effective_from_ms + 1000,
            )
            self.client.record(counter, 20)
            self._until("the alert", lambda: len(list(alerts.log(counter))) == 1)
        finally:
            alerts.delete(self._rule)

    def compact(self) -> None:
        """Old entries are merged, and no number changes."""
        counter = self._counter("compact")
        record_aged(self.client, counter, [2] * 30, 3 * DAY_MS)
        self.client.record(counter, 5)
        self._total(counter, 65)
        report = self.client.compactor().compact(counter)
        self._same((str(report.outcome), report.merged), ("merged", 30))
        exact = self.client.exact(counter)
        self._same((exact.value, exact.entries_read), (65, 1))
        self._same(self.client.total(counter).value, 65)

    def move(self) -> None:
        """A balance as it goes out comes in elsewhere, once."""
        line = Exporter(self.client).line(self._counter("many"))
        moved = line.model_copy(update={"counter": self._counter("moved")})
        importer = Importer.begin(self.client, f"smoke-{self.mark}")
        told = [str(*importer.outcomes([moved])) for _ in range(2)]
        self._same(told, ["recorded", "duplicate"])
        self._total(self._counter("moved"), 100)

    def keep(self) -> None:
        """A counter is marked and kept; a strict one goes at once."""
        counter, strict = self._counter("many"), f"smoke-strict-{self.mark}:gone"
        self.client.strict.create(strict, method="atomic", lower=0)
        stages = [str(self.client.deletions.delete(one).stage) for one in (counter, strict)]
        self._same(stages, ["marked", "forgotten"])
        self._same(self.client.deletions.cancel(counter), wanted=True)

    def verify(self) -> None:
        """What the paths before left behind is exact."""
        for path in ("emit", "many", "alert", "compact", "moved"):
            verdict = self.client.audit.verify(self._counter(path))
            self._same((path, str(verdict.verdict)), (path, "exact"))

    def status(self) -> None:
        """Nothing needs a person."""
        facts = Gathering(self.client).facts()
        self._same([(one.subject, one.says) for one in findings(facts)], [])

    @property
    def _rule(self) -> str:
        return f"smoke-{self.mark}"

    def _counter(self, path: str) -> str:
        return f"smoke-{self.mark}:{path}"

    def _total(self, counter: str, value: int) -> None:
        self._until(
            f"the total of {counter} to be {value}",
            lambda: self.client.total(counter).value == value,
        )

    def _until(self, what: str, holds: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + self.patience_s
        while not holds():
            if time.monotonic() > deadline_s:
                raise Wrong(f"waited {self.patience_s:.0f} s for {what}")
            time.sleep(_POLL_S)

    def _same(self, found: object, wanted: object) -> None:
        if found != wanted:
            raise Wrong(f"{found!r} is not {wanted!r}")
