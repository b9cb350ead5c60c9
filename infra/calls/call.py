"""A call of a domain, described once; its command, its route and its row in the tables follow.

    QUOTAS = Calls("quota", "Limits for each window of time: budgets a day, calls an hour.")

    @QUOTAS.op("create", "POST /v1/quotas 201", costs="One write unit.")
    def create(call: Call, prefix: Annotated[Prefix, ADMINISTERS], *, limit: Limit) -> QuotaView:
        '''Create a quota...'''
        return QuotaView.model_validate(call.ledger.quotas.create(prefix, limit=limit))

The function is the call itself: its name, its parameters and their types are checked like those of
any function. Its docstring is the help of the command and the description of the route. A
parameter before the `*` is an argument of the command, another one an option; what the path of the
route does not name is in its body, or in the query of a GET or DELETE. It returns a view, views as
they come, nothing, or an outcome that is no success (`refusals.py`).

What is not of this form (files, streams, input from a terminal) is a command or a route by hand.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from countledger import IdempotencyKey
from countledger.infra.calls.access import EVERYTHING, Scopes, ScopeVerb
from countledger.infra.calls.shapes import NoteMap, Text, View
from countledger.ledger import keys
from countledger.ledger.errors import BadKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger import CountLedger
    from countledger.ledger.errors import CorruptItem

_F = TypeVar("_F", bound="Callable[..., Any]")
Surface = Literal["command", "route"]
REQUIRED: Final = inspect.Parameter.empty


Key: TypeAlias = str | IdempotencyKey
HEADER: Final = "Idempotency-Key"
HOW: Final = f'{HEADER}: "click-1", or "click-1"; at="2026-01-31T12:00:00Z" with its time'


class KeyMissing(BadKey):
    """This write requires an idempotency key: without one a retry would count twice."""


# ---- what a call gets ----


def _as_it_is(key: Key, _namespaces: Iterable[str]) -> Key:
    """The key of a call; only callers with scopes are kept apart by their namespaces."""
    return key


@dataclass(frozen=True, slots=True)
class Call:
    """One call: a client of the stack, and what the caller may do.

    Attributes:
        ledger: a client that no other call uses meanwhile.
        scopes: of the caller; a person at a command line has those of their credentials.
        unread: the items of a list that could not be read, each noted by `on_corrupt`.
        progress: shows a person how much is done, by a label: a function that takes the count.
        most: how many items of a list are read at most, for calls that read no more than they need.
        own_key: the idempotency key of a call that concerns several namespaces, or the whole stack.
        makes_keys: whether a write without a key makes one up: over HTTP a retry would count twice.
    """

    ledger: CountLedger
    scopes: Scopes = EVERYTHING
    unread: list[CorruptItem] = field(default_factory=list)
    progress: Callable[[str], Callable[[int], None]] = lambda _: lambda _: None
    most: int | None = None
    own_key: Callable[[Key, Iterable[str]], Key] = _as_it_is
    makes_keys: bool = True

    def on_corrupt(self, error: CorruptItem) -> None:
        self.unread.append(error)

    def reads(self, counter: str) -> CountLedger:
        return self.may(ScopeVerb.READ, keys.namespace_of(counter))

    def can_read(self, counter: str) -> bool:
        return self.scopes.allows(ScopeVerb.READ, keys.namespace_of(counter))

    def writes(self, counter: str) -> CountLedger:
        return self.may(ScopeVerb.WRITE, keys.namespace_of(counter))

    def administers(self, counter: str) -> CountLedger:
        return self.may(ScopeVerb.ADMIN, keys.namespace_of(counter))

    def may(self, verb: ScopeVerb, namespace: str = "*") -> CountLedger:
        """The client, if the caller may do this in a namespace; by default in the whole stack."""
        self.scopes.require(verb, namespace)
        return self.ledger


# ---- what is said of a parameter, in its annotation ----


@dataclass(frozen=True, slots=True)
class Param:
    """How a parameter is written, beside its type and its `Text`.

    Attributes:
        help: for people.
        metavar: what stands for its value in the help of the command.
        option: its option, if it is not `--` and the parameter's name.
        none: the word for null on the command line.
        text: its value of the text of the command line, where JSON has another form.
        only: the one surface that has it.
        place: it is the place after which a list continues: of a view, this field.
    """

    help: str = ""
    metavar: str | None = None
    option: str | None = None
    none: str | None = None
    text: Callable[[Any], Any] | None = None
    only: Surface | None = None
    place: str | None = None


@dataclass(frozen=True, slots=True)
class KeyParam:
    """The idempotency key: an option with its time, and the header `Idempotency-Key`.

    Attributes:
        help: for people.
        command: whether a command requires it.
        route: whether a route requires it.
    """

    help: str = "A retry repeats the key: same key, done once."
    command: bool = False
    route: bool = True


# Over HTTP it is required; a command without it makes one up, and a retry is then another call.
GivenKey = Annotated[Key | None, KeyParam()]
# Required everywhere.
RequiredKey = Annotated[Key, KeyParam(command=True)]
Note = Annotated[NoteMap | None, Param("Short own text; repeatable.", metavar="NAME=VALUE")]


@dataclass(frozen=True, slots=True)
class NeedsScope:
    """Which scope the caller needs: this verb, for the namespaces of the parameter's value.

    `or_everything`: without a value, the scope of the whole stack.
    """

    verb: ScopeVerb
    namespaces: Callable[[Any], Iterable[str]]
    or_everything: bool = False


def _namespaces(value: Any) -> Iterable[str]:  # noqa: ANN401 - a counter's name, or what has some
    named = [value] if isinstance(value, str) or hasattr(value, "counter") else value
    return [keys.namespace_of(getattr(one, "counter", one)) for one in named]


READS: Final = NeedsScope(ScopeVerb.READ, _namespaces)
READS_OR_EVERYTHING: Final = NeedsScope(ScopeVerb.READ, _namespaces, or_everything=True)
WRITES: Final = NeedsScope(ScopeVerb.WRITE, _namespaces)
ADMINISTERS: Final = NeedsScope(ScopeVerb.ADMIN, _namespaces)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a call, as its annotation says.

    Attributes:
        name: of the parameter.
        kind: its type, without metadata and without None.
        optional: whether it may be None.
        default: its value if it is not given; `REQUIRED`: it must be.
        positional: whether it is an argument of the command.
        annotation: all of it, as pydantic reads it.
        metadata: what the annotation has beside the type.
    """

    name: str
    kind: Any
    optional: bool
    default: Any
    positional: bool
    annotation: Any
    metadata: tuple[Any, ...]

    @classmethod
    def of(cls, declared: inspect.Parameter, annotation: Any) -> Parameter:  # noqa: ANN401 - a type
        kind, optional, metadata = _parts(annotation)
        return cls(
            declared.name,
            kind,
            optional,
            declared.default,
            declared.kind is not inspect.Parameter.KEYWORD_ONLY,
            annotation,
            metadata,
        )

    @property
    def param(self) -> Param:
        return next((one for one in reversed(self.metadata) if isinstance(one, Param)), Param())

    @property
    def key(self) -> KeyParam | None:
        return next((one for one in self.metadata if isinstance(one, KeyParam)), None)

    @property
    def needs(self) -> NeedsScope | None:
        return next((one for one in self.metadata if isinstance(one, NeedsScope)), None)

    @property
    def text(self) -> Text | None:
        """The check of its text; of a list, that of each item."""
        if get_origin(self.kind) is list:
            _, _, metadata = _parts(get_args(self.kind)[0])
            return next((one for one in metadata if isinstance(one, Text)), None)
        return next((one for one in self.metadata if isinstance(one, Text)), None)

    def is_of(self, surface: Surface) -> bool:
        return self.param.only in {None, surface}


