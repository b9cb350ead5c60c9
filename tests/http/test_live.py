"""Live totals: an event for each change, one poll for all streams, and bounds that hold."""

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from typing import Any, Final

import pytest

from countledger import CountLedger, Total
from countledger.infra.http.calls import Clients
from countledger.infra.http.counters import LiveBounds, LiveEvent, LiveTotals
from tests.http.world import Api, memory_api, names_of
from tests.unit.local_server.server import TOKEN, Server, running

_POLL_S: Final = 0.05
_QUICK: Final = LiveBounds(duration_s=20, streams=3, counters=4, poll_s=_POLL_S)


@pytest.fixture(scope="module")
def live() -> Iterator[Api]:
    with memory_api(_QUICK) as api:
        yield api


@pytest.fixture(scope="module")
def server(live: Api) -> Iterator[Server]:
    with running(api=live.app, allow_writes=True) as started:
        yield started


@contextlib.contextmanager
def _stream(server: Server, *counters: str, known: str | None = None) -> Iterator[HTTPResponse]:
    """A stream of these counters, until the block ends."""
    headers = {"Authorization": f"Bearer {TOKEN}"} | (
        {} if known is None else {"Last-Event-ID": known}
    )
    query = "&".join(f"counter={name}" for name in counters)
    connection = HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request("GET", f"/v1/totals/live?{query}", headers=headers)
        yield connection.getresponse()
    finally:
        connection.close()


def _block(stream: HTTPResponse) -> dict[str, str]:
    """The fields of what comes next, to its empty line; a comment has an empty name."""
    fields = {}
    while (line := stream.readline().decode()) not in {"\n", ""}:
        name, _, value = line.removesuffix("\n").partition(": ")
        fields[name.removesuffix(":")] = value
    return fields


def _event(stream: HTTPResponse) -> dict[str, str]:
    """The next event."""
    while "event" not in (found := _block(stream)):
        assert found, "the stream has ended"
    return found


def _values(event: dict[str, str]) -> list[str]:
    return [one["value"] for one in json.loads(event["data"])["items"]]


def _count(api: Api, counter: str, delta: str, key: str) -> None:
    assert api.post(f"/v1/counters/{counter}/entries", {"delta": delta}, key).is_success
    api.materialize()


def _until_free(api: Api) -> None:
    """Wait until the server has noticed that the streams are closed."""
    ends_at = time.monotonic() + 10
    while api.app.state.live._streams:
        assert time.monotonic() < ends_at
        time.sleep(0.01)


def test_a_stream_says_each_change_and_its_ids_are_the_tags_of_totals(
    live: Api, server: Server
) -> None:
    _count(live, "likes:a", "1", "a1")
    with _stream(server, "likes:a", "likes:b") as stream:
        assert (stream.status, stream.getheader("content-type")) == (
            200,
            "text/event-stream; charset=utf-8",
        )
        assert stream.getheader("countledger-read-units") == "1"
        assert _block(stream) == {"retry": "1000"}
        first = _event(stream)
        assert (first["event"], _values(first)) == ("totals", ["1", "0"])

        _count(live, "likes:b", "2.5", "b1")
        second = _event(stream)

    page = live.get("/v1/totals?counter=likes:a&counter=likes:b")
    assert _values(second) == ["1", "2.5"]
    assert json.loads(second["data"]) == page.json()
    assert page.headers["etag"] == f'"{second["id"]}"' != f'"{first["id"]}"'


def test_a_client_that_has_the_totals_gets_the_next_change(live: Api, server: Server) -> None:
    with _stream(server, "likes:again") as stream:
        known = _event(stream)["id"]
    with _stream(server, "likes:again", known=known) as stream:
        assert _block(stream) == {"retry": "1000"}
        _count(live, "likes:again", "7", "again")
        assert _values(_event(stream)) == ["7"]


def test_streams_of_one_counter_share_a_poll_which_ends_with_them(
    live: Api, server: Server
) -> None:
    _until_free(live)
    before, began_at = live.read_units, time.monotonic()
    with contextlib.ExitStack() as opened:
        streams = [opened.enter_context(_stream(server, "likes:shared")) for _ in range(3)]
        for stream in streams:
            _event(stream)
        time.sleep(12 * _POLL_S)
    _until_free(live)
    polls_max = (time.monotonic() - began_at) / _POLL_S + 1
    used = live.read_units - before - 0.5 * len(streams)

    assert 0 < used <= 0.5 * polls_max
    after = live.read_units
    time.sleep(4 * _POLL_S)
    assert live.read_units == after


