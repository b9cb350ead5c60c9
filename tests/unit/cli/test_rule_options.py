"""Alert rules as people write them, in options and files."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from countledger.infra.cli.alert_rules import without_topic
from countledger.infra.cli.settings_file import RuleText, commands_for, read_rules
from countledger.ledger.errors import BadRule, BadSetting

if TYPE_CHECKING:
    from pathlib import Path

ARN = "arn:aws:sns:eu-central-1:111122223333:alarms"
TOML = f"""
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
YAML = f"""
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


@pytest.mark.parametrize(("name", "text"), [("a.toml", TOML), ("a.yaml", YAML)])
def test_toml_and_yaml_say_the_same(tmp_path: Path, name: str, text: str) -> None:
    """What is left out has no say; other sections are not ours."""
    file = tmp_path / name
    file.write_text(text)

    assert read_rules(file) == {
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
    """As an option, where there is no other way to say it."""
    assert RuleText(rearm="none", step="None").spec() == {"rearm": None, "step": None}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"prefix": ""}, "--all"),
        ({"prefix": "a", "all": True}, "names no counter and no prefix"),
        ({"counter": "a", "all": True}, "names no counter and no prefix"),
        ({"threshold": "many"}, "threshold 'many' is not a decimal number"),
        ({"threshold": ""}, "threshold '' is not a decimal number"),
        ({"threshold": "none"}, "threshold 'none'"),
        ({"threshold": "nan"}, "not a finite number"),
        ({"threshold": "1e99"}, "not a finite number of at most 38 digits"),
        ({"rearm": "x"}, "re-arm level 'x'"),
        ({"step": "x"}, "step 'x'"),
    ],
)
def test_words_that_say_nothing_are_refused(words: dict[str, Any], reason: str) -> None:
    """Naming the value."""
    with pytest.raises(BadRule, match=reason):
        RuleText(**words).spec()


RULE = "[[alerts]]\nname = 'r'\n"
FULL = "counter = 'a'\nthreshold = 5\ndirection = 'rising'\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "alerts: Field required"),
        ("alerts = 5", "alerts: Input should be"),
        ("[[alerts]]\ncounter = 'a'", "alerts.0.name: Field required"),
        (RULE + "treshold = 5", "alerts.0.treshold: Extra inputs"),
        (RULE + "threshold = 1.5", "alerts.0.threshold"),
        (RULE + "direction = 'up'", "alerts.0.direction"),
        (RULE + "threshold = 'x'", "alerts.0: threshold 'x'"),
        (RULE + "prefix = ''", "all = true"),
        (2 * (RULE + FULL), "alerts.1: there are two rules of the name 'r'"),
        ("[[alerts]]\nname = 'a b'", "alerts.0: rule name 'a b'"),
        (RULE, "alerts.0: rule 'r' needs a threshold or a step"),
        (RULE + FULL + "rearm = 5", "alerts.0: re-arm level 5 is not below"),
        (RULE + FULL + "to = 'here'", "alerts.0: 'here' is not the ARN"),
    ],
)
def test_a_file_that_says_what_cannot_be_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    """Naming the file, the place and the rule."""
    file = tmp_path / "a.toml"
    file.write_text(text)

    with pytest.raises(BadSetting) as refused:
        read_rules(file)

    assert str(file) in str(refused.value)
    assert reason in str(refused.value)


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
    """`--to topic ARN` is `--to ARN`."""
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
    """A file of neither is refused by the first."""
    file = tmp_path / "a.toml"
    file.write_text(text)

    assert commands_for(file) == [[kind, "apply", str(file)] for kind in kinds]


def test_up_refuses_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """Before anything is started."""
    with pytest.raises(BadSetting, match=r"none\.toml: No such file"):
        commands_for(tmp_path / "none.toml")
