"""Regions that join, leave, are made home, and are lost; and who brings in what a lost one had.

Each seed draws them from a source of their own. They happen at any moment beside all else. The
region of the strict counters, of schedules and of the queue stays; which one merges changes.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final, NamedTuple

from botocore.exceptions import ClientError

from countledger.compaction.lease import Epoch
from countledger.compaction.salvage import LedgerCopy, Salvage, SalvageFate, SalvageReport
from countledger.ledger.errors import CountledgerError
from countledger.ledger.limits import MINUTE_MS, SECOND_MS
from tests.simulation.product import Product
from tests.simulation.schedule import Killed
from tests.simulation.shape import LEDGER, REGIONS
from tests.simulation.sums import Wrong
from tests.simulation.window_account import joined
from tests.simulation.world import World

# To create a replica takes longer than a list of replicas is believed.
_CREATED_MS: Final = 2 * MINUTE_MS
_TRIES: Final = 200
_TRY_MS: Final = 10 * SECOND_MS


class Loss(NamedTuple):
    """A region that was lost, and which one merged then."""

    region: str
    home: str


@dataclass
class RegionAccidents:
    """What happens to the regions of a world.

    Attributes:
        world: where.
        random: what they are drawn from.
        happened: how often each happened, by name.
        merging: which region merges, as far as the operators know.
        busy: whether one of them is under way.
        begun: whether any has begun.
    """

    world: World
    random: Random
    happened: Counter[str]
    merging: str = ""
    busy: bool = False
    begun: bool = False

    def __post_init__(self) -> None:
        """The first home merges."""
        self.merging = self.world.home

    def plan(self, span_ms: float, *, always: bool = False) -> None:
        """Draw what happens within a time, and when; always: at least one of them."""
        shape, random = self.world.shape, self.random
        if shape.deletes:
            self.world.schedule.spawn("fate of regions", self._strike_at_wakes)
            return
        if self.stays:
            return
        keeps = bool(shape.weights.get("malformed"))
        alone = len(self.world.regions) == 1 and random.random() < _STAY_ALONE
        if always:
            at_ms = random.random() * span_ms
            self.world.schedule.at(at_ms, partial(self._happen, *self._in_any_order(keeps=keeps)))
        if keeps or alone:
            return
        if shape.loses:
            for name, part in (("promote", 0.3), ("lose", 0.6)):
                at_ms = (part + 0.3 * random.random()) * span_ms
                self.world.schedule.at(at_ms, partial(self._happen, name))
            return
        for _ in range(random.choice(_HOW_MANY) + shape.rivals):
            name = random.choice(list(ACCIDENTS))
            self.world.schedule.at(random.random() * span_ms, partial(self._happen, name))
        if shape.rivals or random.random() < _RIVALS:
            # Every stack names its own region home: a mistake, or one that knows of no promotion.
            self.world.believers.update(self.world.regions)

    def _strike_at_wakes(self) -> None:
        """Something happens when those that rest go on, or soon after."""
        world = self.world
        for _ in range(self.random.choice(_HOW_MANY)):
            rested_ms = world.auditor.deletions.wake_ms
            while world.auditor.deletions.wake_ms == rested_ms:
                if world.faults.calm:
                    return
                world.schedule.pause(MINUTE_MS)
            left_ms = max(0.0, world.auditor.deletions.wake_ms - world.schedule.now_ms)
            world.schedule.pause(left_ms + self.random.random() ** 2 * 4 * MINUTE_MS)
            self._happen(*self._in_any_order(keeps=False))

    @property
    def stays(self) -> bool:
        """Whether the world is of one region for good: a counter is deleted in such a one."""
        shape = self.world.shape
        deletes_alone = bool(shape.weights.get("deletion call")) and not shape.deletes
        return deletes_alone or shape.reused

    def _in_any_order(self, *, keeps: bool) -> list[str]:
        names = [one for one in ACCIDENTS if not (keeps and one in _REMOVE_A_REGION)]
        return self.random.sample(names, len(names))

    def _happen(self, *names: str) -> None:
        # One after the other: operators do not change the regions in two ways at once.
        if not self.world.faults.calm and not self.busy:
            self.busy = self.begun = True
            self.world.schedule.spawn(f"operator: {names[0]}", partial(self._play, *names))

    def _play(self, *names: str) -> None:
        """The first of them that is possible."""
        for name in names:
            if ACCIDENTS[name](self):
                self.happened[name] += 1
                break
        self.busy = False

    # ---- joining and leaving ----

    def join(self) -> bool:
        """One more region."""
        world = self.world
        free = [one for one in REGIONS if one not in world.copies]
        if not free or self._unsettled():
            return False
        region = free[0]
        world.open(region)
        world.joined_ms = world.schedule.now_ms
        world.tell(f"{region} is being created")
        world.schedule.pause(_CREATED_MS * (1 + self.random.random()))
        world.replicator.fill(region)
        ledger = world.auditor.ledger
        ledger.copies[region] = world.copies[region][LEDGER].items
        for account in ledger.accounts.values():
            account.joined(region, world.schedule.now_ms)
        world.members[region] = "ACTIVE"
        world.regions.append(region)
        world.joined_ms = world.schedule.now_ms
        world.tell(f"{region} is in service")
        joined(world, region)
        return True

    def leave(self) -> bool:
        """A region that nobody writes to any more, once all of it has arrived."""
        world = self.world
        others = [one for one in world.regions if one not in {world.home, self.merging}]
        if not others or self._unsettled():
            return False
        region = self.random.choice(others)
        world.close(region)
        world.tell(f"{region} is to leave")
        world.schedule.pause(world.shape.life_ms + world.shape.latency_ms)
        while world.replicator.under_way_from(region):
            world.schedule.pause(SECOND_MS)
        self._remove(region)
        self._confirm_alone()
        return True

    def _confirm_alone(self) -> None:
        """After the last other region has left somebody says that the home goes on alone."""
        if len(self.world.members) == 1:
            self._promote(self.merging)

    def _remove(self, region: str) -> None:
        world = self.world
        del world.members[region]
        world.replicator.leave(region, world.shape.replication_ms)
        world.auditor.ledger.copies.pop(region, None)
        world.tell(f"{region} is no replica any more")

    def _unsettled(self) -> bool:
        """Whether another such accident is under way."""
        world = self.world
        creating = "CREATING" in world.members.values()
        leaving = set(world.members) - set(world.regions)
        return creating or bool(leaving)

    # ---- promotion ----

    def promote(self) -> bool:
        """Another home, while all regions are in service."""
        world = self.world
        if self._unsettled() or len(world.regions) == 1:
            return False
        if world.schedule.now_ms - world.joined_ms < world.shape.freeze_ms and world.joined_ms:
            return False  # a run that knows of no other region may stand still for so long
        return self._promote(self.random.choice(world.regions))

    def _promote(self, region: str, lost: str = "") -> bool:
        """Call until every region shows the epoch; processes die in between."""
        world = self.world
        for _ in range(_TRIES):
            if region in world.gone or (not lost and self._unsettled()):
                return False
            epoch = self._try(region, lost)
            if epoch is not None:
                world.believers.add(region)
                self.merging = region
                world.tell(f"{region} is home, epoch {epoch.number}, lost {epoch.lost!r}")
                return True
            world.schedule.pause(_TRY_MS)
        return False

    def _try(self, region: str, lost: str) -> Epoch | None:
        product = Product(self.world.process(region, "operator", "promote"))
        try:
            promotion = product.promotion()
            epoch = promotion.begin(lost)
            if not promotion.missing(epoch):
                return epoch
        except (Killed, CountledgerError, ClientError) as error:
            self.world.tell(f"promote: {type(error).__name__} {error}")
        return None

    # ---- loss ----

    def lose(self) -> bool:
        """A region does not answer any more, with all that it had not replicated."""
        world = self.world
        others = [one for one in world.regions if one != world.home]
        if not others or self._unsettled():
            return False
        # The one that merges, if it can be.
        region = self.merging if self.merging in others else self.random.choice(others)
        loss = Loss(region, self.merging)
        world.replicator.lose(region)
        world.close(region)
        world.auditor.ledger.copies.pop(region, None)
        world.tell(f"{region} is lost; home was {loss.home}")
        world.schedule.pause(self.random.random() * MINUTE_MS)
        self._recover(loss)
        return True

    def _recover(self, loss: Loss) -> None:
        """All that is to be done after a loss."""
        world, shape = self.world, self.world.shape
        self._remove(loss.region)
        was_home = loss.home == loss.region
        home = self.random.choice(world.regions) if was_home else loss.home
        if was_home:
            # Who is home next may begin at once; it merges when the last version has arrived.
            world.schedule.at(shape.replication_ms, partial(self._settle_account, home))
            if not self._promote(home, loss.region):
                raise Wrong(f"{home} does not become home after {loss.region} was lost")
        self._confirm_alone()
        if not was_home:
            world.schedule.pause(shape.replication_ms + shape.life_ms)
        while not self._salvage(loss, home, held=was_home):
            world.schedule.pause(_TRY_MS)
        world.tell(f"what {loss.region} had not replicated is in")

    def _settle_account(self, home: str) -> None:
        self.world.auditor.ledger.home_lost(self.world.copies[home][LEDGER].items)

    @staticmethod
    def _waiting(product: Product, loss: Loss) -> Epoch:
        """The epoch after the loss of a home, once it is time to salvage."""
        epoch = product.promotion().epoch()
        if epoch.number == 0 or epoch.lost not in {loss.region, ""}:
            raise Wrong(f"{loss.region} is salvaged under {epoch}")
        product.promotion().refuse_early(epoch)
        return epoch

    def _salvage(self, loss: Loss, home: str, *, held: bool) -> bool:
        world = self.world
        product = Product(world.process(home, "operator", "salvage"))
        report = SalvageReport()
        try:
            epoch = self._waiting(product, loss) if held else None
            # Else the try before has settled it, and merging may go on.
            held = epoch is not None and bool(epoch.lost)

            def still() -> bool:
                return held and product.promotion().regions.shown(home).epoch == epoch

            for other in [one for one in world.members if one != home]:
                for source, target in ((other, home), (home, other)):
                    salvage_of(product, source, target, held=still, in_service=True).run(report)
            lost = salvage_of(product, loss.region, home, held=still)
            lost.run(report)
            if held:
                epoch = product.promotion().settle(loss.region)
                if epoch.lost:
                    return False
        except (Killed, CountledgerError, ClientError) as error:
            world.tell(f"salvage: {type(error).__name__} {error}")
            return False
        world.tell(f"salvaged: {dict(report.fates)}, {report.heads} heads")
        for one in report.listed:
            if held and one.fate is SalvageFate.UNDECIDED:
                raise Wrong(f"{one} could not be decided although nothing was merged")
            world.auditor.ledger.give_up(one.counter, one.entry)
        return True

    # ---- the end ----

    def end(self) -> None:
        """All that was begun is finished, and the first home merges again."""
        world = self.world
        while self.busy:
            world.schedule.pause(SECOND_MS)
        if (self.begun or len(world.believers) > 1) and not self._promote(world.home):
            raise Wrong("the first home cannot be promoted")
        world.believers.intersection_update({world.home})
        world.schedule.pause(2 * (world.shape.lease_ms + world.shape.life_ms + world.shape.skew_ms))


def salvage_of(
    product: Product,
    source: str,
    target: str,
    *,
    held: Callable[[], bool],
    in_service: bool = False,
) -> Salvage:
    """Brings in what the copy of one region has and that of another one lacks."""
    world = product.world

    def copy(region: str) -> LedgerCopy:
        dynamo = world.dynamo(product.process, retries=True, region=region, salvages=True)
        return LedgerCopy(dynamo=dynamo, table=LEDGER)

    return Salvage(
        connection=product.connection,
        source=copy(source),
        target=copy(target),
        held=held,
        in_service=in_service,
    )


# Not where an item of one copy is malformed: it is about that copy.
_REMOVE_A_REGION: Final = ("leave", "lose")
_STAY_ALONE: Final = 0.5
_HOW_MANY: Final = (0, 1, 2, 4)
_RIVALS: Final = 0.3

ACCIDENTS: Final[dict[str, Callable[[RegionAccidents], bool]]] = {
    "join": RegionAccidents.join,
    "leave": RegionAccidents.leave,
    "promote": RegionAccidents.promote,
    "lose": RegionAccidents.lose,
}
