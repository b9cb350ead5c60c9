"""When a run is good, and which repository is counted by default."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import countledger
from countledger.infra.demo.checkout import own_repository
from countledger.infra.demo.errors import NotARepository
from countledger.infra.demo.long_files import AlertCheck
from countledger.infra.demo.report import Report, Wrong

if TYPE_CHECKING:
    from pathlib import Path

GOOD = Report(
    repo="/r",
    head="0" * 40,
    shallow=False,
    commits=3,
    events=20,
    resent=2,
    duplicates=2,
    counters=5,
    wrong=(),
    missing=0,
    emit_s=2.0,
    end_to_end_s=4.0,
    seconds=5.0,
    lag_p50_s=0.1,
    lag_max_s=0.5,
    producer_write_units=22.0,
    materializer_write_units=18.0,
    largest={"lines:a": 7},
    alerts=AlertCheck(),
)


def test_a_run_is_good_only_if_nothing_at_all_is_wrong() -> None:
    """A wrong total, a missing event and a retry that was counted are each enough."""
    assert GOOD.good
    assert replace(GOOD, duplicates=3).good
    assert not replace(GOOD, duplicates=1).good
    # A way in that does not tell leaves it to the totals.
    assert replace(GOOD, duplicates=None).good
    assert not replace(GOOD, missing=1).good
    assert not replace(GOOD, alerts=AlertCheck(silent=("lines:a",))).good
    assert not replace(GOOD, wrong=(Wrong("lines:a", 7, 7, 8),)).good


def test_the_document_has_rates_and_costs_and_names_wrong_totals() -> None:
    """It is one flat object of JSON; `wrong` is a number."""
    document = json.loads(json.dumps(replace(GOOD, wrong=(Wrong("lines:a", 7, 7, 8),)).document()))

    assert document["wrong"] == 1
    assert document["wrong_totals"] == [
        {"counter": "lines:a", "total": 7, "emitted": 7, "truth": 8}
    ]
    assert document["emit_events_per_second"] == 10.0
    assert document["end_to_end_events_per_second"] == 5.0
    assert document["write_units_per_event"] == 2.0
    assert (document["alerts"], document["alert_p50_seconds"]) == (0, None)


def test_by_default_the_own_checkout_is_counted_and_never_one_around_an_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a checkout has both its history and the project's own file."""
    package = tmp_path / "lib" / "countledger"
    package.mkdir(parents=True)
    monkeypatch.setattr(countledger, "__file__", str(package / "__init__.py"))
    (tmp_path / ".git").mkdir()

    with pytest.raises(NotARepository, match="--repo PATH"):
        own_repository()

    (tmp_path / "lib" / ".git").mkdir()
    (tmp_path / "lib" / "pyproject.toml").touch()

    assert tmp_path / "lib" == own_repository()
