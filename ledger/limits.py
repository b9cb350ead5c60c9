"""Every bound of the kernel, once, with what it rests on."""

from __future__ import annotations

from typing import Final

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS

# A partition key holds 2,048 bytes at the service; the rest is room for prefixes and bins.
COUNTER_NAME_MAX_BYTES: Final = 512
# With a colon and one byte behind it, it is a counter name.
NAMESPACE_MAX_BYTES: Final = COUNTER_NAME_MAX_BYTES - 2
# Keys and notes are stored in the entry; together with the name they keep a plain entry at one
# to three write units, and a batch of 25 far below the 16 MB of a call.
KEY_MAX_BYTES: Final = 1_024
NOTE_MAX_BYTES: Final = 1_024

# A DynamoDB number holds 38 significant digits.
NUMBER_MAX_DIGITS: Final = 38

# Beyond a day of horizon the item collection of a busy counter only grows; below a minute a
# retry over a slow network would be refused.
HORIZON_MIN_MS: Final = MINUTE_MS
HORIZON_MAX_MS: Final = 366 * DAY_MS
HORIZON_DEFAULT_MS: Final = DAY_MS
CLOCK_SKEW_DEFAULT_MS: Final = MINUTE_MS

# What one call of the service takes.
BATCH_WRITE_ITEMS: Final = 25
BATCH_GET_KEYS: Final = 100

# The newest format of an item that this release reads and writes (attribute `v`, absent = 1).
FORMAT: Final = 1

# A stream keeps records for 24 hours, but may be late in trimming. What is older than this is
# never applied; a watermark is kept for longer than any record that it could have to refuse.
STREAM_RECORD_MAX_AGE_MS: Final = 30 * HOUR_MS
WATERMARK_LIFE_MS: Final = 48 * HOUR_MS

if not WATERMARK_LIFE_MS > STREAM_RECORD_MAX_AGE_MS > DAY_MS:
    raise AssertionError("a watermark must outlive every record that may still be delivered")
if not HORIZON_MIN_MS <= HORIZON_DEFAULT_MS <= HORIZON_MAX_MS:
    raise AssertionError("the default horizon must lie within its bounds")
