"""The bounds that are promised, or kept in several places: each once, with its reason."""

from __future__ import annotations

from typing import Final

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS

# A partition key holds 2,048 bytes at the service; the rest is left for prefixes and bins.
COUNTER_NAME_MAX_BYTES: Final = 512
# With a colon and one byte after it, it is a counter name.
NAMESPACE_MAX_BYTES: Final = COUNTER_NAME_MAX_BYTES - 2
# An id begins with 48 bits of milliseconds; no entry is made before 1970.
TIME_LIMIT_MS: Final = 1 << 48
# The first millisecond of the year 10000, for which Python has no date.
DATE_LIMIT_MS: Final = 253_402_300_800_000
# Keys and notes are stored in the entry; together with the name they keep a plain entry at one
# to three write units, and a batch of 25 far below the 16 MB of a call.
KEY_MAX_BYTES: Final = 1_024
NOTE_MAX_BYTES: Final = 1_024

# The name is part of the key of each entry of the import, and of its note.
IMPORT_NAME_MAX_BYTES: Final = 256

# A DynamoDB number holds 38 significant digits.
NUMBER_MAX_DIGITS: Final = 38
# The digits of a sum reach from the first digit of its largest entry to the last decimal place of
# its smallest one, and 10^9 entries carry 9 digits further. An amount that a caller gives (a delta,
# a value to set, a bound, an opening value) keeps to both limits, so that the sum of a billion
# entries of any size is a number that DynamoDB holds.
AMOUNT_MAX_DIGITS: Final = 20
AMOUNT_MAX_DECIMALS: Final = 9
SUM_ENTRIES_DIGITS: Final = 9
# The events that an entry may carry; an app gives 10^9 at the most, an opening balance has those of
# all entries before it. More than any ledger counts, and a sum over a batch still fits a number.
ENTRY_EVENTS_MAX: Final = 10**28

# Beyond a day of horizon the item collection of a busy counter only grows; below a minute a
# retry over a slow network would be refused.
HORIZON_MIN_MS: Final = MINUTE_MS
HORIZON_MAX_MS: Final = 366 * DAY_MS
HORIZON_DEFAULT_MS: Final = DAY_MS
CLOCK_SKEW_DEFAULT_MS: Final = MINUTE_MS
# Replication takes about a second, but AWS promises no bound. Compaction reads every region and
# waits for replication; this period covers an entry that only its own region has seen yet.
REPLICATION_BOUND_DEFAULT_MS: Final = 15 * MINUTE_MS
# AWS takes a signed request for so long after its signature: one held back on its way may arrive
# that much later than its sender looked at the clock.
SIGNED_REQUEST_LIFE_MS: Final = 15 * MINUTE_MS

# For how long a request waits for a connection, and for each part of its answer: calls of a counter
# take milliseconds; one that takes seconds is lost and tried again. A call is tried again for so
# long: throttles end by then, and a person would ask what is wrong. No protocol has more attempts.
CONNECT_TIMEOUT_DEFAULT_MS: Final = 3 * SECOND_MS
READ_TIMEOUT_DEFAULT_MS: Final = 10 * SECOND_MS
TIMEOUT_MAX_MS: Final = MINUTE_MS
CALL_TIMEOUT_DEFAULT_MS: Final = 30 * SECOND_MS
CALL_TIMEOUT_MAX_MS: Final = HOUR_MS
ATTEMPTS_OF_A_CALL_MAX: Final = 100

# For how long a home region may merge after it has written its lease (it renews it at half of it).
# A handover to another home waits for it, and for the life of a signed request.
LEASE_MS: Final = 5 * MINUTE_MS

