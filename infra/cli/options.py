"""Arguments and options that commands share, and how texts as people type them become values."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, fields
from functools import wraps
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Final, Literal, ParamSpec

import typer
from typer.core import TyperCommand

from countledger.ledger.errors import BadInput, BadSetting
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from countledger import CountLedger, Settings
    from countledger.ledger.connection import Connection


P = ParamSpec("P")
Format = Literal["table", "json"]
_PANEL = "Where AWS is, and how to print"


@dataclass(frozen=True, kw_only=True)
class Options:
    """The shared options of one command as given; None or False is "not given"."""

    profile: str | None = None
    region: str | None = None
    endpoint_url: str | None = None
    stack_name: str | None = None
    output: Format | None = None
    as_json: bool = False
    debug: bool = False

    def over(self, outer: Options | None) -> Options:
        """These options, and the outer ones where these are not given."""
        if outer is None:
            return self
        merged = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, value in merged.items():
            if value is None or value is False:
                merged[name] = getattr(outer, name)
        return Options(**merged)

    @property
    def json(self) -> bool:
        """Whether output is for programs."""
        return self.as_json or self.output == "json"

    @property
    def names_a_stack(self) -> bool:
        """Whether any of them says which stack is meant, rather than the environment."""
        named = (self.profile, self.region, self.endpoint_url, self.stack_name)
        return any(name is not None for name in named)

    def client(self) -> CountLedger:
        """A client of the stack that these options and the environment name.

        Raises:
            CountledgerError: a setting is wrong, or there is no such stack.
        """
        from countledger.client import CountLedger  # noqa: PLC0415 - help needs no SDK

        connection = self.connection()
        return CountLedger(
            connection.settings, session=connection.session, endpoint_url=self.endpoint_url
        )

    def connection(self) -> Connection:
        """A connection by these options and the environment; no call is made.

        Raises:
            BadSetting: a setting is wrong, or the profile does not exist.
        """
        from countledger.ledger.connection import Connection  # noqa: PLC0415 - help needs no SDK

        return Connection.open(
            self.settings,
            profile=self.profile,
            region=self.region,
            endpoint_url=self.endpoint_url,
        )

    @property
    def settings(self) -> Settings:
        """The environment's settings, with what these options say instead.

        Raises:
            BadSetting: one has a value that it cannot have.
        """
        from countledger.ledger.settings import Settings  # noqa: PLC0415 - help needs no SDK

        return Settings.from_environment(stack_name=self.stack_name)


# The fields of `Options`, as Typer reads them.
_SHARED: dict[str, Any] = {
    "profile": Annotated[
        str | None,
        typer.Option(help="AWS profile to take credentials from.", rich_help_panel=_PANEL),
    ],
    "region": Annotated[
        str | None,
        typer.Option(help="AWS region. [dim]Else AWS_REGION[/dim]", rich_help_panel=_PANEL),
    ],
    "endpoint_url": Annotated[
        str | None,
        typer.Option(
            help="Another endpoint than AWS's own. [dim]Else AWS_ENDPOINT_URL[/dim]",
            rich_help_panel=_PANEL,
        ),
    ],
    "stack_name": Annotated[
        str | None,
        typer.Option(
            help="The stack to work on. [dim]Else COUNTLEDGER_STACK_NAME, or countledger[/dim]",
            rich_help_panel=_PANEL,
        ),
    ],
    "output": Annotated[
        Format | None,
        typer.Option(help="For people, or one JSON document.", rich_help_panel=_PANEL),
    ],
    "as_json": Annotated[
        bool,
        typer.Option("--json", help="Short for --output json.", rich_help_panel=_PANEL),
    ],
    "debug": Annotated[
        bool,
        typer.Option(
            "--debug",
            help="Show where an error came from. [dim]Or COUNTLEDGER_DEBUG=1[/dim]",
            rich_help_panel=_PANEL,
        ),
    ],
}


def shared(
    function: Callable[Concatenate[Options, P], int | None],
) -> Callable[..., int | None]:
    """Give a command the shared options; it gets them as one value, its first argument.

    What the command returns is its exit code (None: 0).
    """
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

    @wraps(function)
    def command(context: typer.Context, **given: Any) -> int | None:  # noqa: ANN401 - typed by Typer
        near = Options(**{name: given.pop(name) for name in _SHARED})
        context.obj = near.over(context.obj)
        return function(context.obj, **given)  # type: ignore[call-arg]  # Typer fills the rest

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(
            "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
        ),
        *(parameter.replace(kind=keyword) for parameter in own),
        *(
            inspect.Parameter(
                name, keyword, annotation=kind, default=False if kind.__origin__ is bool else None
            )
            for name, kind in _SHARED.items()
        ),
    ]
    command.__doc__ = reflowed(function.__doc__ or "")
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def reflowed(text: str) -> str:
    """Help whose prose fits any terminal: sentences in one line, indented lines as they are."""
    blocks: list[str] = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        for indented, lines in groupby(paragraph.split("\n"), key=lambda line: line[:1] == " "):
            blocks.append(("\n" if indented else " ").join(lines))
    return "\n\n".join(blocks)


_NEGATIVE: Final = re.compile(r"-(\d|\.\d|inf|nan)", re.ASCII | re.IGNORECASE)
_END_OF_OPTIONS: Final = "--"


class SignedCommand(TyperCommand):
    """A command whose last argument may be a negative number without a `--` before it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - Typer's own type
        """Sort the arguments, then parse them."""
        valued = {
            spelling
            for option in self.params
            if not getattr(option, "is_flag", True)
            for spelling in option.opts
        }
        return super().parse_args(ctx, negative_last(args, valued))


def negative_last(arguments: Sequence[str], valued: Container[str]) -> list[str]:
    """The same arguments, with a negative number after the end of the options.

    `likes:1 -5 --key k` becomes `likes:1 --key k -- -5`. For a command whose last positional
    argument is the number that may be negative.

    Args:
        arguments: as typed, without the command.
        valued: the options that take the next argument, whatever it looks like.
    """
    kept: list[str] = []
    negative: list[str] = []
    left = list(arguments)
    while left:
        argument = left.pop(0)
        if argument == _END_OF_OPTIONS:
            return [*kept, _END_OF_OPTIONS, *negative, *left]
        if _NEGATIVE.match(argument):
            negative.append(argument)
            continue
        kept.append(argument)
        if argument in valued and left:
            kept.append(left.pop(0))
    return [*kept, _END_OF_OPTIONS, *negative] if negative else kept


_UNITS_MS: Final = {"ms": 1, "s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}
_DURATION: Final = re.compile(r"(\d{1,15})\s*(ms|s|m|h|d)", re.ASCII)


def parse_duration_ms(text: str) -> int:
    """A duration such as `24h`, `90m`, `7d`, `30s` or `1500ms`, in milliseconds.

    Raises:
        BadSetting: it is no whole number with a unit.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise BadSetting(
            f"duration {text!r} is not a whole number with a unit: give 90m, 24h or 7d"
        )
    return int(match[1]) * _UNITS_MS[match[2]]


class BadUsage(BadInput):
    """Arguments that exclude or need each other."""
