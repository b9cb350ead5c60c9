"""`countledger emit`: one event, or a file or stream of them, a line of JSON each."""

from __future__ import annotations

import sys
from collections import Counter, deque
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Final, Generic, TypeVar

import typer

from countledger import Buffering, CountLedger, Event, Receipt
from countledger.infra.cli.arguments import parse_pairs
from countledger.infra.cli.options import At, BadUsage, Notes, Options, shared
from countledger.infra.cli.output import FINDINGS, facts, notice, show_facts
from countledger.infra.cli.progress import open_progress
from countledger.ledger.amount import parse_delta_text
from countledger.ledger.errors import BadInput, BadNote, SetupError, TotalBehind
from countledger.producers.payload import MAX_BYTES, keyed, parse_event_line, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from countledger import CountledgerError
    from countledger.infra.cli.options import Options


@shared
def emit(
    options: Options,
    counter: Annotated[str | None, typer.Argument(help="namespace:rest, or a plain name.")] = None,
    delta: Annotated[
        str | None, typer.Argument(help="What to add: an exact number, not 0.")
    ] = None,
    *,
    key: Annotated[
        str | None, typer.Option(help="A retry repeats the key: same key, applied once.")
    ] = None,
    at: At = None,
    occurred_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="The event's own business time, any time.")
    ] = None,
    note: Notes = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the total includes it, and show the total.")
    ] = False,
    file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Emit the JSON lines of a file; - is standard input."),
    ] = None,
    coalesce: Annotated[
        bool, typer.Option("--coalesce", help="With --file: one entry for many lines of a counter.")
    ] = False,
) -> int | None:
    """Record an event, or a file of them.

    The answer is "recorded", or "duplicate" where the same key was recorded before. A key that
    comes back with another delta is refused.

    Examples:
      countledger emit likes:post-1 3
      countledger emit likes:post-1 -5                        [dim]no -- needed[/dim]
      countledger emit stock:bolts 12.50 --key delivery-4711
      countledger emit clicks 1 --key c-1 --at $(date -u +%FT%TZ)
      countledger emit clicks 1 --note source=web --note page=/
      countledger emit likes:post-1 3 --wait                  [dim]and show the new total[/dim]
      countledger emit --file events.jsonl
      zcat old.jsonl.gz | countledger emit --file -
      countledger emit --file clicks.jsonl --coalesce         [dim]fewer write units[/dim]

    A line of a file: {"counter": "likes:post-1", "delta": 3} and, as wanted, "key", "at",
    "occurred_at", "note" and "events" (how many events the delta sums). A delta with a fraction is
    best written as text: "12.50". A bad line is reported with its number and reason, the good ones
    are emitted, and the exit code is 1.

    With --coalesce, lines of one counter become one entry with their sum and their number; those
    with a key, a note, a time or "events" of their own stay what they are.

    With --wait the total is shown once it includes the event (an exact read of the counter). If
    that takes longer than 10 seconds, the event is recorded nevertheless, and the exit code is 1.

    TIME is ISO 8601 with an offset, or milliseconds since 1970. That of a key may lie no further
    back than the horizon of its namespace, 24 hours unless it was made with another.
    """
    if file is not None:
        if any((counter, delta, key, at, occurred_at, note, wait)):
            raise BadUsage("with --file, counter, delta and the rest are in the lines")
        return emit_lines(options, file, coalesce=coalesce)
    if coalesce:
        raise BadUsage("--coalesce sums up the lines of a file: give --file FILE")
    if counter is None or delta is None:
        raise BadUsage("give COUNTER and DELTA, or --file FILE")
    known = keyed(key, None if at is None else parse_time(at))
    occurred = None if occurred_at is None else parse_time(occurred_at)
    event = Event(counter, parse_delta_text(delta), known, occurred, parse_notes(note))
    return _emit_one(options, event, wait=wait)


def _emit_one(options: Options, event: Event, *, wait: bool) -> int:
    """Emit an event and show its receipt; with `wait` also the total that includes it."""
    client = options.client()
    receipt = client.record(
        event.counter, event.delta, key=event.key, occurred_at=event.occurred_at, note=event.note
    )
    answer = facts(receipt, "status counter", delta=event.delta, id=receipt.id)
    late: TotalBehind | None = None
    if wait:
        try:
            answer["value"] = client.total(receipt.counter, after=receipt).value
        except TotalBehind as error:
            late = error
    show_facts(options, answer)
    if late is None:
        return 0
    notice(str(late))
    return FINDINGS


def parse_notes(notes: Sequence[str] | None) -> dict[str, str] | None:
    """The note of `NAME=VALUE` texts; None for none.

    Raises:
        BadNote: a text has no `=` or no name, or a name comes twice.
    """
    return parse_pairs("note", "NAME=VALUE", notes, BadNote) or None


# Of a longer line no more is read into memory; it is refused for its length.
LINE_MAX_BYTES: Final = MAX_BYTES + 1
T = TypeVar("T")


class FileUnreadable(SetupError):
    """A file of events cannot be opened."""


class Lines(Generic[T]):
    """The good lines of a file, and what was wrong with the others.

    Attributes:
        parse: a line as a value.
        bad: how many lines were reported.
        worst: the exit code that they come to.
    """

    def __init__(self, parse: Callable[[bytes], T]) -> None:
        self.parse = parse
        self.bad = 0
        self.worst = 0
        self._numbers: deque[int] = deque()

    def good(self, lines: Iterable[tuple[int, bytes]]) -> Iterator[T]:
        """The values; a bad line is reported and left out."""
        for number, line in lines:
            try:
                value = self.parse(line)
            except BadInput as error:
                self.report(number, error)
            else:
                self._numbers.append(number)
                yield value

    def next_number(self) -> int:
        """The line of the next outcome; outcomes come in the order of the values."""
        return self._numbers.popleft()

    def report(self, number: int, error: CountledgerError) -> None:
        """Report a line that was not recorded, and the reason."""
        self.bad += 1
        # An error of AWS is worse news than a bad line: that line is to be sent again.
        self.worst = max(self.worst, FINDINGS if isinstance(error, BadInput) else error.exit_code)
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
    lines = Lines(parse_event_line)
    counts: Counter[str] = Counter()
    entries: set[str] = set()
    send = coalesced if coalesce else CountLedger.record_stream
    with opened(file) as stream, open_progress() as progress:
        emitted = progress.add("emitted")
        for outcome in send(client, lines.good(numbered_lines(stream))):
            number = lines.next_number()
            if isinstance(outcome, Receipt):
                counts[str(outcome.status)] += 1
                if coalesce:
                    entries.add(outcome.id)
                emitted.advance()
            else:
                lines.report(number, outcome)
    result = {"recorded": counts["recorded"], "duplicates": counts["duplicate"], "bad": lines.bad}
    if coalesce:
        result["entries"] = len(entries)
    show_facts(options, result)
    return lines.worst


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
