"""`countledger emit --file`: events from JSON lines, a bad one never stops the rest."""

from __future__ import annotations

import sys
from collections import Counter, deque
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from countledger import Buffering, CountLedger, Receipt
from countledger.infra.cli.output import notice, show
from countledger.infra.cli.progress import open_progress
from countledger.ledger.errors import BadInput, SetupError
from countledger.producers.payload import MAX_BYTES, parse_event_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from countledger import CountledgerError, Event
    from countledger.infra.cli.options import Options

FINDINGS: Final = 1
# Of a longer line no more is read into memory; it is refused for its length.
LINE_MAX_BYTES: Final = MAX_BYTES + 1


class FileUnreadable(SetupError):
    """A file of events cannot be opened."""


class Lines:
    """The good events of a file, and the numbers of the lines that they came from."""

    def __init__(self) -> None:
        self.bad = 0
        self._numbers: deque[int] = deque()

    def events(self, lines: Iterable[tuple[int, bytes]]) -> Iterator[Event]:
        """The events; a bad line is reported and left out."""
        for number, line in lines:
            try:
                event = parse_event_line(line)
            except BadInput as error:
                self.report(number, error)
            else:
                self._numbers.append(number)
                yield event

    def next_number(self) -> int:
        """The line of the next outcome; outcomes come in the order of the events."""
        return self._numbers.popleft()

    def report(self, number: int, error: CountledgerError) -> None:
        """Tell the user of a line that was not recorded, and why."""
        self.bad += 1
        notice(f"line {number}: {error}")


def emit_lines(options: Options, file: str, *, coalesce: bool = False) -> int:
    """Emit a file; the exit code is 1 when a line was bad, 3 when AWS failed on one.

    Args:
        options: which stack, and how to print.
        file: its path; - is standard input.
        coalesce: whether lines of one counter become one entry.

    Raises:
        FileUnreadable: there is no such file.
        SetupError: what concerns every line: no stack, no permission, nothing reachable.
    """
    client = options.client()
    lines = Lines()
    counts: Counter[str] = Counter()
    entries: set[str] = set()
    worst = 0
    send = coalesced if coalesce else CountLedger.record_stream
    with opened(file) as stream, open_progress() as progress:
        emitted = progress.add("emitted")
        for outcome in send(client, lines.events(numbered_lines(stream))):
            number = lines.next_number()
            if isinstance(outcome, Receipt):
                counts[str(outcome.status)] += 1
                if coalesce:
                    entries.add(outcome.id)
                emitted.advance()
            else:
                lines.report(number, outcome)
                # An error of AWS is worse news than a bad line: that line is to be sent again.
                worst = max(worst, outcome.exit_code if not _is_input(outcome) else FINDINGS)
    result = {
        "recorded": counts["recorded"],
        "duplicates": counts["duplicate"],
        "bad": lines.bad,
    }
    if coalesce:
        result["entries"] = len(entries)
    show(options, [result], result)
    return max(worst, FINDINGS if lines.bad else 0)


def coalesced(client: CountLedger, events: Iterable[Event]) -> Iterator[Receipt | CountledgerError]:
    """Record events, those of one counter as one entry; as `CountLedger.record_stream`.

    Raises:
        SetupError: what concerns every event.
    """
    # Every failure is an outcome already.
    with client.buffered(Buffering(coalesce=True), on_failure=lambda _: None) as producer:
        for outcome in producer.record_stream(events):
            if isinstance(outcome, SetupError):
                raise outcome
            yield outcome


def numbered_lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers; a line that is too long comes cut."""
    number = 0
    while line := stream.readline(LINE_MAX_BYTES + 1):
        number += 1
        rest = line
        while len(rest) > LINE_MAX_BYTES and not rest.endswith(b"\n"):
            rest = stream.readline(LINE_MAX_BYTES + 1)
        if line.strip():
            yield number, line


def _is_input(error: CountledgerError) -> bool:
    return isinstance(error, BadInput)


@contextmanager
def opened(file: str) -> Iterator[IO[bytes]]:
    """A file of lines; `-` is standard input.

    Raises:
        FileUnreadable: there is no such file.
    """
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        stream = Path(file).open("rb")  # noqa: SIM115 - closed below; only the opening is guarded
    except OSError as error:
        raise FileUnreadable(f"file {file!r} cannot be read: {error.strerror}") from error
    with stream:
        yield stream
