"""Schedules as people write them, in options and files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from countledger import Retire
from countledger.infra.cli.settings_file import ScheduleText, read_schedules
from countledger.ledger.errors import BadSetting
from countledger.ledger.limits import DAY_MS, MINUTE_MS

if TYPE_CHECKING:
    from pathlib import Path

TOML = """
[other]
setting = 1

[schedules.likes]
every = "15m"

[schedules."a b"]
cron = "0 3 * * ? *"
min_entries = 1000
min_age = "30d"
retire = "delete"
archive = "s3://bucket/stock"
"""
YAML = """
other: {setting: 1}
schedules:
  likes: {every: 15m}
  a b:
    cron: 0 3 * * ? *
    min_entries: 1000
    min_age: 30d
    retire: delete
    archive: s3://bucket/stock
"""


@pytest.mark.parametrize(("name", "text"), [("a.toml", TOML), ("a.yaml", YAML), ("a.YML", YAML)])
def test_toml_and_yaml_say_the_same(tmp_path: Path, name: str, text: str) -> None:
    """What is left out has no say; other sections are not ours."""
    file = tmp_path / name
    file.write_text(text)

    assert read_schedules(file) == {
        "likes": {"every_ms": 15 * MINUTE_MS},
        "a b": {
            "cron": "0 3 * * ? *",
            "min_entries": 1000,
            "min_age_ms": 30 * DAY_MS,
            "retire": Retire.DELETE,
            "archive": "s3://bucket/stock",
        },
    }


def test_none_takes_a_setting_back() -> None:
    """As an option, where there is no other way to say it."""
    assert ScheduleText(min_age="none", archive="none").spec() == {
        "min_age_ms": None,
        "archive": None,
    }


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.toml", "[schedules", "it is no TOML"),
        ("a.yaml", "schedules: [", "it is no YAML"),
        ("a.yaml", "", "the file: Input should be"),
        ("a.toml", "", "schedules: Field required"),
        ("a.toml", "schedules = 5", "schedules: Input should be"),
        ("a.toml", "[schedules.likes]\nevry = '1h'", "schedules.likes.evry: Extra inputs"),
        ("a.toml", "[schedules.likes]\nevery = 15", "schedules.likes.every: Input should be"),
        ("a.toml", "[schedules.likes]\nmin_entries = '5'", "schedules.likes.min_entries: Input"),
        ("a.toml", "[schedules.likes]\nretire = 'burn'", "schedules.likes.retire: Input should"),
        ("a.toml", "[schedules.likes]\nevery = '15'", "duration '15'"),
        ("a.toml", "[schedules.likes]\nmin_age = 'long'", "duration 'long'"),
        ("a.yaml", "schedules: {5: {every: 1h}}", "schedules.5"),
        ("a.yaml", "!!python/object:os.system {}", "it is no YAML"),
        ("a.toml", "\udcff", "it is no TOML"),
        ("a.toml", "#" * 1_000_001, "larger than 1 MB"),
    ],
)
def test_a_file_that_says_what_cannot_be_is_refused(
    tmp_path: Path, name: str, text: str, reason: str
) -> None:
    """Naming the file, the place and the rule."""
    file = tmp_path / name
    file.write_bytes(text.encode(errors="surrogateescape"))

    with pytest.raises(BadSetting) as refused:
        read_schedules(file)

    assert str(file) in str(refused.value)
    assert reason in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """With the system's reason."""
    with pytest.raises(BadSetting, match=r"none\.toml: No such file"):
        read_schedules(tmp_path / "none.toml")
