"""Which tests and which simulations reach a guard: measured once, kept until something changes."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.shape import FOCUSES
from tools.mutation.copies import PYTEST, ROOT, Copy
from tools.mutation.guards import guards, instrumented

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tools.mutation.guards import Guard

PACKAGES: Final = ("producers", "consumers", "compaction")
_PRODUCT: Final = (*PACKAGES, "ledger", "infra")
# The suites that a mutant may be run against. Every other test takes too long for that.
_SUITES: Final = (
    "tests/unit",
    "tests/faults",
    "tests/engines",
    "tests/regions",
)
_SINGLE: Final = "tests/simulation/test_[flp]*.py"
# It reads the sources, and would notice each mutant by its layout.
_NOT_MEASURED: Final = frozenset({"tests/unit/test_layout.py"})
# The tables in memory are enough to see a mutant.
_SELECTION: Final = ("-m", "not long", "-k", "not ministack and not dynoxide and not moto")
_PART: Final = 12
# Of each focus, and of none: these draw what they do.
_SEEDS: Final = 12
_SEEDS_OF_ALL: Final = 40
_PART_TIMEOUT_S: Final = 1_200
# For guards that no measured test reaches: they run in functions of the local engine, or need a
# service that only the local engine has. By package, so that it does not name modules: the first
# package that contains the module counts. The values are patterns of files below `tests`.
EXTRA: Final[dict[str, tuple[str, ...]]] = {
    "compaction": ("e2e/test_compaction*.py", "engines/test_deletion.py", "e2e/test_cli_del*.py"),
    "consumers/alerts": ("e2e/test_alerts.py", "e2e/test_commands.py"),
    "consumers": ("e2e/test_audit.py", "e2e/test_deployed.py", "e2e/test_alerts.py"),
    "producers/ingest": ("e2e/test_kinesis.py",),
    "producers/quotas": ("unit/quotas/test_quotas.py",),
    "producers/sequences": ("engines/test_sequences.py",),
    "producers/strict": ("engines/test_strict.py",),
    "producers": ("engines/test_claims.py",),
}


@dataclass
class Reached:
    """What was measured of one test, or of one simulation (`focus:seed`).

    Attributes:
        seconds: what it took.
        passed: whether it passed on the instrumented, unmutated code.
        guards: the numbers of those that it evaluated.
    """

    seconds: float = 0.0
    passed: bool = True
    guards: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Mapping:
    """All that was measured, by the name of a test or of a simulation."""

    reached: dict[str, Reached]

    def tests(self, number: int, budget_s: float) -> list[str]:
        """Tests that reach a guard, for so many seconds in all, the fastest first.

        They are taken from every test file in turn: tests of one file look at the same things.
        """
        by_speed = sorted(self._names(number, tests=True), key=self._seconds)
        taken_of: Counter[str] = Counter()
        turns: dict[str, int] = {}
        for name in by_speed:
            file = name.partition("::")[0]
            turns[name] = taken_of[file]
            taken_of[file] += 1
        taken = self._within(sorted(by_speed, key=turns.__getitem__), budget_s)
        return sorted(taken, key=self._seconds)

    def simulations(self, number: int, budget_s: float) -> list[str]:
        """Simulations that reach a guard, drawn at random but always the same."""
        names = sorted(self._names(number, tests=False))
        Random(number).shuffle(names)  # noqa: S311 - a draw
        return self._within(names, budget_s)

    def seconds(self, names: Iterable[str]) -> float:
        """What these took when they were measured."""
        return sum(self.reached[name].seconds for name in names)

    def _seconds(self, name: str) -> float:
        return self.reached[name].seconds

    def _names(self, number: int, *, tests: bool) -> list[str]:
        return [
            name
            for name, one in self.reached.items()
            if number in one.guards and one.passed and ("::" in name) == tests
        ]

    def _within(self, names: Sequence[str], budget_s: float) -> list[str]:
        left = budget_s
        taken: list[str] = []
        for name in names:
            left -= self.reached[name].seconds
            if left >= 0 or not taken:
                taken.append(name)
        return taken


def extra_tests(module: str) -> list[str]:
    """Test files for the guards of a module that no measured test reaches."""
    patterns = next((some for package, some in EXTRA.items() if _is_in(module, package)), ())
    found = {path for one in patterns for path in (ROOT / "tests").glob(one)}
    return sorted(str(path.relative_to(ROOT)) for path in found)


def _is_in(module: str, package: str) -> bool:
    return Path(package) in Path(module).parents


def modules(root: Path = ROOT) -> dict[str, list[Guard]]:
    """The guards of every module in producers, consumers and compaction, by path."""
    paths = sorted(path for package in PACKAGES for path in (root / package).rglob("*.py"))
    return {str(path.relative_to(root)): guards(path.read_text(encoding="utf-8")) for path in paths}


def numbered(found: dict[str, list[Guard]]) -> dict[str, int]:
    """The number of the first guard of each module: guards are numbered through all modules."""
    first, numbers = 0, {}
    for module, of_module in found.items():
        numbers[module] = first
        first += len(of_module)
    return numbers


def measure(copies: Sequence[Copy], cache: Path, say: Callable[[str], None]) -> Mapping:
    """Run what has changed since the last time on instrumented code.

    Args:
        copies: of the unmutated checkout, one for each worker; they are so again at the end.
        cache: the file in which the result is kept, from each part on that is measured.
        say: called with each line of progress.
    """
    keys = _keys()
    kept = json.loads(cache.read_text()) if cache.is_file() else {}
    kept = {name: one for name, one in kept.items() if keys.get(name) == one["key"]}
    parts = _parts([name for name in keys if name not in kept])
    if parts:
        say(
            f"measuring which tests reach which guards: {sum(map(len, parts))} of {len(keys)} files"
        )
    for done, (part, found) in enumerate(_measured(copies, parts), 1):
        for name in part:
            tests = {test: _encoded(one) for test, one in found.items() if _file_of(test) == name}
            kept[name] = {"key": keys[name], "tests": tests}
        cache.write_text(json.dumps(kept))
        say(f"  measured {done} of {len(parts)} parts")
    return Mapping(
        {
            test: Reached(one["seconds"], one["passed"], set(one["guards"]))
            for of_file in kept.values()
            for test, one in of_file["tests"].items()
        }
    )


def _measured(
    copies: Sequence[Copy], parts: Sequence[Sequence[str]]
) -> Iterator[tuple[Sequence[str], dict[str, Reached]]]:
    """What was measured of each part, as it comes."""
    found = modules() if parts else {}
    for copy in copies:
        for module, first in numbered(found).items():
            source = (ROOT / module).read_text(encoding="utf-8")
            copy.write(module, instrumented(source, first))
    free = list(copies)

    def run(part: Sequence[str]) -> tuple[Sequence[str], dict[str, Reached]]:
        copy = free.pop()
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as record:
            copy.run(_command(part), timeout_s=_PART_TIMEOUT_S, record=Path(record.name))
            free.append(copy)
            return part, read_record(record.read().splitlines())

    with ThreadPoolExecutor(len(copies)) as pool:
        yield from pool.map(run, parts)
    for copy in copies:
        for module in found:
            copy.restore(module)


def _parts(names: Sequence[str]) -> list[list[str]]:
    """Test files and focuses that one process measures."""
    files = [name for name in names if name.endswith(".py")]
    parts = [files[start : start + _PART] for start in range(0, len(files), _PART)]
    return parts + [[name] for name in names if not name.endswith(".py")]


def _command(part: Sequence[str]) -> list[str]:
    if part[0].endswith(".py"):
        return [*PYTEST, "-p", "tools.mutation.hits", *_SELECTION, *part]
    seeds = range(_SEEDS if part[0] else _SEEDS_OF_ALL)
    return ["-m", "tools.mutation.seeds", *(f"{part[0]}:{seed}" for seed in seeds)]


def read_record(lines: Iterable[str]) -> dict[str, Reached]:
    """What the instrumented runs wrote, by test; guards that no test evaluates are left out."""
    found: dict[str, Reached] = {}
    for kind, value, test in (line.split("\t", 2) for line in lines):
        one = found.setdefault(test, Reached())
        if kind == "hit":
            one.guards.add(int(value))
        else:
            one.seconds += float(value)
            one.passed = one.passed and kind == "passed"
    found.pop("", None)
    return found


def _encoded(one: Reached) -> dict[str, Any]:
    return {"seconds": one.seconds, "passed": one.passed, "guards": sorted(one.guards)}


def _file_of(test: str) -> str:
    """The file of a test, or the focus of a simulation."""
    return test.partition("::")[0] if "::" in test else test.rpartition(":")[0]


def _keys() -> dict[str, str]:
    """For each test file and each focus: a hash of all that its result depends on."""
    product = [path for package in _PRODUCT for path in (ROOT / package).rglob("*.py")]
    tests = [path for suite in _SUITES for path in (ROOT / suite).rglob("test_*.py")]
    tests += (ROOT / _SINGLE).parent.glob(Path(_SINGLE).name)
    support = [p for p in (ROOT / "tests").rglob("*.py") if not p.name.startswith("test_")]
    others = ("e2e", "tools")
    support = [p for p in support if p.relative_to(ROOT / "tests").parts[0] not in others]
    of_all = _hash([*product, *support, ROOT / "countledger/__init__.py"]) + " ".join(_SELECTION)
    names = sorted({str(path.relative_to(ROOT)) for path in tests} - _NOT_MEASURED)
    keys = {name: of_all + _hash([ROOT / name]) for name in names}
    return keys | dict.fromkeys(["", *FOCUSES], of_all)


def _hash(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(set(paths)):
        digest.update(path.read_bytes())
    return digest.hexdigest()
