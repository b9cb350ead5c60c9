"""Rules and schedules as people write them, in options and files."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from countledger import Retire
from countledger.infra.cli.app import without_topic
from countledger.infra.cli.settings_file import (
    RuleText,
    ScheduleText,
    commands_for,
    read_rules,
    read_schedules,
)
from countledger.ledger.errors import BadRule, BadSetting
from countledger.ledger.limits import DAY_MS, MINUTE_MS

ARN = "arn:aws:sns:eu-central-1:111122223333:alarms"
RULES = f"""
[schedules.likes]
every = "15m"

[[alerts]]
name = "busy"
counter = "likes:post-1"
threshold = 1000
direction = "rising"

[[alerts]]
name = "low"
all = true
threshold = "2.5"
direction = "falling"
rearm = "20"
to = "{ARN}"

[[alerts]]
name = "round"
prefix = "likes:"
step = 1000
direction = "both"
"""
RULES_YAML = f"""
alerts:
  - {{name: busy, counter: "likes:post-1", threshold: 1000, direction: rising}}
  - name: low
    all: true
    threshold: "2.5"
    direction: falling
    rearm: "20"
    to: {ARN}
  - {{name: round, prefix: "likes:", step: 1000, direction: both}}
"""


READ_RULES = {
    "busy": {"counter": "likes:post-1", "threshold": 1000, "direction": "rising"},
    "low": {
        "prefix": "",
        "threshold": Decimal("2.5"),
        "direction": "falling",
        "rearm": 20,
        "to": ARN,
    },
    "round": {"prefix": "likes:", "step": 1000, "direction": "both"},
}


def test_none_takes_a_level_back() -> None:
    assert RuleText(rearm="none", step="None").spec() == {"rearm": None, "step": None}
    spec = ScheduleText(min_age="none", archive="none").spec()
    assert spec == {"min_age_ms": None, "archive": None}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"prefix": ""}, "--all"),
        ({"prefix": "a", "all": True}, "names no counter and no prefix"),
        ({"counter": "a", "all": True}, "names no counter and no prefix"),
        ({"threshold": "many"}, "threshold 'many' is not a decimal number"),
        ({"threshold": ""}, "threshold '' is not a decimal number"),
        ({"threshold": "none"}, "threshold 'none'"),
        ({"threshold": "nan"}, "is not a decimal number"),
        ({"threshold": "1e99"}, "has an exponent"),
        ({"rearm": "x"}, "re-arm level 'x'"),
        ({"step": "x"}, "step 'x'"),
    ],
)
def test_words_that_say_nothing_are_refused(words: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRule, match=reason):
        RuleText(**words).spec()


RULE = "[[alerts]]\nname = 'r'\n"
FULL = "counter = 'a'\nthreshold = 5\ndirection = 'rising'\n"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["r", "--to", "topic", ARN], ["r", "--to", ARN]),
        (["r", "--to", ARN], ["r", "--to", ARN]),
        (["r", "--to", "bus"], ["r", "--to", "bus"]),
        (["topic", "--to", "topic"], ["topic", "--to", "topic"]),
        (["--", "--to", "topic", ARN], ["--", "--to", "topic", ARN]),
    ],
)
def test_a_topic_may_be_announced(typed: list[str], meant: list[str]) -> None:
    assert without_topic(typed) == meant


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("[[alerts]]", ["alert"]),
        ("[schedules]", ["schedule"]),
        ("[schedules]\n[[alerts]]", ["schedule", "alert"]),
        ("", ["schedule"]),
    ],
)
def test_up_applies_what_a_file_has(tmp_path: Path, text: str, kinds: list[str]) -> None:
    file = tmp_path / "a.toml"
    file.write_text(text)

    assert commands_for(file) == [[kind, "apply", str(file)] for kind in kinds]


def test_up_refuses_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"none\.toml: No such file"):
        commands_for(tmp_path / "none.toml")


SCHEDULES = """
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
SCHEDULES_YAML = """
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


READ_SCHEDULES = {
    "likes": {"every_ms": 15 * MINUTE_MS},
    "a b": {
        "cron": "0 3 * * ? *",
        "min_entries": 1000,
        "min_age_ms": 30 * DAY_MS,
        "retire": Retire.DELETE,
        "archive": "s3://bucket/stock",
    },
}


@pytest.mark.parametrize(
    ("read", "name", "text", "found"),
    [
        (read_rules, "a.toml", RULES, READ_RULES),
        (read_rules, "a.yaml", RULES_YAML, READ_RULES),
        (read_schedules, "a.toml", SCHEDULES, READ_SCHEDULES),
        (read_schedules, "a.yaml", SCHEDULES_YAML, READ_SCHEDULES),
        (read_schedules, "a.YML", SCHEDULES_YAML, READ_SCHEDULES),
    ],
)
def test_a_file_is_read_the_same_in_toml_and_yaml(
    tmp_path: Path, read: Callable[[Path], object], name: str, text: str, found: object
) -> None:
    file = tmp_path / name
    file.write_text(text)

    assert read(file) == found


@pytest.mark.parametrize(
    ("read", "name", "text", "reason"),
    [
        (read_rules, "a.toml", "", "alerts: Field required"),
        (read_rules, "a.toml", "alerts = 5", "alerts: Input should be"),
        (read_rules, "a.toml", "[[alerts]]\ncounter = 'a'", "alerts.0.name: Field required"),
        (read_rules, "a.toml", RULE + "treshold = 5", "alerts.0.treshold: Extra inputs"),
        (read_rules, "a.toml", RULE + "threshold = 1.5", "alerts.0.threshold"),
        (read_rules, "a.toml", RULE + "direction = 'up'", "alerts.0.direction"),
        (read_rules, "a.toml", RULE + "threshold = 'x'", "alerts.0: threshold 'x'"),
        (read_rules, "a.toml", RULE + "prefix = ''", "all = true"),
        (read_rules, "a.toml", 2 * (RULE + FULL), "alerts.1: there are two rules of the name 'r'"),
        (read_rules, "a.toml", "[[alerts]]\nname = 'a b'", "alerts.0: rule name 'a b'"),
        (read_rules, "a.toml", RULE, "alerts.0: rule 'r' needs a threshold or a step"),
        (read_rules, "a.toml", RULE + FULL + "rearm = 5", "alerts.0: re-arm level 5 is not below"),
        (read_rules, "a.toml", RULE + FULL + "to = 'here'", "alerts.0: 'here' is not the ARN"),
        (read_schedules, "a.toml", "[schedules", "it is no TOML"),
        (read_schedules, "a.yaml", "schedules: [", "it is no YAML"),
        (read_schedules, "a.yaml", "", "the file: Input should be"),
        (read_schedules, "a.toml", "", "schedules: Field required"),
        (read_schedules, "a.toml", "schedules = 5", "schedules: Input should be"),
        (
            read_schedules,
            "a.toml",
            "[schedules.likes]\nevry = '1h'",
            "schedules.likes.evry: Extra inputs",
        ),
        (
            read_schedules,
            "a.toml",
            "[schedules.likes]\nevery = 15",
            "schedules.likes.every: Input should be",
        ),
        (
            read_schedules,
            "a.toml",
            "[schedules.likes]\nmin_entries = '5'",
            "schedules.likes.min_entries: Input",
        ),
        (
            read_schedules,
            "a.toml",
            "[schedules.likes]\nretire = 'burn'",
            "schedules.likes.retire: Input should",
        ),
        (read_schedules, "a.toml", "[schedules.likes]\nevery = '15'", "duration '15'"),
        (read_schedules, "a.toml", "[schedules.likes]\nmin_age = 'long'", "duration 'long'"),
        (read_schedules, "a.yaml", "schedules: {5: {every: 1h}}", "schedules.5"),
        (read_schedules, "a.yaml", "!!python/object:os.system {}", "it is no YAML"),
        (read_schedules, "a.toml", "\udcff", "it is no TOML"),
        (read_schedules, "a.toml", "#" * 1_000_001, "larger than 1 MB"),
    ],
)
def test_a_file_that_cannot_be_is_refused(
    tmp_path: Path, read: Callable[[Path], object], name: str, text: str, reason: str
) -> None:
    file = tmp_path / name
    file.write_bytes(text.encode(errors="surrogateescape"))

    with pytest.raises(BadSetting) as refused:
        read(file)

    assert str(file) in str(refused.value)
    assert reason in str(refused.value)
