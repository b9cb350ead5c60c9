"""Totals as they change: server-sent events, fed by one poll that all streams of a server share.

An event has all totals of its stream, so a client that missed some needs only the newest. The id of
an event is the tag of `GET /v1/totals` of the same counters. A client that reconnects sends it as
`Last-Event-ID`, and gets the next event when a total has changed. A slow reader is behind by one
event at most: what changes meanwhile is in the next one.

A host that buffers answers uses `BUFFERED`: a stream ends after its first event, and the client's
own reconnection, after the `retry` of the stream, is the poll.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from anyio import to_thread
from fastapi.responses import StreamingResponse
from fastapi.sse import format_sse_event

from countledger.infra.http.calls import answered, tag_of
from countledger.infra.http.problems import problem_of
from countledger.infra.http.shapes import TotalAnswer, TotalsAnswer
from countledger.ledger.errors import CountledgerError, Throttled
from countledger.ledger.limits import BATCH_GET_KEYS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

    from starlette.types import Receive, Scope, Send

    from countledger import Total
    from countledger.infra.http.lending import Clients


@dataclass(frozen=True, slots=True)
class LiveBounds:
    """What streams may take of a server.

    Attributes:
        duration_s: how long a stream lasts; 0: until its first event.
        streams: how many there are at the same time.
        counters: how many different counters all of them follow.
        poll_s: the time between two reads of the totals, in seconds.
        heartbeat_s: after so many seconds without an event a comment is sent.
        retry_ms: after so many milliseconds a client reconnects.
    """

    duration_s: float = 300
    streams: int = 16
    counters: int = BATCH_GET_KEYS
    poll_s: float = 1
    heartbeat_s: float = 15
    retry_ms: int = 1_000


LIVE_DEFAULT: Final = LiveBounds()
EVENT_STREAM: Final = "text/event-stream"
# Of one event: the keyword `itemSchema` of OpenAPI 3.2, which readers of 3.1 pass over.
EVENT_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "event": {"type": "string", "enum": ["totals", "problem"]},
        "id": {"type": "string"},
        "data": {"type": "string", "contentMediaType": "application/json"},
        "retry": {"type": "integer"},
    },
}
BUFFERED: Final = LiveBounds(duration_s=0, retry_ms=5_000)


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """What a stream says; two events with one tag say the same.

    Attributes:
        tag: of what it says.
        name: `totals`, or `problem` if they could not be read.
        data: the body of `GET /v1/totals`, or the problem; JSON.
    """

    tag: str
    name: str
    data: str

    @classmethod
    def of_totals(cls, totals: Iterable[Total]) -> LiveEvent:
        """These totals."""
        shown = TotalsAnswer(totals=[TotalAnswer.model_validate(one) for one in totals])
        body = bytes(answered(shown).body)
        return cls(tag_of(body), "totals", body.decode())

    @classmethod
    def of_problem(cls, error: CountledgerError) -> LiveEvent:
        """The totals could not be read; the stream goes on."""
        body = bytes(problem_of(error).response().body)
        return cls(tag_of(body), "problem", body.decode())

    def encoded(self) -> bytes:
        """As a stream has it; after a problem a client keeps the id of the last totals."""
        known = self.tag if self.name == "totals" else None
        return format_sse_event(data_str=self.data, event=self.name, id=known)


@dataclass(eq=False, slots=True)
class _Stream:
    """One client: the tag of what it was sent last, and what is to be sent."""

    counters: tuple[str, ...]
    newest: LiveEvent
    known: str | None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False

    def show(self, event: LiveEvent) -> None:
        self.newest = event
        if event.tag != self.known:
            self.changed.set()

    def end(self) -> None:
        self.ended = True
        self.changed.set()

    def take(self) -> bytes:
        """What is to be sent: an event, or nothing."""
        self.changed.clear()
        if self.newest.tag == self.known:
            return b""
        self.known = self.newest.tag
        return self.newest.encoded()


class LiveTotals:
    """The streams of a server, and the one poll that feeds them.

    Half a read unit for each counter that any stream follows, and each poll; for a strict counter
    with bins as much for each bin. Without streams nothing is read.
    """

    def __init__(self, clients: Clients, bounds: LiveBounds) -> None:
        """Nothing is read before there is a stream.

        Args:
            clients: one of them is lent for each read.
            bounds: of all streams.
        """
        self.bounds = bounds
        self._clients = clients
        self._streams: set[_Stream] = set()
        self._poll: asyncio.Task[None] | None = None

    @contextmanager
    def followed(
        self, counters: Iterable[str], newest: LiveEvent, known: str | None
    ) -> Iterator[AsyncIterator[bytes]]:
        """A stream, for as long as the block lasts.

        Args:
            counters: their names.
            newest: their totals as they were read.
            known: the id of the last event that the client has.

        Raises:
            Throttled: there are as many streams, or as many counters in them, as is allowed.
        """
        bounds, stream = self.bounds, _Stream(tuple(counters), newest, known)
        if len(self._streams) >= bounds.streams:
            raise Throttled(f"{bounds.streams} streams are open: poll /v1/totals, or try again")
        if len({*self._names(), *stream.counters}) > bounds.counters:
            raise Throttled(
                f"the streams of this server follow {bounds.counters} counters in all: poll "
                "/v1/totals, or try again"
            )
        self._streams.add(stream)
        if bounds.duration_s > 0 and (self._poll is None or self._poll.done()):
            self._poll = asyncio.get_running_loop().create_task(self._read_again())
        try:
            yield self._parts(stream)
        finally:
            self._streams.discard(stream)
            if not self._streams and self._poll is not None:
                self._poll.cancel()
                self._poll = None

    def _names(self) -> set[str]:
        return {name for stream in self._streams for name in stream.counters}

    async def _parts(self, stream: _Stream) -> AsyncIterator[bytes]:
        """What is sent, until the time of the stream is over."""
        now = asyncio.get_running_loop().time
        ends_at = now() + self.bounds.duration_s
        yield format_sse_event(retry=self.bounds.retry_ms)
        while True:
            if part := stream.take():
                yield part
            left_s = ends_at - now()
            if left_s <= 0 or stream.ended:
                return
            try:
                async with asyncio.timeout(min(left_s, self.bounds.heartbeat_s)):
                    await stream.changed.wait()
            except TimeoutError:
                yield format_sse_event(comment="unchanged")

    async def _read_again(self) -> None:
        """Read the totals that are followed, until nobody follows any."""
        try:
            while self._streams:
                await asyncio.sleep(self.bounds.poll_s)
                names = sorted(self._names())
                try:
                    found = await to_thread.run_sync(self._read, names)
                except CountledgerError as error:
                    self._show_problem(LiveEvent.of_problem(error))
                else:
                    self._show(found)
        except Exception:
            for stream in self._streams:
                stream.end()
            raise

    def _read(self, names: list[str]) -> Mapping[str, Total]:
        with self._clients.lent() as client:
            return client.totals(names)

    def _show(self, found: Mapping[str, Total]) -> None:
        for stream in self._streams:
            # A stream that came during the read gets its totals by the next one.
            if found.keys() >= {*stream.counters}:
                stream.show(LiveEvent.of_totals(found[name] for name in stream.counters))

    def _show_problem(self, event: LiveEvent) -> None:
        for stream in self._streams:
            stream.show(event)


class LiveResponse(StreamingResponse):
    """A stream as the answer to a request; the bounds of the server may refuse it."""

    media_type = EVENT_STREAM

    def __init__(
        self, live: LiveTotals, counters: Iterable[str], newest: LiveEvent, known: str | None
    ) -> None:
        """The arguments are those of `LiveTotals.followed`."""
        # A proxy that collects an answer before it passes it on would hold back the events.
        super().__init__((), headers={"X-Accel-Buffering": "no"})
        self._follow = partial(live.followed, counters, newest, known)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client leaves, or the time of the stream is over."""
        try:
            with self._follow() as self.body_iterator:
                await super().__call__(scope, receive, send)
        except Throttled as error:
            await problem_of(error).response()(scope, receive, send)
