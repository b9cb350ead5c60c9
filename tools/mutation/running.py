"""Runs the tests of one mutant until the first that fails."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from time import monotonic
from typing import TYPE_CHECKING, Final

from tools.mutation.copies import PYTEST, ROOT
from tools.mutation.guards import guards, mutated
from tools.mutation.mapping import extra_tests

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.mutation.copies import Copy, Ended
    from tools.mutation.mapping import Mapping
    from tools.mutation.mutants import Mutant

# What one mutant may cost, by what its tests took when they were measured.
_TESTS_S: Final = 90.0
_SIMULATIONS_S: Final = 20.0
_EXTRA_S: Final = 60.0  # for each file
# A mutant that takes this many times as long, and a time to start, is in an endless loop.
_PATIENCE: Final = 3
_START_S: Final = 30.0
# pytest's exit codes: all passed; a test failed; the collection failed.
_PASSED, _FAILED = 0, {1, 2}
# A module whose guards are known, and a test that is known to notice one of them.
_OWN_MODULE: Final = "compaction/plan.py"
_OWN_FUNCTION: Final = "next_head"
_OWN_TESTS: Final = "tests/unit/compaction/test_plan.py"


class Verdict(StrEnum):
    """What came of a mutant."""

    KILLED = "killed"
    TIMED_OUT = "timed out"
    SURVIVED = "survived"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Result:
    """The verdict on a mutant, the test or the reason for it, and how long it took."""

    verdict: Verdict
    reason: str
    seconds: float


class BrokenTool(RuntimeError):
    """A mutant that must be noticed is not, or unchanged code fails: no verdict would be true."""


def try_mutant(copy: Copy, mapping: Mapping, mutant: Mutant, number: int) -> Result:
    """Run what reaches the guard on the mutant; the copy is as the checkout at the end.

    Args:
        copy: of the checkout.
        mapping: what reaches which guard.
        mutant: what to change.
        number: of the guard, through all modules.
    """
    began_s = monotonic()
    tried = []
    source = (ROOT / mutant.module).read_text(encoding="utf-8")
    copy.write(mutant.module, mutated(source, mutant.index, mutant.change))
    try:
        for what, arguments, seconds in _commands(copy, mapping, mutant, number):
            ended = copy.run(arguments, timeout_s=_START_S + _PATIENCE * seconds)
            if ended.code != _PASSED:
                return Result(_verdict(ended), ended.failure, monotonic() - began_s)
            tried.append(what)
    finally:
        copy.restore(mutant.module)
    reason = f"passed: {', '.join(tried)}" if tried else "no test reaches it"
    return Result(Verdict.SURVIVED, reason, monotonic() - began_s)


def _commands(
    copy: Copy, mapping: Mapping, mutant: Mutant, number: int
) -> Iterator[tuple[str, list[str], float]]:
    """What to run, the fastest first: its name, the arguments, the seconds that it should take."""
    tests = mapping.tests(number, _TESTS_S)
    if tests:
        arguments = [*PYTEST, "-x", copy.arguments_file(tests)]
        yield f"{len(tests)} tests", arguments, mapping.seconds(tests)
    simulations = mapping.simulations(number, _SIMULATIONS_S)
    if simulations:
        arguments = ["-m", "tools.mutation.seeds", *simulations]
        yield f"{len(simulations)} simulations", arguments, mapping.seconds(simulations)
    extra = [] if tests else extra_tests(mutant.module)
    if extra:
        yield ", ".join(extra), [*PYTEST, "-x", *extra], _EXTRA_S * len(extra)


def _verdict(ended: Ended) -> Verdict:
    if ended.code is None:
        return Verdict.TIMED_OUT
    # A module that cannot be imported any more shows as a test file that cannot be collected.
    failed = ended.code in _FAILED or ended.failure.startswith("ERROR tests/")
    return Verdict.KILLED if failed else Verdict.BROKEN


def check_itself(copy: Copy) -> None:
    """See that this copy's code is what the tests run.

    Raises:
        BrokenTool: it is not, or the unchanged code fails its tests.
    """
    source = (ROOT / _OWN_MODULE).read_text(encoding="utf-8")
    command = [*PYTEST, "-x", _OWN_TESTS]
    copy.write(_OWN_MODULE, mutated(source, 0, None))
    unchanged = copy.run(command, timeout_s=120)
    index = [guard.within for guard in guards(source)].index(_OWN_FUNCTION)
    copy.write(_OWN_MODULE, mutated(source, index, "always true"))
    changed = copy.run(command, timeout_s=120)
    copy.restore(_OWN_MODULE)
    if unchanged.code != _PASSED:
        raise BrokenTool(f"unchanged code fails its tests in the copy: {unchanged.failure}")
    if changed.code not in _FAILED:
        raise BrokenTool(f"a mutant that must be noticed is not: {changed.failure}")
