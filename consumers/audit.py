"""An audit: a verdict on every counter there is, or a repair of it, from where the last one ended.

    1  a round of the walk names counters
    2  they are judged, or repaired, behind one proof
    3  the bookmark moves, once all outcomes of the round have been taken

A crash between two steps has a round done again: a verdict given twice does no harm, and what was
repaired is exact.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from countledger.consumers.bookmarks import Bookmarks, NoBookmarks, WalkPosition
from countledger.consumers.walk import SEGMENTS_DEFAULT, Walker, start
from countledger.ledger.errors import CorruptItem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Audited = TypeVar("Audited")

# An audit may wait for the proof of a busy stream as long as clocks differ: many share it.
CHUNK = 2_000


@dataclass(slots=True)
class Audit(Generic[Audited]):
    """A walk over all counters with an outcome for each; iterate over it once.

    Attributes:
        walker: finds the counters.
        judge: makes the outcomes of counters, in their order.
        name_of: what an outcome is counted as.
        is_wanted: whether a counter is one of a ledger; others have nothing to compare.
        segments: into how many parts each table is cut; a walk that goes on keeps its own.
        bookmarks: where its place is kept.
        unread: makes the outcome of a counter whose namespace cannot be read, so that nobody knows
            whether it is wanted; None: that ends the walk.
        has_time: asked behind each round whether another one may begin.
        counts: how often each outcome was met, earlier parts of the walk included.
        done: whether it has come to its end.
    """

    walker: Walker
    judge: Callable[[Iterable[str]], Iterator[Audited]]
    name_of: Callable[[Audited], str]
    is_wanted: Callable[[str], bool]
    segments: int = SEGMENTS_DEFAULT
    bookmarks: Bookmarks = field(default_factory=NoBookmarks)
    has_time: Callable[[], bool] = lambda: True
    unread: Callable[[str, CorruptItem], Audited] | None = None
    counts: Counter[str] = field(default_factory=Counter)
    done: bool = False

    def __iter__(self) -> Iterator[Audited]:
        """The outcomes, as they come."""
        for outcomes in self.rounds():
            yield from outcomes

    def rounds(self) -> Iterator[list[Audited]]:
        """The outcomes by round. The place is kept when the next round is asked for.

        Raises:
            BadSetting: the number of segments is none, or the bookmark is of something else.
        """
        place = self.bookmarks.load() or WalkPosition(start(self.segments))
        self.counts.update(place.counts)
        self.bookmarks.save(place)  # if that fails, then before any work
        for one in self.walker.rounds(place.bookmark):
            wanted, outcomes = self._wanted(one.counters)
            outcomes += self.judge(wanted)
            self.counts.update(map(self.name_of, outcomes))
            yield outcomes
            self.bookmarks.save(WalkPosition(one.bookmark, dict(self.counts)))
            if not self.has_time():
                return
        self.bookmarks.clear()
        self.done = True

    def _wanted(self, counters: Iterable[str]) -> tuple[list[str], list[Audited]]:
        """The counters to be judged, and the outcomes of those of which nobody can tell."""
        wanted: list[str] = []
        outcomes: list[Audited] = []
        for counter in counters:
            try:
                if self.is_wanted(counter):
                    wanted.append(counter)
            except CorruptItem as error:
                if self.unread is None:
                    raise
                outcomes.append(self.unread(counter, error))
        return wanted, outcomes
