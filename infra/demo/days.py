"""The windows of a demo's run: lines and commits of every day, checked against git's own log.

A commit happened at its author's date, long before it is counted. What is dated ahead counts when
it is recorded, so all days from that of the run on are compared as one.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

from countledger.infra.demo.history import COMMITS, LINES, author_date, counter_name
from countledger.ledger.clock import to_datetime
from countledger.ledger.limits import WINDOWS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from countledger import CountLedger
    from countledger.infra.demo.history import View
    from countledger.ledger.clock import Clock

_LOG: Final = ("log", "--first-parent", "--encoding=UTF-8", "--no-show-signature", "-z")
_OF_FILE: Final = (
    *("-m", "--full-history", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv"),
    "--format=tformat:>%at",
)
_FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class DayCheck:
    """How many days with changes were compared, and what of them is wrong, for a person."""

    checked: int = 0
    wrong: tuple[str, ...] = ()


@dataclass
class Days:
    """The windows of a run on a stack where nothing was ever counted."""

    client: CountLedger
    view: View
    clock: Clock
    _today: date = field(init=False)

    def __post_init__(self) -> None:
        """Switch windows on, at once: no materializer can know an older setting."""
        self._today = to_datetime(self.clock.now_ms()).date()
        for namespace in (COMMITS, LINES):
            self.client.namespaces.create(namespace)
            replace(self.client.window_settings, delay_ms=0).enable(namespace, by="day")

    def check(self, counters: Iterable[str]) -> DayCheck:
        """Compare every day of some counters with git's log: a query for each 27 years."""
        commits = self._commits()
        checked, wrong = 0, []
        for counter in counters:
            truth = commits.get(counter) or self._lines(counter)
            if truth is None:
                continue
            counted = self._counted(counter)
            checked += len(truth)
            wrong += [
                f"{counter} on {day}: {counted[day]}, git says {truth[day]}"
                for day in sorted(truth.keys() | counted.keys())
                if counted[day] != truth[day]
            ]
        return DayCheck(checked, tuple(wrong))

    def _counted(self, counter: str) -> Counter[date]:
        found: Counter[date] = Counter()
        end = to_datetime(self.clock.now_ms()) + timedelta(days=1)
        step = WINDOWS_MAX - 1
        for first in range(0, (end - _FIRST).days + 1, step):
            since = _FIRST + timedelta(days=first)
            until = since + timedelta(days=step)
            for window in self.client.windows(counter, "day", since=since, until=until):
                if window.events:
                    found[min(window.start.date(), self._today)] += int(window.value)
        return found

    def _day(self, seconds: bytes) -> date:
        written = author_date(seconds)
        return self._today if written is None else min(written.date(), self._today)

    def _commits(self) -> dict[str, Counter[date]]:
        """The commits of each author, by day."""
        found: dict[str, Counter[date]] = {}
        tokens = self.view.tokens(*_LOG, "--format=tformat:%at%x00%an", self.view.head)
        for seconds in tokens:
            days = found.setdefault(counter_name(COMMITS, next(tokens)), Counter())
            days[self._day(seconds)] += 1
        return found

    def _lines(self, counter: str) -> Counter[date] | None:
        """The lines of a file, by day; None: git's diff has no numbers for some of its steps."""
        path = _path_of(self.view, counter)
        if path is None:
            return None
        days: Counter[date] = Counter()
        day = self._today
        for added, removed, seconds in self._steps(path):
            if seconds is not None:
                day = self._day(seconds)
            elif added == b"-":
                return None
            else:
                days[day] += int(added) - int(removed)
        return days

    def _steps(self, path: bytes) -> Iterator[tuple[bytes, bytes, bytes | None]]:
        arguments = (*_LOG, *_OF_FILE, self.view.head, "--", f":(literal){os.fsdecode(path)}")
        for token in self.view.tokens(*arguments):
            fact = token.removeprefix(b"\n")
            if fact.startswith(b">"):
                yield b"", b"", fact[1:]
            elif fact:
                added, removed, _ = fact.split(b"\t", 2)
                yield added, removed, None


def _path_of(view: View, counter: str) -> bytes | None:
    """The path of a file's counter, if the tree of HEAD has it."""
    names = view.tokens("ls-tree", "-r", "-z", "--name-only", "--full-tree", view.head)
    return next((path for path in names if counter_name(LINES, path) == counter), None)
