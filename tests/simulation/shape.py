"""The shape of one simulation: everything that a seed draws before anything happens."""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from countledger.ledger.limits import HOUR_MS, MINUTE_MS, SECOND_MS

REGIONS: Final = ("home", "east", "west")
LEDGER: Final = "ledger"
COUNTERS: Final = "counters"
STRICT: Final = "strict"
# What the names of operations on strict counters over regions begin with.
OVER_REGIONS: Final = "strict regions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is fixed for a simulation.

    Attributes:
        regions: how many.
        clients: how many processes use the product at once.
        operations: how many each of them carries out.
        counters: how many ledger counters they share.
        gap_ms: how long a client waits between two operations, in the mean.
        latency_ms: how long a call takes, in the mean.
        horizon_ms: of the namespace.
        spread: of the namespace.
        skew_ms: how far any two clocks differ at the most.
        replication_ms: the bound that compaction reckons with.
        lag_ms: how long a version takes to another region, in the mean.
        life_ms: for how long a signed request is taken.
        covers_max: how many entries one generation takes in.
        page_items: how many items a page holds.
        batch_size: how many records an invocation gets.
        stream_lag_ms: how long after a write its record shows, at the most.
        shards: with how many a stream begins.
        by_item: whether the entries of one counter lie in several shards.
        accidents: how many things happen to the whole: partitions, splits, outages.
        long: whether an outage may be longer than a stream keeps its records.
        min_entries: from how many entries on a counter is worth compacting.
        names_all: whether a cancelled transaction names all that failed.
        expiry_ms: how long after its time to live an item goes, at the most.
        freeze_ms: how long a process stands still at the most, if it does.
        archive: whether merged entries are archived.
        lull_ms: how long every client rests once, so that entries grow old and all meet again.
        reused: whether counters have the empty head of a deletion, which is forgotten meanwhile.
        function_ms: for how long the materializer's function may run, beside what its calls take.
        lease_ms: how long a home may merge under one lease.
        rivals: whether every region's stack names that region home.
        loses: whether another region is made home, and then lost.
        deletes: whether regions come, go and change home while counters are deleted.
        rates: of faults, by name, that are not drawn.
        weights: of operations, by name: how often each is drawn.
    """

    regions: int
    clients: int
    operations: int
    counters: int
    gap_ms: float
    latency_ms: float
    horizon_ms: int
    spread: int
    skew_ms: int
    replication_ms: int
    lag_ms: float
    life_ms: int
    covers_max: int
    page_items: int
    batch_size: int
    stream_lag_ms: float
    shards: int
    by_item: bool
    accidents: int
    long: bool
    min_entries: int
    names_all: bool
    expiry_ms: int
    function_ms: int
    lease_ms: int = MINUTE_MS
    rivals: bool = False
    loses: bool = False
    deletes: bool = False
    freeze_ms: int = 40 * MINUTE_MS
    archive: bool = False
    lull_ms: int = 0
    reused: bool = False
    rates: dict[str, float] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)

    @property
    def age_ms(self) -> int:
        """How old an entry must be before it is merged."""
        return self.horizon_ms + self.replication_ms + self.skew_ms + self.life_ms

    @property
    def invocation_ms(self) -> int:
        """For how long the materializer's function may run: long enough for a batch."""
        return self.function_ms + int(40 * self.latency_ms)

    @property
    def late_ms(self) -> int:
        """For how long a write may land that did not know of a shard's progress."""
        return 2 * (self.invocation_ms + self.life_ms + self.skew_ms)


# What half of the seeds do alone, so that it meets itself more often.
FOCUSES: Final[dict[str, tuple[str, ...]]] = {
    "compaction": ("record", "resend", "exact", "compact"),
    "merges": ("record", "resend", "exact", "compact"),
    "stock": ("stock", "resend", "exact", "compact", "repair"),
    "buffer": ("buffer", "resend", "exact", "compact"),
    "async": ("async", "resend", "exact", "compact"),
    "moving": ("export", "import", "record", "resend", "exact", "compact", "sequence draw"),
    "forks": ("fork", "buffer", "sequence lease", "exact"),
    "ingest": ("kinesis", "ingest", "exact", "compact"),
    "numbers": ("sequence", "claim"),
    "joint": ("joint",),
    "quotas": ("quota",),
    # No schedule: it would tick for days.
    "deletion": ("deletion", "record", "resend", "exact", "compact", "verify", "repair"),
    "due": ("record", "schedule"),
    "totals": ("record", "total", "verify", "repair", "spoil", "resend"),
    "repairs": ("record", "repair", "spoil"),
    "atomic": ("strict atomic", "strict sharded", "strict bounds"),
    "regions": ("strict regions",),
    "tags": ("strict occ", "strict history", "strict bounds"),
    "tokens": ("strict request_token", "strict set", "strict give up"),
    "markers": ("strict marker", "strict sharded", "strict give up"),
    "makings": (
        "strict remake",
        "strict tidy",
        "strict marker",
        "strict request_token",
        "strict set",
        "strict give up",
    ),
    "holds": ("hold",),
    "progress": ("record", "total"),
    "malformed": ("record", "malformed", "mend", "quarantine", "repair"),
    "alerts": ("alert", "strict atomic", "strict occ", "strict remake", "record"),
}


