"""What every request goes through: who calls, a client of the stack, and what the call consumed.

The outcomes of strict changes, holds and quotas become answers here, or problems.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from hashlib import blake2b
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

from fastapi import Depends, Header, Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute

from countledger.infra.http.access import EVERY_NAMESPACE, Scopes, ScopeVerb
from countledger.infra.http.problems import HEADER, ProblemDetails, fields_of, problem_of, title_of
from countledger.ledger import keys
from countledger.ledger.errors import BadKey, CountledgerError
from countledger.producers.quotas.quota import Denied
from countledger.producers.strict import outcome as outcomes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from countledger import CountLedger
    from countledger.infra.http.lending import Clients
    from countledger.infra.http.shapes import AnswerBody


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


@dataclass(frozen=True, slots=True)
class Call:
    """One request: the client that it may use, and what the caller may do.

    Attributes:
        ledger: the client of the stack, which no other request uses meanwhile.
        scopes: of the caller.
    """

    ledger: CountLedger
    scopes: Scopes

    def reads(self, counter: str) -> CountLedger:
        """The client, if the caller may read this counter's namespace."""
        return self.may(ScopeVerb.READ, keys.namespace_of(counter))

    def can_read(self, counter: str) -> bool:
        """Whether the caller may read this counter's namespace."""
        return self.scopes.allows(ScopeVerb.READ, keys.namespace_of(counter))

    def writes(self, counter: str) -> CountLedger:
        """The client, if the caller may change the counters of this one's namespace."""
        return self.may(ScopeVerb.WRITE, keys.namespace_of(counter))

    def administers(self, counter: str) -> CountLedger:
        """The client, if the caller may administer this counter's namespace."""
        return self.may(ScopeVerb.ADMIN, keys.namespace_of(counter))

    def may(self, verb: ScopeVerb, namespace: str = EVERY_NAMESPACE) -> CountLedger:
        """The client, if the caller may do this in a namespace; by default in the whole stack.

        Raises:
            ScopeMissing: the caller may not.
        """
        self.scopes.require(verb, namespace)
        return self.ledger


# Here and below `async`, since the framework runs other dependencies in a thread of their own.
async def _call_of(request: Request) -> Call:
    call: Call = request.state.call
    return call


Called = Annotated[Call, Depends(_call_of)]


class ExactRequest(Request):
    """A request whose body is parsed without floats."""

    async def json(self) -> Any:  # noqa: ANN401 - JSON
        """The body; a number that is no integer is left as a text of an unusual kind."""
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
        """The number as it was written."""
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
        """The handler of FastAPI, between lending a client and reading its meter."""
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
                ledger = await clients.take_async()
            except CountledgerError as error:
                return problem_of(error).response()
            try:
                return await _metered(ledger, partial(answer, request, Call(ledger, scopes)))
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
    body: AnswerBody, status: int = 200, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """An answer with a body."""
    return JSONResponse(body.model_dump(mode="json"), status, headers=dict(headers or {}))


def tag_of(body: bytes) -> str:
    """A short text that differs where the bodies of two answers differ."""
    return blake2b(body, digest_size=_DIGEST_BYTES).hexdigest()


def answered_if_changed(body: AnswerBody, if_none_match: str | None) -> Response:
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


# An outcome that is no success: its status, and when the same request may succeed.
REFUSALS: Final[Mapping[type, tuple[HTTPStatus, timedelta | None]]] = {
    outcomes.BoundReached: (HTTPStatus.CONFLICT, None),
    outcomes.SetFull: (HTTPStatus.CONFLICT, None),
    outcomes.Withdrawn: (HTTPStatus.CONFLICT, None),
    outcomes.HoldExpired: (HTTPStatus.CONFLICT, None),
    outcomes.HoldCancelled: (HTTPStatus.CONFLICT, None),
    outcomes.HoldConfirmed: (HTTPStatus.CONFLICT, None),
    outcomes.ExceedsHold: (HTTPStatus.CONFLICT, None),
    outcomes.Contended: (HTTPStatus.SERVICE_UNAVAILABLE, timedelta(seconds=1)),
    outcomes.Unknown: (HTTPStatus.GATEWAY_TIMEOUT, None),
    Denied: (HTTPStatus.TOO_MANY_REQUESTS, None),
}


def answer_of(outcome: object, models: Mapping[type, type[AnswerBody]]) -> Response:
    """The answer to a call with an outcome: by its model, else a problem with its fields.

    Args:
        outcome: of the library.
        models: of the outcomes that are successes.
    """
    if (model := models.get(type(outcome))) is not None:
        return answered(model.model_validate(outcome))
    return problem_of_outcome(outcome).response()


def problem_of_outcome(outcome: object) -> ProblemDetails:
    """The problem that a refusal is; its type is made of the name of the outcome."""
    kind = type(outcome)
    status, retry_after = REFUSALS[kind]
    title = title_of(kind)
    if isinstance(outcome, Denied):
        retry_after = outcome.retry_after
    fields = {name: one for name, one in fields_of(outcome).items() if name != "known"}
    return ProblemDetails(kind.__name__, title, status, title, fields, retry_after)
