"""The evaluator: from changes of totals, as the stream of `counters` shows them, to alerts.

    1  read the batch. In nearly every record a total stays on its side of every threshold: no more
       of it is read than what shows that
    2  find the rules that watch the counter of each change, as of the time of the change
    3  for each counter and rule, in order: decide, write, publish (several counters at a time)
    4  quarantine the malformed records, several at a time
    5  report from which record the shard must be delivered again

The alerts follow from the changes and the revisions of the rules alone, so they are the same
whatever is delivered again, cut in pieces, or evaluated by two invocations at once. `state` says
why none is lost.

The changes of windows in a stream record of `counters`. Pure.

An item of windows holds several: each of them is evaluated like a total. Its version is that of the
item, so of two changes of a window the later one has the higher version.

    item      windows, each with its sum
    month     its days; and the month itself
    day       its hours
    hour      its minutes

What several settings counted of one window is in several items, and each is evaluated alone: no
update contains their sum.

The changes of one counter under one rule, in order: decide, write, publish, mark.

To publish the alerts of a firing takes three steps:

    1  publish; what fails is sent again, a bounded number of times
    2  alerts that the target did not take go to the dead letters
    3  the alert log records both

After these steps the alerts count as published. After a crash before the end of step 3 they are
published again, with the same ids. So a target that fails delays nothing: only if the dead letters
or the log cannot be written is the firing tried again, for its counter and rule alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from countledger.consumers.alerts.crossing import (
    HIGHEST,
    TotalChange,
    image_in,
    is_too_old,
    total_change_of,
    total_in,
    version_in,
)
from countledger.consumers.alerts.delivery import DeadLetter, plan_log
from countledger.consumers.alerts.message import Alert, AlertWindow, FailedAlert, state_name
from countledger.consumers.alerts.state import (
    PublishFiring,
    WriteState,
    decide,
    decode_state,
    may_matter,
    published_write_of,
    write_of,
)
from countledger.consumers.record import (
    FAR_AHEAD_S,
    MalformedRecord,
    created_at_ms,
    find,
    integer_in,
    sequence_of,
    subject_of,
    surely_young_from_s,
)
from countledger.consumers.rejected import (
    RejectedRecord,
    handle_around,
    put_numbered,
    put_unnumbered,
)
from countledger.ledger import keys
from countledger.ledger.calendar import Per, Window, window_of
from countledger.ledger.departure import Deadline
from countledger.ledger.errors import (
    ConditionFailed,
    CorruptItem,
    CountledgerError,
    OutOfTime,
    RequestRejected,
    ServiceFailed,
)
from countledger.ledger.limits import SECOND_MS
from countledger.ledger.suspension import WorkerThreads
from countledger.ledger.total import setting_id_of
from countledger.ledger.windows import SUM, windows_of_item

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from countledger.consumers.alerts.delivery import DeadLetters
    from countledger.consumers.alerts.message import Firing, Publisher
    from countledger.consumers.alerts.rule import Rule, Target
    from countledger.consumers.alerts.rule_index import KnownRules, RuleIndex
    from countledger.consumers.alerts.state import AlertState
    from countledger.consumers.region_state import RegionStateStore
    from countledger.consumers.rejected import Quarantine, Unstored
    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection
    from countledger.ledger.operations import Put
    from countledger.ledger.windows import WindowSetting


# The prefilter of the evaluator: records that show at once that they cross nothing.
#
# Nearly every record is such a one. To read it as a change takes five times as long as to see
# that.


_MALFORMED: Final = (KeyError, TypeError, AttributeError, ValueError)


class Prefilter:
    """The rules of a batch, ready to recognise the records that cross nothing."""

    def __init__(self, index: RuleIndex, now_ms: int) -> None:
        self._index = index
        self._young_s = surely_young_from_s(now_ms)
        self._thresholds: dict[str, list[Amount] | None] = {}

    def crosses_nothing(self, record: Mapping[str, Any]) -> bool:
        """Whether a record changes a total that stays on its side of every threshold.

        Only of a plain record: an update of a total without holds, in this release's format, from
        one integer, 0 or more, to another, made while the rules of its time are known. False of
        any other, also of a malformed one. The rest of the record (its version) is not read.
        """
        try:
            stream = record["dynamodb"]
            key, old, new = stream["Keys"], stream["OldImage"], stream["NewImage"]
            counter, before, after = key["counter"]["S"], old["total"]["N"], new["total"]["N"]
            if (
                record["eventName"] != "MODIFY"
                or key["part"]["S"] != keys.TOTAL
                or "#" in counter
                or not self._young_s <= stream["ApproximateCreationDateTime"] < FAR_AHEAD_S
                or not (before.isdecimal() and after.isdecimal())
                or "held" in old
                or "held" in new
                or "bins" in new
                or "v" in old
                or "v" in new
            ):
                return False
            return self._stays(counter, int(before), int(after))
        except _MALFORMED:
            return False

    def _stays(self, counter: str, old: int, new: int) -> bool:
        """Whether two totals of a counter differ, and no threshold is from one to the other."""
        if counter in self._thresholds:
            thresholds = self._thresholds[counter]
        else:
            thresholds = self._thresholds[counter] = self._thresholds_of(counter)
        low, high = (old, new) if old < new else (new, old)
        if thresholds is None or low == high or high >= HIGHEST:
            return False
        return bisect_left(thresholds, low) == bisect_right(thresholds, high)

    def _thresholds_of(self, counter: str) -> list[Amount] | None:
        """The thresholds of a counter's rules, sorted; None: one of the rules needs more."""
        rules = self._index.matching(counter)
        if any(rule.step is not None or rule.rearm is not None for rule in rules):
            return None
        return sorted(rule.threshold for rule in rules)


