"""The grammar of names and keys. Every key of every item is made here and nowhere else.

ledger    (counter, entry):  `e#<spread><id>` an entry, `s#head` the head, `s#archived` its archive,
                             (`namespace#<ns>`, `settings`) a namespace;
                             (`region#home`, `epoch` or `lease`), which region merges;
                             (`deletion#<ns>`, counter), a counter being deleted
counters  (counter, part):   `total`; (`stream#<stream>/<shard>`, `progress`);
                             (`stream#<stream>`, shard id), a known shard;
                             (`audit#<task>`, `bookmark`), how far a walk has come;
                             of a strict counter also (`<counter>#<NN>`, `bin`) and, at either,
                             `m#<id>`, a marker;
                             (`strict#<ns>`, counter), the directory of strict counters;
                             (`namespace#<ns>`, `schedule`), when and how a namespace is compacted;
                             (`namespace#<ns>`, `schedule#taken`), by which promotion it came;
                             (`alerts#rules`, `rule#<name>`), an alert rule with its revisions;
                             beside it `stamp`, moved by each change;
                             (counter, `alert#<rule>`), its state for a counter, or with
                             `#<id>#<window>` for a window of the counter;
                             (counter, `log#<time>#...`) and (`alerts#log`, `<time>#...`), both an
                             alert that was published;
                             (`import#<name>`, `import`), when the import of that name was begun;
                             `made#<counter>` beside it, what it creates; of a restore the same
                             under the name `#restore`;
                             (`unique#<scope>#<value>`, `claim`), who owns a value;
                             (`keyed#<id>`, `marker`), of changes of several strict counters;
                             (`group#<group>`, `member#<counter>`); (`group#`, `group#<group>`),
                             the directory of groups;
                             (`namespace#<ns>`, `ranking`), whether totals are ranked;
                             (`namespace#<ns>`, `run`), the result of the last compaction;
                             (counter, `holds`), the lease of the process that releases
                             its expired holds;
                             (`quarantine#<source>`, `<time>-<digest>`), a record in
                             quarantine;
                             (`ingest#<stream>/<shard>`, sequence number), how many messages of
                             a long Kinesis record are done;
                             (`region#`, `state`), whether this region's totals are complete;
                             `salvage#<region>` beside it, how far its salvage has come;
                             (`namespace#<ns>`, `windows`), the windows of a namespace; of each
                             counter there (counter, `w#<id>#month#<month>`), days of a month;
                             `w#<id>#day#<day>`, hours; `w#<id>#hour#<time>`, minutes;
                             (`quota#`, `<prefix>#<per>`), a quota; (`quota#<incarnation>`,
                             counter), the limit of one of its counters;
                             (`quota#<incarnation>#<window>#<digit>`, `w#<counter>`), what one
                             of them has used in a window;
                             (`quota#keys#<counter>`, `m#<id>`), the marker of a key

No counter name holds a `#`, so no counter has the key of another item.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from countledger.ledger.errors import BadCounterName, BadGroupName, BadSetting, shown
from countledger.ledger.limits import COUNTER_NAME_MAX_BYTES, NAMESPACE_MAX_BYTES
from countledger.ledger.texts import (
    broken_rule,
    check_text,
    has_blank_ends,
    has_control_characters,
    plain_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_NAMESPACE: Final = "default"

ENTRY_PREFIX: Final = "e#"
HEAD: Final = "s#head"
ARCHIVED: Final = "s#archived"
SETTINGS: Final = "settings"
REGION_HOME: Final = "region#home"
EPOCH: Final = "epoch"
LEASE: Final = "lease"
SCHEDULE: Final = "schedule"
TAKEN_OVER: Final = "schedule#taken"
RUN: Final = "run"
TOTAL: Final = "total"
PROGRESS: Final = "progress"
NAMESPACE_PREFIX: Final = "namespace#"
STREAM_PREFIX: Final = "stream#"
BIN: Final = "bin"
MARKER_PREFIX: Final = "m#"
RELEASE: Final = "holds"
STRICT_PREFIX: Final = "strict#"
BOOKMARK_PREFIX: Final = "audit#"
CLAIM_PREFIX: Final = "unique#"
CLAIM: Final = "claim"
KEYED_PREFIX: Final = "keyed#"
MARKER: Final = "marker"
GROUP_PREFIX: Final = "group#"
MEMBER_PREFIX: Final = "member#"
RANKING: Final = "ranking"
WINDOWS: Final = "windows"
BOOKMARK: Final = "bookmark"
IMPORT_PREFIX: Final = "import#"
DELETION_PREFIX: Final = "deletion#"
IMPORT: Final = "import"
MADE_PREFIX: Final = "made#"
REGION: Final = "region#"
STATE: Final = "state"
SALVAGE_PREFIX: Final = "salvage#"
ALERT_RULES: Final = "alerts#rules"
RULE_PREFIX: Final = "rule#"
RULES_STAMP: Final = "stamp"
ALERT_PREFIX: Final = "alert#"
ALERT_LOG: Final = "alerts#log"
LOG_PREFIX: Final = "log#"
QUARANTINE_PREFIX: Final = "quarantine#"
INGEST_PREFIX: Final = "ingest#"
QUOTA_PREFIX: Final = "quota#"
WINDOW_PREFIX: Final = "w#"
# Digits of milliseconds until the year 2286 (later, a key has no time), and of a version.
_TIME_DIGITS: Final = 13
_VERSION_DIGITS: Final = 18
TIME_END_MS: Final = 10**_TIME_DIGITS

NAMESPACES_INDEX: Final = "namespaces"
# The one partition of that sparse index.
DIRECTORY: Final = "namespace"

SPREADS: Final = (1, 16, 256)
_SPREAD_DIGITS: Final = {1: 0, 16: 1, 256: 2}

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_ENTRY_KEY = re.compile(rf"e#[0-9a-f]{{0,2}}({_UUID}|k[0-9a-f]{{32}})")
# The same grammar for many keys at once, each at the beginning of a line.
_ENTRY_KEYS = re.compile(
    r"(?:e#(?:[0-9a-f]{8,10}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|[0-9a-f]{0,2}k[0-9a-f]{32})\n)*+"
)
_NAMESPACE = re.compile(r"[^#:]+")
# Counter names of visible ASCII, as nearly all are; an app uses the same ones again and again.
_is_ordinary = lru_cache(4_096)(re.compile(r"[!\"$-9;-~]+(?::[!\"$-~]+)?").fullmatch)


def check_counter(name: object) -> str:
    """The counter name, if it is one: 1 to 512 bytes of UTF-8 without `#`, as `check_text`."""
    if type(name) is str and len(name) <= COUNTER_NAME_MAX_BYTES and _is_ordinary(name):
        return name
    if not isinstance(name, str):
        raise BadCounterName(f"counter name {shown(name)} is a {type(name).__name__}, not a str")
    if not name:
        raise BadCounterName("counter name is empty: give `namespace:rest` or a plain name")
    plain = plain_text(name)
    if (broken := _broken_rule(plain)) is not None:
        raise BadCounterName(f"counter name {shown(plain, 80)} {broken}")
    return plain


def _broken_rule(name: str) -> str | None:
    if "#" in name:
        return "holds a '#', which is reserved"
    if (broken := broken_rule(name, COUNTER_NAME_MAX_BYTES)) is not None:
        return broken
    namespace, colon, rest = name.partition(":")
    if colon and not (namespace and rest):
        return "needs text on both sides of its first colon"
    if colon and (has_blank_ends(namespace) or has_blank_ends(rest)):
        return "has a blank beside its first colon: take it away"
    return None


def check_prefix(prefix: object) -> str:
    """What counter names may begin with: empty, or the beginning of a name as `check_counter`."""
    if not isinstance(prefix, str):
        raise BadCounterName(f"prefix {shown(prefix)} is a {type(prefix).__name__}, not a str")
    plain = plain_text(prefix)
    if plain.startswith(":"):
        raise BadCounterName(f"prefix {shown(plain, 80)}: no counter name starts with a colon")
    if "#" in plain:
        raise BadCounterName(f"prefix {shown(plain, 80)} holds a '#', which is reserved")
    rule = broken_rule(plain, COUNTER_NAME_MAX_BYTES, more_follows=True)
    if rule is not None:
        raise BadCounterName(f"prefix {shown(plain, 80)} {rule}")
    return plain


def is_counter(name: str) -> bool:
    try:
        check_counter(name)
    except BadCounterName:
        return False
    return True


def namespace_of(counter: str) -> str:
    """The namespace of a (checked) counter name: the text before its first colon."""
    namespace, colon, _ = counter.partition(":")
    return namespace if colon else DEFAULT_NAMESPACE


def check_namespace(name: object) -> str:
    """The namespace name, if a counter name may begin with it; else BadSetting."""
    if not isinstance(name, str) or not _NAMESPACE.fullmatch(name) or has_control_characters(name):
        raise BadSetting(
            f"namespace {shown(name)} must be text without ':', '#' and control characters"
        )
    return check_text("namespace", name, NAMESPACE_MAX_BYTES, BadSetting)


def entry_key(entry_id: str, spread: int) -> str:
    """The sort key of an entry: zero, one or two hex digits of the id's hash, then the id."""
    if spread == 1:
        return ENTRY_PREFIX + entry_id
    prefix = blake2b(entry_id.encode(), digest_size=1).hexdigest()[: _SPREAD_DIGITS[spread]]
    return f"{ENTRY_PREFIX}{prefix}{entry_id}"


