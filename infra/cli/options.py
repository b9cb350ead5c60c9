"""Arguments and options that commands share, and how texts as people type them become values."""

from __future__ import annotations

import inspect
import os
import sys
from dataclasses import dataclass, fields
from functools import wraps
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Literal, ParamSpec

import typer

from countledger.ledger.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable

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

        if not (self.profile or self.region or self.endpoint_url):
            _follow(self.settings.stack_name)
        elif self.endpoint_url in {None, os.environ.get("AWS_ENDPOINT_URL")}:
            _check_it_is_ours()
        return Connection.open(
            self.settings, profile=self.profile, region=self.region, endpoint_url=self.endpoint_url
        )

    @property
    def settings(self) -> Settings:
        """The environment's settings, with what these options say instead.

        Raises:
            BadSetting: one has a value that it cannot have.
        """
        from countledger.ledger.settings import Settings  # noqa: PLC0415 - help needs no SDK

        return Settings.from_environment(stack_name=self.stack_name)


def _follow(stack_name: str) -> None:
    """Work on the local stack, if the environment names no AWS, or a local stack that has ended."""
    from countledger.infra.local.following import followed  # noqa: PLC0415 - help needs none

    found = followed(os.environ, stack_name)
    if found:
        os.environ.update(found)
        url = found["AWS_ENDPOINT_URL"]
        print(f"local stack {stack_name} on {url}", file=sys.stderr)  # noqa: T201 - the user's


def _check_it_is_ours() -> None:
    """Refuse to call a program that listens on the port of a local stack that has ended."""
    from countledger.infra.local.following import check_it_is_ours  # noqa: PLC0415 - as above

    check_it_is_ours(os.environ)


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
        bool, typer.Option("--json", help="Short for --output json.", rich_help_panel=_PANEL)
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


def shared(function: Callable[Concatenate[Options, P], int | None]) -> Callable[..., int | None]:
    """Give a command the shared options; it gets them as one value, its first argument.

    A parameter whose type is a model of Pydantic becomes an option for each field of the model.
    What the command returns is its exit code (None: 0).
    """
    declared = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    models = {
        one.name: one.annotation for one in declared if hasattr(one.annotation, "model_fields")
    }
    own = [part for one in declared for part in _expanded(one)]

    @wraps(function)
    def command(context: typer.Context, **given: Any) -> int | None:  # noqa: ANN401 - typed by Typer
        near = Options(**{name: given.pop(name) for name in _SHARED})
        context.obj = near.over(context.obj)
        for name, model in models.items():
            given[name] = model(**{field: given.pop(field) for field in model.model_fields})
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


def _expanded(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """A parameter whose type is a model of Pydantic as an option for each field of the model."""
    if not hasattr(parameter.annotation, "model_fields"):
        return [parameter]
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            # On a command line a number is text.
            annotation=Annotated[
                str | None if field.annotation == str | int | None else field.annotation,
                *field.metadata,
            ],
            default=field.default,
        )
        for name, field in parameter.annotation.model_fields.items()
    ]


def reflowed(text: str) -> str:
    """Help whose prose fits any terminal: sentences in one line, indented lines as they are."""
    blocks: list[str] = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        for indented, lines in groupby(paragraph.split("\n"), key=lambda line: line[:1] == " "):
            blocks.append(("\n" if indented else " ").join(lines))
    return "\n\n".join(blocks)


class BadUsage(BadInput):
    """Arguments that exclude or need each other."""


def confirm(question: str, otherwise: str) -> bool:
    """Whether a person at the terminal agrees.

    Args:
        question: what to agree to.
        otherwise: the message if stdin is not a terminal.

    Raises:
        BadUsage: stdin is not a terminal.
    """
    if not sys.stdin.isatty():
        raise BadUsage(otherwise)
    return typer.confirm(question, err=True)


# Arguments and options of several commands.
CounterNames = Annotated[
    list[str] | None, typer.Argument(metavar="COUNTER...", help="Counters by name.")
]
WholeNamespace = Annotated[str | None, typer.Option(help="All counters of a namespace.")]
AtMost = Annotated[int | None, typer.Option(min=1, help="At most so many.")]
At = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="The time of the key; if given, it is part of the idempotency key."
    ),
]
Notes = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="Short own text; repeatable.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
SettingsFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="A settings file, TOML or YAML.")
]
ResumeLines = Annotated[
    bool,
    typer.Option("--resume", help="Of a file: continue after what was sent; keep the place."),
]
PlaceFilePath = Annotated[
    Path | None,
    typer.Option(
        "--place",
        metavar="FILE",
        help="Where it is kept how far it has come. [dim]By default FILE.place[/dim]",
    ),
]
