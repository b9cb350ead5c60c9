"""`make mutate`: changes one condition at a time, and fails if no test notices."""

from __future__ import annotations

import json
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from time import monotonic
from typing import Final

from tools.mutation.copies import ROOT, Copy
from tools.mutation.mapping import Mapping, measure, modules, numbered
from tools.mutation.mutants import Mutant, draw, outdated, read_allowed
from tools.mutation.running import Result, Verdict, check_itself, try_mutant

_ALLOWED: Final = Path(__file__).with_name("allowed.toml")
_CACHE: Final = ROOT / ".cache" / "mutation"
_WORKERS: Final = 2


def _arguments() -> Namespace:
    parser = ArgumentParser("python -m tools.mutation", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="what the mutants are drawn by")
    parser.add_argument("--count", type=int, default=100, help="how many guards to mutate")
    parser.add_argument("--only", default="", metavar="MODULE", help="a part of a module's path")
    parser.add_argument("--workers", type=int, default=_WORKERS, help="how many run at a time")
    parser.add_argument("--minutes", type=float, default=60, help="begin no mutant after so many")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="keep the kills of an earlier run with the same draw; try the other mutants again",
    )
    return parser.parse_args()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class _Journal:
    """The results of one draw, kept for `--resume`."""

    def __init__(self, given: Namespace) -> None:
        part = given.only.replace("/", ".")
        self._path = _CACHE / f"results-{given.seed}-{given.count}-{part}.jsonl"
        if not given.resume:
            self._path.unlink(missing_ok=True)

    def killed(self) -> dict[tuple[object, ...], Result]:
        """The results that need no second run."""
        if not self._path.is_file():
            return {}
        rows = [json.loads(line) for line in self._path.read_text().splitlines()]
        results = {tuple(row["mutant"]): Result(**row["result"]) for row in rows}
        return {key: one for key, one in results.items() if one.verdict in _CAUGHT}

    def add(self, mutant: Mutant, result: Result) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"mutant": _key(mutant), "result": asdict(result)}) + "\n")


_CAUGHT: Final = {Verdict.KILLED, Verdict.TIMED_OUT}


def _key(mutant: Mutant) -> tuple[object, ...]:
    return (mutant.index, *mutant.name)


def _run(given: Namespace, drawn: list[Mutant], first: dict[str, int]) -> dict[int, Result]:
    """The results, by the place of the mutant in the draw; those past the time are left out."""
    journal, began_s = _Journal(given), monotonic()
    known = journal.killed()
    results = {n: known[_key(one)] for n, one in enumerate(drawn) if _key(one) in known}
    left: SimpleQueue[Copy] = SimpleQueue()
    with ExitStack() as opening:
        directory = Path(opening.enter_context(tempfile.TemporaryDirectory(prefix="mutation-")))
        copies = [Copy(directory / str(number)) for number in range(given.workers)]
        check_itself(copies[0])
        mapping: Mapping = measure(copies, _CACHE / "mapping.json", _say)
        for copy in copies:
            left.put(copy)

        def one(number: int) -> None:
            if monotonic() - began_s > given.minutes * 60:
                return
            mutant, copy = drawn[number], left.get()
            result = try_mutant(copy, mapping, mutant, first[mutant.module] + mutant.index)
            left.put(copy)
            results[number] = result
            journal.add(mutant, result)
            head = f"[{len(results):3}/{len(drawn)}] {result.verdict:9} {result.seconds:5.1f} s"
            _say(f"{head}  {mutant.text}\n{'':12}{result.reason}")

        pool = opening.enter_context(ThreadPoolExecutor(given.workers))
        list(pool.map(one, [n for n in range(len(drawn)) if n not in results]))
    return results


def _report(drawn: list[Mutant], results: dict[int, Result], old: list[str]) -> int:
    allowed = read_allowed(_ALLOWED.read_text(encoding="utf-8"))
    counts = Counter(result.verdict for result in results.values())
    _say(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
    open_ones = []
    for number, result in sorted(results.items()):
        mutant = drawn[number]
        if result.verdict in _CAUGHT:
            continue
        reason = allowed.get(mutant.name) if result.verdict == Verdict.SURVIVED else None
        _say(f"{'allowed' if reason else result.verdict}: {mutant.text}")
        _say(f"    {reason or result.reason}")
        if reason is None:
            open_ones.append(mutant)
    for line in old:
        _say(f"remove from {_ALLOWED.name}, its guard is gone: {line}")
    if missing := len(drawn) - len(results):
        _say(f"{missing} mutants were not tried in time: go on with --resume")
    return 1 if open_ones or missing or old else 0


def _main() -> int:
    given, found = _arguments(), modules()
    drawn = draw(found, seed=given.seed, count=given.count, only=given.only)
    allowed = read_allowed(_ALLOWED.read_text(encoding="utf-8"))
    old = [f"{name.module} {name.within}: {name.guard}" for name in outdated(allowed, found)]
    total = sum(map(len, found.values()))
    _say(f"{len(drawn)} of {total} guards in {len(found)} modules, drawn by seed {given.seed}")
    _CACHE.mkdir(parents=True, exist_ok=True)
    return _report(drawn, _run(given, drawn, numbered(found)), old)


if __name__ == "__main__":
    sys.exit(_main())
