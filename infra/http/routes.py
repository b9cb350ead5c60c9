"""The routes of calls that are described: parameters, body, scope, answer and problem."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import Field, create_model

from countledger.infra.calls.call import REQUIRED
from countledger.infra.calls.refusals import REFUSALS
from countledger.infra.calls.shapes import (
    PAGE_DEFAULT,
    Cursor,
    InputBody,
    Items,
    Limit,
    Unreadable,
    View,
    from_cursor,
    to_cursor,
)
from countledger.infra.http.calls import (
    Called,
    CountedRoute,
    OptionalKey,
    RequiredKey,
    answered,
    problem_of_outcome,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from countledger.infra.calls.call import Call, Calls, Op, Parameter

_WITH_QUERY: Final = frozenset({"GET", "DELETE"})
# Paragraphs of the help that are about commands alone.
_OF_COMMANDS: Final = re.compile(r"\n\n(?:Exit codes|Examples):.*", re.DOTALL)


def routes_of(calls: Calls) -> APIRouter:
    """A route for each call that has one."""
    routes = APIRouter(route_class=CountedRoute, tags=[calls.tag])
    for op in calls.ops:
        if op.path:
            routes.add_api_route(
                op.path,
                _endpoint(op),
                methods=[op.verb],
                status_code=op.status,
                response_model=_model_of(op),
                name=op.function.__name__,
                description=f"{_OF_COMMANDS.sub('', op.help)}\n\n{op.costs}",
            )
    return routes


def _model_of(op: Op) -> Any:  # noqa: ANN401 - a type
    if not op.returns:
        return None
    if op.is_list:
        return Items[op.returns[0]]  # type: ignore[name-defined]
    found = op.returns[0]
    for one in op.returns[1:]:
        found |= one  # type: ignore[assignment]
    return found


def _endpoint(op: Op) -> Callable[..., Response]:
    """A function with the parameters that FastAPI is to read of a request."""
    mine = [one for one in op.parameters if one.is_of("route")]
    in_body = [] if op.verb in _WITH_QUERY else [one for one in mine if _is_in_body(op, one)]
    paged = op.is_paged

    def endpoint(call: Call, **given: Any) -> Response:  # noqa: ANN401 - as declared
        if (body := given.pop("body", None)) is not None:
            given |= {name: getattr(body, name) for name in body.model_fields_set}
        limit = given.pop("limit") if paged else None
        if (place := op.place) is not None and place.text is not None:
            position = from_cursor(given.pop("cursor"), str)
            given[place.name] = None if position is None else place.text(position[0])
        op.authorize(call, given)
        result = op.function(replace(call, most=None if limit is None else limit + 1), **given)
        if op.is_list:
            return answered(_page(op, call, result, limit))
        if type(result) in REFUSALS:
            return problem_of_outcome(result).response()
        return Response(status_code=op.status) if result is None else answered(result, op.status)

    own = [_declared(op, one) for one in mine if one not in in_body and one is not op.place]
    if in_body:
        own.append(_parameter("body", _body_of(op, in_body)))
    if paged:
        own.append(_parameter("limit", Limit, PAGE_DEFAULT))
    if op.place is not None:
        own.append(_parameter("cursor", Cursor, None))
    own.append(_parameter("call", Called))
    endpoint.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    endpoint.__name__ = op.function.__name__
    return endpoint


def _is_in_body(op: Op, one: Parameter) -> bool:
    return one.key is None and one.name not in op.in_path


def _declared(op: Op, one: Parameter) -> inspect.Parameter:
    if one.key is not None:
        return _parameter(one.name, RequiredKey if one.key.route else OptionalKey)
    if one.name in op.in_path:
        if one.text is None:
            return _parameter(one.name, one.annotation)
        return _parameter(one.name, Annotated[one.kind, one.text.in_path()])
    return _parameter(one.name, Annotated[one.annotation, Query()], one.default)


def _parameter(name: str, annotation: Any, default: Any = REQUIRED) -> inspect.Parameter:  # noqa: ANN401 - types
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )


def _body_of(op: Op, parameters: list[Parameter]) -> type[InputBody]:
    """The model of a body; what a request leaves out has the default of the function."""
    fields: dict[str, Any] = {
        one.name: (one.annotation, ... if one.default is REQUIRED else _shown_default(one))
        for one in parameters
    }
    name = "".join(part.capitalize() for part in op.function.__name__.split("_"))
    return create_model(f"{name}Input", __base__=InputBody, **fields)


def _shown_default(one: Parameter) -> Any:  # noqa: ANN401 - a field of pydantic
    """The default, where JSON can say it; it is never used, since the function has it."""
    plain = one.default is None or isinstance(one.default, bool | int | str)
    return one.default if plain else Field(default=None)


def _page(op: Op, call: Call, found: Iterator[View], limit: int | None) -> Items[View]:
    """The first of what is found, and where the rest begins; without a limit all of it."""
    page = list(islice(found, None if limit is None else limit + 1))
    shown, more = page[:limit], limit is not None and len(page) > limit
    following = None
    if more and op.place is not None and op.place.param.place is not None:
        following = to_cursor(getattr(shown[-1], op.place.param.place))
    if op.only_readable is not None:
        shown = [one for one in shown if call.can_read(getattr(one, op.only_readable))]
    unreadable = [Unreadable.of(one) for one in call.unread]
    return Items(items=shown, more=more, next=following, unreadable=unreadable)
