"""`countledger serve`: the dashboard and the HTTP API of a stack, on this machine."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from countledger.infra.cli.app import Options, shared
from countledger.infra.cli.output import notice, show_json, show_text
from countledger.ledger.errors import SetupError


class ServerMissing(SetupError):
    """The HTTP server is not installed."""


@shared
def serve(
    options: Options,
    *,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65_535, help="[dim]Default: any that is free[/dim]"),
    ] = None,
    allow_writes: Annotated[
        bool,
        typer.Option(
            "--allow-writes", help="Also accept requests that change something, as yourself."
        ),
    ] = False,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(
            help="A page of this origin may use the API, with the token; repeatable. "
            "[dim]Default: COUNTLEDGER_CORS_ORIGINS, or none[/dim]",
        ),
    ] = None,
) -> None:
    """Serve the dashboard and the HTTP API of a stack on this machine, until Ctrl-C.

    It prints an address of this machine (127.0.0.1) with a token. Open it in a browser: the
    dashboard shows counters, their hours and days, alerts, and what needs action. Programs use the
    API below /v1 with the header "Authorization: Bearer TOKEN".

    A program that has the address uses the stack with your AWS credentials: do not pass it on.
    Without --allow-writes the server only reads.

    countledger up serves the same for the stack that it starts.

    Examples:
      countledger serve
      countledger serve --stack-name shop --profile production
      countledger serve --port 8080 --allow-writes              [dim]for programs that count[/dim]
      countledger serve --cors-origin https://app.example       [dim]for a page of your own[/dim]
    """
    if not all(find_spec(name) for name in ("fastapi", "hypercorn")):
        raise ServerMissing("the HTTP server is not installed: pip install 'countledger[serve]'")
    from countledger.infra.http.api import named_origins  # noqa: PLC0415 - as above
    from countledger.infra.http.server import (  # noqa: PLC0415 - an extra
        AccessRules,
        listen,
        run,
    )
    from countledger.infra.local.front import new_token  # noqa: PLC0415 - as above

    origins = named_origins(cors_origin or ())
    # A stack that does not exist is said here, and not by each page.
    connection = options.client().connection
    _ = connection.setting("counters_table")
    with listen(port or 0) as listener:
        rules = AccessRules(listener.port, new_token(), allow_writes, origins)
        name = options.settings.stack_name
        about = {"stack_name": name, "url": rules.url, "allow_writes": allow_writes}
        if options.json:
            show_json(about)
        else:
            show_text(rules.url)
        sys.stdout.flush()  # the program that started it may wait for the address
        reads = "reads and writes" if allow_writes else "only reads"
        notice(f"stack {name} in {connection.region}; the server {reads}; Ctrl-C ends it")
        run(listener, rules, options.client)