# For how long the functions that read a table's stream may run (the template says the same), and
# how much of it is left for requests under way when they stop writing: one takes 13 s at the most
# (3 to connect, 10 to answer).
INVOCATION_TIME_MS: Final = 2 * MINUTE_MS
INVOCATION_MARGIN_MS: Final = 20 * SECOND_MS
# The same for the ingest, whose writes are retried for longer.
INGEST_TIME_MS: Final = 5 * MINUTE_MS
INGEST_MARGIN_MS: Final = 90 * SECOND_MS
# How many messages are written before the ingest looks at its deadline, and before it stores how
# far it has come in a record with more of them: every invocation finishes so many.
INGEST_PIECE: Final = 4_000
# For how long that stays stored. Without it a record is begun again, which counts nothing twice.
INGEST_PROGRESS_LIFE_MS: Final = DAY_MS

# What one call of the service takes.
BATCH_WRITE_ITEMS: Final = 25
BATCH_GET_KEYS: Final = 100
TRANSACTION_ACTIONS: Final = 100
# The same of SQS, SNS and EventBridge.
CALL_MESSAGES: Final = 10

# SQS takes 256 KB in one message; the rest is left for the text around the content.
MESSAGE_MAX_BYTES: Final = 200_000
# Of a reason that is sent, or kept for a person.
REASON_MAX_CHARACTERS: Final = 2_000

# What one expression of a request may be.
EXPRESSION_MAX_BYTES: Final = 4 * 1_024
EXPRESSION_OPERATORS_MAX: Final = 300

# The entries of one generation. The head names each (45 to 60 bytes) until all are deleted, is
# written whole once for each generation and read twice by every exact read. 300 are three
# transactions, and 14 to 18 KB: 0.06 write units for each entry, and while a compaction runs
# eight to ten read units for an exact read. Fewer would write the head more often, more would make
# every exact read more expensive.
HEAD_COVERS_MAX: Final = 3 * TRANSACTION_ACTIONS

# A strict counter's definition and its entry in the directory are made with its bins, and a change
# that is split over all of them comes with a marker: each one transaction.
BINS_MAX: Final = TRANSACTION_ACTIONS - 2

# The newest format of an item that this release reads and writes (attribute `v`, absent = 1).
FORMAT: Final = 1

# A stream keeps records for 24 hours, but may be late in trimming. What is older than this is
# never applied; a watermark is kept for longer than any record that it could have to refuse.
STREAM_KEPT_MS: Final = 24 * HOUR_MS
STREAM_RECORD_MAX_AGE_MS: Final = 30 * HOUR_MS
WATERMARK_LIFE_MS: Final = 48 * HOUR_MS
# For how long after the time that a shard's progress names a write can still land that was made
# without knowing of that progress. The progress itself leaves within its invocation's time and
# lands within the life of its request. An invocation that began just before that has not seen it;
# its writes leave within its own time, too, and land within the life of their requests. Two clocks
# may also differ from that of the service: that of the invocation, and that of the reader. What the
# two invocations leave of their time is spare (they stop writing before its end).


def late_write_ms(clock_skew_ms: int) -> int:
    """The period for late writes if clocks may differ by this much, in milliseconds."""
    return 2 * (INVOCATION_TIME_MS + SIGNED_REQUEST_LIFE_MS + clock_skew_ms)


LATE_WRITE_MS: Final = late_write_ms(CLOCK_SKEW_DEFAULT_MS)
# From which age of a batch's first record on the attempts at it are counted, and after how many
# that did not end its first record is quarantined. By then it was applied alone, of any batch.
ATTEMPTS_COUNTED_FROM_MS: Final = 5 * MINUTE_MS
ATTEMPTS_MAX: Final = 16
# Of a shard's progress, after the last batch; no record of the shard can come by then. The entry in
# the directory of shards goes earlier, so that absent progress of a known shard is always a loss.
PROGRESS_LIFE_MS: Final = 7 * DAY_MS
KNOWN_SHARD_LIFE_MS: Final = 6 * DAY_MS
KNOWN_SHARD_RENEWED_MS: Final = DAY_MS

