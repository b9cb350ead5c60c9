"""The options of `countledger deploy`, and the alarms that one of them names."""

from typing import Annotated, Final

import typer

# CloudFormation watches five alarms at most: those that a bad release sets off first.
ALARMS: Final = (
    "ErrorAlarm",
    "EvaluatorErrorAlarm",
    "QuarantineAlarm",
    "DispatcherErrorAlarm",
    "IngestErrorAlarm",
)

GivenParameters = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="A parameter of the template; repeatable. A parameter that is left out keeps its "
        "value, or has its default.",
    ),
]
GivenTags = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="A tag of the stack and its resources; repeatable."),
]
RoleArn = Annotated[
    str | None,
    typer.Option(
        metavar="ARN",
        help="The role under which CloudFormation works. [dim]By default that of the last change, "
        "or your own[/dim]",
    ),
]
PlanOnly = Annotated[
    bool, typer.Option("--plan", help="Show the changes and stop; exit code 1 if any.")
]
AllowReplace = Annotated[
    bool, typer.Option("--allow-replace", help="Allow that resources are deleted or replaced.")
]
RollbackMinutes = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=180,
        help="Watch the alarms during updates and for so long after, and take the update back if "
        "one goes off; 0: no longer. [dim]By default as at the last change[/dim]",
    ),
]
TerminationProtection = Annotated[
    bool | None, typer.Option(help="Whether CloudFormation refuses to delete the stack.")
]
RemoveFailed = Annotated[
    bool,
    typer.Option(
        "--remove-failed",
        help="First delete what a failed creation left: the stack, and its tables if empty.",
    ),
]
Adopt = Annotated[
    str | None,
    typer.Option(
        metavar="LEDGER,COUNTERS",
        help="Create the stack around these tables of a deleted stack, with their items.",
    ),
]