def test_streams_and_their_counters_are_bounded(live: Api, server: Server) -> None:
    _until_free(live)
    with contextlib.ExitStack() as opened:
        first = opened.enter_context(_stream(server, "likes:1", "likes:2", "likes:3"))
        _event(first)
        with _stream(server, "likes:4", "likes:5") as refused:
            assert (refused.status, refused.getheader("retry-after")) == (503, "1")
            assert "4 counters in all" in json.load(refused)["detail"]
        for _ in range(2):
            _event(opened.enter_context(_stream(server, "likes:1", "likes:4")))
        with _stream(server, "likes:1") as refused:
            assert names_of(json.load(refused)) == "throttled"
    _until_free(live)
    with _stream(server, "likes:4", "likes:5") as stream:
        assert _event(stream)["event"] == "totals"


def test_a_read_that_fails_is_said_and_the_stream_goes_on(live: Api, server: Server) -> None:
    clients: Clients = live.app.state.clients
    with _stream(server, "likes:fails") as stream:
        known = _event(stream)["id"]
        patience_s, clients.patience_s = clients.patience_s, 0.01
        lent = [asyncio.run(clients.take()) for _ in range(clients.most)]
        failed = _event(stream)
        for client in lent:
            clients.give_back(client)
        clients.patience_s = patience_s
        again = _event(stream)

    assert (failed["event"], names_of(json.loads(failed["data"]))) == ("problem", "throttled")
    assert "id" not in failed
    assert (again["event"], again["id"]) == ("totals", known)


def test_without_a_change_a_comment_is_sent_and_in_time_the_stream_ends() -> None:
    bounds = LiveBounds(duration_s=0.5, poll_s=_POLL_S, heartbeat_s=0.2)
    with (
        memory_api(bounds) as api,
        running(api=api.app) as server,
        _stream(server, "likes:quiet") as stream,
    ):
        _event(stream)
        assert _block(stream) == {"": "unchanged"}
        assert stream.read().replace(b": unchanged\n\n", b"") == b""


def test_a_server_that_is_stopped_does_not_wait_for_its_streams(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with memory_api(LiveBounds()) as api, contextlib.ExitStack() as opened:
        with running(api=api.app) as server:
            _event(opened.enter_context(_stream(server, "likes:stopped")))
            ends_at = time.monotonic() + 5
        assert time.monotonic() < ends_at
    assert caplog.records == []


def test_where_answers_are_buffered_a_stream_is_one_event(api: Api) -> None:
    """The client's reconnection is the poll; without a change it gets nothing."""
    _count(api, "likes:buffered", "3", "k")
    path = "/v1/totals/live?counter=likes:buffered"
    first = api.get(path)
    known = first.text.partition("id: ")[2].partition("\n")[0]
    same = api.get(path, **{"Last-Event-ID": known})
    _count(api, "likes:buffered", "1", "l")
    changed = api.get(path, **{"Last-Event-ID": known})

    assert first.text.startswith("retry: 5000\n\nevent: totals\ndata: {")
    assert same.text == "retry: 5000\n\n"
    assert '"value":"4"' in changed.text


def _events_of(totals: list[Total]) -> list[LiveEvent]:
    return [LiveEvent.of_totals([one]) for one in totals]


def test_a_slow_reader_is_one_event_behind(api: Api) -> None:
    """What changes while it does not read is in the next event; nothing is kept for it."""
    client: CountLedger = api.app.state.clients._idle[0]
    for n in range(3):
        _count(api, f"likes:slow{n}", str(n + 1), "k")
    first, second, third = _events_of([client.total(f"likes:slow{n}") for n in range(3)])

    async def read() -> list[Any]:
        hub = LiveTotals(api.app.state.clients, LiveBounds(poll_s=60))
        with hub.followed(["likes:slow"], first, None) as parts:
            found = [await anext(parts), await anext(parts)]
            (stream,) = hub._streams
            stream.show(second)
            stream.show(third)
            return [*found, await anext(parts)]

    assert asyncio.run(read()) == [b"retry: 1000\n\n", first.encoded(), third.encoded()]
