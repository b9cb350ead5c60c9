"""The auditor's account of alerts: every move of every total, every revision of every rule.

What must alert is found by a walk through the totals as they were written, number by number where
they are small. Nothing of it is read from the product. Where docs/alerts.md promises nothing, an
alert may come or not: behind a change of a rule that was written too late, for an item that was
edited by hand, or whose versions began again within the last minute, and for what an evaluator
slept through. Totals that stand beyond a threshold already are in `standing_account`.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, NamedTuple

from countledger.infra.memory.tables import Change
from countledger.ledger.clock import to_datetime
from countledger.ledger.limits import MINUTE_MS, SECOND_MS
from tests.simulation.alert_walk import Levels, Passed, crossed, is_back, last_passed
from tests.simulation.alert_windows import WindowAlerts
from tests.simulation.scan_account import ScanAccount
from tests.simulation.schedule import Schedule
from tests.simulation.sums import Wrong

_RULES: Final = "alerts#rules"
# For so long an evaluator may not know of a change; the items of a transaction land one by one.
_KNOWN_MS: Final = 1_000
_TRANSACTION_MS: Final = 1_000
_ANEW_MS: Final = MINUTE_MS + SECOND_MS


class TotalChange(NamedTuple):
    """A total that went from one value to another, or a counter that was made with one.

    Attributes:
        version: of the total behind it.
        old: None: it did not move; this is the value that it has.
        new: its value behind.
        made_ms: when.
        sure: whether it must be evaluated.
        incarnation: of the total behind it, as its item says.
    """

    version: int
    old: int | None
    new: int
    made_ms: float
    sure: bool
    incarnation: str | None = None

    @property
    def at_ms(self) -> int:
        """As the stream tells it."""
        return int(self.made_ms // SECOND_MS) * SECOND_MS


@dataclass
class Revision:
    """A revision of a rule, as it was written.

    Attributes:
        item: as it is stored.
        known_ms: from when on every evaluator knows it.
        ended_known_ms: and of its end.
        until_ms: the end, or None.
    """

    item: dict[str, Any]
    known_ms: float
    ended_known_ms: float = 0.0
    until_ms: int | None = None

    @property
    def levels(self) -> Levels:
        """What it looks at."""
        item = self.item
        step, rearm = item.get("step"), item.get("rearm")
        return Levels(int(item["threshold"]), item["direction"], step, rearm)

    def covers(self, counter: str) -> bool:
        """Whether it watches a counter."""
        if "watched_counter" in self.item:
            return bool(self.item["watched_counter"] == counter)
        return counter.startswith(str(self.item["watched_prefix"]))

    def may_evaluate(self, move: TotalChange) -> bool:
        """Whether some evaluator may evaluate a move by it."""
        if move.at_ms < self.item["effective_from"]:
            return False
        ended = self.until_ms is not None and move.at_ms >= self.until_ms
        return not ended or move.made_ms < self.ended_known_ms

    def must_evaluate(self, move: TotalChange) -> bool:
        """Whether every evaluator evaluates a move by it."""
        ended = self.until_ms is not None and move.at_ms >= self.until_ms
        return self.may_evaluate(move) and not ended and move.made_ms >= self.known_ms

    @property
    def is_late(self) -> bool:
        """Whether it was known later than it took effect."""
        return bool(self.known_ms > self.item["effective_from"])


@dataclass
class AlertAccount:
    """The alerts of one region.

    Attributes:
        region: which one.
        schedule: time.
        moves: per counter, in order.
        revisions: by their ids.
        taken: what a target took, by the alert's id.
        slept: an evaluator may have missed what came before.
        life_ms: for how long a signed request is taken.
    """

    region: str
    schedule: Schedule
    moves: dict[str, list[TotalChange]] = field(default_factory=lambda: defaultdict(list))
    revisions: dict[str, Revision] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    slept: bool = False
    life_ms: int = 0
    standing: ScanAccount = field(default_factory=ScanAccount)
    windows: WindowAlerts = field(default_factory=lambda: WindowAlerts(str))
    _deleted: dict[str, float] = field(default_factory=dict)

    # ---- what is written ----

    def changed(self, change: Change, *, by_hand: bool) -> None:
        """An item of `counters` was written."""
        counter, part = change.key
        if counter == _RULES:
            self._rule_changed(part, change.after)
        elif part == "total" and "#" not in counter:
            self._moved(counter, change.before, change.after, by_hand=by_hand)
            if change.after is None:
                self.windows.deleted.add(counter)
        elif part.startswith("w#") and "#" not in counter:
            self.windows.changed(change, self._made, by_hand=by_hand)

    def _made(self, version: int, old: int | None, new: int, *, sure: bool) -> TotalChange:
        return TotalChange(version, old, new, self.schedule.now_ms, sure)

    def _rule_changed(self, part: str, item: dict[str, Any] | None) -> None:
        known_ms = self.schedule.now_ms + _KNOWN_MS + _TRANSACTION_MS
        for one in (item or {}).get("revisions", ()):
            if one["id"] not in self.revisions:
                self._refuse_late(part, one, one["effective_from"])
                said = {**one, "name": part.removeprefix("rule#"), "revision": one["id"]}
                self.revisions[one["id"]] = Revision(said, known_ms)
            revision = self.revisions[one["id"]]
            if revision.until_ms is None and "effective_until" in one:
                self._refuse_late(part, one, one["effective_until"])
                revision.until_ms = one["effective_until"]
                revision.ended_known_ms = known_ms

    def _refuse_late(self, part: str, revision: dict[str, Any], effective_ms: int) -> None:
        # Who computed the time may have had a late clock, and the request its whole life.
        slack_ms = self.life_ms + self.standing.skew_ms
        if self.schedule.now_ms > effective_ms + slack_ms:
            raise Wrong(f"{part} is written at {self.schedule.now_ms:.0f}: {revision}")

    def _moved(
        self,
        counter: str,
        before: Any,  # noqa: ANN401 - items
        after: Any,  # noqa: ANN401 - items
        *,
        by_hand: bool,
    ) -> None:
        now_ms = self.schedule.now_ms
        readable = after is not None and all(
            isinstance(after.get(name), int) for name in ("total", "version")
        )
        self.standing.held(counter, after if readable else None, now_ms, by_hand=by_hand)
        if after is None:
            if by_hand:
                self._deleted[counter] = now_ms
            return
        if "bins" in after or not readable:
            return
        old = _old_of(before, after)
        if before is not None and old is None:
            return  # it could not be read before
        if before is None and self.moves[counter]:
            # Its version begins with a clock; that of an earlier maker may have been ahead.
            behind = int(after["version"]) <= max(one.version for one in self.moves[counter])
            self._deleted[counter] = now_ms if behind else self._deleted.get(counter, -_ANEW_MS)
        anew = now_ms - self._deleted.get(counter, -_ANEW_MS) <= _ANEW_MS
        sure = not by_hand and not (anew and "incarnation" not in after)
        if old != after["total"]:
            version, incarnation = int(after["version"]), after.get("incarnation")
            move = TotalChange(version, old, after["total"], now_ms, sure, incarnation)
            self.moves[counter].append(move)

    # ---- what is told ----

    def take(self, message: dict[str, Any]) -> None:
        """A target took a message."""
        if message.get("test"):
            return
        revision = self.revisions.get(message["revision"])
        if revision is None or not revision.covers(message["counter"]):
            raise Wrong(f"{message} was told in {self.region}, and no rule asks for it")
        if "window" in revision.item:
            found = self.windows.expected(message, revision)
            if not any(message in self._of(move, revision, message, one) for move, one in found):
                raise Wrong(
                    f"{message} was told in {self.region}, and nothing of the kind happened"
                )
        elif message == self._standing(message, revision):
            self.standing.told(message)
        elif message not in self._messages(message, revision):
            raise Wrong(f"{message} was told in {self.region}, and nothing of the kind happened")
        self.taken[message["id"]] += 1

    def _standing(self, message: dict[str, Any], revision: Revision) -> dict[str, Any] | None:
        """What may be told of a total that stands where the message says."""
        counter, levels = message["counter"], revision.levels
        item = revision.item
        if item["name"] not in self.standing.asked or message["old"] != message["new"]:
            return None
        total = int(message["new"])
        totals = self.standing.totals_at(counter, message["version"], item["effective_from"])
        at_ms = int(datetime.fromisoformat(message["at"]).timestamp()) * SECOND_MS
        latest_ms = self.schedule.now_ms + self.standing.skew_ms
        if total not in totals or not item["effective_from"] <= at_ms <= latest_ms:
            return None
        threshold = last_passed(total, levels)
        if threshold is None:
            return None
        way = "falling" if levels.direction == "falling" else "rising"
        move = TotalChange(
            message["version"], total, total, at_ms, True, message.get("incarnation")
        )
        return self._message(counter, revision, move, Passed(threshold, None, 1), way)

    def _of(
        self,
        move: TotalChange,
        revision: Revision,
        message: dict[str, Any],
        window: dict[str, Any] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """The messages of one move."""
        for passed, way in _crossed_by(move, revision):
            yield self._message(message["counter"], revision, move, passed, way, window=window)

    def _messages(self, message: dict[str, Any], revision: Revision) -> Iterator[dict[str, Any]]:
        """Those of moves that could have the id of a message."""
        counter = message["counter"]
        for move in self.moves[counter]:
            if move.version != message["version"] or not revision.may_evaluate(move):
                continue
            yield from self._of(move, revision, message)

    def _id(
        self,
        counter: str,
        revision: Revision,
        move: TotalChange,
        threshold: int,
        way: str,
        *,
        window: dict[str, Any] | None = None,
    ) -> str:
        rule = f"{revision.item['name']}@{revision.item['revision']}"
        if window is not None:
            rule = f"{rule}/{window['windows']}/{window['name']}"
        elif move.incarnation is not None:
            rule = f"{rule}/{move.incarnation}"
        return f"{self.region}/{rule}/{move.version}/{threshold}/{way}/{counter}"

    def _message(
        self,
        counter: str,
        revision: Revision,
        move: TotalChange,
        passed: Passed,
        way: str,
        *,
        window: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        threshold, through, count = passed
        rule, known = revision.item["name"], revision.item["revision"]
        at = to_datetime(move.at_ms).strftime("%Y-%m-%dT%H:%M:%SZ")
        name = self._id(counter, revision, move, threshold, way, window=window)
        wide = {} if through is None else {"through": str(through), "count": str(count)}
        return {
            "v": 1,
            "id": name,
            "dedup": sha256(name.encode()).hexdigest(),
            "rule": rule,
            "revision": known,
            "counter": counter,
            "direction": way,
            "threshold": str(threshold),
            **wide,
            "old": str(move.old),
            "new": str(move.new),
            "version": move.version,
            "region": self.region,
            "at": at,
            **({} if window is None else {"window": window}),
            **({} if move.incarnation is None else {"incarnation": move.incarnation}),
        }

    # ---- once all is quiet ----

    def check_end(self) -> None:
        """Every crossing was told, and nothing else."""
        required: set[str] = set()
        allowed: set[str] = set()
        told = {one for one in self.taken if not self._is_of_window(one)}
        totals = [one for one in self.revisions.values() if "window" not in one.item]
        for revision in totals:
            for counter in self.moves:
                if revision.covers(counter):
                    self._walk(counter, revision, required, allowed)
        self.windows.check_end(self.revisions.values(), set(self.taken) - told, slept=self.slept)
        allowed |= self.standing.ids
        if missing := sorted(required - told):
            raise Wrong(f"never told in {self.region}: {missing}")
        if invented := sorted(told - allowed):
            raise Wrong(f"told in {self.region}, and not crossed: {invented}")
        if not self.slept:
            self.standing.check_end(totals, self.taken)

    def _is_of_window(self, alert: str) -> bool:
        revision = alert.split("@", 1)[1].split("/", 1)[0]
        return "window" in self.revisions[revision].item

    def _walk(
        self, counter: str, revision: Revision, required: set[str], allowed: set[str]
    ) -> None:
        """Go through the totals of a counter, as a rule sees them."""
        levels = revision.levels
        # What it may be: where it is not known whether a move was evaluated, both.
        armed = {True}
        loose = self.slept or (levels.rearm is not None and revision.is_late)
        stood = self.standing.versions(counter, revision.item)
        named: str | None = None
        for move in self.moves[counter]:
            if move.incarnation is not None:
                # Another total of that name starts armed.
                armed = armed if named in {None, move.incarnation} else {True}
                named = move.incarnation
            if levels.rearm is not None and any(version < move.version for version in stood):
                # It has alerted there; whether for sure, if others of its name did so too.
                armed = {False} if self.standing.is_alone(counter, revision.item) else {True, False}
                stood = [version for version in stood if version >= move.version]
            if not revision.may_evaluate(move):
                continue
            sure = not loose and move.sure and revision.must_evaluate(move)
            if not move.sure and levels.rearm is not None:
                armed = {True, False}
            if is_back(move.new if move.old is None else move.old, levels):
                armed = {True}
            ids = {
                self._id(counter, revision, move, passed.threshold, way)
                for passed, way in _crossed_by(move, revision)
            }
            behind = set(armed)
            if ids and True in armed:
                allowed |= ids
                if sure and armed == {True}:
                    required |= ids
                behind = {levels.rearm is None}
            elif levels.rearm is not None and is_back(move.new, levels):
                behind = {True}
            armed = behind if sure else armed | behind


def _crossed_by(move: TotalChange, revision: Revision) -> Iterator[tuple[Passed, str]]:
    """What a move passes, and which way."""
    if move.old is not None:
        way = "rising" if move.new > move.old else "falling"
        for passed in crossed(move.old, move.new, revision.levels):
            yield passed, way


def _old_of(before: Any, after: Any) -> int | None:  # noqa: ANN401 - items
    """From where a total came; None: it was made with the value that it has, or nobody can tell."""
    if before is not None:
        return before["total"] if isinstance(before["total"], int) else None
    drawn = after.get("method") == "sequence" and "first" not in after
    return 0 if "entries" in after or drawn else None
