"""Rules and schedules as people write them, in options or in a settings file of TOML or YAML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar, cast

import typer
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from countledger import Retire
from countledger.consumers.alerts.rule import (
    Direction,
    Watch,
    check_amount,
    check_rule_name,
    rule_of,
)
from countledger.ledger.calendar import Per
from countledger.ledger.errors import BadInput, BadRule, BadSetting
from countledger.ledger.limits import MIN_ENTRIES_DEFAULT
from countledger.ledger.values import parse_amount as read_amount
from countledger.ledger.values import parse_duration_ms

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from countledger.compaction.schedule import ScheduleSpec
    from countledger.consumers.alerts.rule import RuleSpec
    from countledger.ledger.amount import Amount


# Rules and schedules as people write them: fields of a settings file, options of a command.


# What removes a setting that has no other text for "none".
NONE: Final = "none"


class RuleText(BaseModel):
    """A rule as people write it; what is left out has its default, or stays."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    counter: Annotated[str | None, typer.Option(help="The one counter to watch.")] = None
    prefix: Annotated[
        str | None, typer.Option(metavar="P", help="Watch all counters that begin so.")
    ] = None
    all: Annotated[bool, typer.Option("--all", help="Watch all counters of the stack.")] = False
    threshold: Annotated[
        str | int | None,
        typer.Option(
            metavar="N", help="What a total has to reach or pass. [dim]By default the step[/dim]"
        ),
    ] = None
    direction: Annotated[
        Literal["rising", "falling", "both"] | None,
        typer.Option(help="rising: from below it; falling: from above; both: either."),
    ] = None
    rearm: Annotated[
        str | int | None,
        typer.Option(
            metavar="N|none",
            help="The total must go back past N before the next alert. "
            "[dim]Default: the threshold[/dim]",
        ),
    ] = None
    step: Annotated[
        str | int | None,
        typer.Option(metavar="N|none", help="Alert at the threshold and each further N from it."),
    ] = None
    window: Annotated[
        Literal["minute", "hour", "day", "month", "none"] | None,
        typer.Option(
            help="Watch the sum of each window instead of the total; each alerts once. The "
            "direction is rising by default then."
        ),
    ] = None
    of: Annotated[
        Literal["value", "available"] | None,
        typer.Option(
            help="What of a counter: available is its value without what open holds reserve. "
            "[dim]By default value[/dim]"
        ),
    ] = None
    to: Annotated[
        str | None,
        typer.Option(
            metavar="bus|topic ARN",
            help="Where alerts go: the stack's event bus, or an SNS topic. "
            "[dim]By default bus[/dim]",
        ),
    ] = None

    def spec(self) -> RuleSpec:
        given = self.model_dump(exclude_none=True)
        read = {name: read(given[name]) for name, read in _RULE.items() if name in given}
        prefix = self._prefix()
        return cast("RuleSpec", read if prefix is None else {**read, "prefix": prefix})

    def _prefix(self) -> str | None:
        if self.all and (self.counter or self.prefix):
            raise BadRule(
                "a rule for all counters names no counter and no prefix: give one of them"
            )
        if self.prefix == "" and not self.all:
            raise BadRule(
                "an empty prefix would watch every counter of the stack: say so with --all (in a "
                "file: all = true)"
            )
        return "" if self.all else self.prefix


def parse_number(what: str, text: str | int) -> Amount:
    value = text if isinstance(text, int) else read_amount(what, text, BadRule)
    return check_amount(what, value)


def parse_level(what: str, text: str | int) -> Amount | None:
    """A number, or `none` for no such level."""
    if isinstance(text, str) and text.strip().lower() == NONE:
        return None
    return parse_number(what, text)


