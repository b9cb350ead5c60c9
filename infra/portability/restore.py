"""Restore: the content of two restored tables becomes that of a new stack.

DynamoDB and AWS Backup restore a table as a new one. This reads both, and writes into the empty
tables of a stack, in an order in which nothing counts twice:

    claim     the stack is empty, or this restore was begun here before
    copy      `counters` first, then `ledger`: each item as it is, on condition that it is absent
    rebuild   `repair` of every counter: totals come from the ledger alone
    recreate  positions in rankings, windows from now on, schedules with their triggers, alert rules
              as new revisions; once, also if what was created is deleted since

Not copied, because they belong to the lost stack: totals of ledgers and windows, with their
watermarks, the progress of its streams, the states of alerts, positions of audits, last runs, which
region was home. Rules come last: no alert is raised while totals grow from zero. A crash between
any two writes leaves a restore that the same call continues.

An entry that is absent may have been merged since it was copied, and would then count twice. So a
put of the copy leaves only while no call has copied everything, as it was read half a minute ago at
the most. And the restore ends, so that something can be merged, only when no such put can arrive
any more: if a call before this one ended without a word, or a put got no answer, half an hour
after the copy.

The copy of a restore: each item once, and none after another call has copied everything.

The record of the restore names each call that copies (`call#<id>`). A call that ends, and whose
puts all got an answer, takes its name out again. So a name that is left belongs to a call that was
killed, is suspended, or sent a put that got no answer: one of its puts may arrive later.

    begin       `call#<id>` and `last_call`, unless everything is copied
    put         leaves within a minute after the record was read, and showed no `copied_at`
    complete    `copied_at`, if no call began since the record was read; and `settles_at` if a name
                of another call is left: from then on none of its puts can arrive. This write, and a
                put of a call that read the record just before it, each leave within a minute, and
                arrive within the life of a signed request

An item that is absent may have been copied, used and deleted since: an entry was merged, a claim
was released. Nothing of that happens before the restore ends, and it ends when it has settled.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from countledger.consumers.alerts.rules import Rules
from countledger.infra.portability.lines import WindowsOfLine
from countledger.ledger import keys
from countledger.ledger.attempts import (
    Again,
    Done,
    DynamoPerformer,
    Recheck,
    Send,
    attempt,
    otherwise,
    run,
    wrote,
)
from countledger.ledger.clock import Backoff
from countledger.ledger.errors import (
    BadSetting,
    ConditionFailed,
    CountledgerError,
    NoWindows,
    ServiceFailed,
    shown,
)
from countledger.ledger.limits import (
    MINUTE_MS,
    SECOND_MS,
    SIGNED_REQUEST_LIFE_MS,
)
from countledger.ledger.operations import (
    Absent,
    AllOf,
    Assign,
    Compare,
    Drop,
    Get,
    Put,
    Scan,
    Update,
    unchanged,
)
from countledger.ledger.tombstones import present
from countledger.ledger.windows import decode_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from countledger import Audit, CountLedger, Repair
    from countledger.consumers.alerts.rule import Rule, RuleSpec
    from countledger.consumers.alerts.rules import RuleSnapshot
    from countledger.ledger.attempts import Exhausted, Reply, Verdict
    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.operations import Clause


_RECORD: Final = keys.restore_key()
_CALL: Final = "call#"
# For how long a look at the record is valid; and what is sent under it leaves within a minute.
_LOOK_MS: Final = 30 * SECOND_MS
_LEAVES_MS: Final = MINUTE_MS
_BACKOFF: Final = Backoff(attempts=10)
_BEGUN: Final = AllOf(Compare("counter", "=", _RECORD["counter"]), Absent("copied_at"))


@dataclass(slots=True)
class Copying:
    """One call that copies items; a context in which it may.

    The SDK of `puts` does not retry: each put that got no answer is known.
    """

    connection: Connection
    id: str = field(init=False)
    _looked_ms: int = 0
    _unanswered: bool = False

    def __post_init__(self) -> None:
        self.id = self.connection.ids.unique_id()

    @property
    def _perform(self) -> DynamoPerformer:
        return DynamoPerformer(
            self.connection.unretried, self.connection.retrying, self.connection.clock
        )

    def __enter__(self) -> Self:
        """Name this call in the record: one write unit."""
        self._looked_ms = self.connection.clock.now_ms()
        self._note((Assign(_CALL + self.id, self._looked_ms), Assign("last_call", self.id)))
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Take the name out again, if no put can arrive later: one write unit."""
        if not self._unanswered:
            with suppress(CountledgerError):  # then it counts as one that was killed
                self._note((Drop(_CALL + self.id),))

    def put(self, write: Put) -> None:
        """Put an item, if it is absent, or there as it is: a write unit for each KB.

        `ServiceFailed`: another call has copied everything, or this process was suspended.
        """
        attempts = self.connection.attempts(policy=_BACKOFF)

        def request(_: None) -> Send:
            self._look()
            return Send(write, self._refuse_late)

        def interpret(reply: Reply[None]) -> Verdict[None, None]:
            match reply.answer:
                case ConditionFailed() as there:
                    _refuse_another(write, there.item)
                case CountledgerError():
                    return otherwise(reply)
            return Done(None)

        def give_up(exhausted: Exhausted[None]) -> None:
            raise exhausted.error

        try:
            run(attempt(None, request, interpret, give_up, attempts), self._perform)
        finally:
            self._unanswered |= attempts.maybe_applied

    def complete(self) -> None:
        """Note that everything is copied: a read unit and a write unit."""

        def request(note: Update | None) -> Send:
            if note is not None:
                return Send(note, self._refuse_late)
            self._looked_ms = self.connection.clock.now_ms()
            return Send(Get(self.connection.counters, _RECORD))

        def interpret(reply: Reply[Update | None]) -> Verdict[Update | None, None]:
            note, answer = reply.state, reply.answer
            match answer:
                case ConditionFailed(item=found) if note is not None:
                    return Done(None) if _is_noted(note.clauses, found or {}) else Again(None)
                case CountledgerError():
                    return otherwise(reply)
            return Recheck(self._completion(answer or {})) if note is None else Done(None)

        def give_up(exhausted: Exhausted[Update | None]) -> None:
            if isinstance(exhausted.error, ConditionFailed):
                raise ServiceFailed("other calls of this restore keep beginning: call again")
            raise exhausted.error

        attempts = self.connection.attempts(policy=_BACKOFF)
        run(attempt(None, request, interpret, give_up, attempts), self._perform)

    def _completion(self, record: Item) -> Update:
        """What notes that everything is copied, unless a call has begun since the record was."""
        left = {name for name in record if name.startswith(_CALL)} - {_CALL + self.id}
        clauses: tuple[Clause, ...] = (Assign("copied_at", self._looked_ms),)
        if left or self._unanswered:
            late_ms = 2 * (_LEAVES_MS + SIGNED_REQUEST_LIFE_MS + self.connection.clock_skew_ms)
            clauses += (Assign("settles_at", self._looked_ms + late_ms),)
        same = unchanged("last_call", record.get("last_call"))
        return Update(self.connection.counters, _RECORD, clauses, AllOf(_BEGUN, same))

    def _look(self) -> None:
        """Read the record, unless that was done a moment ago."""
        now_ms = self.connection.clock.now_ms()
        if 0 <= now_ms - self._looked_ms < _LOOK_MS:
            return
        record = self.connection.retrying.get(self.connection.counters, _RECORD, consistent=True)
        if "copied_at" in (record or {}):
            raise ServiceFailed("another call has copied everything meanwhile: call again")
        self._looked_ms = now_ms

    def _refuse_late(self) -> None:
        if not 0 <= self.connection.clock.now_ms() - self._looked_ms < _LEAVES_MS:
            raise ServiceFailed("this process was suspended while it copied an item: call again")

    def _note(self, clauses: tuple[Clause, ...]) -> None:
        """Change the record, unless everything is copied."""
        note = Update(self.connection.counters, _RECORD, clauses, _BEGUN)
        try:
            self.connection.retrying.update(note)
        except ConditionFailed as failed:
            _is_noted(clauses, failed.item or {})


