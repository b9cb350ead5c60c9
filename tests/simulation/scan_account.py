"""The account of totals that stand beyond a threshold when a rule takes effect, told if asked for.

Whoever asks is told of every counter that is beyond from then on until the answer: by an alert for
where it stands, or by one for the move that brought it there.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.alert_walk import last_passed
from tests.simulation.sums import Wrong

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.alert_account import Revision


class Held(NamedTuple):
    """What a counter held from some time on.

    Attributes:
        at_ms: since when.
        version: of its total.
        total: None: it was not there, or could not be read.
        sure: whether no hand was in it.
    """

    at_ms: float
    version: int
    total: int | None
    sure: bool


class Answer(NamedTuple):
    """Somebody was told that all is told.

    Attributes:
        revision: of the rule.
        since_ms: what is beyond from here on,
        until_ms: until here, was told.
    """

    revision: str
    since_ms: float
    until_ms: float


@dataclass
class ScanAccount:
    """Those of one region.

    Attributes:
        skew_ms: how far any two clocks differ at the most.
        asked: the names of rules for which somebody ever asked.
        answers: to whom.
        values: per counter what it held.
        ids: of alerts for totals where they stood.
    """

    skew_ms: int = 0
    asked: set[str] = field(default_factory=set)
    answers: list[Answer] = field(default_factory=list)
    values: dict[str, list[Held]] = field(default_factory=lambda: defaultdict(list))
    ids: set[str] = field(default_factory=set)
    _told: dict[tuple[str, str], set[tuple[int, str]]] = field(
        default_factory=lambda: defaultdict(set)
    )

    def held(
        self, counter: str, item: dict[str, Any] | None, now_ms: float, *, by_hand: bool
    ) -> None:
        """A total was written, deleted, or can be read no more."""
        total = None if item is None or "bins" in item else item["total"]
        version = -1 if item is None else int(item["version"])
        self.values[counter].append(Held(now_ms, version, total, sure=not by_hand))

    def answered(self, revision: str, since_ms: float, until_ms: float) -> None:
        """Somebody who asked heard that all is told."""
        self.answers.append(Answer(revision, since_ms, until_ms))

    def totals_at(self, counter: str, version: int, effective_ms: int) -> set[int | None]:
        """What a counter held at a version once a rule was in force; made anew, it has two."""
        values = self.values[counter]
        return {
            one.total
            for one, behind in zip(values, [*values[1:], None], strict=True)
            if one.version == version
            and (behind is None or behind.at_ms >= effective_ms - self.skew_ms)
        }

    def told(self, message: dict[str, Any]) -> None:
        """A target took an alert for where a total stood."""
        self.ids.add(message["id"])
        place = message["counter"], message["rule"]
        self._told[place].add((message["version"], message["revision"]))

    def versions(self, counter: str, rule: dict[str, Any]) -> list[int]:
        """At which versions a counter stood when it was told of under a revision."""
        told = self._told[counter, rule["name"]]
        return sorted(version for version, revision in told if revision == rule["revision"])

    def is_alone(self, counter: str, rule: dict[str, Any]) -> bool:
        """Whether it was told once of where it stood under that name, and its versions grew."""
        versions = [one.version for one in self.values[counter] if one.total is not None]
        return len(self._told[counter, rule["name"]]) == 1 and versions == sorted(versions)

    def check_end(self, revisions: Iterable[Revision], taken: Iterable[str]) -> None:
        """Once all is quiet, every caller has its answer."""
        known = {one.item["revision"]: one for one in revisions}
        told = list(taken)
        for answer in self.answers:
            revision = known.get(answer.revision)
            if revision is None or revision.is_late:
                continue
            ended = revision.until_ms is not None and revision.until_ms <= answer.until_ms
            for counter in [] if ended else sorted(self.values):
                if not revision.covers(counter) or not self._is_beyond(counter, revision, answer):
                    continue
                mark = f"@{answer.revision}/"
                if not any(mark in one and one.endswith(f"/{counter}") for one in told):
                    raise Wrong(f"{counter} stood beyond {revision.item}, and nobody was told")

    def _is_beyond(self, counter: str, revision: Revision, answer: Answer) -> bool:
        """Whether a counter was beyond all the time that an answer is about."""
        values = self.values[counter]
        at_first = [one for one in values if one.at_ms <= answer.since_ms][-1:]
        later = [one for one in values if answer.since_ms < one.at_ms <= answer.until_ms]
        return bool(at_first) and all(
            one.sure
            and one.total is not None
            and last_passed(one.total, revision.levels) is not None
            for one in [*at_first, *later]
        )
