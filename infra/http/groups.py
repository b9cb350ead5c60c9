"""Routes of groups of counters and of rankings."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import Field

from countledger import Ranked
from countledger.infra.calls.access import ScopeVerb
from countledger.infra.calls.shapes import (
    PAGE_DEFAULT,
    PLAIN_INTEGER,
    AmountText,
    CounterPath,
    CounterText,
    Cursor,
    DayText,
    InputBody,
    Limit,
    NamespacePath,
    TotalAnswer,
    TotalsAnswer,
    View,
    from_cursor,
    to_cursor,
)
from countledger.infra.http.calls import Called, CountedRoute, answered
from countledger.ledger import keys
from countledger.ledger.limits import TOP_MAX

routes = APIRouter(route_class=CountedRoute, tags=["groups"])


class MembersInput(InputBody):
    """Counters that join or leave a group."""

    counters: Annotated[list[CounterText], Field(min_length=1, max_length=100)]


class RankingInput(InputBody):
    """Whether the totals are kept in their order."""

    on: bool


class GroupAnswer(View):
    """A group."""

    name: str
    ranked: bool


class GroupsAnswer(View):
    """The groups of the stack, by name."""

    groups: list[GroupAnswer]


class MembersAnswer(View):
    """The counters that joined or left; one whose answer was lost may be missing."""

    counters: list[str]


class CountAnswer(View):
    """How many counters it concerned."""

    counters: int


class RankedAnswer(View):
    """A place in a ranking."""

    rank: int
    counter: str
    value: AmountText


class TopAnswer(View):
    """The highest totals, equal ones by name."""

    top: list[RankedAnswer]


TopLimit = Annotated[int, Query(ge=1, le=TOP_MAX), PLAIN_INTEGER]


@routes.get("/v1/groups", response_model=GroupsAnswer)
def list_groups(call: Called, limit: Limit = PAGE_DEFAULT) -> Response:
    """The first groups by name. Half a read unit for each 4 KB of groups."""
    found = islice(call.may(ScopeVerb.READ).groups.list(), limit)
    return answered(GroupsAnswer(groups=[GroupAnswer.model_validate(one) for one in found]))


@routes.get("/v1/groups/{group}", response_model=GroupAnswer)
def show_group(group: CounterPath, call: Called) -> Response:
    """A group. One read unit."""
    return answered(GroupAnswer.model_validate(call.reads(group).groups.get(group)))


@routes.delete("/v1/groups/{group}", response_model=CountAnswer)
def delete_group(group: CounterPath, call: Called) -> Response:
    """Delete a group, but not its counters. Two write and read units for each; a few more."""
    return answered(CountAnswer(counters=call.administers(group).groups.delete(group)))


@routes.get("/v1/groups/{group}/totals", response_model=TotalsAnswer)
def group_totals(
    group: CounterPath, call: Called, limit: Limit = PAGE_DEFAULT, cursor: Cursor = None
) -> Response:
    """A page of the totals of a group, by name. Half a read unit for each, and for the members.

    Members that the caller may not read now are left out.
    """
    position = from_cursor(cursor, str)
    after = keys.check_counter(position[0]) if position else None
    shown = call.reads(group).groups.show(group, after=after)
    found = list(islice(shown, limit + 1))
    page = [TotalAnswer.model_validate(one) for one in found[:limit]]
    following = to_cursor(page[-1].counter) if len(found) > limit else None
    totals = [one for one in page if call.can_read(one.counter)]
    return answered(TotalsAnswer(items=totals, next=following))


@routes.post("/v1/groups/{group}/members", response_model=MembersAnswer)
def add_members(group: CounterPath, body: MembersInput, call: Called) -> Response:
    """Add counters to a group; a missing group is created. Two write units, a read unit for each.

    It requires the scope to write the group's namespace, and each counter's: a group that is ranked
    or not, a counter has a total from then on.
    """
    client = call.writes(group)
    for counter in body.counters:
        call.writes(counter)
    return answered(MembersAnswer(counters=client.groups.add(group, body.counters)))


@routes.post("/v1/groups/{group}/removals", response_model=MembersAnswer)
def remove_members(group: CounterPath, body: MembersInput, call: Called) -> Response:
    """Remove counters from a group. Two write units and two read units for each."""
    client = call.writes(group)
    for counter in body.counters:
        call.writes(counter)
    removed = client.groups.remove(group, body.counters)
    return answered(MembersAnswer(counters=removed))


@routes.put("/v1/groups/{group}/ranking", response_model=CountAnswer)
def rank_group(group: CounterPath, body: RankingInput, call: Called) -> Response:
    """Switch a group's ranking on or off. One write unit, and two for each member."""
    count = call.administers(group).groups.switch_ranking(group, on=body.on)
    return answered(CountAnswer(counters=count))


@routes.get("/v1/groups/{group}/top", response_model=TopAnswer)
def group_top(group: CounterPath, call: Called, limit: TopLimit = 10) -> Response:
    """The highest totals of a group. If it is ranked: a read unit, and two for its board.

    Members that the caller may not read now are left out, so there may be fewer than `limit`.
    """
    found = call.reads(group).groups.top(group, limit)
    return _top([one for one in found if call.can_read(one.counter)])


@routes.get("/v1/namespaces/{namespace}/top", response_model=TopAnswer)
def namespace_top(
    namespace: NamespacePath,
    call: Called,
    limit: TopLimit = 10,
    day: Annotated[DayText | None, Query(description="its sums, if days are ranked")] = None,
) -> Response:
    """The highest totals of a ranked namespace. Half a read unit, and half for each partition."""
    client = call.may(ScopeVerb.READ, namespace)
    return _top(client.rankings.top(namespace, limit, day=day))


def _top(found: list[Ranked]) -> Response:
    return answered(TopAnswer(top=[RankedAnswer.model_validate(one) for one in found]))
