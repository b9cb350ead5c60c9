"""Another home region: a new epoch, written in the region that is to be home.

    check   every replica is in service and shows the same epoch (after a loss: the lost region is
            no replica any more)
    write   the next epoch, on condition of the epoch that this copy shows. It begins after the
            right to merge of a home that was the only copy until now, which shows no lease; after a
            loss also not before no version of the lost region can arrive any more
    await   every region shows it. From here on no region renews a lease of the epoch before
    begin   the new home takes its first lease, when the last request under each lease that any
            region shows can have arrived (`lease.may_merge`). Every look at a lease was a look at
            the epoch too, so the last lease of the home before is among them

A crash after any step leaves the epoch before, or the new one on its way; the same call continues.
Of two promotions at once the last writer wins everywhere; the other one is never shown by all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from countledger.compaction.lease import Epoch, epoch_of, next_epoch
from countledger.ledger.clock import show_duration
from countledger.ledger.errors import BadSetting, ConditionFailed, ServiceFailed
from countledger.ledger.limits import REPLICATION_BOUND_DEFAULT_MS

if TYPE_CHECKING:
    from countledger.compaction.lease import Shown
    from countledger.compaction.regions import Regions


class NotReady(ServiceFailed):
    """A replica is not in service, or an epoch has not arrived everywhere: call again later."""


@dataclass(frozen=True, slots=True)
class Promotion:
    """Makes a region the home of the ledger.

    Attributes:
        regions: of the ledger, as the region that is to be home sees them.
        home: the home of the settings, for epoch 0.
        bound_ms: how long a version may take from one region to another.
    """

    regions: Regions
    home: str
    bound_ms: int = REPLICATION_BOUND_DEFAULT_MS
    _none: Epoch = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """The epoch that has no item."""
        object.__setattr__(self, "_none", Epoch(number=0, home=self.home, id=""))

    def epoch(self, lost: str = "") -> Epoch:
        """The epoch that every region shows; nothing is written. A read unit in each region.

        Args:
            lost: a region that is lost; then that which this region shows.

        Raises:
            NotReady: as the class says.
            BadSetting: the home region is no replica of the table any more, or the lost one is.
        """
        region = self.regions.region
        survey = self.regions.survey()
        members = {region, *survey.others}
        if lost in members:
            raise BadSetting(
                f"{lost} is a replica of the table still: if it is lost, remove it first "
                f"(`countledger region remove {lost}`); else promote without --lost"
            )
        if survey.unready:
            raise NotReady(f"replicas not in service: {', '.join(survey.unready)}")
        shown = {name: self.regions.shown(name) for name in sorted(members)}
        found = shown[region].epoch or self._none
        if lost:
            return max((one.epoch or self._none for one in shown.values()), key=lambda e: e.number)
        self._refuse_apart(shown, found)
        if found.home not in members:
            raise BadSetting(
                f"the home region {found.home} is no replica of the table any more: if it was "
                f"lost, promote with --lost {found.home}"
            )
        return found

    def begin(self, lost: str = "") -> Epoch:
        """Write the next epoch, unless this region is home already. One write unit.

        Args:
            lost: the home before, if it was lost: nothing is merged until `settle`.

        Raises:
            As `epoch`; NotReady also if another promotion was first.
        """
        region = self.regions.region
        current = self.epoch(lost)
        if current.home == region and (not lost or current.lost == lost):
            if self.regions.survey().others or not self._held_with_others():
                return current
        elif lost and current.home != lost:
            raise BadSetting(
                f"the home region is {current.home}, not {lost}: nothing needs to be promoted; "
                f"`countledger region salvage {lost}` brings in what it had not replicated"
            )
        # A home that was the only copy a moment ago may merge without a lease that anybody sees.
        terms = self.regions.terms
        unseen_ms = terms.lease_ms + terms.after_ms
        until_settled_ms = self.bound_ms + terms.clock_skew_ms if lost else 0
        begins_ms = self.regions.clock.now_ms() + max(unseen_ms, until_settled_ms)
        return self._write(next_epoch(current, region, self.regions.new_id(), begins_ms, lost))

    def settle(self, lost: str) -> Epoch:
        """What a lost region had not replicated is in, or left out: the home may merge.

        Args:
            lost: the region; the loss of another one since is not ended by this.
        """
        current = self.regions.shown(self.regions.region).epoch or self._none
        if current.lost != lost:
            return current
        self.refuse_early(current)
        return self._write(
            next_epoch(current, current.home, self.regions.new_id(), current.begins_ms)
        )

    def refuse_early(self, epoch: Epoch) -> None:
        """Allow a salvage only once no version of the lost region can arrive any more.

        Raises:
            NotReady: it is too early.
        """
        left_ms = epoch.begins_ms - self.regions.clock.now_ms()
        if left_ms > 0:
            raise NotReady(
                f"versions of {epoch.lost} may arrive for another {show_duration(left_ms)}: "
                "salvage after that"
            )

    def missing(self, epoch: Epoch) -> list[str]:
        """The regions that do not show an epoch yet. A read unit in each region."""
        names = (self.regions.region, *self.regions.survey().others)
        shown = {name: self.regions.shown(name).epoch or self._none for name in names}
        return [name for name, one in shown.items() if one.id != epoch.id]

    def _held_with_others(self) -> bool:
        """Whether the last lease was of this epoch: then other regions have left since."""
        shown = self.regions.shown(self.regions.region)
        return shown.lease is not None and shown.lease.epoch == (shown.epoch or self._none).id

    def _write(self, epoch: Epoch) -> Epoch:
        regions = self.regions
        before = regions.shown(regions.region).epoch
        try:
            regions.home.put(epoch_of(regions.table, epoch, before))
        except ConditionFailed as failed:
            # The SDK repeats a write that got no answer, and then finds its own first attempt.
            if (failed.item or {}).get("id") != epoch.id:
                raise NotReady("another promotion was first: call again") from failed
        return epoch

    def _refuse_apart(self, shown: dict[str, Shown], epoch: Epoch) -> None:
        apart = [name for name, one in shown.items() if (one.epoch or self._none).id != epoch.id]
        if apart:
            raise NotReady(
                f"{', '.join(apart)} does not show the epoch that {self.regions.region} shows: "
                "a promotion has not arrived everywhere, call again"
            )
