"""The calls of groups and rankings: `countledger group`, `/v1/groups`, tops of namespaces."""

from collections.abc import Callable, Iterator
from typing import Annotated, Final

from pydantic import Field

from countledger.infra.calls.access import EVERY_NAMESPACE, ScopeVerb
from countledger.infra.calls.call import ADMINISTERS, READS, WRITES, Call, Calls, NeedsScope, Param
from countledger.infra.calls.shapes import (
    COUNTER_PATTERN,
    PATH_PATTERN,
    PLAIN_INTEGER,
    AmountText,
    CounterText,
    DayText,
    NamespaceText,
    Text,
    TotalAnswer,
    View,
)
from countledger.ledger import keys
from countledger.ledger.errors import CorruptItem
from countledger.ledger.limits import COUNTER_NAME_MAX_BYTES, TOP_MAX

GROUPS: Final = Calls(
    "group",
    """Counters that belong together: a group has many, and a counter belongs to many groups.

    The group's totals are read by one query, page by page. A group can be ranked, and then its top
    costs the same however large it is.
    """,
    tag="groups",
)
# Of their calls, those that have a route.
NAMESPACES: Final = Calls(
    "namespace", "Settings shared by all counters of one namespace.", tag="groups"
)

# ---- parameters ----

Group = Annotated[
    str,
    Text(
        keys.check_group,
        COUNTER_PATTERN,
        path=PATH_PATTERN,
        maxLength=COUNTER_NAME_MAX_BYTES,
        examples=["likes:all"],
    ),
    Param("The group.", metavar="GROUP"),
]
# A group that is ranked or not: its members have a total from then on.
Members = Annotated[
    list[CounterText],
    Field(min_length=1, max_length=100),
    Param("Counters of any kind.", metavar="COUNTER..."),
    WRITES,
]
TopLimit = Annotated[int, Field(ge=1, le=TOP_MAX), PLAIN_INTEGER, Param("How many, up to 1,000.")]

# ---- what is shown ----


class GroupView(View):
    """A group."""

    name: str
    ranked: Annotated[
        bool | None, Field(description="null in the list of the groups of one counter")
    ]


class AddedView(View):
    """The counters that were no members before; one whose answer was lost may be missing."""

    group: str
    added: list[str]

    def row(self) -> dict[str, object]:
        return {"group": self.group, "added": " ".join(self.added)}


class RemovedView(View):
    """The counters that were members."""

    group: str
    removed: list[str]

    def row(self) -> dict[str, object]:
        return {"group": self.group, "removed": " ".join(self.removed)}


class GroupRankingView(View):
    """Whether the totals of a group are kept in order, and how many they are."""

    group: str
    ranked: bool
    members: int


class DeletedGroupView(View):
    """A group that was deleted, and how many members it had."""

    group: str
    members: int


class RankedView(View):
    """A place in a ranking; equal totals have the same rank, and the next ones are left out."""

    rank: int
    counter: str
    value: AmountText


# ---- the calls ----


@GROUPS.op(
    "add",
    "POST /v1/groups/{group}/members",
    costs="Two write units and a read unit for each; in a ranked group twice as many and more.",
)
def add_members(call: Call, group: Annotated[Group, WRITES], counters: Members) -> AddedView:
    """Put counters into a group, which is made if it is new.

    A counter need not exist yet. Adding a member again is no error.

    Examples:
      countledger group add season-2026 score:ann score:bob
    """
    return AddedView(group=group, added=call.ledger.groups.add(group, counters))


@GROUPS.op(
    "remove",
    "POST /v1/groups/{group}/removals",
    costs="Two write units and two read units for each.",
)
def remove_members(call: Call, group: Annotated[Group, WRITES], counters: Members) -> RemovedView:
    """Take counters out of a group; the counters stay as they are.

    Examples:
      countledger group remove season-2026 score:bob
    """
    return RemovedView(group=group, removed=call.ledger.groups.remove(group, counters))


@GROUPS.op("get", "GET /v1/groups/{group}", costs="One read unit.", command=False)
def show_group(call: Call, group: Annotated[Group, READS]) -> GroupView:
    """Show whether a group is ranked."""
    return GroupView.model_validate(call.ledger.groups.get(group))


@GROUPS.op(
    "show",
    "GET /v1/groups/{group}/totals",
    costs="Half a read unit for each, and for each 4 KB of members.",
    command=False,
    only_readable="counter",
)
def group_totals(
    call: Call,
    group: Annotated[Group, READS],
    *,
    after: Annotated[CounterText | None, Param(place="counter")] = None,
) -> Iterator[TotalAnswer]:
    """A page of the totals of a group, by name.

    Members that the caller may not read now are left out: a page may have fewer items than `limit`.
    """
    found = call.ledger.groups.show(group, after=after, on_corrupt=_readable(call))
    return map(TotalAnswer.model_validate, found)


