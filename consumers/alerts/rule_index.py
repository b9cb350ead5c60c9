"""Which rules watch a counter. Every evaluated record needs this look-up."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Protocol

from countledger.consumers.alerts.rules import RecentRules

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from countledger.consumers.alerts.rule import Rule
    from countledger.consumers.alerts.rules import Rules, RuleSnapshot


class RuleIndex:
    """Rules, ready to be looked up by counter.

    An exact name is one look-up in a dict. Prefixes are sorted, and each has a link to its parent:
    the longest other prefix that it starts with. All prefixes of a name are on one path of links,
    which begins at the last prefix that sorts before the name. So a look-up is a binary search and
    at most one path; it never iterates over the rules.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
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
    def index(self) -> RuleIndex:
        """All rules, with every change that is older than a few seconds."""


@dataclass(slots=True)
class RuleCache:
    """The rules as an evaluator knows them: as `RecentRules`, ready to be looked up."""

    rules: Rules
    _recent: RecentRules = field(init=False, repr=False)
    _snapshot: RuleSnapshot | None = field(default=None, init=False)
    _index: RuleIndex = field(default_factory=lambda: RuleIndex(()), init=False)

    def __post_init__(self) -> None:
        self._recent = RecentRules(self.rules)

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Why rules could not be read the last time, by name: those are not evaluated."""
        return {} if self._snapshot is None else self._snapshot.unreadable

    def index(self) -> RuleIndex:
        """The rules, once for each batch of records. Cost: as `RecentRules.snapshot`."""
        snapshot = self._recent.snapshot()
        if snapshot is not self._snapshot:
            self._index = RuleIndex(snapshot.evaluated_in(self.rules.connection.region))
            self._snapshot = snapshot
        return self._index
