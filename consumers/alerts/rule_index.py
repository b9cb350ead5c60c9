"""Which rules watch a counter. Every evaluated record needs this look-up."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Protocol

from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.limits import ALERT_RULES_AGE_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from countledger.consumers.alerts.rule import Rule
    from countledger.consumers.alerts.rules import Rules


class RuleIndex:
    """Rules, ready to be looked up by counter.

    An exact name is one look-up in a dict. Prefixes are sorted, and each has a link to its parent:
    the longest other prefix that it starts with. All prefixes of a name are on one path of links,
    which begins at the last prefix that sorts before the name. So a look-up is a binary search and
    at most one path; it never iterates over the rules.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        """Sort the rules; all their revisions may be among them."""
        ordered = sorted(rules, key=_place)
        self.rules = tuple(ordered)
        exact: dict[str, list[Rule]] = {}
        by_prefix: dict[str, list[Rule]] = {}
        for rule in ordered:
            if rule.counter is not None:
                exact.setdefault(rule.counter, []).append(rule)
            elif rule.prefix is not None:
                by_prefix.setdefault(rule.prefix, []).append(rule)
        self._exact = {counter: tuple(found) for counter, found in exact.items()}
        self._prefixes = sorted(by_prefix)
        self._above = _parents(self._prefixes)
        self._of_prefix: list[tuple[Rule, ...]] = []
        for n, prefix in enumerate(self._prefixes):
            above = self._above[n]
            inherited = () if above is None else self._of_prefix[above]
            self._of_prefix.append((*inherited, *by_prefix[prefix]))

    def matching(self, counter: str) -> tuple[Rule, ...]:
        """The rules that watch a counter, in all their revisions; those of its name first."""
        exact = self._exact.get(counter, ())
        place: int | None = bisect_right(self._prefixes, counter) - 1
        if place == -1:
            return exact
        while place is not None:
            if counter.startswith(self._prefixes[place]):
                return (*exact, *self._of_prefix[place]) if exact else self._of_prefix[place]
            place = self._above[place]
        return exact


def _place(rule: Rule) -> tuple[str, int, float, str]:
    """By name, then by start; of two revisions with the same start the one that ended first."""
    until_ms = rule.effective_until_ms
    return rule.name, rule.effective_from_ms, inf if until_ms is None else until_ms, rule.revision


def _parents(prefixes: Sequence[str]) -> list[int | None]:
    """For each sorted prefix the index of its parent: the longest other prefix it starts with."""
    parents: list[int | None] = []
    path: list[int] = []
    for n, prefix in enumerate(prefixes):
        while path and not prefix.startswith(prefixes[path[-1]]):
            path.pop()
        parents.append(path[-1] if path else None)
        path.append(n)
    return parents


class KnownRules(Protocol):
    """Knows the rules of a region."""

    def index(self) -> RuleIndex:
        """All rules, with every change that is older than a few seconds.

        Raises:
            ServiceFailed: the rules cannot be read.
        """


@dataclass(slots=True)
class RuleCache:
    """The rules as an evaluator knows them: never older than `ALERT_RULES_AGE_MS`.

    A change is effective later than that after it was written, so every evaluator has read it by
    then. The age is measured with one clock, so an offset of the clock does not matter.
    """

    rules: Rules
    clock: Clock = field(default_factory=SystemClock)
    _read_at_ms: int | None = None
    _number: int | None = None
    _index: RuleIndex = field(default_factory=lambda: RuleIndex(()))
    _unreadable: Mapping[str, str] = field(default_factory=dict)

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Why rules could not be read the last time, by name: those are not evaluated."""
        return self._unreadable

    def index(self) -> RuleIndex:
        """The rules. Called once for each batch of records.

        Free while the cache is young enough. After that one read unit, and if a rule has changed
        one more for each 4 KB of rules.

        Raises:
            ServiceFailed: the rules cannot be read; the batch must be delivered again.
        """
        now_ms = self.clock.now_ms()
        if self._read_at_ms is None or not 0 <= now_ms - self._read_at_ms < ALERT_RULES_AGE_MS:
            self._refresh()
            # The time before the read: a later change may be missing.
            self._read_at_ms = now_ms
        return self._index

    def _refresh(self) -> None:
        number = self.rules.number()
        if self._number is None or number != self._number:
            snapshot = self.rules.read()
            self._index = RuleIndex(snapshot.evaluated_in(self.rules.connection.region))
            self._unreadable = snapshot.unreadable
            # An incomplete snapshot is read again by the next call.
            self._number = snapshot.number if snapshot.is_whole else None
