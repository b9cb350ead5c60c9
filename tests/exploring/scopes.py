"""The capabilities that are explored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.exploring.claim_scope import CLAIMS, CLAIMS_WITH_ITEMS
from tests.exploring.deletion_scope import DELETIONS_ALL
from tests.exploring.group_scope import GROUPS
from tests.exploring.hold_scope import HOLDS
from tests.exploring.ledger_scope import RECORDS
from tests.exploring.mark_scope import MARKS
from tests.exploring.namespace_scope import NAMESPACES
from tests.exploring.quota_scope import QUOTAS
from tests.exploring.ranking_scope import RANKINGS
from tests.exploring.record_scope import RECORDS_OF_KINDS
from tests.exploring.region_deletion_scope import REGION_DELETIONS
from tests.exploring.repair_scope import REPAIRS
from tests.exploring.rule_scope import RULES
from tests.exploring.schedule_scope import SCHEDULES
from tests.exploring.sequence_scope import COLLECTIONS, SEQUENCES
from tests.exploring.strict_scope import STRICT
from tests.exploring.transfer_scope import TRANSFERS
from tests.exploring.window_setting_scope import WINDOW_SETTINGS

if TYPE_CHECKING:
    from tests.exploring.scope import Capability

CAPABILITIES: Final[tuple[Capability, ...]] = (
    *RECORDS_OF_KINDS,
    SEQUENCES,
    COLLECTIONS,
    RECORDS,
    MARKS,
    REPAIRS,
    *DELETIONS_ALL,
    REGION_DELETIONS,
    *STRICT,
    TRANSFERS,
    *HOLDS,
    *QUOTAS,
    SCHEDULES,
    RULES,
    NAMESPACES,
    CLAIMS,
    CLAIMS_WITH_ITEMS,
    WINDOW_SETTINGS,
    GROUPS,
    RANKINGS,
)
# What `make explore` ends with.
NOT_EXPLORED: Final = (
    "regions: promotion, salvage, leases that end, strict counters over regions",
    "the streams: shards that split or end, several counters, windows; the evaluator",
    "deletions beside late deliveries: totals of deleted counters follow at once",
    "repair: two of the largest scripts, with a fault; three calls at once of which one compares",
    "deletions over regions: three calls at once, two deletions with a fault, one with two",
    "deletions over regions: the steps before the numbers are gone",
    "promotion marks; what is beside a deleted ledger counter: windows, memberships, alert states",
    "buffers, Kinesis, quarantine, import, the API over HTTP",
    "pages of more than 1,000 items, throttled reads, requests that DynamoDB rejects",
    "initial scans of alert rules",
    "groups and rankings: two calls beside two others, with a fault",
    "groups: a deletion beside an addition and a removal by one caller, with a fault",
    "groups: three calls at once of which one is a deletion, or two are the same",
    "rankings: three calls at once of which one adds partitions",
    "quotas: two changes of the limit at once, each with an amount after it, with a fault",
    "deletions of ledger counters: two at once, each followed by other calls, with a fault",
    "leases and forks of a process (the simulation explores these by seeds)",
)
