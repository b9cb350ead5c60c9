"""What docs/alerts.md says of the message is so."""

import json
import re
from typing import Any

import pytest

from countledger.consumers.alerts.delivery import DETAIL_TYPE, SOURCE
from countledger.consumers.alerts.message import Alert, alert_in, body_of, trial_alert
from countledger.consumers.alerts.rule import Direction, Rule
from tools.guide.message import GUIDE, SCHEMA, schema_text

RULE = Rule(name="r", counter="a", threshold=5, direction=Direction.RISING, evaluate_in="eu")


def test_the_schema_is_that_of_the_product() -> None:
    assert SCHEMA.read_text() == schema_text()


def test_the_example_is_a_message() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    message = json.loads(example)

    assert json.loads(body_of(alert_in(message))) == message
    assert SOURCE in GUIDE.read_text()
    assert DETAIL_TYPE in GUIDE.read_text()


@pytest.mark.parametrize(
    "alert",
    [
        trial_alert(RULE, "a", 0),
        Alert(
            rule="r",
            revision="x",
            counter="a:\u00e9",
            direction=Direction.FALLING,
            threshold=-(10**37),
            through=-5,
            count=10**30,
            old=0,
            new=-(10**37),
            version=1,
            region="eu",
            at_ms=1_900_000_000_000,
        ),
    ],
)
def test_what_is_sent_keeps_the_schema(alert: Alert) -> None:
    assert _broken(json.loads(body_of(alert))) == []


@pytest.mark.parametrize(
    "change", [{"old": 5}, {"at": None}, {"through": None}, {"direction": "both"}, {"test": False}]
)
def test_the_schema_refuses_what_is_never_sent(change: dict[str, Any]) -> None:
    message = json.loads(body_of(trial_alert(RULE, "a", 0)))

    assert _broken(message | change) == list(change)


def _broken(message: dict[str, Any]) -> list[str]:
    """The fields that do not keep the schema; it uses no more than this of the language."""
    schema = json.loads(SCHEMA.read_text())
    fields = schema["properties"]
    kinds = {"string": str, "integer": int, "boolean": bool}
    broken = [name for name in schema["required"] if name not in message]
    for name, value in message.items():
        field = fields[name]
        fits = isinstance(value, kinds[field["type"]])
        fits = fits and value == field.get("const", value) and value in field.get("enum", [value])
        fits = fits and ("pattern" not in field or re.search(field["pattern"], value) is not None)
        broken += [] if fits else [name]
    return broken