# The focuses of many homes and of homes that are lost; no seed draws them by itself.
HOMES: Final = "homes"
LOSSES: Final = "losses"
# Nor that of deletions of counters in several regions.
DELETED_EVERYWHERE: Final = "deleted everywhere"
# Nor that of copies of a process.
COPIES: Final = "copies"
_COPIED: Final = ("copy", "buffer", "record", "exact", "compact")
# Nor those of windows, and of windows of counters that are deleted.
WINDOWS: Final = "windows"
DELETED_WINDOWS: Final = "deleted windows"
# And those of alerts of windows.
WINDOW_ALERTS: Final = "window alerts"
OF_WINDOWS: Final = frozenset({WINDOWS, DELETED_WINDOWS, WINDOW_ALERTS})
_WINDOWED: Final = ("record", "resend", "exact", "compact", "verify", "repair")
# And those that some seeds have instead of what they would draw, so that the others stay what they
# are. An operation whose name begins like one of `LATER` is drawn nowhere else.
LATE_FOCUSES: Final[dict[str, tuple[str, ...]]] = {
    "open holds": ("hold", "open holds"),
    "late schedules": ("record", "late schedules"),
    "administrators": ("administrator",),
}
LATER: Final = ("copy", *(names[-1] for names in LATE_FOCUSES.values()))
_LATE: Final = 0.12
ALL_FOCUSES: Final = (
    *FOCUSES,
    HOMES,
    LOSSES,
    DELETED_EVERYWHERE,
    COPIES,
    *sorted(OF_WINDOWS),
    *LATE_FOCUSES,
)

# What lets days go by.
_DAYS: Final = ("deletion call", "deletion rest")


def drawn(random: Random, operations: dict[str, float], focus: str | None = None) -> Shape:
    """The shape of a seed; with a focus only of what that names."""
    choice = random.choice
    shape = Shape(
        regions=choice([1, 1, 2, 2, 3]),
        clients=choice([1, 2, 3, 4]),
        operations=choice([8, 16, 30]),
        counters=choice([1, 1, 2, 3]),
        gap_ms=choice([100.0, 2_000.0, 20_000.0, 60_000.0]),
        latency_ms=choice([2.0, 10.0, 60.0, 1_000.0]),
        horizon_ms=MINUTE_MS,
        spread=choice([1, 1, 1, 16]),
        skew_ms=choice([0, 2, 20]) * SECOND_MS,
        replication_ms=choice([5, 30]) * SECOND_MS,
        lag_ms=choice([20.0, 500.0, 8_000.0]),
        life_ms=choice([2, 15]) * SECOND_MS,
        covers_max=choice([1, 2, 5, 100]),
        page_items=choice([2, 5, 100]),
        batch_size=choice([1, 3, 10, 100]),
        stream_lag_ms=choice([0.0, 50.0, 1_500.0]),
        shards=choice([1, 1, 2, 3]),
        by_item=choice([False, True]),
        accidents=choice([0, 2, 6]),
        long=random.random() < 0.05,
        min_entries=choice([2, 2, 5]),
        names_all=choice([True, False]),
        expiry_ms=choice([SECOND_MS, 10 * MINUTE_MS, 48 * HOUR_MS]),
        function_ms=choice([5, 20, 60]) * SECOND_MS,
        weights={
            # Drawn by their focus alone, so that the seeds of all others stay what they are.
            name: (1 if name.startswith(FOCUSES["regions"]) else choice([0, 1, 1, 3])) * weight
            for name, weight in operations.items()
            if not name.startswith(LATER)
        },
    )
    if focus is None and random.random() < 0.5:
        # A deletion takes days; what is drawn here is over in minutes, but for long outages.
        return replace(shape, weights={n: 0 if n in _DAYS else w for n, w in shape.weights.items()})
    return _focused(random, shape, operations, focus or random.choice(list(FOCUSES)))


# How often each is drawn where runs of compaction are to meet all that they must not disturb.
_MERGING: Final = {
    "record": 1.0,
    "record keyed": 1.0,
    "record bare key": 3.0,
    "resend": 2.0,
    "exact read": 4.0,
    "compact": 4.0,
}


def _merging(random: Random, shape: Shape) -> Shape:
    """Entries that are old enough all at once, in tiny pages and generations; late versions."""
    regions = random.choice([1, 1, 2, 3])
    shape = replace(
        shape,
        regions=regions,
        clients=5,
        operations=36,
        counters=1,
        gap_ms=random.choice([300.0, 1_000.0]),
        latency_ms=random.choice([50.0, 300.0]),
        lag_ms=random.choice([500.0, 8_000.0, 8_000.0]),
        page_items=random.choice([1, 2, 3]),
        covers_max=random.choice([1, 2, 3]),
        freeze_ms=20 * SECOND_MS,
        rates={"FROZEN": random.choice([0.0, 0.03, 0.1])},
        archive=random.choice([False, False, True]),
        reused=regions == 1 and random.random() < 0.7,
        weights={name: _MERGING.get(name, 0) for name in shape.weights},
    )
    return replace(shape, lull_ms=shape.age_ms - random.choice([0, 5, 20]) * SECOND_MS)


