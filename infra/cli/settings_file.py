"""Rules and schedules as people write them, in options or in a settings file of TOML or YAML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from countledger.consumers.alerts.rule import check_rule_name, rule_of
from countledger.infra.cli.spec_text import RuleText, ScheduleText
from countledger.ledger.errors import BadInput, BadRule, BadSetting

if TYPE_CHECKING:
    from pathlib import Path

    from countledger.compaction.schedule import ScheduleSpec
    from countledger.consumers.alerts.rule import RuleSpec


M = TypeVar("M", bound=BaseModel)
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


class _NamedRule(RuleText):
    """A rule in a file, with its name."""

    name: str


class _AlertsFile(BaseModel):
    """A settings file; other sections are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    alerts: list[_NamedRule]


def _read(path: Path, file: type[M]) -> M:
    """The sections of a settings file that a model knows.

    Raises:
        BadSetting: the file cannot be read, or says what the model does not allow.
    """
    try:
        return file.model_validate(parsed(path))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise BadSetting(f"{path}: {place}: {first['msg']}") from error
    except BadSetting as error:
        raise BadSetting(f"{path}: {error}") from error


def read_rules(path: Path) -> dict[str, RuleSpec]:
    """The alert rules in a settings file, by name: TOML, or YAML by its name.

    Raises:
        BadSetting: the file cannot be read, or says what no rule can be; naming the place.
    """
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
    """Refuse what no rule can be, before anything is looked up for it.

    Raises:
        BadRule, BadCounterName: naming the value and the rule that it breaks.
    """
    rule_of(name, "", spec)


class _SchedulesFile(BaseModel):
    """A settings file; other sections are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    schedules: dict[str, ScheduleText]


def read_schedules(path: Path) -> dict[str, ScheduleSpec]:
    """The schedules in a settings file, by namespace: TOML, or YAML by its name.

    Raises:
        BadSetting: the file cannot be read, or says what no schedule can be; naming the place.
    """
    found = _read(path, _SchedulesFile).schedules
    try:
        return {namespace: words.spec() for namespace, words in found.items()}
    except BadSetting as error:
        raise BadSetting(f"{path}: {error}") from error
