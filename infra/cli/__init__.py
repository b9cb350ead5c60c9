"""The command line `countledger`; see `app.py` for its commands."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn


def main() -> None:
    """Run the command line of this process and exit with its code."""
    try:
        from countledger.infra.cli.app import run  # noqa: PLC0415 - typer and rich are an extra
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in {"typer", "rich"}:
            raise
        sys.stderr.write(
            f"countledger: the command line needs {missing}: pip install 'countledger[cli]' "
            "('countledger[local]' brings the local engine too)\n"
        )
        sys.exit(2)
    signal.signal(signal.SIGTERM, _end)
    sys.exit(run(sys.argv[1:]))


def _end(number: int, _frame: object) -> NoReturn:
    """End as on Ctrl-C: what was started or written for the time being is taken away first."""
    sys.exit(128 + number)
