"""`make explore`: every case of every capability, or what is named; see `tests.exploring.scope`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import astuple, dataclass, replace
from operator import add
from time import monotonic
from typing import TYPE_CHECKING

from tests.exploring.report import report_of, script_of
from tests.exploring.scope import Case
from tests.exploring.scopes import CAPABILITIES, NOT_EXPLORED, OPEN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.exploring.scope import Capability


@dataclass(frozen=True, slots=True)
class Explored:
    """What was explored.

    Attributes:
        cases: how many searches.
        pairs: of them, those of two actors.
        states: that were looked at.
        schedules: that lead to an end.
        seconds: how long it took.
        bad: how many cases were wrong, or did not end.
    """

    cases: int = 0
    pairs: int = 0
    states: int = 0
    schedules: int = 0
    seconds: float = 0
    bad: int = 0

    def __add__(self, other: Explored) -> Explored:
        """Both."""
        return Explored(*map(add, astuple(self), astuple(other)))

    def __str__(self) -> str:
        """For people."""
        return (
            f"{self.cases} cases, {self.pairs} of them pairs, {self.states} states, "
            f"{self.schedules:.3g} schedules, {self.seconds:.0f} s, "
            f"{self.bad} wrong or not complete"
        )


def main() -> int:
    """Explore, and print what was explored; 1: a violation was found, or a search did not end."""
    given = _arguments()
    unknown = set(given.capability) - {one.name for one in (*CAPABILITIES, *OPEN)}
    if unknown:
        raise SystemExit(f"no such capability: {', '.join(sorted(unknown))}; see --help")
    chosen = [
        one
        for one in (*CAPABILITIES, *OPEN)
        if not given.capability or one.name in given.capability
    ]
    if given.replay is not None:
        return _replay(_named(chosen, given.case, given.faults), given.replay)
    total = Explored()
    for capability in chosen:
        total += _explore(capability, _cases_of(capability, given.case, given.faults))
    sys.stdout.write(f"together: {total}\nnot explored:\n")
    sys.stdout.writelines(f"  {one}\n" for one in NOT_EXPLORED)
    return int(total.bad > 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.exploring", description=__doc__)
    known = ", ".join(one.name for one in (*CAPABILITIES, *OPEN))
    parser.add_argument("capability", nargs="*", help=f"of {known}; none: all")
    parser.add_argument("--case", help="one case, as it is printed: 'free: take | release'")
    parser.add_argument("--faults", type=int, help="how many faults; default: as the case has")
    parser.add_argument("--replay", help="the choices of a schedule, as a violation prints them")
    return parser.parse_args()


def _cases_of(capability: Capability, case: str | None, faults: int | None) -> Iterable[Case]:
    if case is None:
        cases = capability.cases()
        return cases if faults is None else (_with(one, faults) for one in cases)
    return [_named([capability], case, faults)]


def _named(chosen: list[Capability], case: str | None, faults: int | None) -> Case:
    if case is None or len(chosen) != 1:
        raise SystemExit("name one capability, and one --case of it")
    (capability,) = chosen
    parsed = Case.parse(capability, case, capability.bounds)
    bounds = capability.bounds_of(len(parsed.scripts))
    return _with(replace(parsed, bounds=bounds), bounds.faults if faults is None else faults)


def _with(case: Case, faults: int) -> Case:
    return replace(case, bounds=replace(case.bounds, faults=faults))


def _explore(capability: Capability, cases: Iterable[Case]) -> Explored:
    """Print a line for each case, and one for all of them."""
    total = Explored()
    for case in cases:
        since, found = monotonic(), case.run(count=True)
        bad = found.violation is not None or not found.complete
        one = Explored(
            1,
            int(len(case.scripts) == 2),
            found.states,
            found.schedules,
            monotonic() - since,
            int(bad),
        )
        sys.stdout.write(
            f"{capability.name:18} {case!s:70} faults {case.bounds.faults} states {one.states} "
            f"schedules {one.schedules:.3g} seconds {one.seconds:.1f}"
            f"{'' if found.complete else ' NOT COMPLETE'}\n"
        )
        if found.violation is not None:
            sys.stdout.write(f"{report_of(case, found.violation)}\n")
        sys.stdout.flush()
        total += one
    sys.stdout.write(f"{capability.name}: {total}\n")
    return total


def _replay(case: Case, choices: str) -> int:
    search, state = case.search()
    for choice in map(int, filter(None, choices.split(","))):
        state = [*search.successors(state)][choice]
    sys.stdout.writelines(f"{line}\n" for line in script_of(state))
    return 0


if __name__ == "__main__":
    sys.exit(main())
