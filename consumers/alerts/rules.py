"""The stored rules of a region: create, change, delete, read.

All rules are in one partition of `counters`. A rule is a record (`ledger/records.py`): one item,
with the current revision and those that ended in the last hours, because a stream record of their
time may be delivered again. So a reader of a rule knows all its revisions. A deleted rule stays
as a record whose last revision has an end, until no stream record can need it.

A write of a rule raises the number of the *stamp*, in the same transaction: an evaluator reads the
rules again when the number has changed. A read may show a transaction item by item. So the stamp
has a checksum as well: the sum of a number made of the id of each current revision. A write adds
the difference that it makes, without reading the stamp. Rules with another sum are read again.

A process may be suspended after it computed the effective time, so a write is not sent when it is
too late for that time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from countledger.consumers.alerts.rule import Direction, Rule, Watch, check_rule_name, target_of
from countledger.ledger import keys
from countledger.ledger.attempts import wrote
from countledger.ledger.attributes import Item, check_format, optional, require, require_amount
from countledger.ledger.calendar import Per
from countledger.ledger.errors import (
    BadRule,
    CorruptItem,
    CountledgerError,
    NoSuchRule,
    RuleExists,
    Throttled,
)
from countledger.ledger.limits import (
    ALERT_RULE_DELAY_MS,
    ALERT_RULE_REVISIONS_MAX,
    ALERT_RULE_SEND_MS,
    ALERT_RULES_AGE_MS,
    ALERT_RULES_MAX,
    SECOND_MS,
    SIGNED_REQUEST_LIFE_MS,
    STREAM_RECORD_MAX_AGE_MS,
)
from countledger.ledger.operations import Add, Compare, Put, Query, Update
from countledger.ledger.records import Records, Replacement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from countledger.ledger.connection import Connection
    from countledger.ledger.operations import Write
    from countledger.ledger.records import Decide, RecordWritten


_NUMBER: Final = "number"
_CHECKSUM: Final = "checksum"
# The id of the current revision; no attribute: the rule is deleted.
_CURRENT: Final = "current"
_CHECKSUM_BYTES: Final = 6


@dataclass(frozen=True, slots=True)
class RuleSnapshot:
    """All rules, each as of one moment; `unreadable`: why rules are corrupt, and not evaluated.

    By name the revisions of a rule, the oldest first; deleted rules are among them. `number` is
    that of the stamp: how often rules were changed. `is_whole`: exactly those changes are in it.
    """

    number: int = 0
    revisions: Mapping[str, Sequence[Rule]] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    is_whole: bool = True

    @property
    def current(self) -> dict[str, Rule]:
        found = ((name, current_of(known)) for name, known in self.revisions.items())
        return {name: rule for name, rule in found if rule is not None}

    @property
    def count(self) -> int:
        """How many revisions there are; a corrupt rule is one."""
        return len(self.unreadable) + sum(map(len, self.revisions.values()))

    def rule(self, name: str) -> Rule:
        """The current revision of a rule that is there, and not corrupt."""
        if name in self.unreadable:
            raise CorruptItem(_advised(name, self.unreadable[name]))
        return _existing(name, self.revisions.get(name, ()))

    def evaluated_in(self, region: str) -> list[Rule]:
        """All revisions of the rules for that region."""
        known = (rule for revisions in self.revisions.values() for rule in revisions)
        return [rule for rule in known if rule.evaluate_in == region]


def current_of(revisions: Sequence[Rule]) -> Rule | None:
    """The current one of a rule's revisions; None: the rule is deleted, or was never created."""
    return revisions[-1] if revisions and revisions[-1].effective_until_ms is None else None


def _existing(name: str, revisions: Sequence[Rule]) -> Rule:
    current = current_of(revisions)
    if current is None:
        raise NoSuchRule(
            f"no alert rule is called {name!r}: `countledger alert create {name}` creates one"
        )
    return current


def _advised(name: str, why: str) -> str:
    return f"{why}: `countledger alert delete {name}` deletes it"


