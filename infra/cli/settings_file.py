"""Rules and schedules as people write them, in options or in a settings file of TOML or YAML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from decimal import Decimal, DecimalException
from typing import TYPE_CHECKING, Any, Final, Literal

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from countledger import Retire
from countledger.consumers.alerts.rule import (
    Direction,
    check_amount,
    check_rule_name,
    rule_of,
)
from countledger.infra.cli.options import parse_duration_ms
from countledger.ledger.errors import BadInput, BadRule, BadSetting, shown

if TYPE_CHECKING:
    from pathlib import Path

    from countledger.compaction.schedule import ScheduleSpec
    from countledger.consumers.alerts.rule import RuleSpec
    from countledger.ledger.amount import Amount


_FILE_MAX_BYTES: Final = 1_000_000
_COMMANDS: Final = {"schedules": "schedule", "alerts": "alert"}


def commands_for(path: Path) -> list[list[str]]:
    """The commands that apply the sections of a file, in order; the first one if it has neither.

    Raises:
        BadSetting: it cannot be read.
    """
    try:
        sections: object = parsed(path)
    except BadSetting as error:
        raise BadSetting(f"{path}: {error}") from error
    named = sections if isinstance(sections, Mapping) else {}
    found = [command for section, command in _COMMANDS.items() if section in named]
    return [[command, "apply", str(path)] for command in found or ["schedule"]]


def parsed(path: Path) -> Mapping[str, Any]:
    """Its sections.

    Raises:
        BadSetting: it cannot be read, is too large, or is neither.
    """
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


# What removes a setting that has no other text for "none".
NONE: Final = "none"
DirectionName = Literal["rising", "falling", "both"]


class RuleText(BaseModel):
    """A rule as people write it; what is left out has its default, or stays."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    counter: str | None = None
    prefix: str | None = None
    all: bool = False
    threshold: str | int | None = None
    direction: DirectionName | None = None
    rearm: str | int | None = None
    step: str | int | None = None
    to: str | None = None

    def spec(self) -> RuleSpec:
        """The same as values.

        Raises:
            BadRule: a number is none, a prefix is empty without `all`, or they contradict.
        """
        spec: RuleSpec = {}
        if self.counter is not None:
            spec["counter"] = self.counter
        prefix = self._prefix()
        if prefix is not None:
            spec["prefix"] = prefix
        if self.threshold is not None:
            spec["threshold"] = parse_number("threshold", self.threshold)
        if self.direction is not None:
            spec["direction"] = Direction(self.direction)
        if self.rearm is not None:
            spec["rearm"] = parse_level("re-arm level", self.rearm)
        if self.step is not None:
            spec["step"] = parse_level("step", self.step)
        if self.to is not None:
            spec["to"] = self.to
        return spec

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


class _NamedRule(RuleText):
    """A rule in a file, with its name."""

    name: str


class _AlertsFile(BaseModel):
    """A settings file; other sections are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    alerts: list[_NamedRule]


def read_rules(path: Path) -> dict[str, RuleSpec]:
    """The alert rules in a settings file, by name: TOML, or YAML by its name.

    Raises:
        BadSetting: the file cannot be read, or says what no rule can be; naming the place.
    """
    try:
        found = _AlertsFile.model_validate(parsed(path)).alerts
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise BadSetting(f"{path}: {place}: {first['msg']}") from error
    except BadSetting as error:
        raise BadSetting(f"{path}: {error}") from error
    specs: dict[str, RuleSpec] = {}
    for n, words in enumerate(found):
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
    """Refuse what no rule can be, before anything is looked up for it.

    Raises:
        BadRule, BadCounterName: naming the value and the rule that it breaks.
    """
    rule_of(name, "", spec)


def parse_number(what: str, text: str | int) -> Amount:
    """A number such as `1000`, `-5` or `12.50`.

    Raises:
        BadRule: it is no finite decimal number, or needs more digits than a total has.
    """
    try:
        return check_amount(what, Decimal(text.strip()) if isinstance(text, str) else text)
    except DecimalException:
        raise BadRule(f"{what} {shown(text)} is not a decimal number") from None


def parse_level(what: str, text: str | int) -> Amount | None:
    """A number, or `none` for no such level.

    Raises:
        BadRule: as `parse_number`.
    """
    if isinstance(text, str) and text.strip().lower() == NONE:
        return None
    return parse_number(what, text)


class ScheduleText(BaseModel):
    """A schedule as people write it; what is left out has its default, or stays."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    every: str | None = None
    cron: str | None = None
    min_entries: int | None = None
    min_age: str | None = None
    retire: Literal["transaction", "delete"] | None = None
    archive: str | None = None

    def spec(self) -> ScheduleSpec:
        """The same as values.

        Raises:
            BadSetting: a duration is malformed.
        """
        spec: ScheduleSpec = {}
        if self.every is not None:
            spec["every_ms"] = parse_duration_ms(self.every)
        if self.cron is not None:
            spec["cron"] = self.cron
        if self.min_entries is not None:
            spec["min_entries"] = self.min_entries
        if self.min_age is not None:
            spec["min_age_ms"] = None if self.min_age == NONE else parse_duration_ms(self.min_age)
        if self.retire is not None:
            spec["retire"] = Retire(self.retire)
        if self.archive is not None:
            spec["archive"] = None if self.archive == NONE else self.archive
        return spec


class _SchedulesFile(BaseModel):
    """A settings file; other sections are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    schedules: dict[str, ScheduleText]


def read_schedules(path: Path) -> dict[str, ScheduleSpec]:
    """The schedules in a settings file, by namespace: TOML, or YAML by its name.

    Raises:
        BadSetting: the file cannot be read, or says what no schedule can be; naming the place.
    """
    try:
        found = _SchedulesFile.model_validate(parsed(path))
        return {namespace: words.spec() for namespace, words in found.schedules.items()}
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise BadSetting(f"{path}: {place}: {first['msg']}") from error
    except BadSetting as error:
        raise BadSetting(f"{path}: {error}") from error
