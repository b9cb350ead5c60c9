"""`make explore`: every case of every capability, or what is named; see `tests.exploring.scope`."""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass, replace
from operator import add
from time import monotonic
from typing import TYPE_CHECKING, Final

from tests.exploring.report import report_of, script_of
from tests.exploring.scope import Case
from tests.exploring.scopes import CAPABILITIES, NOT_EXPLORED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.exploring.scope import Capability

_KNOWN: Final = {one.name: one for one in CAPABILITIES}


@dataclass(frozen=True, slots=True)
class Explored:
    """What was explored.

    Attributes:
        cases: how many searches.
        pairs: of them, those of two actors.
        states: that were looked at.
        schedules: that lead to an end.
        seconds: how long it took.
        wrong: how many cases were wrong, or did not end.
    """

    cases: int = 0
    pairs: int = 0
    states: int = 0
    schedules: int = 0
    seconds: float = 0
    wrong: int = 0

    def __add__(self, other: Explored) -> Explored:
        """Both."""
        return Explored(*map(add, astuple(self), astuple(other)))

    def row(self, name: str) -> str:
        """One line of the table."""
        return (
            f"{name:22}{self.cases:6}{self.pairs:7}{self.states:11,}"
            f"{self.schedules:11.3g}{self.seconds:9,.0f}{self.wrong:7}\n"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Explore, and print what was explored; 1: a violation was found, or a search did not end."""
    given = _arguments(arguments)
    if unknown := set(given.capability) - set(_KNOWN):
        raise SystemExit(f"no such capability: {', '.join(sorted(unknown))}; see --help")
    chosen = [_KNOWN[name] for name in _KNOWN if not given.capability or name in given.capability]
    if given.replay is not None:
        return _replay(_named(chosen, given.case, given.faults), given.replay)
    cases = [case for one in chosen for case in _cases_of(one, given.case, given.faults)]
    return _explore_all(cases, given.workers)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.exploring", description=__doc__)
    parser.add_argument("capability", nargs="*", help=f"of {', '.join(_KNOWN)}; none: all")
    parser.add_argument("--case", help="one case, as it is printed: 'free: take | release'")
    parser.add_argument("--faults", type=int, help="how many faults; default: as the case has")
    parser.add_argument("--replay", help="the choices of a schedule, as a violation prints them")
    cores = os.cpu_count() or 1
    parser.add_argument(
        "--workers", type=int, default=cores, help="how many cases at once; default: %(default)s"
    )
    return parser.parse_args(arguments)


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
    bounds = capability.bounds_of(parsed.scripts)
    return _with(replace(parsed, bounds=bounds), bounds.faults if faults is None else faults)


def _with(case: Case, faults: int) -> Case:
    return replace(case, bounds=replace(case.bounds, faults=faults))


def _explore_all(cases: list[Case], workers: int) -> int:
    """Print what each case showed, in their order; then a table of the capabilities."""
    since, all_of = monotonic(), dict.fromkeys((one.capability.name for one in cases), Explored())
    with ProcessPoolExecutor(workers) as pool:
        for name, one, text in pool.map(_explore, map(_words, cases)):
            sys.stdout.write(text)
            sys.stdout.flush()
            all_of[name] += one
    total = sum(all_of.values(), Explored())
    sys.stdout.write(
        "\ncapability             cases  pairs     states  schedules  seconds  wrong\n"
    )
    sys.stdout.writelines(one.row(name) for name, one in all_of.items())
    sys.stdout.write(total.row("all"))
    sys.stdout.write(
        f"after {monotonic() - since:,.0f} seconds; wrong: a violation, or not to the end\n"
        "not explored:\n"
    )
    sys.stdout.writelines(f"  {one}\n" for one in NOT_EXPLORED)
    return int(total.wrong > 0)


def _words(case: Case) -> tuple[str, str, int]:
    """A case as another process finds it."""
    return case.capability.name, str(case), case.bounds.faults


def _explore(words: tuple[str, str, int]) -> tuple[str, Explored, str]:
    """Search a case: the name of its capability, what was explored, and what to print of it."""
    name, case_text, faults = words
    case = _named([_KNOWN[name]], case_text, faults)
    since, found = monotonic(), case.run(count=True)
    is_wrong = found.violation is not None or not found.complete
    one = Explored(
        1,
        int(len(case.scripts) == 2),
        found.states,
        found.schedules,
        monotonic() - since,
        int(is_wrong),
    )
    text = (
        f"{name:18} {case_text:70} faults {faults} states {one.states} "
        f"schedules {one.schedules:.3g} seconds {one.seconds:.1f}"
        f"{'' if found.complete else ' NOT COMPLETE'}\n"
    )
    if found.violation is not None:
        text += f"{report_of(case, found.violation)}\n"
    return name, one, text


def _replay(case: Case, choices: str) -> int:
    search, state = case.search()
    for choice in map(int, filter(None, choices.split(","))):
        state = [*search.successors(state)][choice]
    sys.stdout.writelines(f"{line}\n" for line in script_of(state))
    return 0


if __name__ == "__main__":
    sys.exit(main())