def _rivals(random: Random, shape: Shape) -> Shape:
    """Several regions, each of which takes itself for home; processes stand still for long."""
    return replace(
        shape,
        regions=random.choice([2, 2, 3]),
        lag_ms=random.choice([20.0, 500.0]),
        latency_ms=random.choice([20.0, 50.0]),
        freeze_ms=3 * MINUTE_MS,
        rates={"FROZEN": random.choice([0.02, 0.05])},
        reused=False,
        rivals=True,
    )


def _losing(random: Random, shape: Shape) -> Shape:
    """A home is lost while much is still to be replicated."""
    return replace(
        shape,
        regions=random.choice([2, 3, 3]),
        lag_ms=random.choice([500.0, 8_000.0]),
        latency_ms=random.choice([20.0, 50.0]),
        reused=False,
        loses=True,
    )


# How often each is drawn where counters are deleted in several regions.
_DELETING: Final = {
    "record": 1.0,
    "record keyed": 0.5,
    "record bare key": 0.5,
    "resend": 0.5,
    "exact read": 1.0,
    "total read": 1.0,
    "compact": 0.5,
    "verify": 0.5,
    "repair": 1.0,
    "deletion call": 4.0,
    "deletion rest": 2.0,
    "deletion join": 0.5,
    "deletion cancel": 0.1,
}


def _deleting(random: Random, shape: Shape) -> Shape:
    """Counters are deleted and used again in several regions, any of which may go on with it."""
    return replace(
        shape,
        regions=random.choice([2, 2, 3]),
        lag_ms=random.choice([20.0, 500.0, 8_000.0]),
        freeze_ms=40 * MINUTE_MS,
        rates={"FROZEN": 0.0},
        deletes=True,
        counters=random.choice([1, 3]),
        archive=random.choice([False, False, True]),
        weights={name: _DELETING.get(name, 0) for name in shape.weights},
    )


def _focused(random: Random, shape: Shape, operations: dict[str, float], focus: str) -> Shape:
    """A shape in which many clients do little else than one thing, at once."""
    if focus == "merges":
        return _merging(random, shape)
    if focus == HOMES:
        return _rivals(random, _merging(random, shape))
    if focus == LOSSES:
        return _losing(random, _merging(random, shape))
    if focus == DELETED_EVERYWHERE:
        return _deleting(random, _focused(random, shape, operations, "deletion"))
    if focus == DELETED_WINDOWS:
        return _focused(random, shape, operations, "deletion")
    apart = {
        WINDOWS: _WINDOWED,
        WINDOW_ALERTS: (*_WINDOWED, "alert"),
        COPIES: _COPIED,
        **LATE_FOCUSES,
    }
    names = apart.get(focus) or FOCUSES[focus]
    latency_ms = random.choice([10.0, 500.0, 3_000.0])
    gap_ms = latency_ms * random.choice([1, 3, 10])
    slow = {"compaction", "due", "buffer", "async", "moving", "forks", "ingest", "stock", COPIES}
    if focus in slow:
        # Entries have to grow old meanwhile, and runs have to meet.
        latency_ms, gap_ms = random.choice([50.0, 300.0]), random.choice([4_000.0, 12_000.0])
    if focus == "deletion":
        # Only where there is one region can anything be deleted.
        shape = replace(
            shape,
            regions=1,
            long=False,
            freeze_ms=random.choice([40 * MINUTE_MS, 50 * HOUR_MS]),
            archive=random.choice([False, True]),
        )
        latency_ms, gap_ms = random.choice([50.0, 500.0]), random.choice([2_000.0, 30_000.0])
    if focus == "regions":
        shape = replace(shape, regions=random.choice([2, 3, 3]))
        latency_ms, gap_ms = random.choice([10.0, 200.0]), random.choice([50.0, 300.0, 3_000.0])
    if focus in {"alerts", WINDOW_ALERTS}:
        # A change of a rule takes effect in five seconds.
        latency_ms, gap_ms = random.choice([10.0, 200.0]), random.choice([700.0, 2_000.0, 6_000.0])
    return replace(
        shape,
        clients=random.choice([3, 5]),
        operations=random.choice([16, 30]),
        counters=3 if focus in {"buffer", "async", "moving", "forks", "ingest", COPIES} else 1,
        latency_ms=latency_ms,
        gap_ms=gap_ms,
        accidents=random.choice([2, 12]),
        weights={
            name: weight * random.choice([0, 1, 1, 3]) if name.startswith(names) else 0
            for name, weight in operations.items()
        },
    )


def late_focus(random: Random) -> str | None:
    """What a seed does alone that few seeds do, or None."""
    return random.choice(list(LATE_FOCUSES)) if random.random() < _LATE else None


def are_used(weights: dict[str, float]) -> bool:
    """Whether a simulation has counters over regions."""
    return any(weight for name, weight in weights.items() if name.startswith(OVER_REGIONS))
