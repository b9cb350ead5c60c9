"""`up --persist`: holds, groups, windows, alerts, quarantine, over a crash and a clean end."""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from countledger import CountLedger, Direction, Event, Settings, outcomes
from countledger.infra.local.background import Running, down, status, up
from countledger.infra.local.stack import session_in
from countledger.ledger.clock import to_datetime
from tests.e2e.command import eventually

HOUR: Final = timedelta(hours=1)
REGIONS: Final = ("us-east-1", "eu-west-1", "ap-northeast-1")


@pytest.fixture
def name(name: str) -> Iterator[str]:
    """The name of a stack of this test alone; no process of it stays."""
    yield name
    down(name)


@dataclass(frozen=True)
class Kept:
    """What is made on a stack, and how all of it reads.

    Attributes:
        running: the stack.
        name: of namespace, group and rule.
    """

    running: Running
    name: str

    def client(self, region: str) -> CountLedger:
        """A client of the stack in a region."""
        settings = Settings(stack_name=self.running.stack_name)
        return CountLedger(
            settings,
            session=session_in(self.running.environment, region),
            endpoint_url=self.running.url,
        )

    @property
    def home(self) -> CountLedger:
        """A client in the home region."""
        return self.client(self.running.regions[0])

    @property
    def hall(self) -> str:
        """A strict counter with holds."""
        return f"{self.name}-seats:hall"

    def make(self) -> None:
        """Some of everything; all of it is counted when this returns."""
        client, name = self.home, self.name
        client.namespaces.create(name)
        # The first look of the materializer already finds it: it may be effective at once.
        replace(client.window_settings, at_once=True).enable(name, by="hour")
        assert all(client.record_many(Event(f"{name}:{one}", 10) for one in "abc" for _ in "12"))
        client.groups.add(name, [f"{name}:{one}" for one in "abc"])
        client.groups.switch_ranking(name, on=True)
        client.strict.create(self.hall, method="marker", lower=0, opening=10)
        for key in ("first", "second"):
            held = client.strict.hold(self.hall, 3, expires_in=HOUR, key=key)
            assert isinstance(held, outcomes.Held)
        self.quarantine_one()
        for region in self.running.regions:
            self.wait_for(region, a=20, b=20, c=20)
        eventually(lambda: len(list(client.quarantine.list())) == 1)
        client.alerts.create(
            name, counter=f"{name}:a", threshold=100, direction=Direction.RISING, wait=True
        )

    def quarantine_one(self) -> None:
        """Write an item that looks like an entry and is none."""
        session = session_in(self.running.environment)
        dynamodb = session.client("dynamodb", endpoint_url=self.running.url)
        item = {"counter": f"{self.name}:bad", "entry": "e#broken", "delta": "one"}
        dynamodb.put_item(
            TableName=self.running.outputs["LedgerTableName"],
            Item={name: {"S": value} for name, value in item.items()},
        )

    def totals(self, region: str) -> dict[str, object]:
        """The totals of the namespace in a region, by the last letter of their names."""
        found = self.client(region).counters(self.name)
        return {one.counter[-1]: one.value for one in found}

    def wait_for(self, region: str, **totals: int) -> None:
        """Until a region has these totals."""
        eventually(lambda: self.totals(region) == totals)

    def everything(self) -> dict[str, Any]:
        """All that the stack says of it."""
        client, name = self.home, self.name
        since = to_datetime(client.window_settings.of(name)[-1].from_ms)
        return {
            "totals": {region: self.totals(region) for region in self.running.regions},
            "events": {one.counter: one.events for one in client.counters(name)},
            "exact": {one: client.exact(f"{name}:{one}").value for one in "abc"},
            "windows": [
                (one, window.name, window.value, window.events)
                for one in "abc"
                for window in client.windows(f"{name}:{one}", "hour", since=since)
                if window.events
            ],
            "group": [(one.counter, one.value) for one in client.groups.show(name)],
            "top": client.groups.top(name),
            "groups of a": list(client.groups.of(f"{name}:a")),
            "strict": client.strict.show(self.hall),
            "holds": sorted(client.strict.holds(self.hall), key=lambda one: one.id),
            "quarantine": [(one.id, one.reason) for one in client.quarantine.list()],
            "rules": client.alerts.list(),
            "alerts": [one.alert.new for one in client.alerts.log()],
        }


@pytest.mark.parametrize("regions", [REGIONS[:1], REGIONS], ids=["one region", "three regions"])
def test_every_number_is_the_same_after_a_crash_and_after_an_end(
    name: str, tmp_path: Path, regions: tuple[str, ...]
) -> None:
    """Also of an alert and of entries that were under way when the supervisor was killed."""
    first = Kept(up(name, regions=regions, persist=tmp_path / "kept"), name)
    first.make()
    before = first.everything()
    (one, other) = [hold.id for hold in before["holds"]]
    first.client(regions[-1]).record(f"{name}:a", 100)
    os.kill(first.running.pids[0], signal.SIGKILL)
    eventually(lambda: status(name) is None)

    second = Kept(up(name, persist=tmp_path / "kept"), name)

    assert second.running.regions == regions
    eventually(lambda: second.everything()["alerts"] == [120])
    for region in regions:
        second.wait_for(region, a=120, b=20, c=20)
    after = second.everything()
    assert (after["top"][0].counter, after["top"][0].value) == (f"{name}:a", 120)
    assert sum(value for _, _, value, _ in after["windows"]) == 160
    same = ("groups of a", "strict", "holds", "quarantine", "rules")
    assert {key: after[key] for key in same} == {key: before[key] for key in same}

    strict = second.home.strict
    again = strict.hold(second.hall, 3, expires_in=HOUR, key="first")
    assert isinstance(again, outcomes.Duplicate)
    assert isinstance(strict.confirm(one), outcomes.Confirmed)
    assert isinstance(strict.cancel(other), outcomes.Cancelled)
    second.home.groups.remove(name, [f"{name}:c"])
    second.home.record(f"{name}:b", 200)
    for region in regions:
        second.wait_for(region, a=120, b=220, c=20)
    eventually(lambda: second.home.groups.top(name)[0].value == 220)
    before = second.everything()
    assert (before["strict"].value, before["strict"].held) == (7, 0)
    assert [counter for counter, _ in before["group"]] == [f"{name}:a", f"{name}:b"]
    down(name)

    third = Kept(up(name, persist=tmp_path / "kept"), name)

    assert third.everything() == before
    assert isinstance(third.home.strict.confirm(one), outcomes.Duplicate)
    found = third.home.audit.verify_many(f"{name}:{one}" for one in "abc")
    assert [one.verdict for one in found] == ["exact"] * 3
