"""The command line `countledger`: its page of help, and from arguments to an exit code.

What went wrong is one line on stderr, never a traceback. Further exit codes: 130 interrupted, 141
the output is not read any more, 143 terminated.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import traceback
from dataclasses import dataclass, fields
from functools import wraps
from importlib import import_module
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Final, Literal, ParamSpec

import typer
from typer import Abort
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from countledger.infra.cli.output import OutputClosed, show_text
from countledger.ledger.errors import BadInput, CountledgerError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    from countledger import CountLedger, Settings
    from countledger.ledger.connection import Connection


# Arguments and options that commands share, and how texts as people type them become values.


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
        if outer is None:
            return self
        merged = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, value in merged.items():
            if value is None or value is False:
                merged[name] = getattr(outer, name)
        return Options(**merged)

    @property
    def json(self) -> bool:
        return self.as_json or self.output == "json"

    @property
    def names_a_stack(self) -> bool:
        """Whether any of them says which stack is meant, rather than the environment."""
        named = (self.profile, self.region, self.endpoint_url, self.stack_name)
        return any(name is not None for name in named)

    def client(self) -> CountLedger:
        """A client of the stack that these options and the environment name."""
        from countledger.client import CountLedger  # noqa: PLC0415 - help needs no SDK

        connection = self.connection()
        return CountLedger(
            connection.settings, session=connection.session, endpoint_url=self.endpoint_url
        )

    def connection(self) -> Connection:
        """A connection by these options and the environment; no call is made."""
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
        """The environment's settings, with what these options say instead."""
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
    """Whether a person at the terminal agrees; `otherwise` is the error without a terminal."""
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


# Texts as people type them: pairs; and what Typer alone would misread.


def parse_pairs(
    what: str, form: str, texts: Sequence[str] | None, error: type[BadInput]
) -> dict[str, str]:
    """The pairs of texts such as `team=web`; `what` and `form` are for messages."""
    pairs: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise error(f"{what} {text!r} is not {form}")
        if name in pairs:
            raise error(f"{what} {name!r} is given twice")
        pairs[name] = value
    return pairs


_NEGATIVE: Final = re.compile(r"-(\d|\.\d|inf|nan)", re.ASCII | re.IGNORECASE)
_END_OF_OPTIONS: Final = "--"


class SignedCommand(TyperCommand):
    """A command whose last argument may be a negative number without a `--` before it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - Typer's own type
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
    argument is the number that may be negative; `valued` options take the next argument, whatever
    it looks like.
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


class TargetCommand(TyperCommand):
    """A command whose `--to` may be followed by `topic ARN` as well as by the ARN alone."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - Typer's own type
        return super().parse_args(ctx, without_topic(args))


def without_topic(arguments: Sequence[str]) -> list[str]:
    """The same arguments, `--to topic ARN` as `--to ARN`."""
    kept: list[str] = []
    left = list(arguments)
    while left:
        argument = left.pop(0)
        kept.append(argument)
        if argument == "--":
            return kept + left
        if argument == "--to" and left[:1] == ["topic"] and left[1:]:
            left.pop(0)
    return kept


# The commands of `countledger` as a table, each loaded when it runs.
#
# The page of `countledger --help` is made from the table alone; a test holds that each line says
# what the loaded command's own help begins with.


# Below each heading of the help page: a command, what it loads of `infra/cli` (`app` is a group of
# commands), and the first line of its help.
_TABLE: Final = """
On this machine
  up engine.up Start AWS with the deployed stack on this machine, in the background.
  down engine.down Stop the stack of this machine and delete its data.
  serve serve.serve Serve the dashboard and the HTTP API of a stack on this machine, until Ctrl-C.
  demo demo.demo Count a git repository, and check every total against git.
In an AWS account
  deploy deploy.deploy Create the stack in an AWS account, or update it to this release.
  package deploy.package Upload the functions' code, and print the template that uses it.
  destroy destroy.destroy Remove the stack from an AWS account; its tables and their items stay.
  region regions.app Regions: each has a replica of the ledger, and totals of its own.
  policy policies.app Policies of those who deploy, as documents for IAM.
  cost cost.cost Estimate what a month costs, at list prices of us-east-1, and what would save
      most.
Count
  emit emit.emit Record an event, or a file of them.
  set strict.set_value Set a counter to a value; 0 resets it.
  namespace namespaces.app Settings shared by all counters of one namespace, the name before the
      colon.
  strict strict.app Counters that never pass their bounds: tickets, stock, credit.
  sequence sequences.app Numbers that are given out once: of orders, invoices, tickets.
  claim claims.app Values that at most one owner has: e-mail addresses, user names, seats.
  quota quotas.app Limits for each window of time: budgets a day, calls an hour.
  group groups.app Counters that belong together: a group has many, and a counter belongs to many
      groups.
Read and check
  total totals.total Read totals, and how fresh they are.
  top namespaces.top Show the highest totals of a ranked namespace, or sums of a day; equal ones by
      name.
  snapshot totals.snapshot Read the totals of up to 100 counters as of one moment.
  windows windows.app Sums for each minute, hour, day and month of business time, as exact as
      totals.
  entries totals.entries Read a counter's change log, newest first.
  status status.status Show the state of the stack: what runs, how late totals are, where action
      is required.
  doctor status.doctor Check what an app needs here: versions, credentials, clock, stack,
      permissions.
  watch watch.watch Follow totals and alerts in the terminal, as they change.
  verify audit.verify Compare totals with the exact sums of the ledger, and prove the verdict.
  repair audit.repair Set totals that drifted to the exact sums of the ledger; create missing
      totals.
  quarantine quarantine.app Records that could not be applied, evaluated or counted: action
      required.
Compact
  compact compact.compact Merge old entries of counters into one item each. No sum and no total
      changes.
  schedule schedules.app When and how old entries are compacted: merged into one item, so that
      reads stay cheap.
Move in and out
  export portability.export Write namespaces and the value of every counter, a line of JSON each.
  import portability.import_ Write opening balances, each once under the name of the import.
  restore portability.restore Fill a new, empty stack from two tables that DynamoDB or AWS Backup
      restored.
  delete deletions.delete Delete counters: entries, total, alert states and log, group
      memberships.
Alert
  alert alerts.app Alerts: every crossing of a threshold that a total makes, once.
"""
# Their last argument may be a negative number.
_SIGNED: Final = frozenset({"emit", "set"})


