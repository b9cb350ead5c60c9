"""What the local pump reads next and how often; and a template that knows where its code is."""

from itertools import accumulate, repeat
from typing import Any

import pytest

from countledger.infra.deploy.bundle import packaged
from countledger.infra.local.pump import FIRST_PAUSE_S, next_pause_s
from countledger.infra.local.shards import ListedShard, readable
from countledger.infra.template import load_template, parse_template, template_text

PARENT = ListedShard("parent", None)
LEFT, RIGHT = ListedShard("left", "parent"), ListedShard("right", "parent")


def test_a_stream_that_is_still_is_asked_ever_less_often_down_to_four_times_a_second() -> None:
    pauses = list(
        accumulate(repeat(True, 20), lambda s, idle: next_pause_s(s, idle=idle), initial=0.02)
    )

    assert pauses[:4] == [0.02, 0.04, 0.08, 0.16]
    assert set(pauses[4:]) == {0.25}


def test_a_stream_that_moves_is_asked_again_soon() -> None:
    assert next_pause_s(0.25, idle=False) == FIRST_PAUSE_S


@pytest.mark.parametrize(
    ("listed", "finished", "next_ones"),
    [
        ([LEFT, PARENT, RIGHT], [], [PARENT]),
        ([LEFT, PARENT, RIGHT], ["parent"], [LEFT, RIGHT]),
        ([LEFT], [], [LEFT]),
        ([PARENT], ["parent"], []),
    ],
    ids=[
        "children wait for their parent",
        "and follow it",
        "the service forgets a parent 24 hours after it was closed",
        "a finished shard is not read again",
    ],
)
def test_it_is_the_turn_of(
    listed: list[ListedShard], finished: list[str], next_ones: list[ListedShard]
) -> None:
    assert readable(listed, finished=finished) == next_ones


def test_a_packaged_template_names_its_code_and_is_the_same_else() -> None:
    made = parse_template(packaged(template_text(), "my-bucket", "countledger/1.zip", "x86_64"))
    named = {"CodeBucket": "my-bucket", "CodeKey": "countledger/1.zip", "Architecture": "x86_64"}

    def literal(part: Any) -> Any:  # noqa: ANN401 - a part of a template
        if isinstance(part, list):
            return [literal(one) for one in part]
        if not isinstance(part, dict):
            return part
        if part.keys() == {"Ref"}:
            return named.get(part["Ref"], part)
        return {name: literal(one) for name, one in part.items() if name not in named}

    expected = literal(load_template())
    # The output of the same name as a parameter, and the group of these parameters.
    expected["Outputs"]["CodeKey"] = literal(load_template()["Outputs"]["CodeKey"])
    interface = expected["Metadata"]["AWS::CloudFormation::Interface"]
    assert interface["ParameterGroups"].pop(0)["Parameters"] == [*named]
    assert made == expected
    assert all("Default" in one for one in made["Parameters"].values())


def test_a_template_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="CodeBucket, CodeKey, Architecture"):
        packaged("Parameters: {}", "b", "k")