@GROUPS.op(
    "list",
    "GET /v1/groups",
    costs="Half a read unit for each 4 KB of groups, or of the counter's memberships.",
    everywhere=ScopeVerb.READ,
)
def list_groups(
    call: Call,
    *,
    of: Annotated[
        CounterText | None, Param("Only those that it belongs to.", metavar="COUNTER")
    ] = None,
) -> Iterator[GroupView]:
    """List the groups of the stack, or those of one counter, by name.

    Examples:
      countledger group list
      countledger group list --of score:ann
    """
    groups = call.ledger.groups
    if of is not None:
        return (GroupView(name=name, ranked=None) for name in groups.of(of))
    return map(GroupView.model_validate, groups.list(on_corrupt=call.on_corrupt))


@GROUPS.op(
    "top",
    "GET /v1/groups/{group}/top",
    costs="If it is ranked: a read unit, and two for its ranking; else as its totals.",
    only_readable="counter",
)
def group_top(
    call: Call, group: Annotated[Group, READS], *, limit: TopLimit = 10
) -> Iterator[RankedView]:
    """Show the highest totals of a group, equal ones by name.

    Of a group that is not ranked all totals are read for it. Over HTTP, members that the caller may
    not read now are left out, so there may be fewer than `limit`.

    Examples:
      countledger group top season-2026 --limit 3
    """
    found = call.ledger.groups.top(group, limit, on_corrupt=_readable(call))
    return map(RankedView.model_validate, found)


@GROUPS.op(
    "rank",
    "PUT /v1/groups/{group}/ranking",
    costs="One write unit, and two for each member.",
)
def rank_group(
    call: Call,
    group: Annotated[Group, ADMINISTERS],
    *,
    on: Annotated[
        bool, Field(description="false: keep them in order no more"), Param(only="route")
    ] = True,
) -> GroupRankingView:
    """Keep the totals of a group in order from now on.

    Whatever moves a member's total then costs two write units more. A counter can be ranked in one
    group; counters with bins in none.

    Examples:
      countledger group rank season-2026
    """
    bar = call.progress("members")
    members = call.ledger.groups.switch_ranking(group, on=on, on_member=bar)
    return GroupRankingView(group=group, ranked=on, members=members)


@GROUPS.op("unrank", costs="As `rank`.")
def unrank_group(call: Call, group: Annotated[Group, ADMINISTERS]) -> GroupRankingView:
    """Keep the totals of a group in order no more; they cost again what they did before."""
    return rank_group(call, group, on=False)


@GROUPS.op(
    "delete",
    "DELETE /v1/groups/{group}",
    costs="Two write units and a read unit for each member; in a ranked group twice as many.",
)
def delete_group(call: Call, group: Annotated[Group, ADMINISTERS]) -> DeletedGroupView:
    """Delete a group; its counters stay as they are."""
    return DeletedGroupView(group=group, members=call.ledger.groups.delete(group))


@NAMESPACES.op(
    "top",
    "GET /v1/namespaces/{namespace}/top",
    costs="Half a read unit, and half for each partition.",
)
def namespace_top(
    call: Call,
    namespace: Annotated[
        NamespaceText,
        Param("The part of the name before the colon.", metavar="NAMESPACE"),
        NeedsScope(ScopeVerb.READ, lambda namespace: [namespace]),
    ],
    *,
    day: Annotated[
        DayText | None,
        Field(description="its sums, if days are ranked"),
        Param(
            "The sums of that day instead, in the time zone of the windows.",
            metavar="DATE|today",
            text=str,
        ),
    ] = None,
    limit: TopLimit = 10,
) -> Iterator[RankedView]:
    """Show the highest totals of a ranked namespace, or sums of a day; equal ones by name.

    `countledger namespace rank` ranks totals, `countledger windows enable --rank` ranks days.

    Examples:
      countledger top likes --limit 3
      countledger top views --day today
      countledger namespace top views --day 2026-11-22 --limit 3
    """
    return map(RankedView.model_validate, call.ledger.rankings.top(namespace, limit, day=day))


def _readable(call: Call) -> Callable[[CorruptItem], None]:
    """Note what cannot be read, unless the caller may not know of it."""

    def note(error: CorruptItem) -> None:
        everything = call.scopes.allows(ScopeVerb.READ, EVERY_NAMESPACE)
        if everything or (error.key is not None and call.can_read(error.key[0])):
            call.on_corrupt(error)

    return note
