"""`make explore`: every case of every capability, or what is named; see `tests.exploring.scope`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

from tests.exploring.report import report_of, script_of
from tests.exploring.scope import Case
from tests.exploring.scopes import CAPABILITIES, NOT_EXPLORED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.exploring.scope import Capability


def main() -> int:
    """Explore, and print what was explored; 1: a violation was found, or a search did not end."""
    given = _arguments()
    chosen = [one for one in CAPABILITIES if not given.capability or one.name in given.capability]
    if given.replay is not None:
        return _replay(_named(chosen, given.case, given.faults), given.replay)
    bad = 0
    for capability in chosen:
        bad += _explore(capability, _cases_of(capability, given.case, given.faults))
    sys.stdout.write("not explored:\n")
    sys.stdout.writelines(f"  {one}\n" for one in NOT_EXPLORED)
    return int(bad > 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.exploring", description=__doc__)
    known = ", ".join(one.name for one in CAPABILITIES)
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
    return parsed if faults is None else _with(parsed, faults)


def _with(case: Case, faults: int) -> Case:
    return replace(case, bounds=replace(case.bounds, faults=faults))


def _explore(capability: Capability, cases: Iterable[Case]) -> int:
    """Print a line for each case; how many are wrong or did not end."""
    begun, bad, number, states, schedules = monotonic(), 0, 0, 0, 0
    for case in cases:
        since, found = monotonic(), case.run(count=True)
        number, states, schedules = number + 1, states + found.states, schedules + found.schedules
        sys.stdout.write(
            f"{capability.name:12} {case!s:70} faults {case.bounds.faults} states {found.states} "
            f"schedules {found.schedules:.3g} seconds {monotonic() - since:.1f}"
            f"{'' if found.complete else ' NOT COMPLETE'}\n"
        )
        if found.violation is not None:
            sys.stdout.write(f"{report_of(case, found.violation)}\n")
        bad += found.violation is not None or not found.complete
        sys.stdout.flush()
    sys.stdout.write(
        f"{capability.name}: {number} cases, {states} states, {schedules:.3g} schedules, "
        f"{monotonic() - begun:.0f} s, {bad} wrong or not complete\n"
    )
    return bad


def _replay(case: Case, choices: str) -> int:
    search, state = case.search()
    for choice in map(int, filter(None, choices.split(","))):
        state = [*search.successors(state)][choice]
    sys.stdout.writelines(f"{line}\n" for line in script_of(state))
    return 0


if __name__ == "__main__":
    sys.exit(main())