def entry_prefixes(spread: int) -> list[str]:
    """Every prefix under which a counter of this spread has entries."""
    digits = _SPREAD_DIGITS[spread]
    return [f"{ENTRY_PREFIX}{n:0{digits}x}" if digits else ENTRY_PREFIX for n in range(spread)]


def id_of(key: str) -> str | None:
    """The entry id in a sort key, or None where the key is not an entry's."""
    match = _ENTRY_KEY.fullmatch(key)
    return match[1] if match else None


def are_entries(keys: Sequence[str]) -> bool:
    """Whether `id_of` finds an id in each (TypeError: one is no text), in a third of its time."""
    lines = "\n".join((*keys, ""))
    return lines.count("\n") == len(keys) and _ENTRY_KEYS.fullmatch(lines) is not None


def namespace_key(namespace: str) -> dict[str, str]:
    return {"counter": NAMESPACE_PREFIX + namespace, "entry": SETTINGS}


def schedule_key(namespace: str) -> dict[str, str]:
    return {"counter": NAMESPACE_PREFIX + namespace, "part": SCHEDULE}


def taken_over_key(namespace: str) -> dict[str, str]:
    """The key of what shows by which promotion a schedule came."""
    return {"counter": NAMESPACE_PREFIX + namespace, "part": TAKEN_OVER}


