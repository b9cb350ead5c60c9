"""The quarantine as a person works on it: what waits, sending it again, giving it up."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import (
    BadSetting,
    CorruptItem,
    CountledgerError,
    NotQuarantined,
    SetupError,
    shown,
)
from countledger.ledger.keys import has_control_characters
from countledger.ledger.quarantine_record import HandledHow, QuarantineHandling, QuarantineSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from countledger.ledger.attributes import OnCorrupt
    from countledger.ledger.quarantine_notices import QuarantineNotices
    from countledger.ledger.quarantine_record import QuarantinedRecord
    from countledger.ledger.quarantine_store import QuarantineStore

_BY_MAX_CHARACTERS: Final = 256


@dataclass(frozen=True, slots=True)
class RedriveAnswer:
    """What came of sending something again.

    Attributes:
        settled: whether it is counted now, and need not wait for a person any more.
        said: what happened, or what stands in the way.
    """

    settled: bool
    said: str


class Redrive(Protocol):
    """Brings what a copy holds where it belongs; done twice it counts once."""

    def __call__(self, copy: QuarantinedRecord, *, even_if_counted: bool) -> RedriveAnswer:
        """Try it.

        Raises:
            CountledgerError: it could not be tried.
        """


@dataclass(frozen=True, slots=True)
class QuarantineOutcome:
    """What became of a copy.

    Attributes:
        copy: as it is now.
        settled: whether no person is needed any more.
        said: what happened, or what stands in the way.
        error: why it could not be tried, or None.
    """

    copy: QuarantinedRecord
    settled: bool
    said: str
    error: CountledgerError | None = None


@dataclass(frozen=True, slots=True)
class QuarantineService:
    """What is in quarantine, and what a person may do about it.

    Attributes:
        copies: what waits.
        redrives: how what comes from a source is sent again.
        notices: the queues whose messages tell of it; asked for when something was handled.
        clock: tells the time.
    """

    copies: QuarantineStore
    redrives: Mapping[QuarantineSource, Redrive]
    notices: Callable[[], QuarantineNotices]
    clock: Clock = field(default_factory=SystemClock)

    def list(
        self,
        source: QuarantineSource | str | None = None,
        *,
        handled: bool = False,
        limit: int | None = None,
        on_corrupt: OnCorrupt | None = None,
    ) -> Iterator[QuarantinedRecord]:
        """What waits for a person, newest first: half a read unit for each 4 KB of all copies.

        Args:
            source: of which stream; None: of all.
            handled: whether also what was handled in the last ninety days.
            limit: at most so many.
            on_corrupt: called with the error of each copy that cannot be read, which is left out.

        Raises:
            BadSetting: there is no such source, or the limit is below 1.
            CorruptItem: a copy cannot be read, and `on_corrupt` is not given.
        """
        if limit is not None and limit < 1:
            raise BadSetting(f"limit {limit} is no number of copies: give 1 or more")
        found = self.copies.newest(_source(source), on_corrupt)
        return islice((copy for copy in found if handled or copy.handled is None), limit)

    def show(self, copy_id: str) -> QuarantinedRecord:
        """One copy, all of it: a read unit for each 4 KB.

        Raises:
            NotQuarantined: there is none of that name.
        """
        copy = self.copies.find(copy_id)
        if copy is None:
            raise NotQuarantined(f"{copy_id} is not in quarantine, or was handled ninety days ago")
        return copy

    def resend(
        self, copy_ids: Iterable[str], *, by: str, even_if_counted: bool = False
    ) -> Iterator[QuarantineOutcome]:
        """Bring copies where they belong, and have those that are settled handled.

        What came through Kinesis is taken in again under its own identity; of a record of the
        ledger's stream the counter is repaired. Iterate over the answer; doing it again counts
        nothing twice. At its end the messages of what is handled leave the queues.

        Args:
            copy_ids: their names.
            by: who does it; the copy remembers it.
            even_if_counted: whether to count also what expired and may have been counted before.

        Yields:
            What became of each; an error is this copy's own.

        Raises:
            NotQuarantined: there is none of that name.
            BadSetting: `by` is no short text.
            SetupError: what concerns every copy.
        """
        check_name(by)
        return self._each(copy_ids, lambda copy: self._cured(copy, by, even_if_counted))

    def discard(self, copy_ids: Iterable[str], *, by: str) -> Iterator[QuarantineOutcome]:
        """Give copies up: what they hold is never counted by us. They are kept for ninety days.

        Raises:
            As `resend`.
        """
        check_name(by)
        return self._each(copy_ids, lambda copy: self._handled(copy, HandledHow.DISCARDED, by))

    def _each(
        self, copy_ids: Iterable[str], treat: Callable[[QuarantinedRecord], QuarantineOutcome]
    ) -> Iterator[QuarantineOutcome]:
        any_settled = False
        for copy_id in copy_ids:
            copy = self.show(copy_id)
            if copy.handled is not None:
                one = QuarantineOutcome(
                    copy, settled=True, said=f"{copy.handled.how} by {copy.handled.by}"
                )
            else:
                one = treat(copy)
            any_settled = any_settled or one.settled
            yield one
        if any_settled:
            self.notices().delete_handled(cache(self._is_handled))

    def _is_handled(self, copy_id: str) -> bool:
        try:
            copy = self.copies.find(copy_id)
        except (NotQuarantined, CorruptItem):
            return False
        return copy is not None and copy.handled is not None

    def _cured(self, copy: QuarantinedRecord, by: str, even_if_counted: bool) -> QuarantineOutcome:  # noqa: FBT001 - handed on
        try:
            answer = self.redrives[copy.source](copy, even_if_counted=even_if_counted)
        except SetupError:
            raise
        except CountledgerError as error:
            return QuarantineOutcome(copy, settled=False, said=str(error), error=error)
        if not answer.settled:
            return QuarantineOutcome(copy, settled=False, said=answer.said)
        # A crash before this leaves it to be sent again, which counts nothing twice.
        return self._handled(copy, HandledHow.RESENT, by, answer.said)

    def _handled(
        self, copy: QuarantinedRecord, how: HandledHow, by: str, said: str | None = None
    ) -> QuarantineOutcome:
        now = self.copies.handle(copy, QuarantineHandling(how, by, self.clock.now_ms()))
        return QuarantineOutcome(now, settled=True, said=said or str(how))


def check_name(by: object) -> str:
    """The name of who handles something: a text of one line.

    Raises:
        BadSetting: it is none.
    """
    if isinstance(by, str) and 0 < len(by) <= _BY_MAX_CHARACTERS and not has_control_characters(by):
        return by
    raise BadSetting(f"{shown(by)} names nobody: give 1 to {_BY_MAX_CHARACTERS} characters")


def _source(given: QuarantineSource | str | None) -> QuarantineSource | None:
    try:
        return None if given is None else QuarantineSource(given)
    except ValueError:
        raise BadSetting(
            f"source {shown(given)} is none of {', '.join(QuarantineSource)}"
        ) from None
