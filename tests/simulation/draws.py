"""What a seed draws: for each actor, and each operation of a client, from a source of its own.

So what one of them leaves out changes nothing of what the others draw, and a failure can be made
shorter without becoming another course of events.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random


class Draws(Random):
    """Random numbers, from whatever source is the one of the moment.

    Attributes:
        common: the source of whatever happens by itself.
        source: that of the moment.
    """

    common: Random
    source: Random

    def __init__(self, seed: int) -> None:
        """All of it follows from the seed."""
        self.common = self.source = Random(seed)  # noqa: S311 - a simulation
        self._seed = seed
        super().__init__(seed)

    def random(self) -> float:
        """From 0 to 1."""
        return self.source.random()

    def getrandbits(self, k: int, /) -> int:
        """So many bits."""
        return self.source.getrandbits(k)

    def of(self, name: str) -> Random:
        """The source of that name, at its beginning."""
        return Random(f"{self._seed} {name}")  # noqa: S311 - a simulation


@contextmanager
def nothing_else() -> Iterator[None]:
    """No part of the product draws from anything else: what it does could not be replayed.

    Raises:
        AssertionError: one is made with a source that has no seed.
    """
    seed = Random.seed

    def seeded(one: Random, a: object = None, version: int = 2) -> None:
        # Behind the source's own making it is whoever makes it.
        maker = str(sys._getframe(2).f_globals.get("__name__"))
        if a is None and maker.startswith("countledger."):
            raise AssertionError(f"something of {maker} is made without a source to draw from")
        seed(one, a, version)  # type: ignore[arg-type]  # as it came

    Random.seed = seeded  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        Random.seed = seed  # type: ignore[method-assign]