def _parts(annotation: Any) -> tuple[Any, bool, tuple[Any, ...]]:  # noqa: ANN401 - a type
    """The type in an annotation, whether it may be None, and all metadata, the inner first."""
    if get_origin(annotation) is Annotated:
        inner, metadata = get_args(annotation)[0], get_args(annotation)[1:]
        kind, optional, more = _parts(inner)
        return kind, optional, (*more, *metadata)
    if get_origin(annotation) in {Union, UnionType}:
        kinds = [one for one in get_args(annotation) if one is not NoneType]
        if len(kinds) == 1:
            kind, _, metadata = _parts(kinds[0])
            return kind, True, metadata
        return annotation, len(kinds) < len(get_args(annotation)), ()
    return annotation, False, ()


# ---- the call ----


@dataclass(frozen=True)
class Op:
    """One call of a domain.

    Attributes:
        name: of the command, within its group.
        function: the call; its first parameter is a `Call`.
        verb, path, status: of its route; an empty path: it has none.
        costs: its write and read units, in a sentence or two.
        everywhere: the scope for the whole stack that it needs.
        confirm: what a person is asked before, where `{name}` is a parameter; or a function of the
            call that says it.
        command: whether it is a command.
        only_readable: the field of an item with its counter, if a page leaves out the items whose
            counter the caller may not read; its `next` is of the whole page.
        whole: of a list, whether its parameters say where it ends: it has no limit and no pages.
    """

    name: str
    function: Callable[..., Any]
    verb: str
    path: str
    status: int
    costs: str
    everywhere: ScopeVerb | None = None
    confirm: str | Callable[..., str] | None = None
    command: bool = True
    only_readable: str | None = None
    whole: bool = False

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        hints = get_type_hints(self.function, include_extras=True)
        _, *declared = inspect.signature(self.function).parameters.values()
        return tuple(Parameter.of(one, hints[one.name]) for one in declared)

    @cached_property
    def returns(self) -> tuple[type[View], ...]:
        """The views that it may return; of views as they come, that of one."""
        returned = get_type_hints(self.function)["return"]
        return tuple(_views(returned))

    @cached_property
    def is_list(self) -> bool:
        return get_origin(get_type_hints(self.function)["return"]) is Iterator

    @property
    def is_paged(self) -> bool:
        """Whether a list has pages; one with a limit of its own ends there, as the highest ten."""
        has_end = self.whole or any(one.name == "limit" for one in self.parameters)
        return self.is_list and not has_end

    @property
    def place(self) -> Parameter | None:
        """The parameter that says after which place a list continues."""
        return next((one for one in self.parameters if one.param.place), None)

    @property
    def help(self) -> str:
        """Its docstring."""
        return inspect.cleandoc(self.function.__doc__ or "")

    @property
    def in_path(self) -> list[str]:
        return re.findall(r"\{(\w+)\}", self.path)

    def authorize(self, call: Call, given: Mapping[str, Any]) -> None:
        """Refuse a caller who has no scope for what is given, before anything is read."""
        if self.everywhere is not None:
            call.may(self.everywhere)
        for one in self.parameters:
            if (needs := one.needs) is None:
                continue
            if given.get(one.name) is not None:
                for namespace in needs.namespaces(given[one.name]):
                    call.may(needs.verb, namespace)
            elif needs.or_everything:
                call.may(needs.verb)

    @property
    def scope(self) -> str:
        """The scope that it needs, for the tables: `read`, and of what."""
        found = [
            f"`{one.needs.verb}` of {one.name}"
            + (f"; without it `*:{one.needs.verb}`" if one.needs.or_everything else "")
            for one in self.parameters
            if one.needs
        ]
        return ", ".join([*([f"`*:{self.everywhere}`"] if self.everywhere else []), *found])


