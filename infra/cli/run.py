"""From arguments to an exit code: what went wrong is one line on stderr, never a traceback.

0 done · 1 done with findings · 2 bad input or set-up · 3 AWS failed, or nobody can tell whether a
change counted · 4 refused by a bound or an owner · 5 a sum needs more digits than a number holds ·
130 interrupted · 141 nobody reads the output any more · 143 terminated
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING, Final

from typer import Abort
from typer.exceptions import TyperException

from countledger.infra.cli.app import app
from countledger.infra.cli.output import OutputClosed
from countledger.ledger.errors import CountledgerError

if TYPE_CHECKING:
    from collections.abc import Sequence

BAD_USAGE: Final = 2
UNEXPECTED: Final = 3
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141


def run(arguments: Sequence[str]) -> int:
    """Run one command and say what came of it."""
    try:
        # Asked for with a return value, so that only this function turns errors into codes.
        code = app(args=list(arguments), prog_name="countledger", standalone_mode=False)
        sys.stdout.flush()
    except (OutputClosed, BrokenPipeError):
        return _drop_output()
    except TyperException as error:
        return _complain_of_usage(error)
    except (Abort, KeyboardInterrupt):
        return INTERRUPTED
    except CountledgerError as error:
        return _complain(str(error), error.exit_code, arguments)
    except Exception as error:  # noqa: BLE001 - the last line of defence: a person reads this
        message = f"unexpected {type(error).__name__}: {error} (with --debug: where it came from)"
        return _complain(message, UNEXPECTED, arguments)
    return int(code or 0)


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
    """Whoever read the output is gone; keep the interpreter from trying to flush it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE
