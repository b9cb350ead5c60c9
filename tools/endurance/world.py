"""A deployed stack under load: emits, waits until the totals are right, and checks every number."""

import os
import subprocess
import sys
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final
from uuid import uuid4

import boto3
import psutil
from botocore.config import Config

from countledger import CountLedger, Settings
from countledger.infra.local.running import processes_under
from countledger.ledger.connection import Connection
from countledger.ledger.total import Total

# The local engine sorts a counter's entries, and looks at each, for every page of a query: with
# 100,000 entries a page takes longer than the ten seconds of the product's own clients.
READ_TIMEOUT_S: Final = 600
_PAUSE_S: Final = 0.5
# Without any progress of the totals for so long, they will never be right.
STALLED_S: Final = 120.0
SAY_EVERY_S: Final = 5.0
_READERS: Final = 8
_LOOKED_AT: Final = 100
_FUNCTION_VARIABLE: Final = "AWS_LAMBDA_FUNCTION_NAME"


class PatientConnection(Connection):
    """The product's connection, whose clients wait as long as the local engine needs."""

    def config(self, *arguments: Any, **options: Any) -> Config:  # noqa: ANN401 - passed on
        """The product's configuration with another time-out."""
        return super().config(*arguments, **options).merge(Config(read_timeout=READ_TIMEOUT_S))


@dataclass(frozen=True, slots=True)
class Sent:
    """What was sent to one counter."""

    sum: int
    events: int


@dataclass(frozen=True)
class World:
    """A local stack that runs.

    Attributes:
        environment: what a process needs in its environment to work on the stack.
        home: the temporary directory of all its processes.
        outputs: of the stack.
        say: called with each line of progress.
    """

    environment: Mapping[str, str]
    home: Path
    outputs: Mapping[str, str]
    say: Callable[[str], None]
    namespace: str = field(default_factory=lambda: f"endurance-{uuid4().hex[:8]}")

    @cached_property
    def ledger(self) -> CountLedger:
        """The product, with a patient connection."""
        environment = self.environment
        session = boto3.Session(
            environment["AWS_ACCESS_KEY_ID"],
            environment["AWS_SECRET_ACCESS_KEY"],
            region_name=environment["AWS_REGION"],
        )
        settings = Settings(stack_name=environment["COUNTLEDGER_STACK_NAME"])
        ledger = CountLedger(settings, session=session)
        ledger.connection = PatientConnection(settings, session, environment["AWS_ENDPOINT_URL"])
        return ledger

    def counters(self, count: int) -> list[str]:
        """The names of so many counters of this run."""
        return [f"{self.namespace}:{number}" for number in range(count)]

    def child(self, module: str, *arguments: str) -> subprocess.Popen[str]:
        """A Python process that works on the stack; its output can be read line by line."""
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env=os.environ | dict(self.environment),
            cwd=Path(__file__).resolve().parents[2],
            stdout=subprocess.PIPE,
            text=True,
        )

    def materializers(self) -> list[psutil.Process]:
        """The processes in which the engine runs the function that writes totals."""
        name = self.outputs["MaterializerFunctionName"]
        return [
            process
            for process in processes_under(self.home)
            if _variable(process, _FUNCTION_VARIABLE) == name
        ]

    def wait_for_totals(self, sent: Mapping[str, Sent], stalled_s: float = STALLED_S) -> list[str]:
        """Wait until every total is what was sent.

        Returns:
            The counters that are not known to be right, if no total that was looked at changed for
            `stalled_s` seconds.
        """
        wrong, moved_s, said_s = list(sent), monotonic(), 0.0
        seen: dict[str, Total] = {}
        while wrong and monotonic() - moved_s < stalled_s:
            # A few at a time: to read all of them again and again would keep the engine busy.
            some = wrong[:_LOOKED_AT]
            totals = self.ledger.totals(some)
            behind = [
                one for one in some if _differs(totals[one].value, totals[one].events, sent[one])
            ]
            if totals != seen:
                seen, moved_s = totals, monotonic()
            wrong = behind + wrong[_LOOKED_AT:]
            if monotonic() - said_s > SAY_EVERY_S:
                said_s = monotonic()
                self.say(f"  at least {len(sent) - len(wrong):,} of {len(sent):,} totals are right")
            if behind:
                sleep(_PAUSE_S)
        return wrong

    def problems(self, sent: Mapping[str, Sent]) -> list[str]:
        """All that is wrong with totals, exact sums and verdicts; reads everything once."""
        self.say(f"  reading {len(sent):,} totals and exact sums, and verifying")
        found = []
        for counter, total in self.ledger.totals(sent).items():
            if _differs(total.value, total.events, sent[counter]):
                found.append(f"total of {counter}: {total.value} by {total.events} events")
        with ThreadPoolExecutor(_READERS) as pool:
            found += [
                f"exact sum of {exact.counter}: {exact.value} by {exact.events} events"
                for exact in pool.map(self.ledger.exact, sent)
                if _differs(exact.value, exact.events, sent[exact.counter])
            ]
        verdicts = Tally(str(one.verdict) for one in self.ledger.audit.verify_many(sent))
        if verdicts != {"exact": len(sent)}:
            found.append(f"verify: {dict(verdicts)}")
        return found


def _differs(total: object, events: int, sent: Sent) -> bool:
    return (total, events) != (sent.sum, sent.events)


def _variable(process: psutil.Process, name: str) -> str | None:
    try:
        return process.environ().get(name)
    except (psutil.Error, OSError):
        return None


def deltas(events: int, counters: int) -> Iterator[tuple[int, int]]:
    """The number of the counter and the delta of each event: neighbours differ in both."""
    return ((number % counters, 1 + number % 7) for number in range(events))


def sent_by(names: list[str], pairs: Iterable[tuple[int, int]]) -> dict[str, Sent]:
    """What these events amount to, by counter."""
    sums, events = Tally[int](), Tally[int]()
    for number, delta in pairs:
        sums[number] += delta
        events[number] += 1
    return {name: Sent(sums[number], events[number]) for number, name in enumerate(names)}