def head_key(counter: str) -> dict[str, str]:
    return {"counter": counter, "entry": HEAD}


def archived_key(counter: str) -> dict[str, str]:
    """The key of the record of which archive was stored last."""
    return {"counter": counter, "entry": ARCHIVED}


def total_key(counter: str) -> dict[str, str]:
    return {"counter": counter, "part": TOTAL}


def bin_key(counter: str, number: int) -> dict[str, str]:
    """The key of a bin of a spread strict counter: a partition of its own."""
    return {"counter": f"{counter}#{number:02d}", "part": BIN}


def marker_key(counter: str, bins: int, change_id: str) -> dict[str, str]:
    """The key of the marker of a change of a strict counter.

    The markers of a spread counter are spread as well, by their change alone: whichever bin a
    change goes to, its marker is where a retry will look for it.
    """
    place = counter
    if bins > 1:
        digest = blake2b(change_id.encode(), digest_size=8, person=b"marker").digest()
        place = bin_key(counter, int.from_bytes(digest) % bins)["counter"]
    return {"counter": place, "part": MARKER_PREFIX + change_id}


def release_key(counter: str) -> dict[str, str]:
    """The key of the lease of the process that releases expired holds."""
    return {"counter": counter, "part": RELEASE}


def strict_key(counter: str) -> dict[str, str]:
    return {"counter": STRICT_PREFIX + namespace_of(counter), "part": counter}


