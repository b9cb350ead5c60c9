"""The command line `countledger`; see `app.py` for its commands."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line of this process and exit with its code."""
    try:
        from countledger.infra.cli.run import run  # noqa: PLC0415 - typer and rich are an extra
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich"}:
            raise
        sys.exit(
            f"countledger: the command line needs {error.name}: pip install 'countledger[cli]' "
            "('countledger[local]' brings the local engine too)"
        )
    sys.exit(run(sys.argv[1:]))