_IN_ITEM: Final = {str(Per.MONTH): Per.DAY, str(Per.DAY): Per.HOUR, str(Per.HOUR): Per.MINUTE}
# The whole item; the others are the names of cells.
_WHOLE: Final = "sum"
_CELL_LENGTH: Final = 3


@dataclass(frozen=True, slots=True)
class WindowRecords:
    """Reads the changes of windows that rules watch, by the settings of a counter's namespace."""

    index: RuleIndex
    settings: Callable[[str], Sequence[WindowSetting]]
    now_ms: int

    def changes(self, record: Mapping[str, Any], sequence: int) -> list[TotalChange]:
        """The changes in a record that may have an effect under a rule; none: it has no window.

        The settings are read only for those; if they are corrupt, the record counts as malformed.
        """
        counter, part, name = subject_of(record, "part")
        if not part.startswith(keys.WINDOW_PREFIX) or "#" in counter or name == "REMOVE":
            return []
        rules = [rule for rule in self.index.matching(counter) if rule.window is not None]
        if not rules:
            return []
        at_ms = created_at_ms(record)
        stream = record["dynamodb"]
        new = image_in(stream, "NewImage")
        old: Mapping[str, Any] = {} if name == "INSERT" else image_in(stream, "OldImage")
        _, windows_id, item = part.split("#", 2)
        found: list[TotalChange] = []
        for per, cell in _changed(item, old, new):
            before, after = (_sum_in(image, cell) for image in (old, new))
            change = TotalChange(sequence, counter, before, after, version_in(new), at_ms)
            if any(_watches(rule, per, change) for rule in rules):
                window = self._window(counter, windows_id, item, cell, new)
                if window is not None:
                    found.append(change._replace(window=window))
        if found and is_too_old(at_ms, self.now_ms):
            raise MalformedRecord("the record is older than a stream keeps records")
        return found

    def _window(
        self, counter: str, windows_id: str, item: str, cell: str, image: Mapping[str, Any]
    ) -> AlertWindow | None:
        """The window of a cell; None: its setting has no windows of that kind.

        Where only days are counted and ranked, the item of a day has one cell for all its hours.
        """
        try:
            setting_id = setting_id_of(windows_id)
            settings = (one for one in self.settings(counter) if one.id == setting_id)
            setting = next(settings, None)
            if setting is None:
                raise MalformedRecord(f"its windows {windows_id!r} have no setting")
            per, window = _named(setting, item, cell)
            if not setting.has(per):
                return None
        except CorruptItem as error:
            raise MalformedRecord(str(error)) from error
        return AlertWindow(
            windows_id,
            per,
            window.name,
            window.start_ms,
            window.end_ms,
            setting.zone,
            _last_ms(setting, window, image),
        )


