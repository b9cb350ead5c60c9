"""`countledger up` and `down`: the stack on this machine, in the background."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from countledger.infra.cli.app import Options, shared
from countledger.infra.cli.output import facts, notice, show_json, show_or_say, show_text
from countledger.ledger.errors import SetupError
from countledger.ledger.settings import OUTPUTS, PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from countledger.infra.local.background import Running

# What a user may have set for another AWS, and would win over what `up` prints.
_IN_THE_WAY: Final = (
    "AWS_PROFILE",
    "AWS_SESSION_TOKEN",
    *(PREFIX + setting.upper() for setting in OUTPUTS),
)

Persist = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Keep the stack in this directory. [dim]Default: in memory alone[/dim]",
    ),
]
AllowWrites = Annotated[
    bool, typer.Option("--allow-writes", help="The HTTP API also accepts changes.")
]


class EngineMissing(SetupError):
    """The embedded engine is not installed."""


@shared
def up(
    options: Options,
    *,
    settings: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Make the schedules and alerts of a settings file on it."
        ),
    ] = None,
    regions: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="In these regions, the home region first. [dim]Default: us-east-1[/dim]",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65_535, help="Port of the endpoint. [dim]Default: any free one[/dim]"
        ),
    ] = None,
    persist: Persist = None,
    allow_writes: AllowWrites = False,
) -> int:
    """Start AWS with the deployed stack on this machine, in the background.

    It finds a free port on loopback, deploys the stack (with a stream of Kinesis), and prints the
    settings that point a shell at it, and nothing else, so that eval can take them. If it runs
    already, it prints them again. Commands in a shell that names no AWS find it by themselves, and
    so do those of a shell that names an earlier one; they say so. An app needs the settings.

    With --regions the stack runs in up to five regions of the same engine, with replication between
    their ledgers: late, in any order, and not at all while "countledger region cut" is in effect.
    Commands work on the home region; --region names another one.

    The dashboard and the HTTP API run with it, at the address that it prints. The API only reads;
    with --allow-writes it records, too, and accepts every other change.

    Data is kept in memory and lost on countledger down. With --persist it is saved in DIR every
    few seconds and by down, and the next "countledger up --persist DIR" starts the same stack: its
    data, schedules, alerts and archives, and its port if that is free. What was written after it
    was saved last is lost if the computer or the engine crashes, and up says so.

    Examples:
      eval "$(countledger up)"
      eval "$(countledger up --regions us-east-1,eu-west-1,ap-northeast-1)"
      countledger up --stack-name other                       [dim]a second one beside it[/dim]
      countledger up --port 4599                              [dim]always the same address[/dim]
      countledger up --persist ~/counters                     [dim]as it was when it ended[/dim]
      countledger up --allow-writes                           [dim]for programs that use HTTP[/dim]
      countledger up --settings countledger.toml              [dim]with what it says[/dim]
    """
    require_engine()
    from countledger.infra.local import background  # noqa: PLC0415 - what it imports is an extra

    # A file that cannot be read is refused before anything is started for it.
    commands = [] if settings is None else _commands_of(settings)
    wanted = None if regions is None else [one.strip() for one in regions.split(",")]
    name = options.settings.stack_name
    running = background.up(
        name, regions=wanted, port=port, persist=persist, allow_writes=allow_writes
    )
    code = _apply(commands, running)
    if options.json:
        show_json(document_of(running))
    else:
        _show(running)
    return code


def _commands_of(settings: Path) -> list[list[str]]:
    from countledger.infra.cli.settings_file import commands_for  # noqa: PLC0415 - loads the SDK

    return commands_for(settings)


def _show(running: Running) -> None:
    for line in export_lines(running.environment, os.environ):
        show_text(line)
    already = "already runs" if running.was_running else "runs"
    places = f" in {', '.join(running.regions)}" if len(running.regions) > 1 else ""
    notice(f"stack {running.stack_name} {already} on {running.url}{places}")
    api = "reads and writes" if running.allow_writes else "only reads"
    notice(f"dashboard, and HTTP API that {api}: {running.dashboard}")
    _say_what_is_kept(running)
    if sys.stdout.isatty():  # then no shell has taken them
        notice('this shell does not know of it yet: eval "$(countledger up)"')


def _say_what_is_kept(running: Running) -> None:
    if running.kept_in is None:
        notice("data is kept in memory and lost on `countledger down`")
        return
    notice(f"data is kept in {running.kept_in}")
    if running.lost_after is not None:
        notice(
            "the stack was not ended by `countledger down`: what was written after "
            f"{running.lost_after:%Y-%m-%d %H:%M:%S} UTC is lost"
        )


def _apply(commands: Sequence[Sequence[str]], running: Running) -> int:
    """Apply a settings file to the stack, in processes that see no other one."""
    kept = {name: value for name, value in os.environ.items() if name not in _IN_THE_WAY}
    for command in commands:
        done = subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-m", "countledger", *command],
            env=kept | running.environment,
            stdout=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode:
            return done.returncode
    return 0


@shared
def down(options: Options) -> None:
    """Stop the stack of this machine and delete its data.

    No process and no file of it is left, also after a crash; only the directory of --persist stays,
    in which the stack is saved first. Stopping a stack that does not run is not an error.
    """
    require_engine()
    from countledger.infra.local import background  # noqa: PLC0415 - what it imports is an extra

    name = options.settings.stack_name
    ended = background.down(name)
    text = f"stack {name} is gone" if ended else f"stack {name} does not run"
    show_or_say(options, {"stack_name": name, "stopped": ended}, text)


def engine_is_installed() -> bool:
    return all(find_spec(name) for name in ("ministack", "hypercorn", "psutil"))


def require_engine() -> None:
    if not engine_is_installed():
        raise EngineMissing(
            "the embedded engine is not installed: pip install 'countledger[local]'"
        )


def export_lines(wanted: Mapping[str, str], current: Mapping[str, str]) -> Iterator[str]:
    """The commands that make a shell, with its current environment, work on a stack."""
    in_the_way = [name for name in _IN_THE_WAY if name in current and name not in wanted]
    if in_the_way:
        yield f"unset {' '.join(in_the_way)}"
    for name, value in wanted.items():
        yield f"export {name}={shlex.quote(value)}"


def document_of(running: Running) -> dict[str, object]:
    more = facts(
        running,
        "was_running url dashboard allow_writes regions started_at pids lost_after",
        log=str(running.log),
        kept_in=running.kept_in,
    )
    known = {"stack_name": running.stack_name, "running": True}
    return {**known, **more, **facts(running, "environment outputs")}
