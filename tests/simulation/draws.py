"""What a seed draws: for each actor, and each operation of a client, from a source of its own.

So what one of them leaves out changes nothing of what the others draw, and a failure can be made
shorter without becoming another course of events.
"""

from __future__ import annotations

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
