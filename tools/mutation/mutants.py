"""Draws mutants, names them, and reads the list of those that may survive."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tools.mutation.guards import Guard

_FIELDS: Final = ("module", "within", "guard", "change", "reason")


class Name(NamedTuple):
    """What names a mutant in the list: no line numbers, so it survives other changes."""

    module: str
    within: str
    guard: str
    change: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """One guard of a module with one mutation.

    Attributes:
        module: its path.
        index: which guard of the module.
        guard: the guard.
        change: the name of the mutation.
    """

    module: str
    index: int
    guard: Guard
    change: str

    @property
    def name(self) -> Name:
        """What names it in the list."""
        return Name(self.module, self.guard.within, self.guard.text, self.change)

    @property
    def text(self) -> str:
        """Where it is, what is written there, and what it becomes."""
        changed = self.guard.changes[self.change]
        where = f"{self.module}:{self.guard.line} {self.guard.within}"
        return f"{where}: {self.guard.text}  ->  {self.change}: {changed}"


class BadList(ValueError):
    """The list of allowed survivors is malformed."""


def draw(
    modules: Mapping[str, Sequence[Guard]], *, seed: int, count: int, only: str = ""
) -> list[Mutant]:
    """Draw guards at random, each once, and for each one mutation.

    Args:
        modules: the guards of each module, by path.
        seed: the same seed draws the same from the same sources.
        count: how many at most.
        only: what the path of a module must contain.
    """
    random = Random(seed)  # noqa: S311 - a draw
    places = [
        (module, index)
        for module, found in sorted(modules.items())
        for index in range(len(found))
        if only in module
    ]
    drawn = []
    for module, index in random.sample(places, min(count, len(places))):
        guard = modules[module][index]
        drawn.append(Mutant(module, index, guard, random.choice(sorted(guard.changes))))
    return drawn


def read_allowed(text: str) -> dict[Name, str]:
    """The reasons of allowed survivors, by name.

    Raises:
        BadList: an entry lacks a field, has another one, gives no reason, or is there twice.
    """
    found: dict[Name, str] = {}
    for entry in tomllib.loads(text).get("survivor", []):
        if set(entry) != set(_FIELDS) or not all(isinstance(entry[one], str) for one in _FIELDS):
            raise BadList(f"{entry}: an entry has exactly these texts: {', '.join(_FIELDS)}")
        name = Name(*(entry[one] for one in Name._fields))
        if not entry["reason"].strip():
            raise BadList(f"{name}: give a reason")
        if name in found:
            raise BadList(f"{name}: it is in the list twice")
        found[name] = entry["reason"]
    return found


def outdated(allowed: Mapping[Name, str], modules: Mapping[str, Sequence[Guard]]) -> list[Name]:
    """The entries of the list whose guard or mutation is in no module."""
    known = {
        Name(module, guard.within, guard.text, change)
        for module, found in modules.items()
        for guard in found
        for change in guard.changes
    }
    return [name for name in allowed if name not in known]