def bookmark_key(purpose: str) -> dict[str, str]:
    return {"counter": BOOKMARK_PREFIX + purpose, "part": BOOKMARK}


def import_key(name: str) -> dict[str, str]:
    return {"counter": IMPORT_PREFIX + name, "part": IMPORT}


def restore_key() -> dict[str, str]:
    """The key of the record of a restore; the name of no import contains a `#`."""
    return import_key("#restore")


def region_home_key(what: str) -> dict[str, str]:
    """The key of the epoch or of the lease of the home region."""
    return {"counter": REGION_HOME, "entry": what}


def region_state_key() -> dict[str, str]:
    return {"counter": REGION, "part": STATE}


def salvage_key(lost: str) -> dict[str, str]:
    """The key of the place of the salvage of a lost region."""
    return {"counter": REGION, "part": SALVAGE_PREFIX + lost}


def progress_key(shard: str) -> dict[str, str]:
    return {"counter": STREAM_PREFIX + shard, "part": PROGRESS}


def known_shard_key(stream: str, shard_id: str) -> dict[str, str]:
    """The key of a shard in a stream's directory of shards."""
    return {"counter": STREAM_PREFIX + stream, "part": shard_id}


def rule_key(name: str) -> dict[str, str]:
    return {"counter": ALERT_RULES, "part": RULE_PREFIX + name}


def rules_stamp_key() -> dict[str, str]:
    """The key of the stamp that every change of an alert rule moves; the last of its partition."""
    return {"counter": ALERT_RULES, "part": RULES_STAMP}


def alert_state_key(counter: str, state: str) -> dict[str, str]:
    """The key of an alert state; `state`: the rule, `#` and its window, if any."""
    return {"counter": counter, "part": ALERT_PREFIX + state}


def alert_log_keys(
    counter: str, state: str, version: int, at_ms: int
) -> tuple[dict[str, str], ...]:
    """The keys of what is logged of an alert, by time: beside its counter, and among all."""
    place = f"{at_ms:0{_TIME_DIGITS}d}#{version:0{_VERSION_DIGITS}d}#{state}"
    return (
        {"counter": counter, "part": LOG_PREFIX + place},
        {"counter": ALERT_LOG, "part": f"{place}#{counter}"},
    )


def claim_key(scope: str, value: tuple[str, ...]) -> dict[str, str]:
    """The key of a claim; no two values or combinations have the same one."""
    parts = (part.replace("%", "%25").replace("#", "%23") for part in value)
    return {"counter": f"{CLAIM_PREFIX}{scope}#{'#'.join(parts)}", "part": CLAIM}


def keyed_key(change_id: str) -> dict[str, str]:
    """The key of the marker of changes of several strict counters."""
    return {"counter": KEYED_PREFIX + change_id, "part": MARKER}


def check_group(name: object) -> str:
    """The group's name, if it is valid: the grammar is that of counter names; else BadGroupName."""
    try:
        return check_counter(name)
    except BadCounterName as error:
        raise BadGroupName(str(error).replace("counter name", "group name", 1)) from None


def group_key(group: str) -> dict[str, str]:
    return {"counter": GROUP_PREFIX, "part": GROUP_PREFIX + group}


def member_key(group: str, counter: str) -> dict[str, str]:
    return {"counter": GROUP_PREFIX + group, "part": MEMBER_PREFIX + counter}


