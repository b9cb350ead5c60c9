"""What every request goes through: who calls, a client of the stack, and what the call consumed.

The outcomes of strict changes, holds and quotas become answers here, or problems.

The header `Idempotency-Key`: the `key=` of the library, with or without its time.

    Idempotency-Key: click-1
    Idempotency-Key: "click 1"
    Idempotency-Key: "click-1"; at="2026-01-31T12:00:00.000Z"
    Idempotency-Key: %"caf%c3%a9"; at="2026-01-31T12:00:00.000Z"

The value is a string of RFC 9651, or a display string for other characters than those of ASCII; a
key without quotes, spaces, commas and semicolons may be written as it is. With `at`, the identity
is the pair of the key and the time, as of an `IdempotencyKey`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, TypeAlias
from urllib.parse import unquote_to_bytes

from anyio import to_thread
from fastapi import Depends, Header, Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute

from countledger import IdempotencyKey
from countledger.infra.calls.call import HEADER, HOW, Call
from countledger.infra.calls.refusals import document_of, refusal_of
from countledger.infra.calls.shapes import Text, View, parse_time
from countledger.infra.http.problems import (
    ProblemDetails,
    problem_of,
    title_of,
)
from countledger.ledger.errors import BadKey, BadTime, CountledgerError, Throttled
from countledger.ledger.ids import check_key
from countledger.ledger.values import TIME_PATTERN

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Coroutine,
        Iterable,
        Mapping,
    )

    from countledger import CountLedger
    from countledger.infra.calls.shapes import View


_PATTERN: Final = (
    r"^(?:"
    r'(?P<string>"(?:[ !#-\[\]-~]|\\["\\])+")'
    r'|(?P<display>%"(?:[ !#-$&-~]|%[0-9a-f]{2})+")'
    r"|(?P<plain>[!#-+\--:<-\[\]-~]+)"
    r")"
    rf'(?: *; *at="(?P<at>{TIME_PATTERN})")?$'
)
_MARK_BYTES: Final = 12
_match: Final = re.compile(_PATTERN).match


def parse_key(text: str) -> str | IdempotencyKey:
    found = _match(text)
    if found is None:
        raise BadKey(f"{HEADER} {text[:60]!r} cannot be read: write {HOW}")
    key = check_key(_unquoted(found))
    if found["at"] is None:
        return key
    try:
        return IdempotencyKey(key, parse_time(found["at"]))
    except BadTime:
        raise
    except ValueError as error:
        raise BadTime(f"{error}: it is the time of the key in {HEADER}") from None


# A pattern of JSON schema has no names in it.
_KeyHeader = Annotated[
    str | IdempotencyKey,
    Text(
        parse_key,
        re.sub(r"\?P<\w+>", "?:", _PATTERN),
        maxLength=4_096,
        description="what a retry repeats; see docs/http.md",
        examples=["click-1", '"click-1"; at="2026-01-31T12:00:00Z"'],
    ),
]


def key_of_part(key: str | IdempotencyKey, position: int) -> str | IdempotencyKey:
    if isinstance(key, IdempotencyKey):
        return IdempotencyKey(f"{key.key}#{position}", key.at)
    return check_key(f"{key}#{position}")


def key_of_namespaces(key: str | IdempotencyKey, namespaces: Iterable[str]) -> str | IdempotencyKey:
    """The key of a request that changes counters of these namespaces.

    The key of several counters is one of the whole stack. Here it belongs to the namespaces, which
    the caller may write: a caller with other scopes neither meets nor occupies it.
    """
    mark = blake2b(" ".join(sorted(set(namespaces))).encode(), digest_size=_MARK_BYTES).hexdigest()
    if isinstance(key, IdempotencyKey):
        return IdempotencyKey(f"{mark}#{key.key}", key.at)
    return check_key(f"{mark}#{key}")


def _unquoted(found: re.Match[str]) -> str:
    if found["string"]:
        return re.sub(r"\\(.)", r"\1", found["string"][1:-1])
    if found["display"]:
        try:
            return unquote_to_bytes(found["display"][2:-1]).decode()
        except UnicodeDecodeError:
            raise BadKey(f"{HEADER} {found['display'][:60]!r} is no UTF-8") from None
    return found["plain"]


async def _one(request: Request) -> None:
    """Refuse two headers: hosts differ in which of them they take."""
    if len(request.headers.getlist(HEADER)) > 1:
        raise BadKey(f"the request has {HEADER} more than once: send one")


async def _given(
    key: Annotated[_KeyHeader, Header(alias=HEADER)], _: Annotated[None, Depends(_one)]
) -> str | IdempotencyKey:
    return key


async def _perhaps(
    _: Annotated[None, Depends(_one)],
    key: Annotated[_KeyHeader | None, Header(alias=HEADER)] = None,
) -> str | IdempotencyKey | None:
    return key


RequiredKey = Annotated[str | IdempotencyKey, Depends(_given)]
OptionalKey = Annotated[str | IdempotencyKey | None, Depends(_perhaps)]


# Clients of the stack, each lent to one request at a time, so that its units are its own.


_Waiter: TypeAlias = "tuple[asyncio.AbstractEventLoop, asyncio.Future[CountLedger]]"
CLIENTS_DEFAULT: Final = 8
# For how long a request waits for a client.
_PATIENCE_S: Final = 5.0


@dataclass(slots=True)
class Clients:
    """A few clients, opened when they are needed, as many as requests are carried out at once."""

    make: Callable[[], CountLedger]
    most: int = CLIENTS_DEFAULT
    patience_s: float = _PATIENCE_S
    _idle: list[CountLedger] = field(default_factory=list, init=False)
    _waiting: deque[_Waiter] = field(default_factory=deque, init=False)
    _opened: int = field(default=0, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[CountLedger]:
        """A client that no other request uses meanwhile; `Throttled`: none came back in time."""
        client = await self.take()
        try:
            yield client
        finally:
            self.give_back(client)

    def give_back(self, client: CountLedger) -> None:
        """End the use of a client that `take` returned."""
        with self._lock:
            if not self._waiting:
                self._idle.append(client)
                return
            loop, waiter = self._waiting.popleft()
        try:
            loop.call_soon_threadsafe(self._hand, waiter, client)
        except RuntimeError:  # its loop has ended
            self.give_back(client)

    def _hand(self, waiter: asyncio.Future[CountLedger], client: CountLedger) -> None:
        if waiter.done():  # it waits no more
            self.give_back(client)
        else:
            waiter.set_result(client)

    async def take(self) -> CountLedger:
        """A client, to be given back; it may wait for one, in no thread.

        The requests that have a client need the threads: those that wait must not occupy them.
        """
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._idle:
                return self._idle.pop()
            may_open = self._opened < self.most
            self._opened += may_open
            waiter: asyncio.Future[CountLedger] = loop.create_future()
            if not may_open:
                self._waiting.append((loop, waiter))
        if may_open:
            return await self._open()
        try:
            async with asyncio.timeout(self.patience_s):
                return await waiter
        except BaseException as error:
            with self._lock, suppress(ValueError):
                self._waiting.remove((loop, waiter))
            if waiter.done() and not waiter.cancelled():  # handed over as the wait ended
                self.give_back(waiter.result())
            if isinstance(error, TimeoutError):
                raise Throttled(
                    f"{self.most} other requests are under way: try again in a moment"
                ) from None
            raise

    async def _open(self) -> CountLedger:
        """Open a client; if the request is cancelled meanwhile, the client is for another one."""
        opening = asyncio.ensure_future(to_thread.run_sync(self.make))
        opening.add_done_callback(self._note_failure)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(self._keep)
            raise

    def _note_failure(self, opening: asyncio.Future[CountLedger]) -> None:
        if opening.cancelled() or opening.exception() is not None:
            with self._lock:
                self._opened -= 1

    def _keep(self, opening: asyncio.Future[CountLedger]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self.give_back(opening.result())


READ_UNITS: Final = "Countledger-Read-Units"
WRITE_UNITS: Final = "Countledger-Write-Units"
_DIGEST_BYTES: Final = 12

IfNoneMatch = Annotated[
    str | None,
    Header(description="tags of answers that the client has", max_length=4_096),
]
UNCHANGED: Final[dict[int | str, dict[str, Any]]] = {
    304: {"description": "the answer is the one that the client has"}
}


# Here and below `async`, since the framework runs other dependencies in a thread of their own.
async def _call_of(request: Request) -> Call:
    call: Call = request.state.call
    return call


Called = Annotated[Call, Depends(_call_of)]


class ExactRequest(Request):
    """A request whose body is parsed without floats."""

    async def json(self) -> Any:  # noqa: ANN401 - JSON
        if not hasattr(self, "_json"):
            try:
                text = (await self.body()).decode()
                self._json = json.loads(
                    text,
                    parse_float=NotAnInteger,
                    parse_constant=_refuse,
                    object_pairs_hook=_object,
                )
            except (UnicodeDecodeError, RecursionError) as error:
                raise json.JSONDecodeError(str(error), "", 0) from None
            except json.JSONDecodeError:
                raise
            except ValueError as error:  # an integer of thousands of digits
                raise json.JSONDecodeError(str(error), "", 0) from None
        return self._json


class NotAnInteger:
    """A number of JSON with a fraction or an exponent; no field of the API has one."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text[:60]


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; parsers differ in which of two members of one name they take."""
    found = dict(members)
    if len(found) < len(members):
        raise json.JSONDecodeError("an object has two members of one name", "", 0)
    return found


def _refuse(name: str) -> NoReturn:
    raise json.JSONDecodeError(f"{name} is no number of JSON", "", 0)


class CountedRoute(APIRoute):
    """A route whose handler gets a `Call`; its answer says what it consumed.

    The application's state has the clients (`Clients`) and `authorize`, a function of a request.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        takes_key = any(one.alias == HEADER for one in get_flat_params(self.dependant))

        async def counted(request: Request) -> Response:
            clients: Clients = request.app.state.clients
            try:
                scopes = request.app.state.authorize(request)
                if not takes_key and HEADER in request.headers:
                    raise BadKey(
                        f"{request.method} {self.path} makes no use of {HEADER}: leave it out. "
                        "docs/http.md says what becomes of a request that is sent again"
                    )
                # A slow body keeps no client from other requests.
                await request.body()
                ledger = await clients.take()
            except CountledgerError as error:
                return problem_of(error).response()
            try:
                return await _metered(
                    ledger,
                    partial(
                        answer,
                        request,
                        Call(ledger, scopes, own_key=key_of_namespaces, makes_keys=False),
                    ),
                )
            finally:
                clients.give_back(ledger)

        async def answer(request: Request, call: Call) -> Response:
            request.state.call = call
            try:
                exact = ExactRequest(request.scope, request.receive)
                exact._body = await request.body()  # noqa: SLF001 - it was read, and comes once
                return await handle(exact)
            except CountledgerError as error:
                return problem_of(error).response()

        return counted


