"""The spool of a simulated process: its own file, a disk that fails, a crash beside each commit."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self, cast

from countledger.producers.buffer.settings import PendingEntry, SpoolRefused
from countledger.producers.buffer.spool import Spool
from tests.simulation import threads
from tests.simulation.faults import Fault
from tests.simulation.schedule import Killed


class SimulatedSpool(Spool):
    """The product's own, on a real file; at each commit its process may die, before or behind."""

    @classmethod
    def open(cls, path: str | Path, *, ledger: str, fsync: bool = False) -> Self:
        """As the product's; a process that dies lets go of the file."""
        spool = super().open(path, ledger=ledger, fsync=fsync)
        spool.connection.execute("PRAGMA synchronous = OFF")
        process = threads.owner()
        process.endings.append(spool.connection.close)
        process.world.closing.append(spool.connection.close)
        return cast("Self", spool)

    def append(self, pendings: Sequence[PendingEntry]) -> None:
        """One commit."""
        _at_a_commit(lambda: Spool.append(self, pendings))

    def freeze(self, pendings: Iterable[PendingEntry]) -> None:
        """One commit."""
        _at_a_commit(lambda: Spool.freeze(self, pendings))

    def update(self, acknowledged: Iterable[int], refused: Iterable[tuple[str, int]]) -> None:
        """One commit."""
        _at_a_commit(lambda: Spool.update(self, acknowledged, refused))


def _at_a_commit(commit: Callable[[], None]) -> None:
    process = threads.owner()
    process.sleep_ms(process.world.random.random())
    faults, acting = process.world.faults, process.acting
    if faults.strikes(Fault.CRASH_BEFORE, acting):
        process.die()
        raise Killed
    if faults.strikes(Fault.DISK, acting):
        raise SpoolRefused("the disk is full")
    commit()
    if faults.strikes(Fault.CRASH_AFTER, acting):
        process.die()
        raise Killed
