"""The auditor's account of strict counters: what was applied for sure, and what may have been."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from countledger.infra.memory.tables import Change
from tests.simulation.sums import Removals, Wrong


@dataclass
class Account:
    """One strict counter.

    Attributes:
        opening: its first value, once it is known to be made.
        applied: what is in for sure, by change.
        unclear: what may be in, by change.
        over: changes that may count more often than once, and how often at the most.
        incarnation: its id, or None while there is none.
        making: how often it was made.
        in_flight: how many calls are under way for a change.
        deltas: of all changes.
        deleted: the ids of makings that are gone.
    """

    opening: int = 0
    applied: dict[str, int] = field(default_factory=dict)
    unclear: dict[str, int] = field(default_factory=dict)
    over: dict[str, tuple[int, int]] = field(default_factory=dict)
    incarnation: str | None = None
    making: int = 0
    in_flight: Counter[str] = field(default_factory=Counter)
    deltas: dict[str, int] = field(default_factory=dict)
    deleted: Removals = field(default_factory=Removals)


@dataclass
class StrictAccounts:
    """All strict counters."""

    accounts: dict[str, Account] = field(default_factory=lambda: defaultdict(Account))

    def changed(self, change: Change) -> None:
        """An item that holds a value was written: bounds hold, rooms fit, the version grows."""
        after = change.after
        item = after or change.before or {}
        if change.key[1] == "total" and item.get("method") != "sequence":
            self._main_changed(change)
        if after is None or "headroom_up" not in after:
            return
        total, lower, upper = after["total"], after.get("lower"), after.get("upper")
        if (lower is not None and total < lower) or (upper is not None and total > upper):
            raise Wrong(f"{change.key} holds {total}, outside of {lower} to {upper}")
        held = after.get("held", 0)
        if held < 0:
            raise Wrong(f"{change.key} holds {held}")
        free = total - held - (lower or 0)
        if after["headroom_up"] != (upper or 0) - total or after["headroom_down"] != free:
            raise Wrong(f"{change.key}: rooms {after} do not fit")
        before = change.before
        if (
            before
            and before.get("incarnation") == after["incarnation"]
            and before["version"] >= after["version"]
        ):
            raise Wrong(f"{change.key}: version {before['version']} became {after['version']}")

    def _main_changed(self, change: Change) -> None:
        """A counter was written: was it deleted or recreated?"""
        account = self.accounts[change.key[0]]
        incarnation = (change.after or {}).get("incarnation")
        if incarnation in account.deleted.gone:
            raise Wrong(f"{change.key[0]} is {incarnation} again")
        if incarnation != account.incarnation and account.incarnation is not None:
            account.deleted.note(change.key[0], account.incarnation)
        if incarnation not in (None, account.incarnation):
            # What was is void. Only a call that is under way may still mean the new one.
            account.making += 1
            account.applied.clear()
            account.unclear = {one: account.deltas[one] for one in +account.in_flight}
        account.incarnation = incarnation

    def making(self, counter: str) -> int:
        """How often a counter was made by now."""
        return self.accounts[counter].making

    @contextmanager
    def under_way(self, counter: str, change: str, delta: int) -> Iterator[int]:
        """A change sets out: from now on it may be in. Yields which making it finds."""
        account = self.accounts[counter]
        account.deltas[change] = delta
        if change not in account.applied:
            account.unclear[change] = delta
        account.in_flight[change] += 1
        try:
            yield account.making
        finally:
            account.in_flight[change] -= 1

    def is_in(self, counter: str, change: str, delta: int, making: int) -> None:
        """A client was told so; if the counter was recreated meanwhile, nobody knows of which."""
        account = self.accounts[counter]
        if making == account.making:
            account.unclear.pop(change, None)
            account.applied[change] = delta

    def is_out(self, counter: str, change: str, making: int) -> None:
        """A client was told that it is not in, and never will be."""
        account = self.accounts[counter]
        if making != account.making:
            return
        if change in account.applied:
            raise Wrong(f"{change} of {counter} was in, and is said to be out")
        account.unclear.pop(change, None)

    def check_end(self, counter: str, value: int) -> None:
        """The value is what was applied, and some of what may have been, each once."""
        account = self.accounts[counter]
        rest = value - account.opening - sum(account.applied.values())
        reachable = _sums(account.unclear.values())
        for delta, most in account.over.values():
            reachable = {one + delta * count for one in reachable for count in range(most + 1)}
        if rest not in reachable:
            raise Wrong(
                f"{counter} is {value}: {account.opening} + {sum(account.applied.values())} "
                f"and some of {sorted(account.unclear.values())} cannot make that"
            )


def _sums(deltas: Iterable[int]) -> set[int]:
    """Every sum that some of them make."""
    reachable = {0}
    for delta in deltas:
        reachable |= {one + delta for one in reachable}
    return reachable


def is_strict(change: Change) -> bool:
    """Whether an item is a strict counter's, or a bin of one."""
    item = change.after or change.before or {}
    # The total of a ledger counter has an incarnation too, and counts entries.
    return change.key[1] in {"total", "bin"} and "incarnation" in item and "entries" not in item
