"""Makes a failure shorter: leaves out what it does not need, and keeps it failing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.simulation.accidents import ACCIDENTS
from tests.simulation.faults import Fault
from tests.simulation.operations import OPERATIONS
from tests.simulation.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    """

    seed: int
    text: str
    told: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    clients: int | None = None
    operations: int | None = None
    focus: str | None = None

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
        return line + (f" --without '{','.join(self.without)}'" if self.without else "")


def run(failure: Failure) -> Failure | None:
    """Run a simulation again as it was made shorter; None: all is well."""
    simulation = Simulation(
        failure.seed,
        failure.without,
        clients=failure.clients,
        operations=failure.operations,
        focus=failure.focus,
    )
    try:
        simulation.run()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        text = f"{type(error).__name__}: {error}"
        return replace(failure, text=text, told=tuple(simulation.world.told))
    return None


def shrink(failure: Failure) -> Failure:
    """The failure with as little as it needs; some eighty simulations."""
    for smaller in _fewer():
        failure = run(smaller(failure)) or failure
    return failure


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
