"""`countledger restore`: a new stack with the content of two restored tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from countledger.infra.cli.options import Options, shared
from countledger.infra.cli.output import FINDINGS, notice, show_facts
from countledger.infra.cli.progress import open_progress
from countledger.infra.portability.restoring import RestoredTables, Restorer

if TYPE_CHECKING:
    from countledger import Audit, Repair

_SHOWN: Final = 10


@shared
def restore(
    options: Options,
    *,
    from_ledger: Annotated[
        str, typer.Option(metavar="TABLE", help="The restored copy of the table of the entries.")
    ],
    from_counters: Annotated[
        str, typer.Option(metavar="TABLE", help="The restored copy of the table of the totals.")
    ],
) -> int:
    """Fill a new, empty stack from two tables that DynamoDB or AWS Backup restored.

    Items are copied as they are; the totals of ledgers are set to the exact sums of the ledger;
    rankings, schedules and alert rules are created again. Both tables may be of different times.
    Retries of entries that the restored ledger has are duplicates; entries that were acknowledged
    after the backup are lost until they are sent again. Stop all writers before the first call, and
    start them when the exit code is 0: until then, call it again; nothing counts twice.

    Exit code 1: a total could not be proven yet, or a rule or schedule could not be created.

    Examples:
      countledger deploy --stack-name shop-2
      countledger restore --stack-name shop-2 --from-ledger ledger-2 --from-counters counters-2
    """
    restorer = Restorer(options.client(), RestoredTables(from_ledger, from_counters))
    copied = _copy(restorer)
    rebuilt = restorer.rebuild()
    problems = _unproven(rebuilt)
    created = 0
    # Rules must not see a total that is still growing to its value.
    if not problems:
        outcomes = list(restorer.recreate())
        problems = [f"{what}: {error}" for what, error in outcomes if error is not None]
        created = len(outcomes) - len(problems)
    for problem in problems[:_SHOWN]:
        notice(problem)
    if problems:
        notice(f"{len(problems)} problem(s): correct what a line names, and call it again")
    result = {"copied": copied, **rebuilt.counts, "created": created, "problems": len(problems)}
    show_facts(options, result)
    return FINDINGS if problems else 0


def _copy(restorer: Restorer) -> int:
    """How many items were copied by this call."""
    if restorer.begin():
        notice("the items were copied before")
        return 0
    copied = 0
    with open_progress() as progress:
        bar = progress.add("items")
        for done in restorer.copy():
            bar.set(done)
            copied = done
    return copied


def _unproven(rebuilt: Audit[Repair]) -> list[str]:
    """The counters whose totals are not proven to be right, with the reasons."""
    found = []
    with open_progress() as progress:
        bar = progress.add("counters")
        for one in rebuilt:
            bar.advance()
            if not one.healthy:
                found.append(f"{one.counter}: {one.remedy}, {one.reason}")
    return found
