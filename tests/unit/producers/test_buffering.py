"""How a buffer is set up: refused at birth where it cannot work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from countledger.ledger.errors import BadSetting
from countledger.producers.buffer.settings import Buffering
from countledger.producers.buffer.spool import Spool

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "setting",
    [
        {"linger_ms": -1},
        {"linger_ms": 60_000},
        {"linger_ms": 1.5},
        {"window_events": 0},
        {"max_entries": 24},
        {"max_entries": True},
        {"max_bytes": 1},
        {"senders": 0},
        {"senders": 65},
        {"attempts": 0},
        {"when_full": "drop"},
        {"fsync": True},
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_by_its_name(setting: dict[str, Any]) -> None:
    with pytest.raises(BadSetting, match=next(iter(setting))):
        Buffering(**setting)


def test_who_coalesces_waits_longer_for_company() -> None:
    """Unless it is set."""
    assert Buffering().lingers_ms == 100
    assert Buffering(coalesce=True).lingers_ms == 1_000
    assert Buffering(coalesce=True, linger_ms=0).lingers_ms == 0


def test_two_windows_of_coalesced_events_may_wait() -> None:
    """Whatever their counters are: the next one is gathered while the last one is sent."""
    assert Buffering().holds_entries == 5_000
    assert Buffering(coalesce=True).holds_entries == 2 * Buffering().window_events
    assert Buffering(coalesce=True, max_entries=25).holds_entries == 25


@pytest.mark.parametrize(("fsync", "level"), [(False, 1), (True, 2)])
def test_a_spool_waits_for_the_disk_on_request(tmp_path: Path, fsync: bool, level: int) -> None:  # noqa: FBT001
    """SQLite's NORMAL outlives the process, FULL the machine; both by a write-ahead log."""
    spool = Spool.open(tmp_path / "spool", ledger="x", fsync=fsync)

    assert spool.connection.execute("PRAGMA synchronous").fetchone() == (level,)
    assert spool.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    spool.close()