def encode_rule(name: str, revisions: Sequence[Rule], now_ms: int) -> Item:
    """The item of a rule, without what makes it a record; a deleted one expires."""
    current = current_of(revisions)
    until_ms = max((one.effective_until_ms or 0 for one in revisions), default=now_ms)
    return {
        **keys.rule_key(name),
        "revisions": [_encode_revision(one) for one in revisions],
        _CURRENT: current and current.revision,
        "expires_at": None if current else -(-_needed_until_ms(until_ms) // SECOND_MS),
    }


def _encode_revision(rule: Rule) -> Item:
    attributes = {
        "id": rule.revision,
        "watched_counter": rule.counter,
        "watched_prefix": rule.prefix,
        "threshold": rule.threshold,
        "direction": str(rule.direction),
        "rearm": rule.rearm,
        "step": rule.step,
        "window": None if rule.window is None else str(rule.window),
        "of": None if rule.of is Watch.VALUE else str(rule.of),
        "target": str(rule.target),
        "evaluate_in": rule.evaluate_in,
        "effective_from": rule.effective_from_ms,
        "effective_until": rule.effective_until_ms,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _needed_until_ms(until_ms: int) -> int:
    """Until when a revision with that end may be needed: no older stream record is evaluated."""
    return until_ms + STREAM_RECORD_MAX_AGE_MS


def decode_rule(item: Item | None) -> tuple[Rule, ...]:
    """The revisions in the item of a rule, the oldest first; none: no rule was there."""
    if item is None:
        return ()
    check_format(item)
    key = {name: item[name] for name in ("counter", "part")}
    stored = require(item, "revisions", list)
    revisions = [_decode_revision({**key, **_checked(item, one)}) for one in stored]
    current = current_of(revisions)
    if optional(item, _CURRENT, str) != (current and current.revision):
        raise CorruptItem(f"alert rule {_name_of(item)!r}: its last revision is another one", item)
    return tuple(revisions)


def _checked(item: Item, revision: object) -> Item:
    if isinstance(revision, dict):
        return revision
    raise CorruptItem(f"alert rule {_name_of(item)!r}: a revision is no map", item)


def _decode_revision(item: Item) -> Rule:
    try:
        return Rule(
            name=_name_of(item),
            counter=optional(item, "watched_counter", str),
            prefix=optional(item, "watched_prefix", str),
            threshold=require_amount(item, "threshold"),
            direction=Direction(require(item, "direction", str)),
            rearm=require_amount(item, "rearm") if "rearm" in item else None,
            step=require_amount(item, "step") if "step" in item else None,
            window=Per(item["window"]) if "window" in item else None,
            of=Watch(optional(item, "of", str) or Watch.VALUE),
            target=target_of(require(item, "target", str)),
            evaluate_in=require(item, "evaluate_in", str),
            revision=require(item, "id", str),
            effective_from_ms=require(item, "effective_from", int),
            effective_until_ms=optional(item, "effective_until", int),
        )
    except ValueError as error:
        raise CorruptItem(f"alert rule {_name_of(item)!r}: {error}", item) from error


def _name_of(item: Item) -> str:
    return str(item["part"]).removeprefix(keys.RULE_PREFIX)


def snapshot_of(items: Iterable[Item]) -> RuleSnapshot:
    """The rules in the items of their partition; a corrupt rule does not hide the others.

    If the stamp is corrupt, no evaluator could notice a change: that is raised.
    """
    stamp: Item | None = None
    checksum = 0
    revisions: dict[str, Sequence[Rule]] = {}
    unreadable: dict[str, str] = {}
    for item in items:
        if item["part"] == keys.RULES_STAMP:
            stamp = item
            continue
        checksum += _share_of(item)
        name = _name_of(item)
        try:
            revisions[name] = decode_rule(item)
        except CountledgerError as error:
            unreadable[name] = str(error)
    expected = 0 if stamp is None else require(stamp, _CHECKSUM, int)
    return RuleSnapshot(_number_in(stamp), revisions, unreadable, is_whole=checksum == expected)


def _number_in(stamp: Item | None) -> int:
    if stamp is None:
        return 0
    check_format(stamp)
    return require(stamp, _NUMBER, int)


def _share_of(item: Item | None) -> int:
    """The part of the checksum that is of a rule: a number made of its current revision's id."""
    current = (item or {}).get(_CURRENT)
    if not isinstance(current, str):
        return 0
    return int.from_bytes(sha256(current.encode()).digest()[:_CHECKSUM_BYTES])


def followed_by(
    revisions: Sequence[Rule], rule: Rule | None, revision: str, effective_ms: int, now_ms: int
) -> tuple[Rule, ...]:
    """The revisions of a rule after a change, which may delete it. Pure.

    The change is effective in whole seconds, and not before the previous change. What no stream
    record can need any more is left out.
    """
    last = revisions[-1] if revisions else None
    last_ms = 0 if last is None else last.effective_until_ms or last.effective_from_ms
    from_ms = -(-max(effective_ms, last_ms) // SECOND_MS) * SECOND_MS
    ended = (
        replace(one, effective_until_ms=from_ms) if one.effective_until_ms is None else one
        for one in revisions
    )
    kept = [one for one in ended if _needed_until_ms(one.effective_until_ms or 0) > now_ms]
    if rule is not None:
        begun = replace(rule, revision=revision, effective_from_ms=from_ms)
        kept.append(replace(begun, effective_until_ms=None))
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class Rules:
    """The alert rules of one region.

    A change is effective a fixed time after it is written, so that every evaluator knows it by
    then.
    """

    connection: Connection
    delay_ms: int = ALERT_RULE_DELAY_MS

    def create(self, rule: Rule) -> Rule:
        """As `Alerts.create`: the rule with its revision and the time from which it is effective.

        Four write units, a read unit, and the read units of `read`.
        """
        snapshot = self.read()

        def decide(there: Item | None) -> Replacement:
            if _is_rule(there):
                raise RuleExists(
                    f"alert rule {rule.name!r} exists: `countledger alert set {rule.name}` "
                    "changes it"
                )
            _refuse_too_many(snapshot)
            return self._replacement(there, rule)

        return _written(self._write(rule.name, decide))

    def create_once(self, rule: Rule, mark: Put) -> None:
        """Create a rule in one transaction with a mark, which shows for ever that it was created.

        If the mark or a rule exists, what is stored stays, also nothing. Six write units, and the
        read units of `create`; if a rule exists a write unit.
        """
        snapshot = self.read()

        def decide(there: Item | None) -> Replacement | None:
            if _is_rule(there):
                return None
            _refuse_too_many(snapshot)
            return self._replacement(there, rule, mark)

        written = self._write(rule.name, decide)
        if not (written.changed or written.refused):
            wrote(self.connection.retrying, mark)  # else a late request creates it, once deleted

    def set(self, name: str, change: Rule | Callable[[Rule], Rule]) -> Rule:
        """Write the next revision, as given or made by `change`, unless it equals the current one.

        A read unit and four write units; two more for each KB of revisions that are kept. Errors as
        of `Alerts.set`.
        """
        name = check_rule_name(name)

        def decide(there: Item | None) -> Replacement | None:
            current = _existing(name, _readable(name, there))
            wanted = change if isinstance(change, Rule) else change(current)
            return None if wanted.means_the_same_as(current) else self._replacement(there, wanted)

        return _written(self._write(name, decide))

    def delete(self, name: str) -> bool:
        """As `Alerts.delete`. A read unit and four write units."""
        name = check_rule_name(name)

        def decide(there: Item | None) -> Replacement | None:
            return self._ended(name, there) if _is_rule(there) else None

        return self._write(name, decide).changed

    def get(self, name: str) -> Rule:
        """As `Alerts.get`. One read unit."""
        name = check_rule_name(name)
        stored = self.connection.retrying.get(
            self.connection.counters, keys.rule_key(name), consistent=True
        )
        return _existing(name, _readable(name, stored))

    def list(self) -> list[Rule]:
        """All rules that are not corrupt, by name. Cost: as `read`."""
        current = self.read().current
        return [current[name] for name in sorted(current)]

    def number(self) -> int:
        """The number of changes so far, read consistently. One read unit."""
        return _number_in(
            self.connection.retrying.get(
                self.connection.counters, keys.rules_stamp_key(), consistent=True
            )
        )

    def read(self) -> RuleSnapshot:
        """All rules: one read unit for each 4 KB. It holds every change that was written before."""
        of_rules = Compare("counter", "=", keys.ALERT_RULES)
        # The stamp is the last item: it is at least as new as everything else.
        everything = Query(self.connection.counters, of_rules, consistent=True)
        pages = self.connection.retrying.pages(everything)
        return snapshot_of(item for page in pages for item in page)

    def _write(self, name: str, decide: Decide) -> RecordWritten:
        # A deleted rule stays for longer than a request can arrive late.
        records = Records(self.connection, self.connection.counters, "alert rule", removable=False)
        return self.connection.run(records.write(name, keys.rule_key(name), decide))

    def _replacement(self, there: Item | None, rule: Rule, *marks: Put) -> Replacement:
        """The next revision in place of what is there, unless too many of the rule are kept."""
        now_ms = self.connection.clock.now_ms()
        revision = self.connection.ids.new_id(now_ms)
        known = decode_rule(there)
        revisions = followed_by(known, rule, revision, now_ms + self.delay_ms, now_ms)
        if len(revisions) > ALERT_RULE_REVISIONS_MAX:
            raise BadRule(
                f"alert rule {rule.name!r} was changed {len(revisions) - 1} times in the last 30 "
                "hours, and all its revisions are kept so long: wait some hours, or create "
                "another rule"
            )
        return self._replaced(rule.name, there, revisions, now_ms, marks)

    def _ended(self, name: str, there: Item | None) -> Replacement:
        """A deleted rule in place of what is there; a corrupt one leaves no revision."""
        now_ms = self.connection.clock.now_ms()
        try:
            known = decode_rule(there)
        except CountledgerError:
            known = ()
        revisions = followed_by(known, None, "", now_ms + self.delay_ms, now_ms)
        return self._replaced(name, there, revisions, now_ms, ())

    def _replaced(
        self,
        name: str,
        there: Item | None,
        revisions: Sequence[Rule],
        now_ms: int,
        marks: Sequence[Write],
    ) -> Replacement:
        item = encode_rule(name, revisions, now_ms)
        changed = Add(_NUMBER, 1), Add(_CHECKSUM, _share_of(item) - _share_of(there))
        stamp = Update(self.connection.counters, keys.rules_stamp_key(), changed)
        return Replacement(item, (stamp, *marks), lambda: self.refuse_late(name, now_ms))

    def refuse_late(self, name: str, computed_ms: int) -> None:
        """Raise `Throttled` for a time computed too long ago; another attempt has a new time."""
        late_ms = self.connection.clock.now_ms() - computed_ms
        if late_ms > ALERT_RULE_SEND_MS:
            raise Throttled(
                f"alert rule {name!r}: this process was suspended for {late_ms} ms before the "
                "change was sent; nothing was written"
            )


def _readable(name: str, item: Item | None) -> Sequence[Rule]:
    try:
        return decode_rule(item)
    except CorruptItem as error:
        raise CorruptItem(_advised(name, str(error)), item) from error


def _is_rule(item: Item | None) -> bool:
    """Whether a rule is there, which may be corrupt; a deleted one is none."""
    try:
        return current_of(decode_rule(item)) is not None
    except CountledgerError:
        return True


def _written(written: RecordWritten) -> Rule:
    return decode_rule(written.item)[-1]


def _refuse_too_many(snapshot: RuleSnapshot) -> None:
    """Calls at one moment may exceed the limit by their number: it bounds what is read."""
    if snapshot.count >= ALERT_RULES_MAX:
        current = len(snapshot.current) + len(snapshot.unreadable)
        raise BadRule(
            f"{current} alert rules and {snapshot.count - current} kept revisions of the last "
            f"hours reach the limit of {ALERT_RULES_MAX}: delete rules, or wait some hours"
        )


@dataclass(slots=True)
class RecentRules:
    """The rules as of at most `ALERT_RULES_AGE_MS` ago.

    A change is effective later than that after it was written, so this class has read it by
    then. The age is measured with one clock, so an offset of the clock does not matter.
    """

    rules: Rules
    _snapshot: RuleSnapshot = field(default_factory=RuleSnapshot)
    _read_at_ms: int | None = None
    _number: int | None = None
    _partial_since: tuple[int, int] | None = None

    def snapshot(self) -> RuleSnapshot:
        """The rules; the same object as before if they are the same.

        Free while they are young enough. After that one read unit, and if a rule has changed one
        more for each 4 KB of rules.
        """
        now_ms = self.rules.connection.clock.now_ms()
        if self._read_at_ms is None or not 0 <= now_ms - self._read_at_ms < ALERT_RULES_AGE_MS:
            number = self.rules.number()
            if number != self._number:
                self._snapshot = self.rules.read()
                self._number = self._snapshot.number if self._is_final(now_ms) else None
            # The time before the read: a later change may be missing.
            self._read_at_ms = now_ms
        return self._snapshot

    def _is_final(self, now_ms: int) -> bool:
        """Whether what was read need not be read again until the number changes.

        So it is if all items of all changes are visible, or if what is missing has been missing for
        longer than a request can be under way: then somebody has edited the items.
        """
        if self._snapshot.is_whole:
            return True
        number = self._snapshot.number
        if self._partial_since is None or self._partial_since[0] != number:
            self._partial_since = number, now_ms
        return now_ms - self._partial_since[1] >= SIGNED_REQUEST_LIFE_MS
