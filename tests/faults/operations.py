"""The rows of the matrix: every operation that writes, and the request that meets the fault."""

from dataclasses import replace
from typing import Final

from countledger.compaction.report import Retire
from countledger.producers.sequences.sequences import Sequences
from countledger.producers.strict.definition import Method
from tests.faults import consuming, holding, limiting, producing
from tests.faults.matrix import (
    CLAIM,
    COMMIT,
    ENTRY,
    NUMBER,
    QUOTA,
    ROWS,
    SDK,
    STRICT,
    Words,
)
from tests.faults.play import Operation
from tests.faults.sellers import write_of

_BATCH: Final = "BatchWriteItem"
_TRANSACT: Final = "TransactWriteItems"
_PUT: Final = "PutItem"
_UPDATE: Final = "UpdateItem"
_DELETE: Final = "DeleteItem"
_HANDLED: Final = Words("handled", "handled", "delivered again", "delivered again")
_HANDLED_BY_SDK: Final = Words("handled", "handled", "delivered again", "delivered again", sdk=True)
_BUFFER: Final = Words("recorded", "duplicate", "NotRecorded", "NotRecorded")
_SENT: Final = Words("Sent", "Sent", "Unacknowledged", "Unacknowledged")
_REDRIVEN: Final = Words("done", "done", "not resolved", "not resolved", part=True)
_NOTED: Final = Words("handled", "handled", "delivered again", "delivered again", True, True)
_QUARANTINED: Final = replace(_NOTED, unreachable="delivered again")
_PART_HANDLED: Final = Words("handled", "handled", "handled", "handled", part=True)
_EMPTIED: Final = Words("deleted", "deleted", refused="skipped", sdk=True, part=True)
_RETIRED: Final = Words("merged", "nothing", "ServiceFailed", "ServiceFailed", part=True)
_ARCHIVED: Final = Words("merged", "nothing", part=True)
_FIRST: Final = Words("recorded", "duplicate", part=True)
_CREATED: Final = Words("done", "CounterExists")
_WITHDRAWN: Final = Words("Withdrawn", "Withdrawn", "Unknown", "Contended")

_ENTRIES: Final = (
    Operation("record", _PUT, producing.recording(None), ENTRY),
    Operation("record with a key", _PUT, producing.recording("key"), ENTRY, hides=True),
    Operation(
        "record with a key and its time", _PUT, producing.recording("key", timed=True), ENTRY
    ),
    Operation("record many", _BATCH, producing.recording(*[None] * 5), ENTRY),
    Operation("record many with keys", _PUT, producing.recording("a", "b"), ENTRY),
    Operation("buffer", _BATCH, producing.buffering(coalesce=False), _BUFFER),
    Operation("buffer, coalescing", _BATCH, producing.buffering(coalesce=True), _BUFFER),
    Operation("send to Kinesis", "PutRecords", producing.sending_to_kinesis, _SENT),
    Operation("ingest", _BATCH, producing.ingesting(None), _HANDLED),
    Operation("ingest with keys", _PUT, producing.ingesting("key"), _HANDLED),
    Operation("set a ledger counter", _PUT, producing.correcting, ENTRY),
    Operation("first use of a namespace", _PUT, producing.first_use, _FIRST),
)