def ranking_key(namespace: str) -> dict[str, str]:
    return {"counter": NAMESPACE_PREFIX + namespace, "part": RANKING}


def quarantine_key(source: str, place: str) -> dict[str, str]:
    """The key of a record in quarantine; by time within one source."""
    return {"counter": QUARANTINE_PREFIX + source, "part": place}


def ingest_key(stream: str, shard: str, sequence: str) -> dict[str, str]:
    """The key of the progress within a record of Kinesis."""
    return {"counter": f"{INGEST_PREFIX}{stream}/{shard}", "part": sequence}


def quarantine_place(at_ms: int, identity: str) -> str:
    """The sort key of a record in quarantine: the same however often the record is delivered.

    `identity` distinguishes it within its source; a time that a key cannot hold sorts first.
    """
    time_ms = at_ms if 0 <= at_ms < TIME_END_MS else 0
    digest = blake2b(identity.encode(errors="surrogatepass"), digest_size=8, person=b"quarantine")
    return f"{time_ms:0{_TIME_DIGITS}d}-{digest.hexdigest()}"


def deletion_key(counter: str) -> dict[str, str]:
    return {"counter": DELETION_PREFIX + namespace_of(counter), "entry": counter}


def marker_places(counter: str, bins: int) -> list[str]:
    """The partitions that hold the markers of a strict counter."""
    if bins == 1:
        return [counter]
    return [bin_key(counter, number)["counter"] for number in range(bins)]


def log_time_ms(place: str) -> int:
    """When an alert was set off, by its place in the log (`alert_log_keys`)."""
    return int(place[:_TIME_DIGITS])


def run_key(namespace: str) -> dict[str, str]:
    return {"counter": NAMESPACE_PREFIX + namespace, "part": RUN}


def quota_key(prefix: str, per: str) -> dict[str, str]:
    """The key of a quota; all of them are in one partition."""
    return {"counter": QUOTA_PREFIX, "part": quota_part(prefix) + per}


def quota_part(prefix: str) -> str:
    """The beginning of the sort keys of the quotas of a prefix."""
    return f"{prefix}#"


def quota_limit_key(incarnation: str, counter: str) -> dict[str, str]:
    return {"counter": QUOTA_PREFIX + incarnation, "part": counter}


def quota_window_partitions(incarnation: str, window: str) -> list[str]:
    """All partitions of the counters of one window of a quota."""
    return [f"{QUOTA_PREFIX}{incarnation}#{window}#{digit:x}" for digit in range(16)]


def quota_window_key(incarnation: str, counter: str, window: str) -> dict[str, str]:
    """Where a window of a counter is counted; the counters of a window are in 16 partitions."""
    digit = blake2b(counter.encode(), digest_size=1, person=b"quota").digest()[0] % 16
    partition = quota_window_partitions(incarnation, window)[digit]
    return {"counter": partition, "part": WINDOW_PREFIX + counter}


def quota_marker_key(counter: str, key_id: str) -> dict[str, str]:
    """The key of the marker of a key: of no quota and of no window."""
    return {"counter": f"{QUOTA_PREFIX}keys#{counter}", "part": MARKER_PREFIX + key_id}


def windows_key(namespace: str) -> dict[str, str]:
    return {"counter": NAMESPACE_PREFIX + namespace, "part": WINDOWS}


def window_part(windows_id: str, item: str = "") -> str:
    """The sort key of an item of windows beside its counter's total, or the beginning of it.

    `item` is `month#2026-11` (holds its days), `day#2026-11-22` (its hours) or
    `hour#2026-11-22T13:30` (minutes of half an hour). The total names the windows
    (`total.windows_id_of`).
    """
    return f"{WINDOW_PREFIX}{windows_id}#{item}"


def window_key(counter: str, windows_id: str, item: str) -> dict[str, str]:
    return {"counter": counter, "part": window_part(windows_id, item)}
