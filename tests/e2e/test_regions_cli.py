"""Regions from the command line, as a user tries them on a laptop."""

from collections.abc import Iterator

import pytest

from countledger.infra.local.background import down, up
from tests.e2e.command import Command, Finished, eventually

HOME, EU, TOKYO = "us-east-1", "eu-west-1", "ap-northeast-1"
NAME = "regions-by-command"


@pytest.fixture(scope="module")
def command() -> Iterator[Command]:
    """The command line of a shell that took what `up` printed."""
    running = up(NAME, regions=(HOME, EU, TOKYO))
    yield Command(running.environment)
    down(NAME)


def total(command: Command, region: str, counter: str) -> object:
    """The total that a region shows."""
    return command("total", counter, "--region", region, "--json").json["items"][0]["value"]


def everywhere(command: Command, counter: str) -> list[object]:
    """The total of each region."""
    return [total(command, region, counter) for region in (HOME, EU, TOKYO)]


def test_a_partition_from_its_beginning_to_its_end(command: Command) -> None:
    assert command("emit", "likes:a", "1").code == 0
    eventually(lambda: everywhere(command, "likes:a") == ["1", "1", "1"])
    listed = command("region", "list", "--json").json
    assert [one["name"] for one in listed["items"] if one["home"]] == [HOME]
    assert listed["cut"] == []

    assert command("region", "cut", EU).code == 0
    command("emit", "likes:a", "10", "--region", EU)
    command("emit", "likes:a", "100", "--region", TOKYO)
    eventually(lambda: everywhere(command, "likes:a") == ["101", "11", "101"])
    cut = command("region", "list", "--json").json["cut"]
    assert len(cut) == 4
    assert all(EU in one.values() for one in cut)

    over = command("total", "likes:a", "--regions", "--json").json
    assert over["items"][0]["agree"] is False
    assert {one["region"]: one["value"] for one in over["items"][0]["regions"]} == {
        HOME: "101",
        EU: "11",
        TOKYO: "101",
    }
    assert "regions differ" in command("total", "likes:a", "--regions").err

    assert command("region", "heal").code == 0
    eventually(lambda: everywhere(command, "likes:a") == ["111"] * 3)
    assert command("total", "likes:a", "--regions", "--json").json["items"][0]["agree"] is True
    for region in (HOME, EU, TOKYO):
        assert command("total", "likes:a", "--exact", "--region", region).code == 0
        assert command("verify", "likes:a", "--region", region).code == 0


def test_one_way_is_cut_and_healed_alone(command: Command) -> None:
    command("region", "heal")
    command("emit", "likes:b", "1")
    eventually(lambda: everywhere(command, "likes:b") == ["1", "1", "1"])
    command("region", "cut", EU, "--one-way")
    command("emit", "likes:b", "10", "--region", EU)
    command("emit", "likes:b", "100")
    eventually(lambda: everywhere(command, "likes:b") == ["101", "111", "101"])

    assert command("region", "heal", EU, "--json").json == {"items": []}
    eventually(lambda: everywhere(command, "likes:b") == ["111"] * 3)


def test_what_cannot_be_cut_is_refused(command: Command) -> None:
    def refused(done: Finished) -> str:
        assert (done.code, done.out) == (2, "")
        return done.err

    assert "the stack is not in 'mars-1'" in refused(command("region", "cut", "mars-1"))
    on_aws = {"AWS_ENDPOINT_URL": None}
    assert "in an AWS account" in refused(command("region", "cut", EU, env=on_aws))
    assert "in an AWS account" in refused(command("region", "heal", env=on_aws))
    assert f"runs in {HOME}, {EU}" in refused(
        command("up", "--stack-name", NAME, "--regions", HOME)
    )
    assert "'mars' is not the name" in refused(command("up", "--regions", "mars"))
    assert "no stack" in refused(command("total", "likes:a", "--region", "eu-central-1"))
    assert "--regions" in refused(command("total", "likes:a", "--regions", "--exact"))
