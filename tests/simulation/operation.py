"""One kind of thing that clients do."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.client import Client


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that a client does.

    Attributes:
        name: in traces, and in the table of faults.
        play: does it.
        weight: how often it is drawn, beside the others.
        home: whether it works in the home region only.
        reads: whether it changes nothing, so that fewer faults can meet it.
    """

    name: str
    play: Callable[[Client], None]
    weight: float = 1.0
    home: bool = False
    reads: bool = False
