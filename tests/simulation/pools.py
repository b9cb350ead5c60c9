"""Pools of threads, as the product uses them: here their jobs run one after the other.

The thread of an actor carries them out itself, so the turn stays where it is. The order is drawn.
"""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any, Final, Self

from countledger.consumers import materializer
from countledger.ledger.suspension import WorkerThreads
from countledger.producers import recorder


class Later:
    """A job that was submitted, and is done when somebody waits for it."""

    def __init__(self, job: Callable[[], Any]) -> None:
        """Nothing is done yet."""
        self._job: Callable[[], Any] | None = job
        self._answer: Any = None
        self._error: Exception | None = None

    def run(self) -> None:
        """Do it, once."""
        job, self._job = self._job, None
        if job is None:
            return
        try:
            self._answer = job()
        except Exception as error:  # noqa: BLE001 - raised where its answer is asked for
            self._error = error

    def result(self) -> Any:  # noqa: ANN401 - whatever the job answers
        """Its answer, or what it raised."""
        self.run()
        if self._error is not None:
            raise self._error
        return self._answer


class InTurn:
    """A pool without threads.

    Attributes:
        random: draws the order of jobs.
    """

    random: Random = Random(0)  # noqa: S311 - replaced by the simulation's own

    def __init__(self, *_: object, **__: object) -> None:
        """Whatever a pool is made of."""

    def __enter__(self) -> Self:
        """Nothing to begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left."""

    def submit(self, job: Callable[..., Any], *arguments: Any) -> Later:  # noqa: ANN401
        """A job that is done when somebody waits for it."""
        return Later(lambda: job(*arguments))

    def map(self, job: Callable[..., Any], *arguments: Iterable[Any]) -> Iterator[Any]:
        """All of them, done when it returns; their answers in order."""
        jobs = [self.submit(job, *one) for one in zip(*arguments, strict=False)]
        wait(jobs)
        return (one.result() for one in jobs)


def wait(jobs: Iterable[Later]) -> None:
    """Have all of them done, in an order that is drawn."""
    order = list(jobs)
    InTurn.random.shuffle(order)
    for job in order:
        job.run()


_OURS: Final = {
    "ThreadPoolExecutor": (futures.ThreadPoolExecutor, InTurn),
    "WorkerThreads": (WorkerThreads, InTurn),
    "wait": (futures.wait, wait),
}


def _in_any_order(in_order: Callable[[Any], deque[Any]], random: Random, jobs: Any) -> deque[Any]:  # noqa: ANN401
    found = in_order(jobs)
    random.shuffle(found)
    return found


@contextmanager
def in_turn(random: Random) -> Iterator[None]:
    """Let every module of the product that uses pools use these, for as long as the block runs."""
    InTurn.random = random
    changed = [
        (vars(module), name, theirs)
        for path, module in sorted(sys.modules.items())
        if path.startswith("countledger.")
        for name, (theirs, _) in _OURS.items()
        if getattr(module, name, None) is theirs
    ]
    for names, name, _ in changed:
        names[name] = _OURS[name][1]
    # A pool that is kept was made by whoever came first.
    materializer._writers.cache_clear()
    # The first thread takes all jobs, so their order is drawn as several threads may come to it.
    ordered = [(module, module.in_order) for module in (materializer, recorder)]
    for module, in_order in ordered:
        module.in_order = partial(_in_any_order, in_order, random)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module, in_order in ordered:
            module.in_order = in_order  # type: ignore[attr-defined]
        for names, name, theirs in changed:
            names[name] = theirs
        materializer._writers.cache_clear()