def _changed(
    item: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[tuple[Per, str]]:
    """The kind and the cell of each window whose sum differs."""
    kind = item.partition("#")[0]
    if kind not in _IN_ITEM:
        raise MalformedRecord(f"{item!r} is no item of windows")
    if kind == Per.MONTH and old.get(_WHOLE) != new.get(_WHOLE):
        yield Per.MONTH, _WHOLE
    for name in sorted({*old, *new}):
        is_cell = name[0] == SUM and len(name) == _CELL_LENGTH and name[1:].isdigit()
        if is_cell and old.get(name) != new.get(name):
            yield _IN_ITEM[kind], name


def _sum_in(image: Mapping[str, Any], cell: str) -> Amount:
    return total_in(image, cell) if cell in image else 0


def _watches(rule: Rule, per: Per, change: TotalChange) -> bool:
    return rule.window is per and rule.is_effective_at(change.at_ms) and may_matter(change, rule)


def _named(setting: WindowSetting, item: str, cell: str) -> tuple[Per, Window]:
    """The window of a cell: its kind, name and bounds."""
    windows = windows_of_item(setting, item)
    kind = item.partition("#")[0]
    if cell == _WHOLE:
        first = next(iter(windows.values()))
        return Per.MONTH, window_of(first.start_ms, Per.MONTH, setting.calendar)
    if cell[1:] not in windows:
        raise MalformedRecord(f"{cell!r} is no window of {item!r}")
    return _IN_ITEM[kind], windows[cell[1:]]


def _last_ms(setting: WindowSetting, window: Window, image: Mapping[str, Any]) -> int | None:
    """When something is added to a window for the last time."""
    if "expires_at" in image:
        try:
            return integer_in(image["expires_at"]) * SECOND_MS
        except (KeyError, TypeError, ValueError):
            raise MalformedRecord("the image has no well-formed expiry") from None
    lateness_ms = setting.max_lateness_ms
    return None if lateness_ms is None else window.end_ms + lateness_ms + setting.late_write_ms


_LOGGED_REASON_MAX_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class Notifier:
    """Publishes the alerts of one batch of records.

    Targets that did not answer are `silent`, with the reason: they are not tried again.
    """

    connection: Connection
    publisher: Publisher
    dead_letters: DeadLetters
    silent: dict[Target, str] = field(default_factory=dict)

    def publish(self, firing: Firing) -> int:
        """Publish all alerts of a firing; how many of them went to the dead letters.

        One call for each ten, and two write units. After an error it must be published again.
        """
        alerts, connection = firing.alerts, self.connection
        failed = self._send(alerts, firing.target)
        for one in failed:
            failed_at_ms = connection.clock.now_ms()
            self.dead_letters.put(DeadLetter(one.alert, firing.target, one.reason, failed_at_ms))
        dead = {
            alerts.index(one.alert): one.reason[:_LOGGED_REASON_MAX_CHARACTERS] for one in failed
        }
        for put in plan_log(connection.counters, firing, connection.clock.now_ms(), dead):
            connection.retrying.put(put)
        return len(failed)

    def _send(self, alerts: Sequence[Alert], target: Target) -> list[FailedAlert]:
        silence = self.silent.get(target)
        if silence is not None:
            return [FailedAlert(alert, silence, silent=True) for alert in alerts]
        failed = self.publisher.publish(alerts, target)
        for one in failed:
            if one.silent:
                self.silent[target] = one.reason
        return failed


# A write is refused if another invocation evaluates the same records; its state is further ahead.
_STEPS_MAX: Final = 20


_Step = PublishFiring | WriteState


class Link(NamedTuple):
    """A change, and the revision of the rule that evaluates it."""

    change: TotalChange
    rule: Rule

    @property
    def state(self) -> str:
        return state_name(self.rule.name, self.change.window)


@dataclass(slots=True)
class ChainOutcome:
    """The result for the changes of one counter under one rule; as in `EvaluationOutcome`.

    `failed_at` is the first change that was not finished, and `error` why.
    """

    published: int = 0
    dead: int = 0
    rejected: int = 0
    failed_at: TotalChange | None = None
    error: CountledgerError | None = None


@dataclass(frozen=True, slots=True)
class ChainEvaluator:
    """Evaluates the changes of one counter under one rule, in order, until one fails.

    The SDK may retry, because a second application is refused.
    """

    connection: Connection
    notifier: Notifier
    to_quarantine: Callable[[int, str], None]
    deadline: Deadline | None = None
    decide: Callable[[AlertState | None, TotalChange, Rule], _Step | None] = decide
    write_of: Callable[[str, WriteState], Put] = write_of

    def evaluate(self, links: Sequence[Link]) -> ChainOutcome:
        """Nothing without an effect, but for a rule with a re-arm level one read unit for all.

        A change that fires: four write units (state, mark, log twice); delivered again one.
        """
        outcome = ChainOutcome()
        state: AlertState | None = None
        at = links[0].change
        try:
            if any(link.rule.rearm is not None for link in links):
                state = self._read(links[0])
            for link in links:
                at = link.change
                if self.deadline is not None:
                    self.deadline.check()
                try:
                    state = self._finish(link, state, outcome)
                except (CorruptItem, RequestRejected) as error:
                    self.to_quarantine(at.sequence, str(error))
                    outcome.rejected += 1
        except CountledgerError as error:
            outcome.failed_at, outcome.error = at, error
        return outcome

    def _finish(
        self, link: Link, state: AlertState | None, outcome: ChainOutcome
    ) -> AlertState | None:
        """Take all steps for a change; the known state after it."""
        dynamo, table = self.connection.retrying, self.connection.counters
        for _ in range(_STEPS_MAX):
            step = self.decide(state, link.change, link.rule)
            if step is None:
                return state
            try:
                if isinstance(step, PublishFiring):
                    outcome.dead += self.notifier.publish(step.firing)
                    outcome.published += len(step.firing.alerts)
                    dynamo.update(published_write_of(table, step))
                    state = state and replace(state, published=True)
                else:
                    dynamo.put(self.write_of(table, step))
                    state = step.state
            except ConditionFailed as refused:
                state = _decoded(refused.item)
        raise ServiceFailed(
            f"counter {link.change.counter!r}, rule {link.rule.name!r}: other invocations changed "
            f"its alert state {_STEPS_MAX} times meanwhile"
        )

    def _read(self, link: Link) -> AlertState | None:
        """The stored state; a corrupt one is reported by the write that needs it."""
        key = keys.alert_state_key(link.change.counter, link.state)
        try:
            stored = self.connection.retrying.get(self.connection.counters, key, consistent=True)
            return _decoded(stored)
        except CorruptItem:
            return None


def _decoded(item: Item | None) -> AlertState | None:
    return None if item is None else decode_state(item)


_THREADS: Final = 16
# A counter and the name of an alert state: of a rule, or of a rule and a window.
_Place = tuple[str, str]


@dataclass(slots=True)
class EvaluationOutcome:
    """The result for a batch; `failed` has the error of each counter and rule not finished.

    `changes` counts the totals that changed, or what is held of them, and the windows that did in a
    way that may matter to a rule. Of the `published` alerts, repeated ones included, so many are
    `dead` letters. `retry_from` is the lowest sequence number that may not be evaluated yet,
    `lag_ms` the age of the last record by this clock.
    """

    records: int
    changes: int = 0
    published: int = 0
    dead: int = 0
    quarantined: int = 0
    failed: dict[_Place, CountledgerError] = field(default_factory=dict)
    retry_from: int | None = None
    lag_ms: int | None = None

    @property
    def late(self) -> int:
        return sum(isinstance(error, OutOfTime) for error in self.failed.values())


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Evaluates batches of stream records.

    The SDK may retry, because a second application is refused. Without `windows`, the settings of a
    counter's namespace, windows are not evaluated. While the region is rebuilding, totals change
    because they are made: nothing is evaluated, and the changes are skipped.
    """

    connection: Connection
    rules: KnownRules
    publisher: Publisher
    dead_letters: DeadLetters
    quarantine: Quarantine
    windows: Callable[[str], Sequence[WindowSetting]] | None = None
    region: RegionStateStore | None = None

    def apply(
        self,
        records: Sequence[Mapping[str, Any]],
        stream: str,
        deadline: Deadline | None = None,
    ) -> EvaluationOutcome:
        """Evaluate a batch of one shard. Cost: `ChainEvaluator.evaluate`; else nothing.

        A counter and rule that fails or is late (no change is started after the deadline) is in the
        outcome, not raised. If the rules cannot be read, or a record without a sequence number not
        be quarantined, that is raised: nothing was evaluated.
        """
        deadline = deadline or Deadline.within(self.connection.clock)
        outcome = EvaluationOutcome(len(records))
        if self.region is not None and self.region.is_rebuilding():
            return outcome
        # Read after the records were made: it contains every rule that was effective then.
        index = self.rules.index()
        changes, rejected = self._read(records, index, outcome)
        put_unnumbered(self.quarantine, rejected, stream)
        chains = chains_of(changes, index)

        def to_quarantine(sequence: int, reason: str) -> None:
            self.quarantine.put(find(records, sequence), reason, stream)

        notifier = Notifier(self.connection, self.publisher, self.dead_letters)
        evaluator = ChainEvaluator(self.connection, notifier, to_quarantine, deadline)
        unstored: list[Unstored] = []
        ended: dict[_Place, ChainOutcome] = {}
        if chains or rejected:
            with WorkerThreads(_THREADS, "countledger-evaluator") as pool:
                ended, unstored = handle_around(
                    rejected,
                    chains,
                    counter_of=itemgetter(0),
                    handle=lambda part: dict(
                        zip(part, pool.map(evaluator.evaluate, part.values()), strict=True)
                    ),
                    store=lambda some: put_numbered(self.quarantine, some, stream, deadline, pool),
                )
        _add(outcome, ended)
        outcome.quarantined += len(rejected) - len(unstored)
        for one in unstored:
            outcome.failed[one.counter or "", "the quarantine"] = one.error
            outcome.retry_from = min(one.sequence, outcome.retry_from or one.sequence)
            for link in _held_back(chains, one.counter):
                outcome.retry_from = min(link.change.sequence, outcome.retry_from)
        return outcome

    def _read(
        self,
        records: Sequence[Mapping[str, Any]],
        index: RuleIndex,
        outcome: EvaluationOutcome,
    ) -> tuple[list[TotalChange], list[RejectedRecord]]:
        now_ms = self.connection.clock.now_ms()
        windows = self.windows and WindowRecords(index, self.windows, now_ms)
        prefilter = Prefilter(index, now_ms)
        changes: list[TotalChange] = []
        rejected: list[RejectedRecord] = []
        crossing_nothing = 0
        for record in records:
            if prefilter.crosses_nothing(record):
                crossing_nothing += 1
                continue
            sequence: int | None = None
            try:
                sequence = sequence_of(record)
                change = total_change_of(record, sequence, now_ms)
                if change is not None:
                    changes.append(change)
                elif windows is not None:
                    changes += windows.changes(record, sequence)
            except MalformedRecord as error:
                rejected.append(RejectedRecord(record, str(error), sequence))
        outcome.changes = crossing_nothing + len(changes)
        if records:
            with suppress(MalformedRecord):
                outcome.lag_ms = max(0, now_ms - created_at_ms(records[-1]))
        return changes, rejected


def chains_of(changes: Sequence[TotalChange], index: RuleIndex) -> dict[_Place, list[Link]]:
    """For each counter and rule the changes that may have an effect, in order."""
    chains: dict[_Place, list[Link]] = {}
    for change in changes:
        for rule in index.matching(change.counter):
            if rule.window != (change.window and change.window.per):
                continue
            seen = change.seen_by(rule)
            if seen.old == seen.new or not rule.is_effective_at(change.at_ms):
                continue
            if may_matter(seen, rule):
                link = Link(seen, rule)
                chains.setdefault((change.counter, link.state), []).append(link)
    return chains


def _held_back(chains: Mapping[_Place, Sequence[Link]], counter: str | None) -> Iterator[Link]:
    """The first change of each chain of a counter, none of which was evaluated."""
    return (links[0] for place, links in chains.items() if place[0] == counter)


def _add(outcome: EvaluationOutcome, ended: Mapping[_Place, ChainOutcome]) -> None:
    chains = ended.values()
    outcome.published = sum(one.published for one in chains)
    outcome.dead = sum(one.dead for one in chains)
    outcome.quarantined += sum(one.rejected for one in chains)
    outcome.failed = {place: one.error for place, one in ended.items() if one.error}
    outcome.retry_from = min(
        (one.failed_at.sequence for one in chains if one.failed_at), default=None
    )
