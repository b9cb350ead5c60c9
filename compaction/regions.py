"""The regions that a table lives in, by its own list of replicas, and what each of them shows.

Only the home region compacts: a condition is checked against one copy, so two regions could each
replace the head that they see. Every run reads the list, at most a minute old: creating or deleting
a replica takes minutes, and nothing is merged meanwhile.

Another home region: a new epoch, written in the region that is to be home.

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

from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Final

from countledger.compaction import lease
from countledger.compaction.lease import (
    Epoch,
    HomeLease,
    LeaseTerms,
    MergeWait,
    Take,
    epoch_of,
    next_epoch,
)
from countledger.ledger import keys
from countledger.ledger.clock import show_duration
from countledger.ledger.errors import (
    BadSetting,
    ConditionFailed,
    LeaseEnded,
    ServiceFailed,
)
from countledger.ledger.exact import Head, decode_head
from countledger.ledger.ids import BARE_KEY_PREFIX
from countledger.ledger.limits import LEASE_MS, MINUTE_MS, SECOND_MS
from countledger.ledger.operations import AllOf, Between, Compare, Query

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from countledger.compaction.lease import Shown
    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection
    from countledger.ledger.dynamo import DynamoClient


_SURVEY_LIFE_MS: Final = MINUTE_MS
# From so many neighbours on, reading the range between them costs less than reading each.
_NEIGHBOURS: Final = 8
# Replication takes about a second; the next run continues with a region that needs longer.
PATIENCE_MS: Final = 15 * SECOND_MS


@dataclass(frozen=True, slots=True)
class Survey:
    """The state of the table's replicas.

    Attributes:
        unready: the regions whose replica is not in service, with its status.
        strong: whether a write is in every region before it is acknowledged.
    """

    others: tuple[str, ...] = ()
    unready: tuple[str, ...] = ()
    strong: bool = False


def survey_of(description: Mapping[str, object], home: str) -> Survey:
    replicas = description.get("Replicas", [])
    if not isinstance(replicas, list):
        raise TypeError(f"Replicas of a table are {replicas!r}")
    status = {one["RegionName"]: one.get("ReplicaStatus", "ACTIVE") for one in replicas}
    return Survey(
        tuple(sorted(name for name in status if name != home)),
        tuple(sorted(f"{name} ({word})" for name, word in status.items() if word != "ACTIVE")),
        description.get("MultiRegionConsistency") == "STRONG",
    )


@dataclass(slots=True)
class KnownRegions:
    """What a process knows of the regions; `held`: which showed the lease, and until when."""

    clients: dict[str, DynamoClient] = field(default_factory=dict)
    survey: tuple[int, Survey] | None = None
    held: tuple[frozenset[str], int] | None = None


class Regions:
    """The regions of the table `ledger`, as the home region sees them.

    WrongRegion elsewhere, unless this region is taken for the home, whatever the stack says
    (`as_home`).
    """

    def __init__(
        self, connection: Connection, *, as_home: bool = False, lease_ms: int = LEASE_MS
    ) -> None:
        self.connection, self.region = connection, connection.region
        if not as_home:
            connection.refuse_elsewhere("entries are merged")
        self.home, self.table = connection.retrying, connection.ledger
        skew_ms, life_ms = connection.clock_skew_ms, connection.request_life_ms
        self.terms = LeaseTerms(clock_skew_ms=skew_ms, lease_ms=lease_ms, request_life_ms=life_ms)
        self._known = KnownRegions() if as_home else connection.shared(KnownRegions)

    def survey(self) -> Survey:
        """The table's replicas, at most a minute old. One DescribeTable call."""
        now_ms = self.connection.clock.now_ms()
        life_ms = min(_SURVEY_LIFE_MS, self.terms.lease_ms // 2)
        if self._known.survey is None or not 0 <= now_ms - self._known.survey[0] < life_ms:
            described = self.home.describe(self.table)
            self._known.survey = now_ms, survey_of(described, self.region)
        return self._known.survey[1]

    def refuse_transactions(self) -> None:
        if self.survey().strong:
            raise BadSetting(
                f"table {self.table!r} has multi-region strong consistency, which allows no "
                "transactions: retire by single deletes (`--retire delete`)"
            )

    def hold_lease(self) -> str | None:
        """Hold the home's lease, for as long as one generation takes; why it cannot be held.

        The lease is the home's, so all its processes share it; each looks for itself, at most once
        in half the length of a lease: a read unit in each region. One of them renews it, a write
        unit. Without replicas there is no lease, only the look whether this region is home.
        """
        others = frozenset(self.survey().others)
        now_ms = self.connection.clock.now_ms()
        if self._known.held is not None:
            regions, until_ms = self._known.held
            if others <= regions and until_ms - now_ms > self.terms.lease_ms // 2:
                return None
        shown = {name: self.shown(name) for name in (self.region, *sorted(others))}
        ruling = lease.may_merge(shown, self.region, self.region, now_ms, self.terms)
        if isinstance(ruling, MergeWait):
            return ruling.reason
        if isinstance(ruling, Take):
            until_ms = self.connection.clock.now_ms() + self.terms.lease_ms
            mine = HomeLease(
                epoch=ruling.epoch,
                home=self.region,
                id=self.connection.ids.unique_id(),
                until_ms=until_ms,
            )
            # If another process of this home was first, its lease is as good.
            with suppress(ConditionFailed):
                self.home.put(lease.lease_of(self.table, mine, ruling.before))
            return f"the lease of {self.region} is on its way to {', '.join(sorted(others))}"
        self._known.held = others, ruling.until_ms
        return None

    def check_lease(self) -> None:
        """Raise LeaseEnded if a merging write would leave after the lease."""
        if self._known.held is None or self.connection.clock.now_ms() >= self._known.held[1]:
            raise LeaseEnded(f"the lease of {self.region} has ended; the next run continues")

    def shown(self, region: str) -> lease.Shown:
        """The epoch and the lease that a region shows: one read unit."""
        query = Query(self.table, Compare("counter", "=", keys.REGION_HOME), consistent=True)
        items = [item for page in self.dynamo(region).pages(query) for item in page]
        return lease.decode_shown(items)

    def metered(self) -> Views:
        return Views(self)

    def dynamo(self, region: str) -> DynamoClient:
        if region == self.region:
            return self.home
        clients = self._known.clients
        if region not in clients:
            clients[region] = self.connection.dynamo("standard", region=region)
        return clients[region]


@dataclass(slots=True)
class Views:
    """What the regions show, metered for one run."""

    regions: Regions
    _clients: dict[str, DynamoClient] = field(default_factory=dict, repr=False)

    @property
    def home(self) -> DynamoClient:
        return self._dynamo(self.regions.region)

    @property
    def write_units(self) -> float:
        return sum(dynamo.meter.write_units for dynamo in self._clients.values())

    @property
    def read_units(self) -> float:
        return sum(dynamo.meter.read_units for dynamo in self._clients.values())

    def head(self, counter: str, region: str | None = None) -> Head:
        """The head that a region shows (default: home): one read unit for each 4 KB."""
        dynamo = self._dynamo(region or self.regions.region)
        return decode_head(dynamo.get(self.regions.table, keys.head_key(counter), consistent=True))

    def heads_elsewhere(self, counter: str) -> dict[str, Head]:
        return {name: self.head(counter, name) for name in self.regions.survey().others}

    def shown(self, counter: str, wanted: Iterable[str], region: str | None = None) -> list[Item]:
        """The entries of those sort keys that a region shows, and perhaps entries between them.

        Neighbours in key order are read as a range, one read unit for each 4 KB found; scattered
        ones one by one, a read unit each, found or not.
        """
        dynamo, table = self._dynamo(region or self.regions.region), self.regions.table
        found: list[Item] = []
        scattered: list[str] = []
        for group in neighbours(wanted):
            if len(group) < _NEIGHBOURS:
                scattered += group
                continue
            between = AllOf(Compare("counter", "=", counter), Between("entry", group[0], group[-1]))
            for page in dynamo.pages(Query(table, between, consistent=True)):
                found += page
        asked = [{"counter": counter, "entry": key} for key in scattered]
        return found + dynamo.get_many(table, asked, consistent=True)

    def shown_elsewhere(self, counter: str, wanted: list[str]) -> list[dict[str, Item]]:
        return [
            {item["entry"]: item for item in self.shown(counter, wanted, name)}
            for name in self.regions.survey().others
        ]

    def _dynamo(self, region: str) -> DynamoClient:
        if region not in self._clients:
            self._clients[region] = self.regions.dynamo(region).metered()
        return self._clients[region]


def neighbours(wanted: Iterable[str]) -> list[list[str]]:
    """The sort keys in groups; between the keys of a group are only entries of one kind."""
    ordered = sorted(wanted)
    return [list(group) for _, group in groupby(ordered, key=_kind)]


def _kind(key: str) -> tuple[str, bool]:
    """The prefix of a sort key by its spread, and whether it is a bare key's."""
    entry_id = keys.id_of(key) or ""
    return key.removesuffix(entry_id), entry_id.startswith(BARE_KEY_PREFIX)


class NotReady(ServiceFailed):
    """A replica is not in service, or an epoch has not arrived everywhere: call again later."""


class Promotion:
    """Makes a connection's region the home of the ledger; `lease_ms` is as of `Regions`."""

    def __init__(self, connection: Connection, *, lease_ms: int = LEASE_MS) -> None:
        self.regions = Regions(connection, as_home=True, lease_ms=lease_ms)
        # The epoch that has no item: its home is that of the settings.
        self._none = Epoch(number=0, home=connection.home_region, id="")

    def epoch(self, lost: str = "") -> Epoch:
        """The epoch that every region shows; nothing is written. A read unit in each region.

        With a region that is lost, that which this region shows. BadSetting: the home region is no
        replica of the table any more, or the lost one is.
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

        If the home before was lost, nothing is merged until `settle`. NotReady also if another
        promotion was first.
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
        terms, connection = self.regions.terms, self.regions.connection
        unseen_ms = terms.lease_ms + terms.after_ms
        until_settled_ms = connection.replication_ms + terms.clock_skew_ms if lost else 0
        begins_ms = connection.clock.now_ms() + max(unseen_ms, until_settled_ms)
        new_id = connection.ids.unique_id()
        return self._write(next_epoch(current, region, new_id, begins_ms, lost))

    def settle(self, lost: str) -> Epoch:
        """What a lost region had not replicated is in, or left out: the home may merge.

        The loss of another region since is not ended by this.
        """
        current = self.regions.shown(self.regions.region).epoch or self._none
        if current.lost != lost:
            return current
        self.refuse_early(current)
        return self._write(
            next_epoch(
                current, current.home, self.regions.connection.ids.unique_id(), current.begins_ms
            )
        )

    def refuse_early(self, epoch: Epoch) -> None:
        """Raise NotReady for a salvage while a version of the lost region can still arrive."""
        left_ms = epoch.begins_ms - self.regions.connection.clock.now_ms()
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
