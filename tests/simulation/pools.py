"""Pools of threads, as the product uses them: here their jobs run one after the other.

The thread of an actor carries them out itself, so the turn stays where it is. The order is drawn.
"""

from __future__ import annotations

import sys
from concurrent import futures
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


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

    def map(self, job: Callable[..., Any], *arguments: Iterable[Any]) -> Iterator[Any]:
        """All of them, done when it returns; their answers in order."""
        calls = list(zip(*arguments, strict=False))
        order = list(range(len(calls)))
        self.random.shuffle(order)
        answers: dict[int, tuple[Any, Exception | None]] = {}
        for number in order:
            try:
                answers[number] = job(*calls[number]), None
            except Exception as error:  # noqa: BLE001 - raised where its answer is asked for
                answers[number] = None, error
        return self._told([answers[number] for number in range(len(calls))])

    @staticmethod
    def _told(answers: list[tuple[Any, Exception | None]]) -> Iterator[Any]:
        for answer, error in answers:
            if error is not None:
                raise error
            yield answer


@contextmanager
def in_turn(random: Random) -> Iterator[None]:
    """Let every module of the product that uses pools use these, for as long as the block runs."""
    InTurn.random = random
    ours = [
        module
        for name, module in sorted(sys.modules.items())
        if name.startswith("countledger.")
        and getattr(module, "ThreadPoolExecutor", None) is futures.ThreadPoolExecutor
    ]
    for module in ours:
        vars(module)["ThreadPoolExecutor"] = InTurn
    try:
        yield
    finally:
        for module in ours:
            vars(module)["ThreadPoolExecutor"] = futures.ThreadPoolExecutor