async def _metered(ledger: CountLedger, answer: Callable[[], Awaitable[Response]]) -> Response:
    """An answer with what it consumed, read before another request gets the client."""
    before = ledger.read_units, ledger.write_units
    response = await answer()
    response.headers[READ_UNITS] = _shown(ledger.read_units - before[0])
    response.headers[WRITE_UNITS] = _shown(ledger.write_units - before[1])
    return response


def _shown(units: float) -> str:
    """Units have at most one decimal place: half a unit for an eventually consistent read."""
    return f"{units:g}"


def answered(
    body: View, status: int = 200, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    return JSONResponse(body.model_dump(mode="json"), status, headers=dict(headers or {}))


def tag_of(body: bytes) -> str:
    """A short text that differs where the bodies of two answers differ."""
    return blake2b(body, digest_size=_DIGEST_BYTES).hexdigest()


def answered_if_changed(body: View, if_none_match: str | None) -> Response:
    """The answer with its tag; without its body, if the client has it."""
    response: Response = answered(body)
    tag = f'"{tag_of(bytes(response.body))}"'
    # Compared as RFC 9110 says: a tag that a proxy has made weak is the same answer.
    known = [one.strip().removeprefix("W/") for one in (if_none_match or "").split(",")]
    if tag in known or known == ["*"]:
        response = Response(status_code=304)
    response.headers["ETag"] = tag
    response.headers["Cache-Control"] = "private, no-cache"
    return response


def answer_of(outcome: object, models: Mapping[type, type[View]]) -> Response:
    """The answer to a call with an outcome: by its model, else a problem with its fields."""
    if (model := models.get(type(outcome))) is not None:
        return answered(model.model_validate(outcome))
    return problem_of_outcome(outcome).response()


def problem_of_outcome(outcome: object) -> ProblemDetails:
    """The problem that a refusal is; its type is made of the name of the outcome."""
    kind = type(outcome)
    meaning = refusal_of(outcome)
    document = document_of(outcome)
    del document["outcome"]
    return ProblemDetails(
        kind.__name__,
        title_of(kind),
        meaning.status,
        meaning.sentence(outcome),
        document,
        meaning.retry_after(outcome),
    )