def _is_noted(clauses: tuple[Clause, ...], found: Item) -> bool:
    """Whether an attempt without an answer has changed the record that refuses the next one."""
    if all(found.get(one.name) == getattr(one, "value", None) for one in clauses):
        return True
    if "copied_at" in found:
        raise ServiceFailed("another call has copied everything: call again")
    return False


def _refuse_another(write: Put, there: Item | None) -> None:
    if there != write.item:
        names = [name for name in ("counter", "part", "entry") if name in write.item]
        key = ", ".join(shown(write.item[name]) for name in names)
        raise BadSetting(
            f"{write.table} has another item {key} than the restored table: the stack was "
            "used before the restore ended; stop its writers, and restore into a new stack"
        )


_WRITERS: Final = 16
_PAGE: Final = 500
_RULE: Final = "alert rule "
# What a stack writes by itself before it is used; and of a lost stack nothing is needed of these.
_OF_THE_STACK: Final = (keys.STREAM_PREFIX, keys.BOOKMARK_PREFIX, _RECORD["counter"])
# Of a namespace: the schedule is created again, with its trigger; windows are switched on again.
_NOT_OF_NAMESPACES: Final = frozenset({keys.SCHEDULE, keys.TAKEN_OVER, keys.RUN, keys.WINDOWS})


