"""The tool on this repository: what must be noticed is, what must not be is not."""

from pathlib import Path

import pytest

from tools.mutation.copies import PYTEST, ROOT, Copy
from tools.mutation.guards import guards, instrumented
from tools.mutation.mapping import Mapping, Reached, read_record
from tools.mutation.mutants import Mutant
from tools.mutation.running import Verdict, check_itself, try_mutant

MODULE = "compaction/plan.py"
GUARDS = guards((ROOT / MODULE).read_text(encoding="utf-8"))
TESTS = "tests/unit/compaction/test_plan.py::test_the_next_head_adds_up"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("mutation") / "copy")


def test_the_tool_notices_what_it_must_and_nothing_else(copy: Copy) -> None:
    check_itself(copy)


def mutant(within: str, text: str, change: str) -> Mutant:
    places = [(one.within, one.text) for one in GUARDS]
    index = places.index((within, text))
    return Mutant(MODULE, index, GUARDS[index], change)


NEXT_HEAD = mutant("next_head", "not amount.fits(total)", "always true")
MAPPING = Mapping({TESTS: Reached(1.0, True, {5})})


def test_a_mutant_that_a_test_notices_is_killed_by_that_test(copy: Copy) -> None:
    result = try_mutant(copy, MAPPING, NEXT_HEAD, 5)

    assert result.verdict == Verdict.KILLED
    assert TESTS.partition("::")[2] in result.reason


def test_a_mutant_that_its_tests_do_not_notice_survives(copy: Copy) -> None:
    unnoticed = mutant("ranges", "not 0 < cutoff_ms < 1 << _TIME_BITS", "always true")

    assert try_mutant(copy, MAPPING, unnoticed, 5).verdict == Verdict.SURVIVED


def test_a_mutant_that_no_test_reaches_survives(copy: Copy) -> None:
    module = "ledger/amount.py"
    guard = guards((ROOT / module).read_text(encoding="utf-8"))[0]

    result = try_mutant(copy, MAPPING, Mutant(module, 0, guard, min(guard.changes)), 6)

    assert (result.verdict, result.reason) == (Verdict.SURVIVED, "no test reaches it")


def test_a_test_that_is_not_there_is_no_verdict(copy: Copy) -> None:
    """A mapping that is out of date does not look like a kill."""
    mapping = Mapping({f"{TESTS}_gone": Reached(1.0, True, {5})})

    assert try_mutant(copy, mapping, NEXT_HEAD, 5).verdict == Verdict.BROKEN


def test_an_endless_loop_ends_with_all_it_started(copy: Copy) -> None:
    loop = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"

    assert copy.run(["-c", loop], timeout_s=1).code is None


def test_the_checkout_is_never_changed(copy: Copy) -> None:
    before = (ROOT / MODULE).read_bytes()
    copy.write(MODULE, "raise SystemExit\n")
    try:
        assert (ROOT / MODULE).read_bytes() == before
    finally:
        copy.restore(MODULE)


def test_the_recorder_of_an_instrumented_module_names_the_test(copy: Copy, tmp_path: Path) -> None:
    record = tmp_path / "record"
    copy.write(MODULE, instrumented((ROOT / MODULE).read_text(encoding="utf-8"), 1_000))
    try:
        ended = copy.run([*PYTEST, "-p", "tools.mutation.hits", TESTS], timeout_s=60, record=record)
    finally:
        copy.restore(MODULE)

    found = read_record(record.read_text(encoding="utf-8").splitlines())
    assert ended.code == 0
    assert set(found) == {TESTS}
    assert 1_000 + NEXT_HEAD.index in found[TESTS].guards
    assert found[TESTS].passed