_STRICT: Final = (
    *(
        Operation(
            str(row),
            write_of(row.method),
            producing.changing(row.method, row.prefer),
            STRICT,
            hides=True,
        )
        for row in ROWS
    ),
    *(
        Operation(
            f"{method} with bins", write_of(method), producing.changing(method, bins=4), STRICT
        )
        for method in (Method.REQUEST_TOKEN, Method.MARKER)
    ),
    *(
        Operation(
            f"{method} split over bins",
            _TRANSACT,
            producing.changing(method, None, -33, 8),
            STRICT,
            after=after,
        )
        for method, after in ((Method.ATOMIC, 0), (Method.REQUEST_TOKEN, 3), (Method.MARKER, 3))
    ),
    Operation("create a strict counter", _TRANSACT, producing.creating(1), _CREATED, hides=True),
    Operation("create one with bins", _TRANSACT, producing.creating(3), _CREATED),
    Operation("set bounds", _UPDATE, producing.bounding(1), Words(), hides=True),
    Operation("set bounds of bins", _TRANSACT, producing.bounding(3), Words()),
    Operation(
        "delete a strict counter", _TRANSACT, producing.deleting, Words("done", "NoSuchCounter")
    ),
    Operation("withdraw from marker", _TRANSACT, producing.withdrawing(Method.MARKER), _WITHDRAWN),
    Operation("withdraw from set", _UPDATE, producing.withdrawing(Method.SET), _WITHDRAWN),
    Operation("transfer", _TRANSACT, producing.transferring, STRICT, hides=True),
    Operation("set a strict counter", _TRANSACT, producing.setting(1), STRICT, hides=True),
    Operation("set one with bins", _TRANSACT, producing.setting(3), STRICT),
    Operation("withdraw several changes", _PUT, producing.withdrawing_all, _WITHDRAWN),
)
_OWNED: Final = (
    Operation("take a claim", _UPDATE, producing.claiming("take", own=False), CLAIM, hides=True),
    Operation(
        "take with an item", _TRANSACT, producing.claiming("take", own=True), CLAIM, hides=True
    ),
    Operation(
        "change a claim", _TRANSACT, producing.claiming("change", own=False), CLAIM, hides=True
    ),
    Operation("change with an item", _TRANSACT, producing.claiming("change", own=True), CLAIM),
    Operation("release a claim", _PUT, producing.claiming("release", own=False), CLAIM, hides=True),
    Operation("release with an item", _TRANSACT, producing.claiming("release", own=True), CLAIM),
    Operation(
        "create a sequence", _PUT, producing.making_a_sequence, Words("done", "SequenceExists")
    ),
    Operation("draw", _UPDATE, producing.drawing(Sequences.draw), NUMBER, hides=True),
    Operation(
        "draw a block", _UPDATE, producing.drawing(lambda s, n: s.draw_block(n, 5), 5), NUMBER
    ),
    Operation(
        "draw by expectation",
        _UPDATE,
        producing.drawing(Sequences.draw_expected),
        NUMBER,
        hides=True,
    ),
    Operation("append", _PUT, producing.appending, NUMBER, hides=True),
)
_QUOTAS: Final = (
    Operation("acquire (under)", _UPDATE, limiting.acquiring(), QUOTA),
    Operation("acquire (over)", _UPDATE, limiting.acquiring(prefer="over"), QUOTA),
    Operation(
        "acquire by request_token",
        _TRANSACT,
        limiting.acquiring("request_token", "k"),
        QUOTA,
        hides=True,
    ),
    Operation("acquire by marker", _TRANSACT, limiting.acquiring("marker", "k"), QUOTA, hides=True),
    Operation("reserve", _TRANSACT, limiting.reserving, QUOTA, hides=True),
    Operation("commit", _TRANSACT, limiting.resolving(3), COMMIT, hides=True),
    Operation("commit as reserved", _UPDATE, limiting.committing_as_reserved, COMMIT),
    Operation("release a reservation", _TRANSACT, limiting.resolving(None), CLAIM),
    Operation("create a quota", _PUT, limiting.creating, Words("Quota", "QuotaExists")),
    Operation(
        "set the limit of a quota",
        _PUT,
        limiting.changing(lambda q, prefix: q.set_limit(prefix, 9), [(9, None)]),
        Words(),
    ),
    Operation(
        "set the limit of a counter",
        _TRANSACT,
        limiting.changing(lambda q, prefix: q.override(f"{prefix}a", 9), [(100, 9)]),
        Words(),
    ),
    Operation(
        "delete a quota",
        _PUT,
        limiting.changing(lambda q, prefix: q.delete(prefix), []),
        Words("done", "NoSuchQuota"),
    ),
)
_HOLDS: Final = tuple(
    Operation(
        f"{name} with bins" if bins > 1 else name,
        _TRANSACT,
        begin(bins),
        replace(STRICT, done=done),
        hides=bins == 1,
    )
    for bins in (1, 3)
    for name, begin, done in (
        ("hold", holding.placing, "Held"),
        ("confirm a hold", holding.confirming, "Confirmed"),
        ("cancel a hold", holding.cancelling, "Cancelled"),
    )
)
_CONSUMERS: Final = (
    Operation("apply records", _UPDATE, consuming.applying(), _HANDLED_BY_SDK),
    Operation(
        "quarantine a record", "SendMessage", consuming.applying(malformed=True), _QUARANTINED
    ),
    Operation("redrive a record", _PUT, consuming.redriving, _REDRIVEN),
    Operation("mark it as handled", _UPDATE, consuming.redriving, SDK),
    Operation("add to a group", _PUT, consuming.grouping("add"), Words()),
    Operation("add to a ranked group", _UPDATE, consuming.grouping("add", ranked=True), Words()),
    Operation("remove from a group", _PUT, consuming.grouping("remove"), Words()),
    Operation(
        "remove from a ranked group",
        _UPDATE,
        consuming.grouping("remove", ranked=True),
        Words(),
    ),
    Operation("rank a group", _UPDATE, consuming.grouping("rank"), Words(part=True)),
    Operation(
        "rank a group no more",
        _UPDATE,
        consuming.grouping("unrank", ranked=True),
        Words(part=True),
    ),
    Operation(
        "delete a group",
        _PUT,
        consuming.grouping("delete", ranked=True),
        Words("done", "NoSuchGroup", part=True),
    ),
    Operation("rank a namespace", _UPDATE, consuming.ranking(on=True), Words()),
    Operation("rank a namespace no more", _UPDATE, consuming.ranking(on=False), Words()),
    Operation("create a namespace", _PUT, consuming.making_a_namespace, Words()),
    Operation("describe a namespace", _PUT, consuming.describing, Words()),
    Operation("create a schedule", _PUT, consuming.scheduling("create"), Words(part=True)),
    Operation("create its trigger", "CreateSchedule", consuming.scheduling("create"), SDK),
    Operation("change a schedule", _PUT, consuming.scheduling("set"), Words(part=True)),
    Operation("delete a schedule", _PUT, consuming.scheduling("delete"), Words(part=True)),
    Operation("delete its trigger", "DeleteSchedule", consuming.scheduling("delete"), SDK),
    Operation(
        "create an alert rule", _TRANSACT, consuming.ruling("create"), Words("done", "RuleExists")
    ),
    Operation("change an alert rule", _TRANSACT, consuming.ruling("set"), Words()),
    Operation("delete an alert rule", _TRANSACT, consuming.ruling("delete"), Words()),
    Operation("note an alert", _PUT, consuming.alerting(0), _NOTED),
    Operation("alert the bus", "PutEvents", consuming.alerting(1), _PART_HANDLED),
    Operation("alert a topic", "PublishBatch", consuming.alerting(2), _PART_HANDLED),
    Operation(
        "publish a head",
        _PUT,
        consuming.compacting(Retire.TRANSACTION),
        Words("merged", "nothing", sdk=True, part=True),
    ),
    Operation(
        "retire by transaction",
        _TRANSACT,
        consuming.compacting(Retire.TRANSACTION),
        _RETIRED,
    ),
    Operation("retire by deletion", _DELETE, consuming.compacting(Retire.DELETE), _RETIRED),
    Operation(
        "archive",
        "PutObject",
        consuming.compacting(Retire.DELETE, archived=True),
        _ARCHIVED,
    ),
    Operation(
        "mark for deletion",
        _PUT,
        consuming.erasing("marked"),
        Words("marked", "waiting"),
    ),
    Operation(
        "empty a counter",
        _TRANSACT,
        consuming.erasing("deleted"),
        _EMPTIED,
    ),
    Operation(
        "forget a counter",
        _DELETE,
        consuming.erasing("forgotten"),
        Words("forgotten", "no such counter", sdk=True, part=True),
    ),
)
# Those that take several requests, and may die between any two of them. Not those that the explorer
# lets die at each request: schedules, rules, deletions, strict counters.
_SEVERAL: Final = frozenset(
    {
        "quarantine a record",
        "redrive a record",
        "add to a ranked group",
        "remove from a ranked group",
        "rank a group",
        "delete a group",
        "rank a namespace",
        "note an alert",
        "publish a head",
        "retire by deletion",
        "archive",
        "apply records",
    }
)
OPERATIONS: Final = tuple(
    replace(one, several=one.name in _SEVERAL)
    for one in (*_ENTRIES, *_STRICT, *_OWNED, *_QUOTAS, *_HOLDS, *_CONSUMERS)
)