@dataclass(frozen=True, slots=True)
class Command:
    """A command, or a group of commands, by the name of the function in its module, or `app`."""

    panel: str
    module: str
    name: str
    summary: str

    def load(self, spelling: str) -> Any:  # noqa: ANN401 - a command of Typer's own click
        found = getattr(import_module(f"countledger.infra.cli.{self.module}"), self.name)
        if isinstance(found, typer.Typer):
            return typer.main.get_group(found)
        alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
        kind = SignedCommand if spelling in _SIGNED else TyperCommand
        alone.command(spelling, cls=kind)(found)
        return typer.main.get_command(alone)


def _commands() -> Iterator[tuple[str, Command]]:
    panel = ""
    for line in _TABLE.strip().replace("\n      ", " ").splitlines():
        if line.startswith(" "):
            spelling, place, summary = line.split(maxsplit=2)
            module, _, name = place.partition(".")
            yield spelling, Command(panel, module, name, summary)
        else:
            panel = line


# In the order of the help page.
COMMANDS: Final[Mapping[str, Command]] = dict(_commands())


class CommandsOnDemand(TyperGroup):
    """The group of all commands: it lists them by the table, and loads the one that runs."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - Typer's own
        super().__init__(**settings)
        self.commands = {
            name: TyperCommand(name=name, help=one.summary, rich_help_panel=one.panel)
            for name, one in COMMANDS.items()
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:  # noqa: ANN401 - Typer's own
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else COMMANDS[name].load(name), rest


HELP = """Counters on DynamoDB in which a retry never counts twice.

Try it on this machine, without an AWS account:

  eval "$(countledger up)"              [dim]start AWS on loopback, for this shell[/dim]
  countledger emit likes:post-1 3       [dim]record an event[/dim]
  countledger total likes:post-1        [dim]read the total[/dim]
  countledger entries likes:post-1      [dim]read the change log[/dim]
  countledger down                      [dim]stop, and delete all of it[/dim]

On AWS `countledger deploy` makes the stack; the same commands work on it, by the usual AWS
environment.

Exit codes:

  0  done
  1  done with findings: bad lines, wrong totals, drift
  2  bad input or set-up
  3  AWS failed, or it is unknown whether a change counted
  4  refused: by a bound, by an owner, or because nothing is left
  5  a sum needs more than the 38 digits of a stored number
"""
app = typer.Typer(
    cls=CommandsOnDemand,
    help=reflowed(HELP),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def print_version(wanted: bool) -> None:  # noqa: FBT001 - Typer calls it
    if wanted:
        show_text(version("countledger"))
        raise typer.Exit


@app.callback()
@shared
def main(
    _options: Options,
    *,
    _show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and stop.", callback=print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Parse the options of all commands."""


BAD_USAGE: Final = 2
UNEXPECTED: Final = 3
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    try:
        # The app returns its code, so that only this function turns errors into codes.
        code = app(args=list(arguments), prog_name="countledger", standalone_mode=False)
        sys.stdout.flush()
    except (OutputClosed, BrokenPipeError):
        return _drop_output()
    except TyperException as error:
        return _complain_of_usage(error)
    except (Abort, KeyboardInterrupt):
        return INTERRUPTED
    except CountledgerError as error:
        return _complain(_with_advice(error), error.exit_code, arguments)
    except Exception as error:  # noqa: BLE001 - the last line of defence: a person reads this
        message = f"unexpected {type(error).__name__}: {error} (with --debug: where it came from)"
        return _complain(message, UNEXPECTED, arguments)
    return int(code or 0)


def _with_advice(error: CountledgerError) -> str:
    """The error's text, and where it leads to a local stack that has ended, how to go on."""
    if not isinstance(error, Unreachable):
        return str(error)
    from countledger.ledger.settings import LOCAL_STACK_ENDED, is_loopback  # noqa: PLC0415 - at its first use

    return f"{error}; {LOCAL_STACK_ENDED}" if is_loopback(None, "cloudformation") else str(error)


def _complain(message: str, code: int, arguments: Sequence[str]) -> int:
    """Say what went wrong in one line; under debugging, where as well."""
    if "--debug" in arguments or os.environ.get("COUNTLEDGER_DEBUG", "0") not in {"", "0"}:
        traceback.print_exc()
    print(f"countledger: {' '.join(message.split())}", file=sys.stderr)  # noqa: T201 - the user's
    return code


def _complain_of_usage(error: TyperException) -> int:
    """Say in one line what was wrong with the arguments, and where help is."""
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "countledger")
    message = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":
        # Typer has printed the help itself by now.
        return BAD_USAGE
    line = f"{path}: {' '.join(message.split())} (help: {path} --help)"
    print(line, file=sys.stderr)  # noqa: T201 - the user's terminal
    return BAD_USAGE


def _drop_output() -> int:
    """The reader of the output is gone: prevent another flush by the interpreter."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE
