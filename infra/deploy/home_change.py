"""Makes another region the home: who is home in the ledger, then the stacks, then the schedules.

    epoch       the ledger says who is home, and every region shows it; from then on the order of
                the rest decides about no number, since a region that is not home merges nothing
    compactor   the stack of the new home gets what merges, and the group of the schedules
    schedules   each is written there, swept once, and deleted where it was
    stacks      the other stacks learn who is home; that of the home before loses its compactor

Nothing of a run is stored besides that, so another run observes, and continues.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Any

from countledger.compaction.schedules import Schedules
from countledger.infra.deploy.deployment import Effect, parameters_in
from countledger.infra.deploy.stack_operation import DeployFailed
from countledger.infra.template import load_template
from countledger.ledger import keys
from countledger.ledger.operations import Compare, Query
from countledger.ledger.records import Records, Replacement, write_of
from countledger.ledger.tombstones import present

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from countledger.compaction.lease import Epoch
    from countledger.infra.deploy.deployment import Deployment
    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection


class HomeStep(StrEnum):
    """A step after the epoch; its text is for people."""

    COMPACTOR = "make the compactor and its queue in the new home region"
    SCHEDULES = "move the schedules there; what is due is found by a sweep"
    STACKS = "name the new home in the other stacks; that of the home before loses its compactor"


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeSeen:
    """What is there now.

    Attributes:
        named: the home that the stack of each region names; regions without a stack are missing.
        schedules: the regions besides the home that have schedules, with their namespaces.
    """

    home: str
    named: Mapping[str, str]
    schedules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def next_of_home(seen: HomeSeen) -> HomeStep | None:
    """The step that is next; None: every stack names the home, and it has the schedules."""
    if seen.home not in seen.named:
        raise DeployFailed(
            f"there is no stack in {seen.home}: `countledger region add {seen.home}` first"
        )
    if seen.named[seen.home] != seen.home:
        return HomeStep.COMPACTOR
    if any(seen.schedules.values()):
        return HomeStep.SCHEDULES
    if any(name != seen.home for name in seen.named.values()):
        return HomeStep.STACKS
    return None


def following_home(template: Mapping[str, Any]) -> set[str]:
    """The resources that follow the home region: made in one stack, and deleted in another."""
    conditions = template["Conditions"]

    def follows(name: str) -> bool:
        parts = chain.from_iterable(conditions[name].values())
        named = [one["Condition"] for one in parts if isinstance(one, dict) and "Condition" in one]
        return name == "IsHome" or any(map(follows, named))

    resources = template["Resources"].items()
    return {name for name, one in resources if "Condition" in one and follows(one["Condition"])}


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeChange:
    """Makes stacks and schedules follow the home region (`target`) that the ledger names."""

    target: Connection
    regions: tuple[str, ...]
    deployment: Callable[[Connection], Deployment]
    say: Callable[[str], None] = lambda _: None

    def observe(self) -> HomeSeen:
        """What is there now: a call for each stack, half a read unit for each namespace of each."""
        home = self.target.region
        named: dict[str, str] = {}
        schedules: dict[str, tuple[str, ...]] = {}
        for region in self.regions:
            stack = self.deployment(self._in(region)).stack.describe()
            if stack is None:
                continue
            named[region] = parameters_in(stack).get("HomeRegion") or region
            if region != home:
                found = (str(one["counter"]) for one in self._schedules_in(region))
                names = (one.removeprefix(keys.NAMESPACE_PREFIX) for one in found)
                schedules[region] = tuple(sorted(names))
        return HomeSeen(home=home, named=named, schedules=schedules)

    def run(self, epoch: Epoch, on_step: Callable[[HomeStep], None] = lambda _: None) -> None:
        """Take the steps that are left; if one fails, another run continues with it."""
        while (step := next_of_home(self.observe())) is not None:
            on_step(step)
            self.take(step, epoch)

    def take(self, step: HomeStep, epoch: Epoch) -> None:
        """Take one step; each of them can be repeated."""
        seen = self.observe()
        if step is HomeStep.COMPACTOR:
            self._name_home(seen.home)
        elif step is HomeStep.SCHEDULES:
            for region in sorted(one for one, there in seen.schedules.items() if there):
                self._move_schedules(region, epoch)
        else:
            for region in sorted(one for one, home in seen.named.items() if home != seen.home):
                self._name_home(region)

    def _in(self, region: str) -> Connection:
        """A connection that has not read the stack's outputs: they change."""
        if region == self.target.region:
            return replace(self.target)
        return self.target.in_region(region)

    def _name_home(self, region: str) -> None:
        """Name the home in a region's stack; only what follows the home may be lost."""
        deployment = self.deployment(self._in(region))
        proposal = deployment.propose_parameters({"HomeRegion": self.target.region})
        if proposal is None:
            return
        following = following_home(load_template())
        lost = [
            one.resource
            for one in proposal.changes
            if one.dangerous and not (one.effect is Effect.DELETE and one.resource in following)
        ]
        if lost:
            deployment.discard(proposal)
            raise DeployFailed(
                f"this would delete or replace {', '.join(lost)} in {region}: nothing was changed; "
                "`countledger deploy` there first, as it is now"
            )
        added = sum(one.effect is Effect.ADD for one in proposal.changes)
        gone = sum(one.effect is Effect.DELETE for one in proposal.changes)
        self.say(f"stack in {region}: {added} resources are made, {gone} deleted")
        deployment.execute(proposal)

    def _move_schedules(self, region: str, epoch: Epoch) -> None:
        """Write each schedule of a region in the home's table, then delete it there.

        Five write units for each, and two calls of EventBridge Scheduler. A tombstone stays, so
        that no late request creates one there again: the next promotion would take it over.
        """
        home, there = self._in(self.target.region), self._in(region)
        schedules = Schedules(home)
        records = Records(there, there.counters, "schedule of namespace")
        for item in self._schedules_in(region):
            namespace = str(item["counter"]).removeprefix(keys.NAMESPACE_PREFIX)
            taken = schedules.take_over(namespace, item, epoch)

            def decide(now: Item | None, taken_over: str = write_of(item)) -> Replacement | None:
                same = now is not None and write_of(now) == taken_over
                return Replacement(None) if same else None

            removal = records.write(namespace, keys.schedule_key(namespace), decide, seen=item)
            if not there.run(removal).changed:
                self.say(f"the schedule of {namespace} was changed in {region} just now")
                continue
            now = taken.describe() if taken else "it was deleted here since"
            self.say(f"schedule of {namespace} moved from {region}: {now}")

    def _schedules_in(self, region: str) -> Iterator[Item]:
        there = self._in(region)
        dynamo, table = there.dynamo("standard"), there.setting("counters_table")
        listed = Compare("directory", "=", keys.DIRECTORY)
        read = Query(there.setting("ledger_table"), listed, index=keys.NAMESPACES_INDEX)
        names = [item["counter"] for page in dynamo.pages(read) for item in page]
        wanted = [{"counter": name, "part": keys.SCHEDULE} for name in names]
        yield from filter(present, dynamo.get_many(table, wanted, consistent=True))
