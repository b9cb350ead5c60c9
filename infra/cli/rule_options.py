"""What a user says of an alert rule, in options or in a file: texts become a spec."""

from __future__ import annotations

from decimal import Decimal, DecimalException
from typing import TYPE_CHECKING, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from countledger.consumers.alerts.rule import (
    Direction,
    check_amount,
    check_rule_name,
)
from countledger.consumers.alerts.rule_spec import made
from countledger.infra.cli.settings_file import parsed
from countledger.ledger.errors import BadInput, BadRule, BadSetting, shown

if TYPE_CHECKING:
    from pathlib import Path

    from countledger.consumers.alerts.rule_spec import RuleSpec
    from countledger.ledger.amount import Amount

# What takes a level back that has no other text for "none".
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
    """A settings file; other sections are not ours to judge."""

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
    made(name, "", spec)


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
