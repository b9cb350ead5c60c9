"""What a run of the compactor tells: its steps while it works, its report at the end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from countledger.ledger.errors import CountledgerError


class RunOutcome(StrEnum):
    """How a run ended."""

    MERGED = "merged"
    NOTHING = "nothing"
    WAITING = "waiting"
    STOPPED = "stopped"
    OVERTAKEN = "overtaken"
    TAMPERED = "tampered"
    FAILED = "failed"


class Verb(StrEnum):
    """What a run does, in this order, once for each generation."""

    AWAIT = "await"
    ARCHIVE = "archive"
    RETIRE = "retire"
    SETTLE = "settle"
    SELECT = "select"
    PUBLISH = "publish"


@dataclass(frozen=True, slots=True)
class CompactionStep:
    """A step that begins.

    Attributes:
        counter: of which counter.
        verb: what is done.
        generation: of the head that it is done under.
        merged: how many entries this run has merged so far.
    """

    counter: str
    verb: Verb
    generation: int
    merged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionReport:
    """What became of one counter in one run.

    Attributes:
        counter: its name.
        outcome: `merged`: all that was old enough; `nothing` was; `waiting`: another region has not
            caught up, the next run goes on; `stopped` at the deadline; `overtaken` by another run;
            `tampered`: a merged entry was changed by hand; `failed`.
        merged: how many entries this run took into the head.
        generations: how many heads it published, the closing one included.
        compacted: how many entries the head stands for now; None where it was not read.
        write_units: what the run consumed; in the home region only, replication comes on top.
        read_units: what the run consumed, in all regions.
        detail: one line for people.
        error: why it failed, or None.
    """

    counter: str
    outcome: RunOutcome
    merged: int = 0
    generations: int = 0
    compacted: int | None = None
    write_units: float = 0.0
    read_units: float = 0.0
    detail: str = ""
    error: CountledgerError | None = None


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What a run would do now, were no other region behind.

    Attributes:
        counter: its name.
        entries: how many it would merge.
        oldest_at_ms: when the oldest of them was made; None for none.
        newest_at_ms: when the newest of them was made; None for none.
        write_units: what it would consume in the home region.
    """

    counter: str
    entries: int
    oldest_at_ms: int | None
    newest_at_ms: int | None
    write_units: float
