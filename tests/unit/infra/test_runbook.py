"""The runbook and the template name the same alarms, and whoever is sent there finds a page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from countledger.infra.cli.app import COMMANDS
from countledger.infra.template import load_template

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/runbook.md").read_text()
TEMPLATE: dict[str, Any] = load_template()
ALARMS = {
    name for name, one in TEMPLATE["Resources"].items() if one["Type"] == "AWS::CloudWatch::Alarm"
}
HEADINGS = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
# As GitHub makes them.
ANCHORS = {heading.lower().replace(" ", "-") for heading in HEADINGS}


def test_every_alarm_has_its_page_and_every_page_its_alarm() -> None:
    """By its name in the template, which is the middle of its name in CloudWatch."""
    assert sorted(one for one in HEADINGS if one.endswith("Alarm")) == sorted(ALARMS)


def test_nobody_is_sent_to_a_page_that_is_not_there() -> None:
    source = (ROOT / "infra/status/findings.py").read_text()
    sent = set(re.findall(r"#([a-z][a-z-]+)", source.replace("{_RUNBOOK}", "docs/runbook.md")))

    assert sent
    assert sent <= ANCHORS
    assert {name.lower() for name in ALARMS} <= ANCHORS


@pytest.mark.parametrize("kind", ["Outputs", "Parameters"])
def test_the_names_that_the_page_gives_are_there(kind: str) -> None:
    named = set(re.findall(r"`([A-Z][a-z]\w+)`", PAGE))
    known = set(TEMPLATE["Outputs"]) | set(TEMPLATE["Parameters"]) | ALARMS

    assert named <= known
    assert named & set(TEMPLATE[kind])


def test_the_commands_that_the_page_gives_are_there() -> None:
    named = set(re.findall(r"`countledger (\w+)", PAGE))

    assert {"status", "repair", "verify"} <= named
    assert named <= set(COMMANDS)
