"""The command line `countledger`: its page of help, and from arguments to an exit code.

What went wrong is one line on stderr, never a traceback. Further exit codes: 130 interrupted, 141
the output is not read any more, 143 terminated.
"""

from __future__ import annotations

import os
import sys
import traceback
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import Abort
from typer.exceptions import TyperException

from countledger.infra.cli.commands import CommandsOnDemand
from countledger.infra.cli.options import Options, reflowed, shared
from countledger.infra.cli.output import OutputClosed, show_text
from countledger.ledger.errors import CountledgerError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    """Print the version and stop, if that is wanted."""
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
