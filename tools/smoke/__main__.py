"""`make smoke-aws`: deploy to the account of the environment, walk every step, remove it all."""

import argparse
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from countledger import CountLedger, Settings
from countledger.ledger.connection import Connection
from tools.smoke.checks import Checks, NotShown, seen
from tools.smoke.own_stack import OwnStack
from tools.smoke.paths import Paths

# A metric of the embedded format takes some minutes.
CHECK_PATIENCE_S = 360.0
RATE_S = 180.0


def main(arguments: list[str]) -> int:
    """Run it; the exit code is 1 where a path went wrong."""
    options = _parse(arguments)
    connection = Connection.open(
        Settings(), profile=options.profile, region=options.region, endpoint_url=options.endpoint
    )
    with ExitStack() as opened:
        name = options.stack
        if name is None:
            if not options.yes and not _agreed(connection):
                return 2
            own = OwnStack(options.endpoint, _environment(options, connection))
            _say(f"deploying stack {own.name}; removed at the end, in about 20 minutes")
            opened.enter_context(own.made())
            name = own.name
        client = CountLedger(
            Settings(stack_name=name), session=connection.session, endpoint_url=options.endpoint
        )
        return walk(Paths(client), Checks(client, options.endpoint, CHECK_PATIENCE_S, RATE_S))


def walk(paths: Paths, checks: Checks | None = None) -> int:
    """Walk every path, then every row of the checklist, also after one that is wrong.

    Returns:
        The exit code.
    """
    steps: list[tuple[str, Callable[[], str | None]]] = [*paths.all()]
    if checks is not None:
        steps += [(name, partial(seen, check)) for name, check in checks.all()]
    wrong = 0
    for name, step in steps:
        try:
            saw = step()
        except NotShown as reason:
            _say(f"-      {name}: not shown: {reason}")
        except Exception as error:  # noqa: BLE001 - reported to a person; the others are tried too
            wrong += 1
            _say(f"WRONG  {name}: {type(error).__name__}: {error}")
        else:
            _say(f"ok     {name}" if saw is None else f"saw    {name}: {saw}")
    _say(f"{wrong} of the steps went wrong" if wrong else "all paths are right")
    return 1 if wrong else 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make smoke-aws ARGS=...", description=__doc__)
    parser.add_argument("--profile", help="of the AWS configuration")
    parser.add_argument("--region", default=os.environ.get("AWS_REGION"))
    parser.add_argument("--endpoint", metavar="URL", help="another endpoint than AWS's own")
    parser.add_argument("--stack", help="use this one: nothing is deployed, nothing is deleted")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    return parser.parse_args(arguments)


def _environment(options: argparse.Namespace, connection: Connection) -> dict[str, str]:
    """What the command that deploys sees: the same account and region."""
    given = {"AWS_PROFILE": options.profile, "AWS_REGION": connection.region}
    return {**os.environ, **{name: value for name, value in given.items() if value}}


def _agreed(connection: Connection) -> bool:
    """Ask the person at the terminal; without one, --yes is needed."""
    where = f"account {connection.account()}, region {connection.region}"
    if not sys.stdin.isatty():
        _say(f"this makes a stack in {where}, which costs cents: say --yes")
        return False
    return (
        input(f"Make a stack in {where}, for about 20 minutes and some cents? [y/N] ").lower()
        == "y"
    )


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - this is a command


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