# A client request token is remembered for ten minutes after its first request was completed. That
# request was sent later than its key was made, but by another clock perhaps.
TOKEN_LIFE_MS: Final = 10 * MINUTE_MS
# A marker outlives the window that its counter promises by what clocks may differ.
MARKER_WINDOW_MIN_MS: Final = MINUTE_MS
MARKER_WINDOW_MAX_MS: Final = 366 * DAY_MS
MARKER_WINDOW_DEFAULT_MS: Final = DAY_MS
HISTORY_MIN: Final = 2
HISTORY_MAX: Final = 100
HISTORY_DEFAULT: Final = 20
# The item of a set is written whole with each change: at 64 KB that is 64 write units.
SET_MAX_BYTES: Final = 64 * 1_024
TOKEN_BYTES: Final = 40
SET_TOKENS_MAX: Final = SET_MAX_BYTES // TOKEN_BYTES
SET_TOKENS_DEFAULT: Final = 500

# For how long after its first read a run of the compactor, or a repair, may still write:
# generations and versions begin again once a counter was deleted, which takes longer than that.
RUN_LIFE_MS: Final = 12 * HOUR_MS

# A membership may leave this long after the time that it carries: the deletion of a counter
# recognizes the memberships of the next counter by their time.
MEMBERSHIP_LEAVES_MS: Final = MINUTE_MS

# For how long a materializer may not know of a new or changed schedule.
DUE_RULE_LIFE_MS: Final = MINUTE_MS
# Below two entries there is nothing to merge; each run writes its head at least twice.
MIN_ENTRIES_MIN: Final = 2
MIN_ENTRIES_MAX: Final = 10**9
MIN_ENTRIES_DEFAULT: Final = 100

# An evaluator reads changed rules when the rules it knows are as old as this. A change is effective
# this much after it was written: the write itself and differences between clocks fit in between.
ALERT_RULES_AGE_MS: Final = SECOND_MS
ALERT_RULE_DELAY_MS: Final = 5 * SECOND_MS
# A change of a rule leaves within this time after its effective time was computed. The rest of the
# delay is for its way to the service, and for the age of what an evaluator knows.
ALERT_RULE_SEND_MS: Final = 2 * SECOND_MS
# The name is part of the id of every alert.
ALERT_RULE_NAME_MAX_BYTES: Final = 64
# An evaluator holds them all in memory, and reads them all when one changed: some 3 MB. Revisions
# of the last 30 hours count.
ALERT_RULES_MAX: Final = 10_000
# They are in one item, of at most 400 KB; one takes up to 2 KB.
ALERT_RULE_REVISIONS_MAX: Final = 150

# Up to this many thresholds that one update crosses each get an alert; more get one for the range.
CROSSINGS_MAX: Final = 100
# An armed state only keeps away alerts that were made already, when their records come again.
ALERT_STATE_LIFE_MS: Final = 7 * DAY_MS
# Records of a total come in the order of their times, except for differences between the clocks of
# the stream. A record that is earlier or later by more belongs to a total that was deleted or
# created again.
ALERT_MADE_ANEW_MS: Final = MINUTE_MS
ALERT_LOG_LIFE_MS: Final = 90 * DAY_MS

# For how long a handled record stays in quarantine, with the name of the person.
QUARANTINE_HANDLED_LIFE_MS: Final = 90 * DAY_MS

# For how long a process may use a limit of a quota that it has read. A changed limit is seen this
# much later, and a request under the old one leaves within this time.
QUOTA_LIMIT_LIFE_MS: Final = 5 * SECOND_MS
# How many limits an amount may be counted under at once: a ticket and its marker name them all.
ADMISSION_LIMITS_MAX: Final = 20
# For how long after the end of its window a reservation may be committed or released; and a key
# is remembered for at least as long after its acquire.
TICKET_LIFE_MS: Final = DAY_MS

# The last number of a sequence: what a signed integer of 64 bits holds, in whatever language.
SEQUENCE_LAST: Final = 2**63 - 1
# As many numbers as one write may lease.
BLOCK_MAX: Final = 1_000_000
BLOCK_DEFAULT: Final = 100