class ScheduleText(BaseModel):
    """A schedule as people write it; what is left out has its default, or stays."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    every: Annotated[str | None, typer.Option(help="How often it runs, as in 15m, 6h or 1d.")] = (
        None
    )
    cron: Annotated[
        str | None,
        typer.Option(
            metavar="'MIN HOUR DAY MONTH WEEKDAY YEAR'",
            help="When it runs, in UTC; give '?' for DAY or for WEEKDAY.",
        ),
    ] = None
    min_entries: Annotated[
        int | None,
        typer.Option(
            help="The least number of uncompacted entries for which a counter is compacted. "
            f"[dim]By default {MIN_ENTRIES_DEFAULT}[/dim]"
        ),
    ] = None
    min_age: Annotated[
        str | None,
        typer.Option(help="The least age of an entry, as in 30d; none: the shortest that is safe."),
    ] = None
    retire: Annotated[
        Literal["transaction", "delete"] | None,
        typer.Option(
            help="How merged entries are deleted: in transactions of a hundred, or one by one at "
            f"half the cost. [dim]By default {Retire.TRANSACTION}[/dim]"
        ),
    ] = None
    archive: Annotated[
        str | None,
        typer.Option(
            metavar="s3://BUCKET/PREFIX",
            help="The archive for merged entries before they are deleted; none: no archive.",
        ),
    ] = None

    def spec(self) -> ScheduleSpec:
        given = self.model_dump(exclude_none=True)
        names = {"every": "every_ms", "min_age": "min_age_ms"}
        read = {names.get(name, name): _SCHEDULE[name](value) for name, value in given.items()}
        return cast("ScheduleSpec", read)


_RULE: Final[Mapping[str, Callable[[Any], object]]] = {
    "counter": str,
    "threshold": partial(parse_number, "threshold"),
    "direction": Direction,
    "of": Watch,
    "window": lambda text: None if text == NONE else Per(text),
    "rearm": partial(parse_level, "re-arm level"),
    "step": partial(parse_level, "step"),
    "to": str,
}
_SCHEDULE: Final[Mapping[str, Callable[[Any], object]]] = {
    "every": parse_duration_ms,
    "cron": str,
    "min_entries": int,
    "min_age": lambda text: None if text == NONE else parse_duration_ms(text),
    "retire": Retire,
    "archive": lambda text: None if text == NONE else text,
}


M = TypeVar("M", bound=BaseModel)
_FILE_MAX_BYTES: Final = 1_000_000
_COMMANDS: Final = {"schedules": "schedule", "alerts": "alert"}


def commands_for(path: Path) -> list[list[str]]:
    """The commands that apply the sections of a file, in order; the first one if it has neither."""
    try:
        sections: object = parsed(path)
    except BadSetting as error:
        raise BadSetting(f"{path}: {error}") from error
    named = sections if isinstance(sections, Mapping) else {}
    found = [command for section, command in _COMMANDS.items() if section in named]
    return [[command, "apply", str(path)] for command in found or ["schedule"]]


def parsed(path: Path) -> Mapping[str, Any]:
    try:
        raw = path.read_bytes()
        if len(raw) > _FILE_MAX_BYTES:
            raise BadSetting("it is larger than 1 MB, and no settings file")
        text = raw.decode()
        return yaml.safe_load(text) if _is_yaml(path) else tomllib.loads(text)
    except OSError as error:
        raise BadSetting(error.strerror or str(error)) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, yaml.YAMLError) as error:
        kind = "YAML" if _is_yaml(path) else "TOML"
        raise BadSetting(f"it is no {kind}: {' '.join(str(error).split())}") from error


def _is_yaml(path: Path) -> bool:
    return path.suffix.lower() in {".yaml", ".yml"}


class _NamedRule(RuleText):
    """A rule in a file, with its name."""

    name: str


class _AlertsFile(BaseModel):
    """A settings file; other sections are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    alerts: list[_NamedRule]


def _read(path: Path, file: type[M]) -> M:
    """The sections of a settings file that a model knows."""
    try:
        return file.model_validate(parsed(path))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise BadSetting(f"{path}: {place}: {first['msg']}") from error
    except BadSetting as error:
        raise BadSetting(f"{path}: {error}") from error


def read_rules(path: Path) -> dict[str, RuleSpec]:
    """The alert rules in a settings file, by name: TOML, or YAML by its name."""
    specs: dict[str, RuleSpec] = {}
    for n, words in enumerate(_read(path, _AlertsFile).alerts):
        try:
            name = check_rule_name(words.name)
            if name in specs:
                raise BadRule(f"there are two rules of the name {name!r}")
            specs[name] = words.spec()
            check_spec(name, specs[name])
        except BadInput as error:
            raise BadSetting(f"{path}: alerts.{n}: {error}") from error
    return specs


def check_spec(name: str, spec: RuleSpec) -> None:
    """Refuse what no rule can be, before anything is looked up for it."""
    rule_of(name, "", spec)


class _SchedulesFile(BaseModel):
    """A settings file; other sections are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    schedules: dict[str, ScheduleText]


def read_schedules(path: Path) -> dict[str, ScheduleSpec]:
    """The schedules in a settings file, by namespace: TOML, or YAML by its name."""
    found = _read(path, _SchedulesFile).schedules
    try:
        return {namespace: words.spec() for namespace, words in found.items()}
    except BadSetting as error:
        raise BadSetting(f"{path}: {error}") from error