def _views(returned: Any) -> Iterator[type[View]]:  # noqa: ANN401 - a type
    if isinstance(returned, type) and issubclass(returned, View):
        yield returned
    for one in get_args(returned):
        yield from _views(one)


@dataclass(frozen=True)
class Calls:
    """The calls of one domain.

    Attributes:
        name: of the group of commands.
        help: of the group.
        tag: of its routes.
        ops: its calls, in the order of the help.
    """

    name: str
    help: str
    tag: str
    ops: list[Op] = field(default_factory=list)

    def op(
        self,
        name: str,
        route: str = "",
        *,
        costs: str,
        everywhere: ScopeVerb | None = None,
        confirm: str | Callable[..., str] | None = None,
        command: bool = True,
        only_readable: str | None = None,
        whole: bool = False,
    ) -> Callable[[_F], _F]:
        """Describe the call that a function is.

        Args:
            name: of its command.
            route: its verb, its path and its status, as in `POST /v1/quotas 201` (200 is left out).
            costs: its write and read units.
            everywhere: the scope of the whole stack that it needs, beside those of its parameters.
            confirm: what a person is asked before.
            command: whether it is a command.
            only_readable: of a list, the field with an item's counter, if items of counters that
                the caller may not read are left out.
            whole: of a list, whether its parameters say where it ends.
        """
        verb, path, status = ((*route.split(), "200") if route else ("", "", "200"))[:3]

        def described(function: _F) -> _F:
            self.ops.append(
                Op(
                    name,
                    function,
                    verb,
                    path,
                    int(status),
                    costs,
                    everywhere,
                    confirm,
                    command,
                    only_readable,
                    whole,
                )
            )
            return function

        return described
