"""The auditor's account of ledger counters: what was written, merged, acknowledged, and where.

Deltas are powers of four, each of one entry alone, so a sum tells which entries are in it and how
often; but for one counter, of which only the sum of all is known. Nothing here is read from the
product: all of it is seen at the tables, or said by clients.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import inf
from typing import Final, TypeAlias

from countledger.infra.memory.tables import Change
from countledger.ledger import keys
from countledger.ledger.attributes import Item
from tests.simulation.shape import Shape
from tests.simulation.sums import Wrong, check_sum, digits

Identity: TypeAlias = "tuple[str, int]"
"""Sort key and time of an entry: under a bare key there may be another one later."""

# Four to the power of 62 still has 38 digits.
DELTAS: Final = 62
# The counter whose deltas are any numbers: what its sums are made of cannot be told.
STOCK: Final = "n:stock"
# The namespace that imports write to: an entry there has the value of a whole counter.
MOVED: Final = "m"


@cache
def powers(delta: int) -> tuple[int, ...]:
    """The powers of four that a delta is made of: the events of a coalesced entry."""
    return tuple(digits(delta).elements())


def counted(deltas: Iterable[int]) -> Counter[int]:
    """How often each power is in deltas."""
    found: Counter[int] = Counter()
    for delta in deltas:
        for power in powers(delta):
            found[power] += 1
    return found


class Excuses(dict[str, tuple[float, str]]):
    """By region, since when and why a total may be wrong there until it is repaired.

    Attributes:
        whys: every reason that there ever was in a region.
    """

    def __init__(self) -> None:
        """None yet."""
        super().__init__()
        self.whys: dict[str, set[str]] = defaultdict(set)

    def __setitem__(self, region: str, excuse: tuple[float, str]) -> None:
        """Note the reason."""
        self.whys[region].add(excuse[1])
        super().__setitem__(region, excuse)

    def unsure(self, region: str) -> bool:
        """Whether windows may be wrong there: repair sets the total, and nothing else."""
        return bool(self.whys[region] - {EDITED, JOINED})


# Of a total, not of windows: those of a region that joined begin later.
EDITED: Final = "edited by hand"
GONE: Final = "deleted by hand"
JOINED: Final = "its totals are still to be made"


@dataclass
class Emptying:
    """The numbers of a counter were deleted in the home region, with all that was merged.

    Attributes:
        run: the deletion.
        made: what it was.
        acknowledged: what clients were told of it.
        shown: what of it each region has shown.
        at_ms: when each region showed the empty head.
        left: the regions whose totals may hold it still.
    """

    run: str
    made: dict[Identity, int]
    acknowledged: dict[Identity, int]
    shown: dict[str, dict[Identity, int]]
    at_ms: dict[str, float]
    left: set[str]

    @property
    def powers(self) -> Counter[int]:
        """Which powers of four were in it."""
        return counted(self.made.values())


@dataclass
class Account:
    """One counter.

    Attributes:
        made: every entry that was ever written anywhere, and its delta.
        shown: per region, the entries that were ever visible there.
        merged: those that a head has taken in.
        acknowledged: those that a client was told to be in.
        heads: generation, run, sum and covers of the last head that a home published.
        excused: regions whose total may be wrong until it is repaired: since when, and why.
        deleted: the deletions of its numbers, the earliest first.
    """

    made: dict[Identity, int] = field(default_factory=dict)
    shown: dict[str, dict[Identity, int]] = field(default_factory=lambda: defaultdict(dict))
    merged: set[Identity] = field(default_factory=set)
    acknowledged: dict[Identity, int] = field(default_factory=dict)
    generation: int = 0
    run: str = ""
    sum: int = 0
    covers: dict[str, int | list[int]] = field(default_factory=dict)
    excused: Excuses = field(default_factory=Excuses)
    deleted: list[Emptying] = field(default_factory=list)

    def joined(self, region: str, now_ms: float) -> None:
        """A region begins with the head, so it shows what that has taken in; it has no totals."""
        merged = self.merged & self.made.keys()
        self.shown[region] |= {identity: self.made[identity] for identity in merged}
        self.excused[region] = now_ms, JOINED

    def remaining(self, region: str) -> Counter[int]:
        """What totals of a region may still hold of all that was deleted."""
        return sum((one.powers for one in self.deleted if region in one.left), Counter())


@dataclass
class LedgerAccounts:
    """All ledger counters.

    Attributes:
        shape: horizon, skew, life of requests.
    """

    shape: Shape
    accounts: dict[str, Account] = field(default_factory=lambda: defaultdict(Account))
    copies: dict[str, dict[tuple[str, str], Item]] = field(default_factory=dict)

    def entry_changed(self, change: Change, now_ms: float, *, home: bool) -> None:
        """An entry was written, replaced or deleted in one region."""
        counter, key = change.key
        account = self.accounts[counter]
        if is_malformed(change.before):
            # It was mended by hand: what it says now came through no stream.
            account.excused[change.table.region] = now_ms, "an entry was mended by hand"
        elif change.before is not None:
            self._left(account, change, now_ms, home=home)
        if change.after is None or is_malformed(change.after):
            return
        identity, delta = (key, change.after["at"]), change.after["delta"]
        if change.local:
            self._made(account, identity, delta, now_ms)
        anew = change.before is not None and change.before["at"] != identity[1]
        if anew and not change.local:
            # A deletion and the entry made anew under its bare key came as one change.
            why = "a bare key was made anew within the lag"
            account.excused[change.table.region] = now_ms, why
        account.shown[change.table.region][identity] = delta

    def _left(self, account: Account, change: Change, now_ms: float, *, home: bool) -> None:
        """What was there is there no more; at home it must have been merged, and be old enough."""
        before = change.before or {}
        identity = (change.key[1], before["at"])
        after_at = None if change.after is None else change.after["at"]
        if after_at == identity[1]:
            if change.after is not None and change.after["delta"] != before["delta"]:
                raise Wrong(f"entry {identity} was changed from {before} to {change.after}")
            return
        if identity not in account.merged:
            raise Wrong(f"entry {identity} of {change.key[0]} was lost: {change.after}")
        oldest_ms = self.shape.horizon_ms + self.shape.skew_ms / 2 + self.shape.life_ms
        if home and now_ms - identity[1] < oldest_ms:
            age_ms = now_ms - identity[1]
            raise Wrong(f"entry {identity} was deleted {age_ms:.0f} ms after its making")

    def _made(self, account: Account, identity: Identity, delta: int, now_ms: float) -> None:
        if identity in account.merged:
            raise Wrong(f"entry {identity} was written again after it was merged: it counts twice")
        account.made[identity] = delta
        for earlier in account.merged:
            age_ms = now_ms - earlier[1]
            if earlier[0] == identity[0] and age_ms < self.shape.horizon_ms - self.shape.skew_ms:
                raise Wrong(f"key {identity[0]} was forgotten after {age_ms:.0f} ms")

    def head_changed(self, change: Change, now_ms: float) -> None:
        """The head was replaced, at home; or forgotten, once a deletion has left an empty one."""
        counter = change.key[0]
        account, head = self.accounts[counter], change.after
        if _identity(head) == (account.generation, account.run):
            return  # taken over from another region
        if head is None:
            if not is_deletion(change.before):
                raise Wrong(f"the head of {counter} was deleted: {change.before}")
            account.generation, account.run = 0, ""
            return
        if head["generation"] != account.generation + 1:
            raise Wrong(f"generation {head['generation']} followed {account.generation}")
        self._refuse_shown(counter)
        if is_deletion(head):
            self._deleted(account, head, change.table.region, now_ms)
        taken = 0
        for key, covered in head["covers"].items():
            delta, identity = self._covered(account, key, covered)
            if account.made.get(identity) != delta:
                raise Wrong(f"{identity} was merged with {delta}, made with {account.made}")
            if identity in account.merged:
                raise Wrong(f"{identity} was merged twice")
            account.merged.add(identity)
            taken += delta
        if head["sum"] != account.sum + taken:
            raise Wrong(f"the head's sum is {head['sum']}, not {account.sum} + {taken}")
        account.generation, account.run = head["generation"], head["run"]
        account.sum = head["sum"]
        account.covers = dict(head["covers"])

    def _deleted(self, account: Account, head: Item, region: str, now_ms: float) -> None:
        """All that was merged is gone, and none of it was made behind the mark."""
        gone = [one for one in account.merged if one in account.made]
        late = [one for one in gone if one[1] > head["to_at"]]
        if late or account.covers:
            raise Wrong(f"deleted although made behind the mark: {late}, {account.covers}")
        deleted = set(gone)

        def taken(known: dict[Identity, int]) -> dict[Identity, int]:
            return {one: known.pop(one) for one in [*known] if one in deleted}

        made, acknowledged = taken(account.made), taken(account.acknowledged)
        shown = {region: taken(known) for region, known in account.shown.items()}
        account.deleted.append(
            Emptying(
                head["run"], made, acknowledged, shown, {region: now_ms}, {*self.copies} - {region}
            )
        )
        account.sum = 0

    def _undo_deletion(self, account: Account) -> None:
        """The home that deleted the numbers is lost, and nobody else shows it."""
        lost = account.deleted.pop()
        account.made |= lost.made
        account.acknowledged |= lost.acknowledged
        for region, known in lost.shown.items():
            account.shown[region] |= known

    def head_shown(self, change: Change, now_ms: float) -> None:
        """A region shows another head: perhaps the empty one, or one after it."""
        account, region = self.accounts[change.key[0]], change.table.region
        incarnation = (change.after or {}).get("incarnation")
        for one in account.deleted:
            if one.run == incarnation:
                one.at_ms.setdefault(region, now_ms)

    def _refuse_shown(self, counter: str) -> None:
        """Covers are forgotten only once no region shows them."""
        account = self.accounts[counter]
        for key, covered in account.covers.items():
            _, identity = self._covered(account, key, covered)
            for region, items in self.copies.items():
                there = items.get((counter, key))
                if there is not None and there["at"] == identity[1]:
                    raise Wrong(f"{identity} was forgotten by the head while {region} shows it")

    @staticmethod
    def _covered(account: Account, key: str, covered: int | list[int]) -> tuple[int, Identity]:
        if isinstance(covered, list):
            return covered[0], (key, covered[1])
        at_ms = next((at for made, at in account.made if made == key), 0)
        return covered, (key, at_ms)

    def home_lost(self, items: Mapping[tuple[str, str], Item]) -> None:
        """The next home goes on from the heads that it shows: one at the most is lost."""
        for counter, account in self.accounts.items():
            head = items.get((counter, keys.HEAD))
            if head is None and account.generation == 1:
                head = {"generation": 0, "run": "", "sum": 0, "covers": {}}
            if head is None or head["run"] == account.run:
                continue
            if account.deleted and account.deleted[-1].run == account.run:
                if self._is_shown(counter, account.run):
                    continue  # a salvage takes it over
                self._undo_deletion(account)
            if head["generation"] != account.generation - 1:
                raise Wrong(f"{counter}: {head['generation']} is left of {account.generation}")
            for key, covered in account.covers.items():
                account.merged.discard(self._covered(account, key, covered)[1])
            account.generation, account.run = head["generation"], head["run"]
            account.sum, account.covers = head["sum"], dict(head["covers"])

    def _is_shown(self, counter: str, run: str) -> bool:
        heads = (items.get((counter, keys.HEAD), {}) for items in self.copies.values())
        return any(head.get("run") == run for head in heads)

    def give_up(self, counter: str, key: str) -> None:
        """Salvage has listed an entry of a lost region that it could not decide about."""
        account = self.accounts[counter]
        for identity in [one for one in account.made if one[0] == key]:
            shown = any(identity in account.shown[region] for region in self.copies)
            if identity not in account.merged and not shown:
                del account.made[identity]
                account.acknowledged.pop(identity, None)

    def total_changed(self, change: Change) -> None:
        """A total was updated or repaired: it never holds what was not made, nor any twice."""
        counter, region = change.key[0], change.table.region
        account = self.accounts[counter]
        if change.after is None:
            for one in account.deleted:
                one.left.discard(region)
            return
        before = change.before or {"version": 0}
        if change.after["version"] < before["version"]:
            raise Wrong(f"the version of {counter} went back to {change.after['version']}")
        if region not in account.excused and counter != STOCK:
            allowed = counted(account.shown[region].values()) + account.remaining(region)
            check_sum(change.after["total"], Counter(), allowed)

    # ---- what clients say ----

    def before_read(self, counter: str, region: str) -> Counter[int]:
        """What an exact read that begins now must contain."""
        return counted(self.accounts[counter].shown[region].values())

    def read(
        self,
        counter: str,
        required: Counter[int],
        total: int,
        began_ms: float = 0.0,
        *,
        region: str = "",
        is_total: bool = False,
    ) -> None:
        """A read that began then has ended; what was deleted meanwhile may be in it or not."""
        account = self.accounts[counter]
        made = counted(account.made.values())
        deleted = (
            one.powers
            for one in account.deleted
            if one.at_ms.get(region, inf) >= began_ms or (is_total and region in one.left)
        )
        check_sum(total, required & made, sum(deleted, made))

    def acknowledge(self, counter: str, key: str, delta: int) -> None:
        """A client was told that its entry is in."""
        account = self.accounts[counter]
        found = [identity for identity, one in account.made.items() if identity[0] == key]
        if not any(account.made[identity] == delta for identity in found):
            raise Wrong(f"{key} of {counter} was acknowledged with {delta}, and is {found}")
        identity = max(found, key=lambda one: one[1])
        account.acknowledged[identity] = delta

    def is_entry(self, key: str) -> bool:
        """Whether a sort key is an entry's."""
        return key.startswith(keys.ENTRY_PREFIX)

    # ---- once all is quiet ----

    def expected(self, counter: str) -> Counter[int]:
        """What every exact sum and every total is now."""
        return counted(self.accounts[counter].made.values())

    def check_end(self, counter: str, total: int) -> None:
        """The sum holds each entry that was made once, and all that were acknowledged."""
        if counter == STOCK:
            if total != sum(self.accounts[counter].made.values()):
                raise Wrong(f"{counter} is {total}: {self.accounts[counter].made}")
            return
        expected = self.expected(counter)
        check_sum(total, expected, expected)
        missing = counted(self.accounts[counter].acknowledged.values()) - digits(total)
        if missing:
            raise Wrong(f"{counter}: acknowledged and not counted: {missing}")


def _identity(head: Item | None) -> tuple[object, object] | None:
    return None if head is None else (head["generation"], head["run"])


def is_malformed(item: Item | None) -> bool:
    """Whether an entry is one that nobody can read."""
    return item is not None and not isinstance(item.get("delta"), int)


def is_deletion(head: Item | None) -> bool:
    """Whether a head is the empty one that a deletion leaves."""
    return head is not None and head["entries"] == 0 and head["run"] == head["incarnation"]
