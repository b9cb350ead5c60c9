"""Which items of a restored table `counters` become items of the new one."""

from typing import Any

import pytest

from countledger.infra.portability.restoring import is_copied
from countledger.ledger import keys

_MINE = "likes:a"


@pytest.mark.parametrize(
    "item",
    [
        {**keys.total_key("seats:hall"), "method": "marker"},
        {**keys.total_key("bills:2030"), "method": "sequence"},
        keys.bin_key("seats:hall", 1),
        keys.marker_key("seats:hall", 1, "id"),
        keys.strict_key("seats:hall"),
        keys.keyed_key("id"),
        keys.claim_key("mail", ("ann",)),
        keys.group_key("g"),
        keys.member_key("g", _MINE),
        keys.ranking_key("likes"),
        keys.import_key("opening"),
        keys.deletion_key(_MINE, "part"),
        keys.quarantine_key("kinesis", "0-1"),
        *keys.alert_log_keys(_MINE, "rule", 1, 1),
    ],
    ids=lambda item: f"{item['counter']},{item['part']}",
)
def test_what_no_ledger_has_is_copied(item: dict[str, Any]) -> None:
    assert is_copied(item)


@pytest.mark.parametrize(
    "item",
    [
        keys.total_key(_MINE),
        keys.alert_state_key(_MINE, "rule"),
        keys.rule_key("rule"),
        keys.past_rule_key("rule", "id"),
        keys.rules_stamp_key(),
        keys.schedule_key("likes"),
        keys.run_key("likes"),
        keys.windows_key("likes"),
        keys.window_key(_MINE, "id", "month#2026-11"),
        keys.progress_key("stream/shard"),
        keys.known_shard_key("stream", "shard"),
        keys.bookmark_key("verify"),
        keys.import_key("#restore"),
    ],
    ids=lambda item: f"{item['counter']},{item['part']}",
)
def test_what_belongs_to_the_lost_stack_is_not(item: dict[str, Any]) -> None:
    """Its streams, its triggers, and what follows from the ledger."""
    assert not is_copied(item)
