"""A way to do something, as the benchmark measures it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

# Does the work for these counters, one event or record each; how many write units it cost.
Work: TypeAlias = Callable[[Sequence[str]], float]
COUNTERS: Final = 1_000
_SEED: Final = 6


def one_counter(events: int) -> list[str]:
    """All events are of one counter."""
    return ["bench:one"] * events


def uniform(events: int) -> list[str]:
    """Every one of a thousand counters is as likely as any other."""
    numbers = random.Random(_SEED).choices(range(COUNTERS), k=events)  # noqa: S311 - no secret
    return [f"bench:{number}" for number in numbers]


def zipf(events: int) -> list[str]:
    """The second of a thousand counters is half as likely as the first, the third a third."""
    weights = [1 / rank for rank in range(1, COUNTERS + 1)]
    numbers = random.Random(_SEED).choices(range(COUNTERS), weights, k=events)  # noqa: S311
    return [f"bench:{number}" for number in numbers]


@dataclass(frozen=True, slots=True)
class Way:
    """One row of a table.

    Attributes:
        name: what the row is called.
        prepare: makes its work for a server at this address; not measured.
        events: how many events one measurement takes, enough for most of a second.
        counters: whose they are.
        delay_ms: after how long the server answers.
        transport: the transport of our clients; None: nothing of ours is measured.
        per: how many events make one of what the table counts.
    """

    name: str
    prepare: Callable[[str], Work]
    events: int
    counters: Callable[[int], list[str]] = one_counter
    delay_ms: int = 0
    transport: str | None = None
    per: int = 1


# Ours is measured with either; the first is the default without the extra `fast`.
TRANSPORTS: Final = ("boto3", "fast")


def with_each_transport(way: Way) -> tuple[Way, ...]:
    """A way of ours with each transport, which is part of its name."""
    return tuple(
        replace(way, name=named(way.name, transport), transport=transport)
        for transport in TRANSPORTS
    )


def named(way: str, transport: str) -> str:
    """The row of a way with a transport."""
    return f"{way} [{transport}]"
