"""`countledger doctor`: whether an app can work here, and if not, why."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from countledger.infra.cli.app import Options, shared
from countledger.infra.cli.output import FINDINGS, notice, show
from countledger.infra.doctor import COUNTER_DEFAULT, CheckResult, doctor_of

Counter = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="A counter that these credentials may use; it stays as it is."
    ),
]


@shared
def doctor(options: Options, *, counter: Counter = COUNTER_DEFAULT) -> int:
    """Check what an app needs here: versions, credentials, clock, stack, permissions.

    Run it with the environment of the app. It writes nothing: that an app may record is proved by a
    put whose condition cannot hold (one write unit). "denied" is no problem where the app is not to
    do that, such as an app that only records.

    Examples:
      countledger doctor
      countledger doctor --counter shop:doctor     [dim]an app limited to the namespace shop[/dim]
      countledger doctor --json

    Exit code 1: there is a problem.
    """
    found = list(doctor_of(options.connection(), counter).checks())
    rows = [{"check": one.name, "result": one.result, "found": one.says} for one in found]
    show(options, rows, [asdict(one) for one in found])
    if not options.json:
        for one in found:
            if one.do:
                notice(f"{one.name}: {one.do}")
    return FINDINGS if any(one.result is CheckResult.PROBLEM for one in found) else 0
