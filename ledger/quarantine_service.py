"""The quarantine for people: list what waits, redrive it, or discard it."""

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
from countledger.ledger.quarantine_record import (
    FOREIGN_KIND,
    HandledHow,
    QuarantineHandling,
    QuarantineSource,
)
from countledger.ledger.texts import has_control_characters, plain_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from countledger.ledger.attributes import OnCorrupt
    from countledger.ledger.quarantine import QuarantineNotices, QuarantineStore
    from countledger.ledger.quarantine_record import QuarantinedRecord

_BY_MAX_CHARACTERS: Final = 256


@dataclass(frozen=True, slots=True)
class RedriveAnswer:
    """The result of a redrive.

    Attributes:
        resolved: whether the record is counted now, so that no person has to act.
        detail: what happened, or why it could not be done.
    """

    resolved: bool
    detail: str


class Redrive(Protocol):
    """Applies a record. Done twice, it counts once."""

    def __call__(self, record: QuarantinedRecord, *, even_if_counted: bool) -> RedriveAnswer:
        """Apply it.

        Raises:
            CountledgerError: the attempt failed.
        """


@dataclass(frozen=True, slots=True)
class QuarantineOutcome:
    """The result for one record.

    Attributes:
        record: as it is now.
        resolved: whether no person has to act any more.
        detail: what happened, or why it could not be done.
        error: why the attempt failed, or None.
    """

    record: QuarantinedRecord
    resolved: bool
    detail: str
    error: CountledgerError | None = None


@dataclass(frozen=True, slots=True)
class QuarantineService:
    """What is in quarantine, and what a person may do about it.

    Attributes:
        store: the records.
        redrives: how a record of each source is applied; a foreign one never is.
        notices: makes the access to the queues; called after a record was handled.
        clock: gives the time.
    """

    store: QuarantineStore
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
        """The records that wait, newest first: half a read unit for each 4 KB of all records.

        Args:
            source: the source; None means all.
            handled: whether to include the records handled in the last 90 days.
            limit: the maximum number of records.
            on_corrupt: called with the error of each item that cannot be read, which is skipped.

        Raises:
            BadSetting: the source does not exist, or the limit is below 1.
            CorruptItem: an item cannot be read, and `on_corrupt` is not given.
        """
        if limit is not None and limit < 1:
            raise BadSetting(f"limit {shown(limit)} is below 1: give 1 or more records")
        found = self.store.newest(_source(source), on_corrupt)
        return islice((record for record in found if handled or record.handled is None), limit)

    def show(self, quarantine_id: str) -> QuarantinedRecord:
        """One record with its content: a read unit for each 4 KB.

        Raises:
            NotQuarantined: no record has that id.
        """
        record = self.store.find(quarantine_id)
        if record is None:
            raise NotQuarantined(
                f"{quarantine_id} is not in quarantine, or was handled over 90 days ago"
            )
        return record

    def resend(
        self, quarantine_ids: Iterable[str], *, by: str, even_if_counted: bool = False
    ) -> Iterator[QuarantineOutcome]:
        """Apply records, and mark those that are resolved as handled.

        A record of Kinesis is written to the ledger with its own identity. For a record of the
        ledger's stream the counter is repaired. A foreign record stays. Nothing is done before the
        result is iterated. Repeating it counts nothing twice. At the end the messages about handled
        records are deleted from the queues.

        Args:
            quarantine_ids: the ids.
            by: the name of the person; the item keeps it.
            even_if_counted: whether to count also expired entries that may have been counted.

        Yields:
            The result of each record; an error is that record's own.

        Raises:
            NotQuarantined: no record has that id.
            BadSetting: `by` is not a text of 1 to 256 characters on one line.
            SetupError: the error concerns every record.
        """
        by = check_name(by)
        return self._each(quarantine_ids, lambda record: self._redrive(record, by, even_if_counted))

    def discard(self, quarantine_ids: Iterable[str], *, by: str) -> Iterator[QuarantineOutcome]:
        """Mark records as handled without counting them. They stay readable for 90 days.

        Raises:
            As `resend`.
        """
        by = check_name(by)
        return self._each(
            quarantine_ids, lambda record: self._handle(record, HandledHow.DISCARDED, by)
        )

    def _each(
        self,
        quarantine_ids: Iterable[str],
        resolve: Callable[[QuarantinedRecord], QuarantineOutcome],
    ) -> Iterator[QuarantineOutcome]:
        any_resolved = False
        for quarantine_id in quarantine_ids:
            record = self.show(quarantine_id)
            if record.handled is None:
                outcome = resolve(record)
            else:
                detail = f"{record.handled.how} by {record.handled.by}"
                outcome = QuarantineOutcome(record, resolved=True, detail=detail)
            any_resolved = any_resolved or outcome.resolved
            yield outcome
        if any_resolved:
            self.notices().delete_handled(cache(self._is_handled))

    def _is_handled(self, quarantine_id: str) -> bool:
        try:
            record = self.store.find(quarantine_id)
        except (NotQuarantined, CorruptItem):
            return False
        return record is not None and record.handled is not None

    def _redrive(
        self,
        record: QuarantinedRecord,
        by: str,
        even_if_counted: bool,  # noqa: FBT001 - handed on
    ) -> QuarantineOutcome:
        try:
            answer = self._redrive_of(record)(record, even_if_counted=even_if_counted)
        except SetupError:
            raise
        except CountledgerError as error:
            return QuarantineOutcome(record, resolved=False, detail=str(error), error=error)
        if not answer.resolved:
            return QuarantineOutcome(record, resolved=False, detail=answer.detail)
        # After a crash before this the record is redriven again, which counts nothing twice.
        return self._handle(record, HandledHow.RESENT, by, answer.detail)

    def _redrive_of(self, record: QuarantinedRecord) -> Redrive:
        return discard_only if record.kind == FOREIGN_KIND else self.redrives[record.source]

    def _handle(
        self, record: QuarantinedRecord, how: HandledHow, by: str, detail: str | None = None
    ) -> QuarantineOutcome:
        now = self.store.handle(record, QuarantineHandling(how, by, self.clock.now_ms()))
        return QuarantineOutcome(now, resolved=True, detail=detail or str(how))


def discard_only(record: QuarantinedRecord, *, even_if_counted: bool) -> RedriveAnswer:
    """The redrive of foreign records: nothing can be applied, whatever source they came to."""
    del even_if_counted
    return RedriveAnswer(
        resolved=False,
        detail=f"its records are of no stream of this stack ({record.where}): remove the pipe or "
        "mapping that sends them, have what was meant to be counted recorded, then discard it",
    )


def check_name(by: object) -> str:
    """The name of the person who handles a record: a text of one line.

    Raises:
        BadSetting: it is not.
    """
    if isinstance(by, str) and 0 < len(by) <= _BY_MAX_CHARACTERS and not has_control_characters(by):
        return plain_text(by)
    raise BadSetting(
        f"the name {shown(by)} is not a text of 1 to {_BY_MAX_CHARACTERS} characters on one line"
    )


def _source(given: QuarantineSource | str | None) -> QuarantineSource | None:
    try:
        return None if given is None else QuarantineSource(given)
    except ValueError:
        sources = ", ".join(QuarantineSource)
        raise BadSetting(f"source {shown(given)} does not exist: give one of {sources}") from None