@dataclass(frozen=True, slots=True)
class RestoredTables:
    ledger: str
    counters: str


def is_copied(item: Item) -> bool:
    """Whether an item of a restored `counters` is copied as it is. Pure."""
    place, part = str(item["counter"]), str(item["part"])
    if place.startswith(_OF_THE_STACK) or place == keys.ALERT_RULES:
        return False
    if place.startswith(keys.NAMESPACE_PREFIX):
        return part not in _NOT_OF_NAMESPACES
    if keys.is_counter(place) and part.startswith(keys.WINDOW_PREFIX):
        return False
    if part.startswith(keys.ALERT_PREFIX):
        return False
    # Of strict counters and sequences the item is the value itself; a ledger's total is rebuilt.
    return part != keys.TOTAL or "method" in item


@dataclass(frozen=True, slots=True)
class Restorer:
    """Restores one stack; every method may be called again."""

    client: CountLedger
    tables: RestoredTables

    def begin(self) -> bool:
        """Reserve the empty stack for this restore: whether the items were copied before.

        A few read units and one write unit.
        """
        ours = self._own()
        for source, own, sort in zip(self._sources(), ours, ("entry", "part"), strict=True):
            if source in ours:
                raise BadSetting(f"table {source!r} belongs to this stack: name the restored one")
            found = [one["AttributeName"] for one in self._dynamo.describe(source)["KeySchema"]]
            if found != ["counter", sort]:
                raise BadSetting(
                    f"table {source!r} has the key {', '.join(found)}, not counter, {sort}: it is "
                    f"no copy of {own!r}"
                )
        record = self._record()
        if record is None:
            self._refuse_content()
            new: Item = {**_RECORD, "tables": [*self._sources()], "at": self._now_ms()}
            # Else another call began meanwhile, or an attempt of this one that got no answer.
            wrote(self._dynamo, Put(self._counters, new, Absent("part")))
            record = self._record() or {}
        if record.get("tables") != [*self._sources()]:
            raise BadSetting(
                f"this stack was restored from {record.get('tables')}, and these are "
                f"{[*self._sources()]}: restore into a new stack"
            )
        return "copied_at" in record

    def copy(self) -> Iterator[int]:
        """Copy the items; after each page how many so far.

        A read unit for each 8 KB of the restored tables, and a write unit for each KB of each item,
        also where a call before this one copied it. `BadSetting`: the stack has another item of
        that key, so it is in use already.
        """
        to = self.client.connection
        copying = Copying(to)
        (ledger, own_ledger), (counters, own_counters) = zip(
            self._sources(), self._own(), strict=True
        )
        done = 0
        with copying, ThreadPoolExecutor(_WRITERS, "countledger-restore") as pool:
            # First the settings that functions read, then the entries that they are invoked with.
            for page in self._dynamo.pages(Scan(counters, page_size=_PAGE)):
                puts = [Put(own_counters, item, Absent("part")) for item in page if is_copied(item)]
                done += len([*pool.map(copying.put, puts)])
                yield done
            for page in self._dynamo.pages(Scan(ledger, page_size=_PAGE)):
                puts = [
                    Put(own_ledger, item, Absent("entry"))
                    for item in page
                    if item["counter"] != keys.REGION_HOME
                ]
                done += len([*pool.map(copying.put, puts)])
                yield done
            copying.complete()

    def unsettled_until_ms(self) -> int | None:
        """Until when a put of the copy may still arrive; None: none can. One read unit."""
        until_ms = (self._record() or {}).get("settles_at", 0)
        return until_ms if until_ms > self._now_ms() else None

    def rebuild(self) -> Audit[Repair]:
        return self.client.audit.repair_all()

    def recreate(self) -> Iterator[tuple[str, CountledgerError | None]]:
        """Rankings, schedules and rules: what each is, and why it could not be created.

        What exists under the same name stays as it is. What a person has deleted since is not
        created again: each schedule and rule is written in one transaction with a mark, and once
        all were created nothing is created any more. A rule on windows that are off, or coarser, is
        reported once. Costs as each of them by hand, a read and a
        write unit; of a schedule three write units more, of a rule two and a read unit.
        """
        if "recreated_at" in (self._record() or {}):
            return
        failed = False
        for what, create in self._creations():
            try:
                create()
            except (NoWindows, BadSetting) as error:
                if failed or not what.startswith(_RULE):
                    failed = True
                    yield what, error
                    continue
                # All windows are what they were, so the next call would be refused as well.
                name = what.removeprefix(_RULE)
                wrote(self._dynamo, self._mark(f"rule#{name}"))
                text = "it is not tried again: switch such windows on, then create the rule with"
                yield what, BadSetting(f"{error}; {text} `countledger alert create {name}`")
            except CountledgerError as error:
                failed = True
                yield what, error
            else:
                yield what, None
        if not failed:
            note = Assign("recreated_at", self._now_ms())
            ours = AllOf(Compare("counter", "=", _RECORD["counter"]))
            self._dynamo.update(Update(self._counters, _RECORD, (note,), ours))

    def _creations(self) -> Iterator[tuple[str, Callable[[], object]]]:
        client, dynamo = self.client, self._dynamo
        namespaces = [one.name for one in client.namespaces.list(on_corrupt=lambda _: None)]
        for name in filter(client.rankings.is_on, namespaces):
            yield (
                f"ranking of namespace {name}",
                partial(client.rankings.switch_on, name, wait=False),
            )
        for group in client.groups.list(on_corrupt=lambda _: None):
            if group.ranked:
                switch_on = partial(client.groups.switch_ranking, group.name, on=True)
                yield f"ranking of group {group.name}", switch_on
        windows = [keys.windows_key(one) for one in namespaces]
        for item in dynamo.get_many(self.tables.counters, windows):
            name = str(item["counter"]).removeprefix(keys.NAMESPACE_PREFIX)
            yield f"windows of namespace {name}", partial(self._windows, name, item)
        schedules = [keys.schedule_key(one) for one in namespaces]
        for item in filter(present, dynamo.get_many(self.tables.counters, schedules)):
            name = str(item["counter"]).removeprefix(keys.NAMESPACE_PREFIX)
            yield f"schedule of namespace {name}", partial(self._schedule, name, item)
        restored = client.connection.with_counters(self.tables.counters)
        rules = Rules(restored).read()
        for name in (*rules.current, *rules.unreadable):
            yield f"{_RULE}{name}", partial(self._rule, rules, name)

    def _windows(self, name: str, item: Item) -> None:
        windows = WindowsOfLine.of(decode_settings(item))
        if windows is not None:
            windows.switch_on(self.client.window_settings, name)

    def _schedule(self, name: str, item: Item) -> None:
        self.client.schedules.create_once(name, item, self._mark(f"schedule#{name}"))

    def _rule(self, restored: RuleSnapshot, name: str) -> None:
        spec, mark = _spec_of_rule(restored.rule(name)), self._mark(f"rule#{name}")
        key = {part: mark.item[part] for part in _RECORD}
        if self._dynamo.get(self._counters, key, consistent=True) is None:
            self.client.alerts.create_once(name, mark, **spec)

    def _mark(self, what: str) -> Put:
        """Shows that this restore has created something, also if that was deleted since."""
        item = {**_RECORD, "part": keys.MADE_PREFIX + what, "at": self._now_ms()}
        return Put(self._counters, item, Absent("part"))

    def _refuse_content(self) -> None:
        """Refuse a stack with items other than those that its own functions write."""
        for table in self._own():
            for page in self._dynamo.pages(Scan(table, page_size=_PAGE)):
                for item in page:
                    if not str(item["counter"]).startswith(_OF_THE_STACK):
                        raise BadSetting(
                            f"{table} is not empty (it has {shown(item['counter'])}): what was "
                            "merged in between would count twice; restore into a new stack"
                        )

    def _record(self) -> Item | None:
        return self._dynamo.get(self._counters, _RECORD, consistent=True)

    def _sources(self) -> tuple[str, str]:
        return self.tables.ledger, self.tables.counters

    def _own(self) -> tuple[str, str]:
        return self.client.connection.setting("ledger_table"), self._counters

    @property
    def _counters(self) -> str:
        return self.client.connection.setting("counters_table")

    def _now_ms(self) -> int:
        return self.client.connection.clock.now_ms()

    @property
    def _dynamo(self) -> DynamoClient:
        return self.client.connection.dynamo("standard")


def _spec_of_rule(rule: Rule) -> RuleSpec:
    """What creates an equal rule, as a new revision."""
    spec: RuleSpec = {
        "threshold": rule.threshold,
        "direction": rule.direction,
        "rearm": rule.rearm,
        "step": rule.step,
        "window": rule.window,
        "of": rule.of,
        "to": str(rule.target),
    }
    if rule.counter is not None:
        spec["counter"] = rule.counter
    if rule.prefix is not None:
        spec["prefix"] = rule.prefix
    return spec
