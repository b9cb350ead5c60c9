"""What each operation that writes says when one of its requests goes wrong: the whole table.

`test_matrix` proves every cell in memory, and a tenth of them on an engine; the guide's tables are
generated from the rows of strict counters.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import repeat
from typing import Final

from countledger.producers.strict.definition import Method
from tests.faults.injection import FAULTS, GARBLED, Fault, Kind

OTHERS: Final = 7


@dataclass(frozen=True)
class Trouble:
    """What happens to a call's request.

    Attributes:
        fault: what its attempt meets.
        endless: every attempt meets it, and not the first one alone.
        hidden: the SDK retries, as it does unless the product forbids it.
    """

    fault: Fault
    endless: bool = False
    hidden: bool = False

    def __str__(self) -> str:
        """For the ids of tests and for the guide."""
        more = ", each time" if self.endless else ", hidden by an SDK retry" if self.hidden else ""
        return f"{self.fault}{more}"

    @property
    def plan(self) -> Iterable[Fault]:
        """What the attempts meet."""
        return repeat(self.fault) if self.endless else (self.fault,)


CONFLICT: Final = Fault(Kind.CONFLICT)
ONCE: Final = tuple(map(Trouble, (*FAULTS, *GARBLED, CONFLICT)))
ENDLESS: Final = tuple(
    Trouble(fault, endless=True)
    for fault in (
        Fault(Kind.TIMEOUT),
        Fault(Kind.TIMEOUT, applied=True),
        Fault(Kind.THROTTLE),
        CONFLICT,
        Fault(Kind.UNREACHABLE),
    )
)
# Answers of which only the clients of services know; to the product each is as *error* is.
OF_THE_WIRE: Final = (Kind.UNAVAILABLE, Kind.GATEWAY, Kind.RESET)
HIDDEN: Final = tuple(
    Trouble(Fault(Kind.SERVER_ERROR, applied), hidden=True) for applied in (False, True)
)


# Those of the guide, in its order.
TROUBLES: Final = (
    Trouble(Fault(Kind.SERVER_ERROR)),
    Trouble(Fault(Kind.SERVER_ERROR, applied=True)),
    Trouble(Fault(Kind.TIMEOUT, applied=True)),
    Trouble(Fault(Kind.THROTTLE)),
    Trouble(CONFLICT),
    *HIDDEN,
)


@dataclass(frozen=True)
class Row:
    """A method of strict counters, with the choice that a caller of it has."""

    method: Method
    prefer: str | None = None

    def __str__(self) -> str:
        """For the ids of tests and for the guide."""
        return f"{self.method} ({self.prefer})" if self.prefer else str(self.method)


ROWS: Final = (
    Row(Method.ATOMIC, "under"),
    Row(Method.ATOMIC, "over"),
    *(Row(method) for method in Method if method is not Method.ATOMIC),
)


@dataclass(frozen=True)
class Cell:
    """What the caller gets, and how often the effect of the call is stored then.

    Attributes:
        outcome: the value or the class of the error.
        counted: 1: once; an unfinished effect of several writes does not count.
        again: what the same call again gets, if it is not what its operation says; the effect is
            stored once then, or `after` times.
    """

    outcome: str
    counted: int = 1
    again: str | None = None
    after: int = 1

    def __str__(self) -> str:
        """For the guide."""
        counted = {0: "not counted", 1: "counted once", 2: "**counted twice**"}[self.counted]
        return f"{self.outcome}, {counted}"


@dataclass(frozen=True)
class Words:
    """What an operation says in each case.

    Attributes:
        done: this call did it.
        again: it was done before.
        unknown: no attempt was answered.
        refused: every attempt was refused for now.
        sdk: the SDK retries its requests, which is safe for them.
        part: the effect takes several requests, of which the one that meets the fault is not the
            last.
        unreachable: no attempt reached the service.
    """

    done: str = "done"
    again: str = "done"
    unknown: str = "Unclear"
    refused: str = "Throttled"
    sdk: bool = False
    part: bool = False
    unreachable: str = "Unreachable"


ENTRY: Final = Words("recorded", "duplicate", "Unacknowledged", "Unacknowledged")
STRICT: Final = Words("Applied", "Duplicate", "Unknown", "Contended")
CLAIM: Final = Words("done", "done before")
NUMBER: Final = Words("number", "number")
QUOTA: Final = Words("Admitted", "duplicate")
COMMIT: Final = Words("Committed", "duplicate")
SDK: Final = Words(sdk=True)
PART: Final = Words(sdk=True, part=True)


@dataclass(frozen=True)
class Different:
    """Cells that differ from what their operations say.

    Attributes:
        operations: their names, with wildcards.
        troubles: likewise.
        cell: what holds instead; None: what the words say, whatever comes later.
        reason: why.
    """

    operations: str
    troubles: str
    cell: Cell | None
    reason: str


_FOUND: Final = "the item is read again after a lost answer, and the change found in it"
_BLIND: Final = "a method without memory cannot tell its own change from another"
_GAP: Final = "by ADD the number of a lost answer is a gap; none is given out twice"
_SDK_HIDES: Final = "the SDK's retry meets the change of its own first attempt"
_EACH: Final = "of many events each has its own error"
_SPLIT: Final = "a split has a token for each set of bins, so a retry stays open"
_EMPTY: Final = (
    "its answer is empty anyway; a trigger that is left finds no schedule, and does nothing"
)
_WRITTEN: Final = "the item is written before its trigger, so no error says that nothing was"
# The first that fits holds.
_DIFFERENT: Final = (
    Different("atomic (*)", "error, applied, hidden*", Cell("Applied", 2), _BLIND),
    Different("atomic (over)", "time-out, applied, each time", Cell("Unknown", 8), _BLIND),
    Different("acquire (over)", "time-out, applied, each time", Cell("Unclear", 8), _BLIND),
    Different("occ", "*, applied, each time", Cell("Applied"), _FOUND),
    Different("history", "*, applied, each time", Cell("Applied"), _FOUND),
    Different("draw by expectation", "*, applied, each time", Cell("number"), _FOUND),
    Different("append", "*, applied, each time", Cell("number"), _FOUND),
    Different("append", "*, not applied, each time", Cell("Unnumbered", 0), "it is resumed"),
    Different("draw", "*, applied, each time", Cell("Unclear", 8), _GAP),
    Different("draw a block", "*, applied, each time", Cell("Unclear", 8), _GAP),
    Different("retire by *", "unreachable, each time", Cell("ServiceFailed", 0), _EACH),
    Different("archive", "conflict*", Cell("Unclear", 0), "S3 has no such answer"),
    Different("archive", "throttle*", Cell("Unclear", 0), "S3 has no such answer"),
    Different(
        "empty a counter", "throttle, each time", Cell("Throttled", 0), "nobody else writes there"
    ),
    Different("buffer*", "unreachable, each time", Cell("NotRecorded", 0), _EACH),
    Different(
        "alert *", "*each time", Cell("handled"), "an alert that is not taken is a dead letter"
    ),
    Different("note an alert", "unreachable, each time", Cell("delivered again", 0), _EACH),
    Different("redrive a record", "unreachable, each time", Cell("not resolved", 0), _EACH),
    Different("apply records", "unreachable, each time", Cell("delivered again", 0), _EACH),
    Different("ingest*", "unreachable, each time", Cell("delivered again", 0), _EACH),
    Different(
        "request_token split over bins",
        "time-out, applied, each time",
        Cell("Unknown", again="Unknown"),
        _SPLIT,
    ),
    Different("* its trigger", "throttle, each time", Cell("Unclear", 0), _WRITTEN),
    Different("* its trigger", "conflict*", Cell("Unclear", 0), _WRITTEN),
    Different("* its trigger", "unreachable, each time", Cell("Unclear", 0), _WRITTEN),
    Different("*", "*each time", None, ""),
    Different("*", "200 cut short, not applied, hidden*", None, ""),
    Different("delete its trigger", "200 cut short, applied", Cell("done"), _EMPTY),
    Different("delete its trigger", "200 cut short, not applied", Cell("done", 0), _EMPTY),
    Different("atomic (under)", "*, applied", Cell("Unknown"), _BLIND),
    Different("atomic (under)", "*, not applied", Cell("Unknown", 0), _BLIND),
    Different("atomic split over bins", "*, applied", Cell("Unknown"), _BLIND),
    Different("atomic split over bins", "*, not applied", Cell("Unknown", 0), _BLIND),
    Different("atomic (over)", "*, applied", Cell("Applied", 2), _BLIND),
    Different("acquire (under)", "*, applied", Cell("Unclear"), _BLIND),
    Different("acquire (under)", "*, not applied", Cell("Unclear", 0), _BLIND),
    Different("acquire (over)", "*, applied", Cell("Admitted", 2), _BLIND),
    Different("acquire by request_token", "error, applied, hidden*", Cell("duplicate"), _SDK_HIDES),
    Different("occ", "error, applied, hidden*", Cell("Duplicate"), _SDK_HIDES),
    Different("history", "error, applied, hidden*", Cell("Duplicate"), _SDK_HIDES),
    Different("request_token", "error, applied, hidden*", Cell("Duplicate"), _SDK_HIDES),
    Different("set", "error, applied, hidden*", Cell("Duplicate"), _SDK_HIDES),
    Different("record with a key", "error, applied, hidden*", Cell("duplicate"), _SDK_HIDES),
    Different("draw", "error, applied, hidden*", Cell("number", 2), _GAP),
    Different("draw", "*, applied", Cell("number", 2), _GAP),
    Different("draw a block", "*, applied", Cell("number", 2), _GAP),
    Different("take a claim", "error, applied, hidden*", Cell("done before"), _SDK_HIDES),
    Different("release a claim", "error, applied, hidden*", Cell("done before"), _SDK_HIDES),
    Different("request_token split over bins", "*", Cell("Applied", again="Unknown"), _SPLIT),
)

# Where seven others change the counter before the answer, or none, comes; else as alone.
_AMONG_EIGHT: Final = {
    ("occ", "error, not applied"): Cell("Unknown", 0),
    ("occ", "error, applied"): Cell("Unknown"),
    ("occ", "time-out, applied"): Cell("Unknown"),
    ("occ", "error, applied, hidden by an SDK retry"): Cell("Applied", 2),
}


def expected_among_eight(row: Row, trouble: Trouble) -> Cell:
    """The cell of a strict counter that seven others change meanwhile."""
    alone = expected(str(row), STRICT, trouble)
    return _AMONG_EIGHT.get((str(row), str(trouble)), alone)


def expected(operation: str, words: Words, trouble: Trouble) -> Cell:
    """The cell of the table: the exception, or what the operation's words and the trouble say."""
    for one in _DIFFERENT:
        if fnmatchcase(operation, one.operations) and fnmatchcase(str(trouble), one.troubles):
            if one.cell is None:
                break
            return one.cell
    return _by_words(words, trouble)


def _by_words(words: Words, trouble: Trouble) -> Cell:
    kind = trouble.fault.kind
    counted = int(trouble.fault.applied and not words.part)
    refused = kind in {Kind.THROTTLE, Kind.CONFLICT}
    if trouble.endless and kind is Kind.UNREACHABLE:
        return Cell(words.unreachable, 0)
    # What the SDK does not send again, an error tells.
    if trouble.endless or (words.sdk and kind in {Kind.GARBLED, Kind.CONFLICT}):
        return Cell(words.refused if refused else words.unknown, counted)
    return Cell(words.done)
