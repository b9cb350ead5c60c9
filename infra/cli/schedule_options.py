"""What a user says of a schedule, in options or in a file: texts become a spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from countledger import Retire
from countledger.infra.cli.durations import parse_duration_ms
from countledger.infra.cli.settings_file import parsed
from countledger.ledger.errors import BadSetting

if TYPE_CHECKING:
    from pathlib import Path

    from countledger.compaction.spec import ScheduleSpec

# What takes a setting back that has no other text for "none".
NONE: Final = "none"


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
    """A settings file; other sections are not ours to judge."""

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