# How long an amount may be held, and how many expired holds a refused call releases before it is
# tried again. The lease of the process that does it saves others the same work; each release is
# conditional anyway. And for how long a call goes on, until it is contended.
HOLD_MIN_MS: Final = SECOND_MS
HOLD_MAX_MS: Final = 366 * DAY_MS
RELEASED_AT_ONCE: Final = 25
RELEASE_LEASE_MS: Final = 2 * SECOND_MS
RELEASE_TIME_MS: Final = 5 * SECOND_MS

# Keys at the service.
PARTITION_KEY_MAX_BYTES: Final = 2_048
SORT_KEY_MAX_BYTES: Final = 1_024
# Together with its scope, a value fits into a partition key.
SCOPE_MAX_BYTES: Final = 255
OWNER_MAX_BYTES: Final = 1_024
CLAIM_ID_MAX_BYTES: Final = 128
# An item at the service; an app's own is refused here before it is sent.
ITEM_MAX_BYTES: Final = 400 * 1_024
# Of the name of a table or an attribute.
NAME_MAX_BYTES: Final = 255

# Each partition of a ranking costs its readers a query of half a read unit.
RANK_PARTITIONS_MAX: Final = 100
# For how long a materializer may not know that ranking was switched on or off; and how long its
# last batch under the old rule may take (as long as its function may run).
RANK_RULE_LIFE_MS: Final = MINUTE_MS
RANK_SETTLES_MS: Final = RANK_RULE_LIFE_MS + 2 * MINUTE_MS
# For how long a materializer may not know that windows were switched on, changed or switched off. A
# change is effective later than that, by the clock skew, and this much for its way to the service.
WINDOWS_LIFE_MS: Final = 10 * SECOND_MS
WINDOWS_SEND_MS: Final = 5 * SECOND_MS
# How long minutes and hours may be kept. Day after day there is one more item for each counter.
WINDOWS_KEPT_MIN_MS: Final = HOUR_MS
WINDOWS_KEPT_MAX_MS: Final = 3_660 * DAY_MS
WINDOWS_KEPT_DEFAULT_MS: Final = 90 * DAY_MS
WINDOWS_LATENESS_MAX_MS: Final = 3_660 * DAY_MS
# Settings of a namespace, past ones included: each is up to 3 KB of one item.
WINDOW_SETTINGS_MAX: Final = 50
# Of one call: more than a year of hours, or a week of minutes less an hour.
WINDOWS_MAX: Final = 10_000

# Of a ranking, at once. Each partition of its board is read as far.
TOP_MAX: Final = 1_000

if not WATERMARK_LIFE_MS > STREAM_RECORD_MAX_AGE_MS > DAY_MS:
    raise AssertionError("a watermark must outlive every record that may still be delivered")
if not ALERT_RULE_DELAY_MS >= 2 * ALERT_RULE_SEND_MS + ALERT_RULES_AGE_MS:
    raise AssertionError("a change of a rule must be known before it is effective")
if not PROGRESS_LIFE_MS > KNOWN_SHARD_LIFE_MS > WATERMARK_LIFE_MS + KNOWN_SHARD_RENEWED_MS:
    raise AssertionError("a shard must be known for longer than its records can be delivered")
if not LATE_WRITE_MS < STREAM_KEPT_MS:
    raise AssertionError("late writes must land while the stream keeps their records")
if not ALERT_STATE_LIFE_MS > STREAM_RECORD_MAX_AGE_MS:
    raise AssertionError("a state must outlive every record that may still be delivered")
if AMOUNT_MAX_DIGITS + AMOUNT_MAX_DECIMALS + SUM_ENTRIES_DIGITS > NUMBER_MAX_DIGITS:
    raise AssertionError("a sum of so many entries of any size must fit into a number")
if not HORIZON_MIN_MS <= HORIZON_DEFAULT_MS <= HORIZON_MAX_MS:
    raise AssertionError("the default horizon must lie within its bounds")
