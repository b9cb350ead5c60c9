"""docs/kinesis.md says what holds: its examples are messages, its bounds are the code's."""

import json
import re
from pathlib import Path

import pytest

from countledger.infra.template import load_template
from countledger.producers.event import EVENTS_MAX
from countledger.producers.ingest.entries import RejectionKind
from countledger.producers.kinesis import MAGIC, VERSION, KinesisMessage, decode
from countledger.producers.payload import MAX_BYTES
from tests.unit.ledger.clocks import NOW_MS
from tests.unit.producers.kinesis.entries import ORIGIN

GUIDE = (Path(__file__).parents[4] / "docs" / "kinesis.md").read_text()
(_EXAMPLES,) = re.findall(r"```json\n(.*?)```", GUIDE, re.DOTALL)
EXAMPLES = _EXAMPLES.strip().split("\n")


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_is_a_message(line: str) -> None:
    entry = decode(line.encode(), arrived_ms=NOW_MS, origin=ORIGIN)

    assert entry.counter == json.loads(line)["counter"]


def test_every_field_is_explained_and_no_other() -> None:
    section = GUIDE.split("## The message, version 1")[1].split("##")[0]
    told = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)

    assert sorted(told) == sorted(KinesisMessage.model_fields)


def test_the_bounds_are_those_of_the_code() -> None:
    assert f"version {VERSION}" in GUIDE
    assert f"{MAX_BYTES:,} bytes" in GUIDE
    assert EVENTS_MAX == 10**9
    assert MAGIC.hex(" ") in GUIDE
    for kind in RejectionKind:
        assert f"| `{kind}` |" in GUIDE
    for name in ("IngestStream", "IngestShards", "IngestRetentionHours"):
        default = load_template()["Parameters"][name]["Default"]
        assert re.search(rf"\| `{name}` \|.*\| `?{default}`? \|", GUIDE)
