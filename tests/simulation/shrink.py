"""Makes a failure shorter: leaves out what it does not need, and keeps it failing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tests.simulation.accidents import ACCIDENTS
from tests.simulation.faults import Fault
from tests.simulation.operations import OPERATIONS
from tests.simulation.simulation import Simulation


@dataclass(frozen=True, slots=True)
class Failure:
    """A simulation that fails, and how.

    Attributes:
        seed: of it.
        text: what is wrong.
        told: what happened before.
        without: what is left out of it.
        clients: no more than these, or None.
        operations: no more of them for each client, or None.
        focus: what it does alone, or None.
        skipped: which operations are left out of it, by client and number.
    """

    seed: int
    text: str
    told: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    clients: int | None = None
    operations: int | None = None
    focus: str | None = None
    skipped: tuple[tuple[int, int], ...] = ()

    @property
    def kind(self) -> str:
        """Of the error."""
        return self.text.partition(":")[0]

    @property
    def replay(self) -> str:
        """The one line that shows it again."""
        line = f"python -m tests.simulation {self.seed}"
        if self.focus is not None:
            line += f" --focus {self.focus}"
        if self.clients is not None:
            line += f" --clients {self.clients}"
        if self.operations is not None:
            line += f" --operations {self.operations}"
        if self.skipped:
            line += f" --skip {spelled(self.skipped)}"
        return line + (f" --without '{','.join(self.without)}'" if self.without else "")


def simulation_of(failure: Failure) -> Simulation:
    """The simulation of a seed, with what it is limited to."""
    return Simulation(
        failure.seed,
        failure.without,
        clients=failure.clients,
        operations=failure.operations,
        focus=failure.focus,
        skipped=failure.skipped,
    )


def run(failure: Failure) -> Failure | None:
    """Run a simulation again as it was made shorter; None: all is well."""
    simulation = simulation_of(failure)
    try:
        simulation.run()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        text = f"{type(error).__name__}: {error}"
        return replace(failure, text=text, told=tuple(simulation.world.told))
    return None


def shrink(failure: Failure) -> Failure:
    """The failure with as little as it needs; some hundreds of simulations."""
    for smaller in _fewer():
        failure = _kept(failure, smaller(failure))
    shape = Simulation(failure.seed, focus=failure.focus).shape
    left = [
        (client, number)
        for client in range(min(shape.clients, failure.clients or shape.clients))
        for number in range(min(shape.operations, failure.operations or shape.operations))
    ]
    for size in (16, 4, 1):
        for some in [left[start : start + size] for start in range(0, len(left), size)]:
            skipped = tuple(sorted({*failure.skipped, *some}))
            failure = _kept(failure, replace(failure, skipped=skipped))
        left = [one for one in left if one not in failure.skipped]
    return failure


def _kept(failure: Failure, smaller: Failure) -> Failure:
    """The smaller one, if it fails alike."""
    if smaller == failure:
        return failure
    found = run(smaller)
    return found if found is not None and found.kind == failure.kind else failure


def spelled(skipped: Iterable[tuple[int, int]]) -> str:
    """Which operations are left out, as an argument: `0:1-3,5/2:7`."""
    runs: dict[int, list[list[int]]] = {}
    for client, number in sorted(skipped):
        mine = runs.setdefault(client, [])
        if mine and mine[-1][1] == number - 1:
            mine[-1][1] = number
        else:
            mine.append([number, number])
    return "/".join(
        f"{client}:{','.join('-'.join(map(str, sorted(set(one)))) for one in mine)}"
        for client, mine in runs.items()
    )


def read_skipped(text: str) -> tuple[tuple[int, int], ...]:
    """As it is spelled."""
    found: list[tuple[int, int]] = []
    for one in filter(None, text.split("/")):
        client, _, numbers = one.partition(":")
        for run in numbers.split(","):
            first, _, last = run.partition("-")
            found += [(int(client), number) for number in range(int(first), int(last or first) + 1)]
    return tuple(found)


def _fewer() -> Iterator[Shorter]:
    """Ways to make it shorter, each tried on what the ones before have left."""
    for clients in (1, 2, 3):
        yield Shorter(clients=clients)
    for operations in (2, 4, 8, 12, 16, 20, 24):
        yield Shorter(operations=operations)
    names = [*ACCIDENTS, *(one.name for one in OPERATIONS), *(fault.name for fault in Fault)]
    for name in names:
        yield Shorter(without=name)


@dataclass(frozen=True, slots=True)
class Shorter:
    """One thing less."""

    clients: int | None = None
    operations: int | None = None
    without: str | None = None

    def __call__(self, failure: Failure) -> Failure:
        """The failure with that much less, if it has more."""
        if self.clients is not None and (failure.clients or 99) > self.clients:
            return replace(failure, clients=self.clients)
        if self.operations is not None and (failure.operations or 99) > self.operations:
            return replace(failure, operations=self.operations)
        if self.without is not None:
            return replace(failure, without=(*failure.without, self.without))
        return failure
